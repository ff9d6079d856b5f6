"""Messages between the coordinator and the hosts of a run, and between the units on them.

A message is a value: a scheduler may hold it back, a transport may carry it to another process. The
order of the messages from one sender to one receiver is kept; there is no other order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from anabranch.io.source import Extent, Record
from anabranch.operators.base import Counters
from anabranch.operators.timed import Digest, Facts
from anabranch.planning.plan import Plan
from anabranch.state.positions import Jumbo, Mark, Root

HOME = 0
"""The host in the caller's process, beside the coordinator."""


class UnitId(NamedTuple):
    """Names a unit: one pipeline of one replica of a region, or one reader of a source."""

    region: str
    replica: int
    pipeline: int = 0


class Link(NamedTuple):
    """A connection between two units; `edge` distinguishes streams of the same units."""

    edge: int
    producer: UnitId
    consumer: UnitId


class Chunk(NamedTuple):
    """The rows of one claim, for as long as results of them are under way."""

    source: str
    number: int


Chunks = frozenset[Chunk]


# Between units


class Delivery(NamedTuple):
    """Tuples on a link, and how far the producer has come with them.

    Attributes:
        epoch: The epoch of the link.
        link: Where it goes.
        jumbo: The tuples; None where only the frontier is new.
        frontier: No tuple before it will follow on this link.
        born_s: When the oldest of the tuples was read; None without tuples.
        chunks: The claims that the tuples stem from. Without tuples, those that moved the frontier
            past tuples that have been delivered before.
    """

    epoch: int
    link: Link
    jumbo: Jumbo | None
    frontier: Root
    born_s: float | None = None
    chunks: Chunks = frozenset()


class Barrier(NamedTuple):
    """The last message of an epoch on a link."""

    epoch: int
    link: Link


class Handover(NamedTuple):
    """State that another unit owns from an epoch on.

    Attributes:
        epoch: The epoch that begins.
        giver: The unit that owned it.
        taker: The unit that owns it from now on.
        state: By step, what each of its stores has released.
        waiting: By input port, the tuples that the giver's gate could not release yet.
        since_s: When the giver had finished its epoch.
        generation: Of a sink, the generation of replicas that the giver has belonged to.
    """

    epoch: int
    giver: UnitId
    taker: UnitId
    state: Mapping[str, list[Any]]
    waiting: tuple[Jumbo | None, ...] = ()
    since_s: float = 0.0
    generation: int = 0


# Between the replicas of a clock; see `runtime/clock.py`


class Progress(NamedTuple):
    """Reports to the sequencer how far a replica has come.

    Attributes:
        frontier: No slice that begins before it will follow.
        over: Whether no slice at all will follow in this epoch.
    """

    frontier: Root
    over: bool = False


class Announcement(NamedTuple):
    """Reports to the sequencer that a slice waits to be judged.

    Attributes:
        number: Identifies the slice among those of its replica.
        begins: The position of its first tuple or mark.
        mark: The mark that it is, if it has no tuples: it counts before the tuple that it precedes.
        digest: What it does to the clock.
    """

    number: int
    begins: Root
    mark: Mark | None
    digest: Digest


class Returned(NamedTuple):
    """Gives the memory of the clock back to the sequencer, as a slice has left it."""

    memory: Facts


class EntryState(NamedTuple):
    """Lets a replica judge a slice.

    Attributes:
        number: Which of the replica's slices.
        facts: What the clock remembers before it, as far as it matters.
        whole: Whether that is the whole memory, which the sequencer waits to get back.
    """

    number: int
    facts: Facts
    whole: bool


class Passed(NamedTuple):
    """Reports to a replica how far the clock has come.

    Attributes:
        frontier: Every slice that begins before it has got its entry state.
        ready: No tuple on time that is judged later is before it.
        over: Whether no further slice can be judged in this epoch.
    """

    frontier: Root
    ready: Root
    over: bool


class ClockMessage(NamedTuple):
    """A message from one replica of a clock to another."""

    epoch: int
    link: Link
    content: Progress | Announcement | Returned | EntryState | Passed


# From the coordinator to hosts


class Begin(NamedTuple):
    """Announces an epoch: readers end the one before at once, other units with its barriers.

    Attributes:
        epoch: Its number.
        plan: Its plan.
        workers: How many worker hosts there are.
        save: Whether units save their state when they are done with the epoch before.
        before: The plan and the number of workers of the epoch before; None for the first one. A
            host that has just been started knows of no other epoch.
    """

    epoch: int
    plan: Plan
    workers: int
    save: bool = False
    before: tuple[Plan, int] | None = None


class Claim(NamedTuple):
    """Rows of one part that a reader shall read, from `start` to before `stop`.

    Attributes:
        epoch: The epoch in which they are read.
        reader: Who reads them.
        number: Identifies the claim.
        part: The part.
        start: The first row.
        stop: The row after the last.
        first: The sequence number of the first row.
        lane: Of an interleaved source, the number of the part.
        passed: Where there are no rows to read, a notice to clocks about the part; see `Mark`.
        free: No row that the reader gets later, except the rest of this claim, is before it.
        due_s: When the first row was due; None where the source has no pace.
        record: The arrival times of the rows, where the source stamps them.
    """

    epoch: int
    reader: UnitId
    number: int
    part: str
    start: int
    stop: int
    first: int
    free: Root
    due_s: float | None = None
    record: Record | None = None
    lane: int = 0
    passed: int | None = None


class Promise(NamedTuple):
    """Reports to a reader without claims that it gets no row before a root any more."""

    epoch: int
    reader: UnitId
    free: Root


class Survey(NamedTuple):
    """Asks a reader for the extent of some parts, and whether there are further parts."""

    epoch: int
    reader: UnitId
    parts: tuple[str, ...]
    look: bool = False


# From hosts to the coordinator


class Finished(NamedTuple):
    """Reports that a reader has finished a claim.

    Attributes:
        reader: Who.
        number: Which claim.
        rows: How many rows there were.
        part_over: Whether the part has no further rows.
        waited_ms: How long the rows had waited at their origin; None where nobody can say.
        heartbeats: Those that came without rows: the row of the part before which each stands, and
            the time.
    """

    reader: UnitId
    number: int
    rows: int
    part_over: bool
    waited_ms: float | None = None
    heartbeats: tuple[tuple[int, int], ...] = ()


class Surveyed(NamedTuple):
    """The answer to a survey: extents by part, and all parts if that was asked."""

    reader: UnitId
    extents: Mapping[str, Extent]
    parts: tuple[str, ...] | None = None


class Acks(NamedTuple):
    """Reports, by claim, how many more or fewer deliveries are under way because of it."""

    changes: Mapping[Chunk, int]


class Done(NamedTuple):
    """Reports that a unit has processed everything of an epoch.

    Attributes:
        epoch: Which.
        unit: Who.
        counters: By step, what was counted in this epoch.
        saved: What the host's state storage returned for it; None where nothing was saved.
    """

    epoch: int
    unit: UnitId
    counters: Mapping[str, Counters]
    saved: Any = None


class Entered(NamedTuple):
    """Reports that a unit works in an epoch, after `stood_s` in which it could not."""

    epoch: int
    unit: UnitId
    stood_s: float = 0.0


class SinkEnded(NamedTuple):
    """Reports that a sink has processed the end of its stream."""

    epoch: int
    unit: UnitId


Report = Finished | Surveyed | Acks | Done | Entered | SinkEnded
"""What a coordinator takes; everything else is for hosts."""

Message = Delivery | Barrier | ClockMessage | Handover | Begin | Claim | Promise | Survey | Report
