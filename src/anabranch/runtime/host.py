"""A host: the units of one process, and what they need of it.

The host routes messages to its units, runs one unit at a time, and takes units from one epoch to
the next. It starts nothing and waits for nothing: whoever drives it brings messages, lets it run,
and carries away what is in its outbox.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from anabranch.graph import Role
from anabranch.io.source import Source
from anabranch.planning.regions import RegionKind
from anabranch.runtime.bucket_loads import BucketLoads
from anabranch.runtime.clock import ClockUnit
from anabranch.runtime.layout import Layout, Topology
from anabranch.runtime.messages import (
    HOME,
    Acks,
    Barrier,
    Begin,
    Chunk,
    Claim,
    ClockMessage,
    Delivery,
    Done,
    Entered,
    Handover,
    Message,
    Promise,
    SinkEnded,
    Survey,
    UnitId,
)
from anabranch.runtime.outlet import Outlet
from anabranch.runtime.source_unit import SourceUnit
from anabranch.runtime.unit import Outflow, Unit, Watch, concerns
from anabranch.state.positions import Jumbo, Root


class Site(Protocol):
    """Provides what a host needs of the process that it is in.

    An implementer must provide a clock, outflows of sinks, and, where epochs are saved, storage:
    what `save` returns goes to the coordinator, and after a restart `restore` brings back exactly
    what the units of the region had saved, for the buckets and steps of the unit's channel, and the
    unit's share of what waited at their gates.
    """

    def now_s(self) -> float:
        """Return seconds on a clock that never goes back."""

    def outflow(self, unit: UnitId) -> Outflow:
        """Return where the rows of a sink go."""

    def save(self, epoch: int, unit: Unit, waiting: Sequence[Jumbo | None]) -> Any:
        """Save the state of a unit that is done with an epoch."""

    def restore(self, unit: Unit, first: bool) -> Sequence[Jumbo | None]:
        """Prepare the state of a new unit; returns what waits at its gate.

        Only in the first epoch is there anything to bring back: later, other units hand it over.
        """

    def watch(self, unit: UnitId, steps: tuple[str, ...]) -> Watch | None:
        """Return what measures a unit; None where nobody does."""


class Host:
    """The units of one process.

    Args:
        number: The number of this host.
        topology: What follows from the flow.
        site: What the process provides.
        turn: Chooses among so many replicas that could all process some tuples.
    """

    def __init__(
        self,
        number: int,
        topology: Topology,
        site: Site,
        turn: Callable[[int], int] | None = None,
    ) -> None:
        self.number, self._topology, self._site = number, topology, site
        self._turn = turn or _Turns()
        self._layouts: dict[int, Layout] = {}
        self._begins: dict[int, Begin] = {}
        self.units: dict[UnitId, Unit] = {}
        self.readers: dict[UnitId, SourceUnit] = {}
        self._newest = -1
        self._sources: dict[UnitId, Source] = {}
        self._unannounced: list[Message] = []
        self._handovers: dict[tuple[int, UnitId], list[Handover]] = defaultdict(list)
        self._entering: dict[UnitId, tuple[int, set[UnitId]]] = {}
        self._since: dict[UnitId, float] = {}
        self._ended: set[tuple[int, UnitId]] = set()
        self._acks: dict[Chunk, int] = defaultdict(int)
        self.outbox: list[tuple[int, Message]] = []
        self.loads = {
            region.name: BucketLoads(region.buckets, region.key)
            for region in topology.regions.values()
            if region.kind is RegionKind.PARTITIONED
        }
        self._ranks = {n: rank for rank, n in enumerate(topology.flow.names(Role.SOURCE))}
        self._order = {name: place for place, name in enumerate(topology.regions)}

    # Messages

    def receive(self, message: Message) -> None:
        """Take a message for this host or one of its units."""
        if isinstance(message, Begin):
            self._begin(message)
            early, self._unannounced = self._unannounced, []
            for each in early:
                self.receive(each)
        elif isinstance(message, Delivery | Barrier | ClockMessage):
            unit = self.units.get(message.link.consumer)
            if unit is None or message.epoch > self._newest:
                self._unannounced.append(message)
            else:
                unit.receive(message)
        elif isinstance(message, Handover):
            self._handovers[message.epoch, message.taker].append(message)
            if message.epoch <= self._newest:
                self._try_to_enter(message.taker)
        elif isinstance(message, Claim | Promise | Survey):
            self.readers[message.reader].receive(message)
        else:
            raise TypeError(f"a host does not take {type(message).__name__}")

    def acknowledge(self, chunk: Chunk, change: int) -> None:
        """Note that more or fewer deliveries of a claim are under way."""
        self._acks[chunk] += change

    def take_outbox(self) -> list[tuple[int, Message]]:
        """Return the messages to other hosts, and to the coordinator as host HOME."""
        if self._acks:
            changes = {chunk: change for chunk, change in self._acks.items() if change}
            self._acks.clear()
            if changes:
                self._report(Acks(changes))
        taken, self.outbox = self.outbox, []
        return taken

    def _report(self, message: Message) -> None:
        self.outbox.append((HOME, message))

    def _send(self, epoch: int, message: Delivery | Barrier | ClockMessage | Handover) -> None:
        target = message.taker if isinstance(message, Handover) else message.link.consumer
        host = self._layouts[epoch].units[target]
        if host == self.number:
            self.receive(message)
        else:
            self.outbox.append((host, message))

    # Running

    def runnable(self) -> list[UnitId]:
        """Return the units that have something to do, downstream first."""
        units = [
            name
            for name, unit in self.units.items()
            if unit.has_news() or (unit.is_over() and unit.epoch < self._newest)
        ]
        units.sort(key=lambda n: (-self._order[n.region], -n.pipeline, n.replica))
        return units + [name for name, reader in self.readers.items() if reader.runnable()]

    def run(self, name: UnitId, upto: Root | None = None) -> None:
        """Let one unit do one thing."""
        if (reader := self.readers.get(name)) is not None:
            watch = self._site.watch(name, (name.region,))
            reader.run(self.acknowledge, self._site.now_s, watch)
            return
        unit = self.units[name]
        unit.run(self.acknowledge, self._site.watch(name, tuple(unit.channel.kernels)), upto)
        if unit.ended and (unit.epoch, name) not in self._ended:
            self._ended.add((unit.epoch, name))
            self._report(SinkEnded(unit.epoch, name))
        if unit.done:
            self._finish(unit)

    def places(self) -> set[str]:
        """Return the sockets that the newest plan names for the units of this host."""
        layout = self._layouts[self._newest]
        mine = [u for u, host in layout.units.items() if host == self.number]
        plans = [(u, layout.region_plan(u)) for u in mine if u.region not in self._ranks]
        return {plan.placement[unit.replica] for unit, plan in plans if plan.placement}

    def holds_back(self) -> bool:
        """Return whether tuples wait until a slower source gives as many.

        Tuples in the order of event time wait for time: that is their result for now.
        """
        contexts = self._topology.contexts
        return any(
            unit.queued[1] > 0
            for unit in self.units.values()
            if all(given.time is None for given in contexts[unit.region.steps[0]].inputs)
        )

    # Epochs

    def _begin(self, begin: Begin) -> None:
        """Announce an epoch: readers change at once, new units wait for their state."""
        epoch = begin.epoch
        layout = self._layouts[epoch] = Layout(self._topology, begin.plan, begin.workers)
        self._begins[epoch] = begin
        if begin.before is not None and epoch - 1 not in self._layouts:
            self._layouts[epoch - 1] = Layout(self._topology, *begin.before)
        first = begin.before is None
        self._newest = epoch
        for reader in self.readers.values():
            reader.end_epoch()
            self._report(Done(reader.epoch, reader.id, {}))
        mine = [unit for unit, host in layout.units.items() if host == self.number]
        self.readers = {
            unit: SourceUnit(
                unit,
                epoch,
                self._source_of(unit),
                self._ranks[unit.region],
                self._outlet(epoch, unit),
                self._report,
            )
            for unit in mine
            if unit.region in self._ranks
        }
        for unit in mine:
            if unit in self.readers:
                self._report(Entered(epoch, unit))
            elif unit not in self.units:
                made = self.units[unit] = self._unit(unit, layout)
                made.preload(self._site.restore(made, first))
                self._await(unit, epoch)
        for unit in list(self.units):
            if self.units[unit].done:
                self._try_to_enter(unit)
        self._forget(epoch - 1)

    def _source_of(self, unit: UnitId) -> Source:
        """Return the source of a reader: a copy of its own, whose open files outlive an epoch."""
        if unit not in self._sources:
            self._sources[unit] = copy.copy(self._topology.flow.sources()[unit.region])
        return self._sources[unit]

    def _unit(self, unit: UnitId, layout: Layout) -> Unit:
        region = self._topology.regions[unit.region]
        if region.kind is RegionKind.CLOCK:
            return ClockUnit(unit, layout, self._send)
        sink = region.kind is RegionKind.SINK
        return Unit(unit, layout, self._site.outflow(unit) if sink else None)

    def _finish(self, unit: Unit) -> None:
        """Save a unit that is done with its epoch, hand over, let it enter the next or leave."""
        epoch, name = unit.epoch + 1, unit.id
        begin, layout = self._begins[epoch], self._layouts[epoch]
        stays = layout.units.get(name) == self.number
        for chunks in unit.abandoned():
            for chunk in chunks:
                self.acknowledge(chunk, -1)
        waiting = unit.waiting()
        saved = self._site.save(unit.epoch, unit, waiting) if begin.save else None
        handovers, keeps = unit.hand_over(layout, waiting, stays)
        self._since[name] = self._site.now_s()
        self._report(Done(unit.epoch, name, unit.take_counters(), saved))
        for handover in handovers:
            self._send(epoch, handover._replace(epoch=epoch, since_s=self._since[name]))
        if not stays:
            del self.units[name], self._since[name]
            self._forget(epoch - 1)
            return
        if unit.adopt(layout):
            self._site.restore(unit, False)
        unit.preload(keeps)
        self._await(name, epoch)
        self._try_to_enter(name)

    def _await(self, name: UnitId, epoch: int) -> None:
        """Note from whom a unit gets state before it enters an epoch."""
        givers: set[UnitId] = set()
        old, new = self._layouts.get(epoch - 1), self._layouts[epoch]
        if old is not None:
            givers = {g for g in old.of_region(name.region) if concerns(old, new, g, name)}
        self._entering[name] = (epoch, givers)

    def _try_to_enter(self, name: UnitId) -> None:
        epoch, givers = self._entering.get(name, (-1, set()))
        if epoch < 0:
            return
        come = self._handovers.get((epoch, name), [])
        if {handover.giver for handover in come} != givers:
            return
        unit = self.units[name]
        for handover in self._handovers.pop((epoch, name), []):
            unit.absorb(handover)
        del self._entering[name]
        unit.enter(epoch, self._layouts[epoch], self._outlet(epoch, name))
        since = [handover.since_s for handover in come]
        since += [self._since.pop(name)] if name in self._since else []
        stood_s = self._site.now_s() - min(since) if since and (givers or come) else 0.0
        self._report(Entered(epoch, name, stood_s))
        self._forget(epoch - 1)

    def _forget(self, epoch: int) -> None:
        """Drop what is known of an epoch that no unit of this host is in any more."""
        if all(unit.epoch > epoch for unit in self.units.values()):
            for old in [e for e in self._layouts if e < epoch]:
                del self._layouts[old]
                self._begins.pop(old, None)

    def _outlet(self, epoch: int, unit: UnitId) -> Outlet:
        return Outlet(
            epoch,
            self._layouts[epoch],
            unit,
            self.loads,
            lambda message: self._send(epoch, message),
            self.acknowledge,
            self._turn,
        )


class _Turns:
    """Gives every replica its turn."""

    def __init__(self) -> None:
        self._turn = 0

    def __call__(self, count: int) -> int:
        self._turn += 1
        return self._turn % count
