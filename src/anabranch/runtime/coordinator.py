"""The coordinator of a run: gives out rows, begins epochs, and knows when all is done.

There is one protocol for changing plans and for saving: an epoch ends, and the next one begins. The
coordinator lets the readers finish their claims, announces the epoch, and collects what the units
report. Until every unit has entered it, no further one begins; of several plans that are requested
meanwhile the newest counts (STRETCH §6.1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch.flow import Flow
from anabranch.graph import Role
from anabranch.io.offsets import SourceOffsets
from anabranch.operators.base import Counters
from anabranch.planning.plan import Plan
from anabranch.runtime.dispenser import Dispenser, acknowledge
from anabranch.runtime.layout import Layout, Topology
from anabranch.runtime.messages import (
    Acks,
    Begin,
    Done,
    Entered,
    Finished,
    Message,
    SinkEnded,
    Surveyed,
    UnitId,
)

MOST_EXTRA = 64
"""Claims that a source may have under way beyond the usual while another one is silent."""


@dataclass
class Passage:
    """A change from one epoch to the next that is under way.

    Attributes:
        epoch: The epoch that begins.
        before: The plan before.
        plan: The plan of the new epoch.
        offsets: By source, where the new epoch reads on.
        saves: Whether units save their state.
        ended: Whether all sinks had come to the end of their streams in the epoch before.
        saved: By unit of the epoch before, what its host has saved.
        awaited: Units that are not done with the epoch before.
        entered: Units that have entered the new one.
        stood_s: The longest that a unit could not process what had come.
    """

    epoch: int
    before: Plan
    plan: Plan
    offsets: dict[str, SourceOffsets]
    saves: bool
    saved: dict[UnitId, Any] = field(default_factory=dict)
    awaited: set[UnitId] = field(default_factory=set)
    entered: set[UnitId] = field(default_factory=set)
    stood_s: float = 0.0
    ended: bool = False


class Coordinator:
    """Directs the hosts of one run.

    Args:
        topology: What follows from the flow.
        plan: The plan to begin with.
        workers: How many hosts there are beside the one at home.
        limit: Rows to read of each source at most.
        now_s: The time at the start.
        offsets: By source, where to read on; empty for a fresh start.
        counters: By step, what was counted before.
        epoch: The number of the first epoch.
        claim_rows: Chooses the rows of a claim, given how many it may have at most.
    """

    def __init__(
        self,
        topology: Topology,
        plan: Plan,
        workers: int,
        *,
        limit: int | None = None,
        now_s: float = 0.0,
        offsets: Mapping[str, SourceOffsets] | None = None,
        counters: Mapping[str, Counters] | None = None,
        epoch: int = 0,
        claim_rows: Callable[[int], int] = int,
    ) -> None:
        flow: Flow = topology.flow
        self._topology, self._workers = topology, workers
        self.plan = plan
        """The plan of the newest epoch."""
        self._epoch = epoch
        self._requested: Plan | None = None
        self.sources = {
            name: Dispenser(name, source, rank, limit, now_s, claim_rows)
            for rank, (name, source) in enumerate(
                (name, flow.sources()[name]) for name in flow.names(Role.SOURCE)
            )
        }
        for name, offset in (offsets or {}).items():
            self.sources[name].restore(offset)
        self.layout = Layout(topology, plan, workers)
        self.counters = {name: Counters() for name in flow.graph.steps}
        for name, counted in (counters or {}).items():
            self.counters[name].add(counted)
        self._sinks = flow.names(Role.SINK)
        self._ended: set[UnitId] = set()
        self._passage: Passage | None = Passage(epoch, plan, plan, {}, saves=False)
        self._wants_epoch = self._saves = False
        self._holding = False
        self.outbox: list[tuple[int, Message]] = []
        self._announce(Begin(epoch, plan, workers))

    # Requests

    def request(self, plan: Plan) -> None:
        """Ask for another plan from the next epoch on; replaces an earlier request."""
        self._requested = plan
        self._wants_epoch = True

    def save(self) -> None:
        """Ask for an epoch to end, and for its state to be saved."""
        self._wants_epoch = self._saves = True

    def widen(self, workers: int) -> None:
        """Use further workers from the next epoch on; they have been started."""
        self._workers = max(self._workers, workers)

    def stop(self) -> None:
        """Read no more; the streams do not end by that."""
        for source in self.sources.values():
            source.stop()

    # What others ask

    @property
    def passing(self) -> bool:
        """Return whether an epoch change is under way."""
        return self._passage is not None

    @property
    def wants_epoch(self) -> bool:
        """Return whether an epoch change is requested and has not begun."""
        return self._wants_epoch

    @property
    def ended(self) -> bool:
        """Return whether every sink has processed the end of its stream."""
        return all(self._ended.issuperset(self.layout.of_region(sink)) for sink in self._sinks)

    @property
    def held_up(self) -> bool:
        """Return whether a source could give out rows, and has too many under way."""
        return any(source.held_up for source in self.sources.values())

    # Messages

    def receive(self, message: Message, now_s: float) -> None:
        """Take a report of a host."""
        if isinstance(message, Acks):
            acknowledge(self.sources, message)
        elif isinstance(message, Finished):
            self.sources[message.reader.region].finished(message, now_s)
        elif isinstance(message, Surveyed):
            self.sources[message.reader.region].surveyed(message)
        elif isinstance(message, Done):
            self._note_done(message)
        elif isinstance(message, Entered):
            self._note_entered(message)
        elif isinstance(message, SinkEnded):
            # In later epochs the end comes again, and changes nothing.
            self._ended.add(message.unit)
        else:
            raise TypeError(f"a coordinator does not take {type(message).__name__}")

    def take_outbox(self) -> list[tuple[int, Message]]:
        """Return the messages to hosts."""
        taken, self.outbox = self.outbox, []
        return taken

    def tick(self, now_s: float) -> Passage | None:
        """Give out rows, begin an epoch that is requested; return one that all have entered."""
        if self._wants_epoch and self._passage is None:
            self._holding = True
            if all(source.at_rest for source in self.sources.values()):
                self._begin()
        if not self._holding:
            for source in self.sources.values():
                for message in source.give(now_s):
                    self._send(message.reader, message)
        return self._take_finished()

    def wake_s(self, now_s: float) -> float | None:
        """Return when `tick` has something to do without a report; None: not by itself."""
        times = [source.wake_s(now_s) for source in self.sources.values()]
        return min((time for time in times if time is not None), default=None)

    def relax(self) -> None:
        """Let sources give out more than they usually would, where everything stands still.

        Where another source only waits for rows to come, what is read meanwhile is bounded.
        """
        sources = self.sources.values()
        idle = any(source.expectant and not source.over for source in sources)
        for source in sources:
            if source.held_up:
                source.relax(MOST_EXTRA if idle else None)

    # Epochs

    def _begin(self) -> None:
        before = self.plan
        self.plan, self._requested = self._requested or before, None
        self._epoch += 1
        self._passage = Passage(
            self._epoch,
            before,
            self.plan,
            {name: source.offsets() for name, source in self.sources.items()},
            self._saves,
            ended=self.ended,
            awaited=set(self.layout.units),
        )
        known = (before, self.layout.workers)
        self.layout = Layout(self._topology, self.plan, self._workers)
        self._announce(Begin(self._epoch, self.plan, self._workers, self._saves, known))
        self._wants_epoch = self._saves = self._holding = False

    def _announce(self, begin: Begin) -> None:
        for host in range(self._workers + 1):
            self.outbox.append((host, begin))
        for name, source in self.sources.items():
            source.begin(begin.epoch, begin.plan.source(name))

    def _note_done(self, done: Done) -> None:
        for step, counted in done.counters.items():
            self.counters[step].add(counted)
        if self._passage is not None:
            self._passage.awaited.discard(done.unit)
            if done.saved is not None:
                self._passage.saved[done.unit] = done.saved

    def _note_entered(self, entered: Entered) -> None:
        if self._passage is not None:
            self._passage.entered.add(entered.unit)
            self._passage.stood_s = max(self._passage.stood_s, entered.stood_s)

    def _take_finished(self) -> Passage | None:
        passage = self._passage
        if passage is None or passage.awaited or passage.entered != set(self.layout.units):
            return None
        self._passage = None
        return passage

    def _send(self, unit: UnitId, message: Message) -> None:
        self.outbox.append((self.layout.units[unit], message))
