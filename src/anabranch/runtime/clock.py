"""A clock whose replicas judge side by side, and the sequencer that hands out entry states.

One replica of a clock is a usual unit. Of several, each gets *slices*, runs of one source's rows,
and keeps each until it has the *entry state*: what the clock remembers of the slices before it. It
sends a digest of the slice to the *sequencer*, a part of replica 0, where the clock's memory is.
The sequencer takes digests in the order of the slices, and answers each with the entry state. It
gets a few numbers for each slice and no rows.

A digest cannot always show what a slice does to the memory (`operators/timed.py`). Then the entry
state is the whole memory, and the sequencer waits until the slice has been judged and the memory
has been returned.

What is on time leaves at once, with its event time as position; the gate of the next region that
needs order holds it until it is ready. The sequencer reports to all replicas what is ready, and
each of them passes that on downstream.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import NamedTuple, cast

import numpy as np

from anabranch.io.reader import PART_SHIFT, sequence_number
from anabranch.operators.timed import TimedKernel
from anabranch.runtime.layout import CLOCK, Layout
from anabranch.runtime.messages import (
    Announcement,
    Barrier,
    Chunk,
    Chunks,
    ClockMessage,
    Delivery,
    EntryState,
    Link,
    Passed,
    Progress,
    Returned,
    UnitId,
)
from anabranch.runtime.outlet import Outlet
from anabranch.runtime.unit import Unit, Watch
from anabranch.state.positions import START, Ints, Jumbo, Mark, Root, is_end, meet

SEQUENCER = 0
"""The replica that has the clock's memory."""


class Sequencer:
    """Hands out entry states in the order of the slices.

    Args:
        kernel: Has the memory of the clock.
        replicas: How many replicas there are.
    """

    def __init__(self, kernel: TimedKernel, replicas: int) -> None:
        self._kernel = kernel
        self._reached = dict.fromkeys(range(replicas), START)
        self._open = set(range(replicas))
        self._slices: list[tuple[tuple[Root, bool, Mark | None], int, int, Announcement]] = []
        self._arrivals = count()
        self._awaits_memory = False
        self._reported = (START, False)

    def take(self, replica: int, message: Progress | Announcement | Returned) -> None:
        """Take a message of a replica."""
        if isinstance(message, Progress):
            self._reached[replica] = message.frontier
            if message.over:
                self._open.discard(replica)
        elif isinstance(message, Announcement):
            place = (message.begins, message.mark is None, message.mark)
            heapq.heappush(self._slices, (place, next(self._arrivals), replica, message))
        else:
            self._kernel.resume(message.memory)
            self._awaits_memory = False

    def entry_states(self) -> Iterator[tuple[int, EntryState]]:
        """For each slice whose turn it is, its replica and its entry state."""
        while not self._awaits_memory and self._has_next():
            _, _, replica, announced = heapq.heappop(self._slices)
            facts = self._kernel.facts_for(announced.digest)
            self._awaits_memory = facts is None
            known = self._kernel.facts() if facts is None else facts
            yield replica, EntryState(announced.number, known, self._awaits_memory)

    def passed(self) -> Passed | None:
        """How far the clock has come; None where that is not new."""
        over, frontier = not self._open, meet(list(self._reached.values()))
        if self._awaits_memory or self._has_next() or (frontier, over) == self._reported:
            return None
        self._reported = (frontier, over)
        return Passed(frontier, self._kernel.frontier(frontier), over)

    def _has_next(self) -> bool:
        """Whether no slice before the first one that waits can come."""
        if not self._slices:
            return False
        return self._slices[0][3].begins < meet(list(self._reached.values()))


class Slice(NamedTuple):
    """Tuples and marks that wait to be judged.

    Attributes:
        jumbo: They.
        born_s: When the oldest was read; None where nobody says.
        chunks: For each delivery that ends with them, the claims that it stems from.
    """

    jumbo: Jumbo
    born_s: float | None
    chunks: Sequence[Chunks]


class ClockUnit(Unit):
    """A replica of a clock.

    Args:
        unit: Its name.
        layout: The layout that it is made for.
        send: Takes messages for other replicas.
    """

    def __init__(
        self, unit: UnitId, layout: Layout, send: Callable[[int, ClockMessage], None]
    ) -> None:
        super().__init__(unit, layout)
        self._send = send
        self._numbers = count()
        self._slices: dict[int, Slice] = {}
        self._sequencer: Sequencer | None = None
        self._answers: deque[EntryState | Passed] = deque()
        self._reached = [START, START]
        self._births: list[float] = []
        self._done: list[Chunks] = []
        self._no_more_slices = self._over = False

    # Epochs

    def enter(self, epoch: int, layout: Layout, outlet: Outlet) -> None:
        """Begin an epoch, with the slices that could not be judged in the one before."""
        replicas = layout.region_plan(self.id).replicas
        self._ordered = replicas == 1
        self._slices, self._reached = {}, [START, START]
        self._no_more_slices = self._over = False
        self._sequencer = None
        if replicas > 1:
            self._preloaded = [list(_runs(self._preloaded[0]))]
            if self.id.replica == SEQUENCER:
                self._sequencer = Sequencer(self._kernel, replicas)
                outlet.send(self._kernel.let_go(), self._reached, None, frozenset())
        super().enter(epoch, layout, outlet)

    def waiting(self) -> list[Jumbo | None]:
        """The tuples that the gate could not release, and those that could not be judged."""
        held = [*super().waiting(), *(each.jumbo for each in self._slices.values())]
        rest = [jumbo for jumbo in held if jumbo is not None]
        return [Jumbo.concat(rest).in_order() if rest else None]

    def abandoned(self) -> list[Chunks]:
        """The claims of tuples that go on waiting in the next epoch."""
        slices = self._slices.values()
        return super().abandoned() + [chunks for each in slices for chunks in each.chunks]

    # Messages

    def receive(self, message: Delivery | Barrier | ClockMessage) -> None:
        """Take tuples from upstream, or a message of another replica."""
        if not isinstance(message, ClockMessage) or message.epoch != self.epoch:
            super().receive(message)
        elif isinstance(message.content, EntryState | Passed):
            self._answers.append(message.content)
        else:
            assert self._sequencer is not None
            self._sequencer.take(message.link.producer.replica, message.content)
            self._hand_out(self._sequencer)

    @property
    def queued(self) -> tuple[int, int]:
        """How many deliveries and slices wait, and how many tuples."""
        pieces, rows = super().queued
        slices = [each.jumbo for each in self._slices.values()]
        return pieces + len(slices), rows + sum(map(len, slices))

    def has_news(self) -> bool:
        """Whether there is something to process."""
        if self._ordered or self.done:
            return super().has_news()
        ended = not self._open and not self._no_more_slices
        return ended or bool(self._answers) or self._gate.has_news()

    def is_over(self) -> bool:
        """Whether nothing more comes, and nothing more can be judged, in this epoch."""
        return super().is_over() and (self._ordered or self._over)

    def run(
        self,
        acknowledge: Callable[[Chunk, int], None],
        watch: Watch | None = None,
        upto: Root | None = None,
    ) -> None:
        """Judge a slice, announce what has come, or end the epoch."""
        if self._ordered or not self.has_news():
            super().run(acknowledge, watch, upto)
            return
        assert self._outlet is not None
        if watch is not None:
            watch.begin()
        if not self._answers:
            self._announce()
            if watch is not None:
                watch.tap(self.region.name, (), ())
            return
        answer = self._answers.popleft()
        if isinstance(answer, EntryState):
            self._judge(answer, self._outlet, watch)
        else:
            self._pass_on(answer, self._outlet, acknowledge)

    def _announce(self) -> None:
        """Send digests of what has come, and how far that is."""
        if self._gate.has_news():
            release = self._gate.take()
            jumbo = release.inputs[0]
            slices = [] if jumbo is None else list(_slices(jumbo))
            for each in slices:
                number = next(self._numbers)
                chunks = release.chunks if each is slices[-1] else ()
                self._slices[number] = Slice(each, release.born_s, chunks)
                mark = None if len(each) else each.marks[0]
                begins = _root(each, 0) if mark is None else mark.root
                digest = self._kernel.digest(each)
                self._notify(SEQUENCER, Announcement(number, begins, mark, digest))
        self._no_more_slices = not (self._open or self._gate.has_news())
        self._notify(SEQUENCER, Progress(self._gate.released, self._no_more_slices))

    def _judge(self, entry: EntryState, outlet: Outlet, watch: Watch | None) -> None:
        judged = self._slices.pop(entry.number)
        outputs, memory = self._kernel.judge(judged.jumbo, entry.facts)
        if entry.whole:
            self._notify(SEQUENCER, Returned(memory))
        if watch is not None:
            watch.tap(self.region.name, [judged.jumbo], outputs)
        outlet.send(outputs, self._reached, None, frozenset())
        self._births += [] if judged.born_s is None else [judged.born_s]
        self._done += judged.chunks

    def _pass_on(
        self, passed: Passed, outlet: Outlet, acknowledge: Callable[[Chunk, int], None]
    ) -> None:
        """Report downstream how far the clock has come, because of the slices judged last.

        What is on time waits downstream for that, for as long as event time stands still.
        """
        self._reached, self._over = [passed.ready, passed.frontier], passed.over
        oldest, causes = min(self._births, default=None), frozenset[Chunk]().union(*self._done)
        outlet.send([None, None], self._reached, oldest, frozenset(), completing=causes)
        for chunk in (chunk for chunks in self._done for chunk in chunks):
            acknowledge(chunk, -1)
        self._births, self._done = [], []

    def _hand_out(self, sequencer: Sequencer) -> None:
        """Send the replicas what they can be sent now."""
        for replica, entry in sequencer.entry_states():
            self._notify(replica, entry)
        passed = sequencer.passed()
        if passed is None:
            return
        if is_end(passed.frontier):
            assert self._outlet is not None
            self._outlet.send(self._kernel.close(), self._reached, None, frozenset())
        for replica in range(self.plan.replicas):
            self._notify(replica, passed)

    def _notify(
        self, replica: int, content: Progress | Announcement | Returned | EntryState | Passed
    ) -> None:
        link = Link(CLOCK, self.id, self.id._replace(replica=replica))
        self._send(self.epoch, ClockMessage(self.epoch, link, content))

    @property
    def _kernel(self) -> TimedKernel:
        return cast(TimedKernel, self.channel.kernels[self.region.name])


def _root(jumbo: Jumbo, row: int) -> Root:
    return Root(*jumbo.positions.row(row)[:4])


def _slices(run: Jumbo) -> Iterator[Jumbo]:
    """The slices of a run of rows: the rows, and each mark behind them.

    Another slice may have a mark of the same position, and the order of marks counts.
    """
    rows = len(run)
    last = _root(run, rows - 1) if rows else START
    if rows:
        inner = tuple(mark for mark in run.marks if mark.root <= last)
        yield Jumbo(run.batch, run.positions, inner)
    bare = run.slice(0, 0)
    for mark in sorted(mark for mark in run.marks if mark.root > last):
        yield Jumbo(bare.batch, bare.positions, (mark,))


def _runs(waited: Sequence[Jumbo]) -> Iterator[Jumbo]:
    """The runs of rows that all replicas together could not judge: one of each part."""
    if not waited:
        return
    together = Jumbo.concat(waited).in_order()
    numbers = together.positions.columns[0]
    marked = np.array([mark.root.time for mark in together.marks], np.int64)
    parts: Ints = np.unique(np.r_[numbers, marked] >> PART_SHIFT)
    for part in parts.tolist():
        first, last = sequence_number(part, 0), sequence_number(part + 1, 0)
        run = together.slice(*np.searchsorted(numbers, [first, last]).tolist())
        marks = tuple(mark for mark in together.marks if first <= mark.root.time < last)
        yield Jumbo(run.batch, run.positions, marks)
