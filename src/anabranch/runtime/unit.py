"""A unit: one pipeline of one replica, from its gate through its kernels to its outlet.

An epoch is a finite run: every link into the unit ends with a barrier. When all have ended and what
is ready has been processed, the unit sends barriers itself, and is done with the epoch. Before it
enters the next one, buckets that the new plan gives to other units are handed over; tuples that
are not ready yet wait in the gate and move with their buckets (STRETCH §6.1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from anabranch.operators.base import Counters
from anabranch.planning.plan import RegionPlan
from anabranch.planning.regions import RegionKind
from anabranch.runtime.channel import Channel, owned_buckets
from anabranch.runtime.gate import Gate
from anabranch.runtime.layout import Layout
from anabranch.runtime.messages import (
    Barrier,
    Chunk,
    Chunks,
    ClockMessage,
    Delivery,
    Handover,
    UnitId,
)
from anabranch.runtime.outlet import Outlet
from anabranch.runtime.routing import Router
from anabranch.state.positions import Jumbo, Root, is_end


class Watch(Protocol):
    """Measures what a unit does."""

    def begin(self) -> None:
        """Note that the kernels get tuples."""

    def tap(
        self, step: str, inputs: Sequence[Jumbo | None], outputs: Sequence[Jumbo | None]
    ) -> None:
        """Note that a kernel has run, and the next one begins."""

    def read(self, jumbo: Jumbo | None) -> None:
        """Note that a reader has read once."""


class Outflow(Protocol):
    """Takes the rows of a replica of a sink on its host.

    The replicas that write side by side form a *generation*. The rows of a later one come after all
    rows of an earlier one, and within a generation the positions decide.
    """

    def enter(self, epoch: int, plan: RegionPlan) -> None:
        """Take rows of an epoch from now on."""

    def write(self, jumbo: Jumbo, born_s: float | None) -> None:
        """Take rows, in the order of the sink."""

    def reach(self, frontier: Root) -> None:
        """Note that all rows of this replica before a position have been written."""

    def end(self) -> None:
        """Make visible what is not: the stream is over."""

    def leave(self) -> int:
        """Make visible what is not, and return the number of the generation, which is over."""

    def follow(self, generation: int) -> None:
        """Belong to the generation after this one."""


class Unit:
    """One pipeline of one replica of a region.

    Args:
        unit: Its name.
        layout: The layout that it is made for.
        outflow: Where rows go; for sinks alone.
    """

    def __init__(self, unit: UnitId, layout: Layout, outflow: Outflow | None = None) -> None:
        topology = layout.topology
        self.id, self.region = unit, topology.regions[unit.region]
        self.outflow = outflow
        self._layout = layout
        self.channel = self._channel(layout)
        self._first = unit.pipeline == 0
        self._ports = topology.ports[unit.region] if self._first else 1
        # Between the pipelines of a replica the order of arrival is the order of the stream.
        self._ordered = self._first and topology.ordered[unit.region]
        self._gate = Gate(self._ports, ordered=self._ordered)
        self._preloaded: list[list[Jumbo]] = [[] for _ in range(self._ports)]
        self.epoch = -1
        self._early: dict[int, list[Delivery | Barrier | ClockMessage]] = {}
        self._open: dict[Any, int] = {}
        self._outlet: Outlet | None = None
        self.done = True
        self.ended = False

    def _channel(self, layout: Layout) -> Channel:
        topology = layout.topology
        return Channel(
            topology.flow,
            topology.contexts,
            self.region,
            layout.region_plan(self.id),
            self.id.replica,
            self.id.pipeline,
        )

    @property
    def plan(self) -> RegionPlan:
        """Return the plan of its region in this epoch."""
        return self._layout.region_plan(self.id)

    # Epochs

    def enter(self, epoch: int, layout: Layout, outlet: Outlet) -> None:
        """Begin an epoch: all that was handed over has been absorbed."""
        self.epoch, self._layout, self._outlet = epoch, layout, outlet
        in_slices = self.id.region in layout.in_slices
        self._gate = Gate(self._ports, ordered=self._ordered, in_slices=in_slices)
        self._open = {each.link: each.port for each in layout.entrances[self.id]}
        for link in self._open:
            self._gate.open(link)
        for port, jumbos in enumerate(self._preloaded):
            for jumbo in jumbos:
                self._gate.preload(port, jumbo)
        self._preloaded = [[] for _ in range(self._ports)]
        self.done = self.ended = False
        if self.outflow is not None:
            self.outflow.enter(epoch, self.plan)
        for message in self._early.pop(epoch, ()):
            self.receive(message)

    def preload(self, waiting: Sequence[Jumbo | None]) -> None:
        """Keep tuples for the gate of the next epoch."""
        for port, jumbo in enumerate(waiting):
            if jumbo is not None:
                self._preloaded[port].append(jumbo)

    def waiting(self) -> list[Jumbo | None]:
        """Return the tuples that the gate could not release; the unit has done with its epoch."""
        return self._gate.leftover()

    def abandoned(self) -> list[Chunks]:
        """Return the claims of tuples that go on waiting in the next epoch."""
        return self._gate.waiting_chunks()

    def take_counters(self) -> dict[str, Counters]:
        """Return what was counted since the last time, by step."""
        return {
            name: kernel.context.counters.take() for name, kernel in self.channel.kernels.items()
        }

    def hand_over(
        self, new: Layout, waiting: Sequence[Jumbo | None], stays: bool
    ) -> tuple[list[Handover], list[Jumbo | None]]:
        """Return what other units own from the next epoch on, and what still waits for this one."""
        old, region, name = self._layout, self.region, self.id.region
        plan = new.plan.region(name)
        mine = set(self.channel.buckets)
        keeps: list[Jumbo | None] = [None] * len(waiting)
        found: list[Handover] = []
        generation = 0
        if self.outflow is not None and regrouped(self._layout, new, name):
            generation = self.outflow.leave()
            self.outflow.follow(generation)
        shares = self._shares(new, waiting)
        for taker in new.of_region(name):
            own = taker == self.id and stays
            if own:
                keeps = shares.get(taker, keeps)
                continue
            if not concerns(old, new, self.id, taker):
                continue
            steps = set(self.channel.kernels) & set(plan.pipelines[taker.pipeline])
            moving = mine & set(owned_buckets(region, plan, taker.replica))
            state = self.channel.release(sorted(moving), steps) if moving and steps else {}
            waits = tuple(shares.get(taker, ()))
            found.append(Handover(-1, self.id, taker, state, waits, generation=generation))
        return found, keeps

    def _shares(
        self, new: Layout, waiting: Sequence[Jumbo | None]
    ) -> dict[UnitId, list[Jumbo | None]]:
        """Return, by unit of the next epoch, the waiting tuples that it gets."""
        if all(jumbo is None for jumbo in waiting):
            return {}
        takers = [unit for unit in new.of_region(self.id.region) if unit.pipeline == 0]
        if self.region.kind is RegionKind.SHARED:
            # All replicas have the same tuples; the first one gives them to those that are new.
            old = self._layout.of_region(self.id.region)
            gets = [t for t in takers if t == self.id or (self.id.replica == 0 and t not in old)]
            return {taker: list(waiting) for taker in gets}
        router = Router(self.region, new.plan.region(self.id.region))
        found: dict[UnitId, list[Jumbo | None]] = {taker: [] for taker in takers}
        for jumbo in waiting:
            for taker, share in zip(takers, router.route(jumbo, turn=0), strict=True):
                found[taker].append(share)
        return found

    def adopt(self, layout: Layout) -> bool:
        """Own what the next plan says; returns whether there are other steps than before."""
        other_steps = layout.steps(self.id) != tuple(self.channel.kernels)
        if other_steps:
            old, self.channel = self.channel, self._channel(layout)
            for step, kernel in old.kernels.items():
                if step in self.channel.kernels:
                    self.channel.kernels[step] = kernel
        self.channel.own(owned_buckets(self.region, layout.region_plan(self.id), self.id.replica))
        return other_steps

    def absorb(self, handover: Handover) -> None:
        """Take over what another unit has handed over."""
        self.channel.absorb(dict(handover.state))
        if self.outflow is not None:
            self.outflow.follow(handover.generation)
        self.preload(handover.waiting)

    # Messages

    def receive(self, message: Delivery | Barrier | ClockMessage) -> None:
        """Take a delivery or a barrier; those of a later epoch wait."""
        if message.epoch != self.epoch:
            self._early.setdefault(message.epoch, []).append(message)
        elif isinstance(message, Barrier):
            del self._open[message.link]
        elif isinstance(message, Delivery):
            self._gate.add(
                message.link,
                self._open[message.link],
                message.jumbo,
                message.frontier,
                message.born_s,
                message.chunks,
            )

    @property
    def queued(self) -> tuple[int, int]:
        """Return how many deliveries wait upstream of the unit, and how many tuples."""
        return self._gate.length()

    def has_news(self) -> bool:
        """Return whether there is something to process."""
        return not self.done and self._gate.has_news()

    def is_over(self) -> bool:
        """Return whether nothing more comes in this epoch."""
        return not self.done and not self._open

    def cuts(self) -> list[Root]:
        """Positions at which the next release may be cut."""
        return self._gate.candidates() if self._ordered else []

    def run(
        self,
        acknowledge: Callable[[Chunk, int], None],
        watch: Watch | None = None,
        upto: Root | None = None,
    ) -> None:
        """Process what is ready, or end the epoch."""
        assert self._outlet is not None
        if not self._gate.has_news():
            self._outlet.end_epoch()
            self.done = True
            return
        release = self._gate.take(upto)
        if watch is not None:
            watch.begin()
        tap = None if watch is None else watch.tap
        outputs, reached = self.channel.run(0, release.inputs, release.frontier, tap)
        chunks: Chunks = frozenset().union(*release.chunks)
        if self.outflow is None:
            # Where order counts, all that is before the frontier goes on with it.
            completing = frozenset() if self._ordered else release.completing
            self._outlet.send(outputs, reached, release.born_s, chunks - completing, completing)
        else:
            for jumbo in outputs:
                if jumbo is not None and len(jumbo):
                    self.outflow.write(jumbo, release.born_s)
            if watch is not None:
                watch.tap(self.region.name, (), ())  # writing is what the step is about
            self.outflow.reach(reached[0])
            if is_end(reached[0]) and not self.ended:
                self.ended = True
                self.outflow.end()
        for each in release.chunks:
            for chunk in each:
                acknowledge(chunk, -1)


def regrouped(old: Layout, new: Layout, region: str) -> bool:
    """Return whether other units than before, or units elsewhere, share the tuples of a region."""
    if old.plan.region(region) != new.plan.region(region):
        return True
    return any(old.units[unit] != new.units[unit] for unit in old.of_region(region))


def concerns(old: Layout, new: Layout, giver: UnitId, taker: UnitId) -> bool:
    """Return whether a unit of the old layout hands something over to a unit of the new one.

    Both sides compute it, so that a taker knows for whom to wait.
    """
    name = giver.region
    region, before, after = old.topology.regions[name], old.plan.region(name), new.plan.region(name)
    if giver == taker and old.units[giver] == new.units[taker]:
        return False
    if region.kind is RegionKind.SINK:
        return regrouped(old, new, name)  # its rows come after those of all that wrote before
    if region.kind is RegionKind.CLOCK and giver != taker:
        return taker.replica == 0  # with its memory it gets what the others could not judge
    if before == after and old.units.get(taker) == new.units[taker]:
        return False  # it was there, and keeps what it has
    steps = set(old.steps(giver)) & set(new.steps(taker))
    first = giver.pipeline == taker.pipeline == 0
    if region.kind is RegionKind.SHARED and first:
        if giver == taker:
            return True  # it takes what waits to its new host, whatever buckets it owns there
        if giver.replica == 0 and taker not in old.units:
            return True  # it needs a copy of what waits
    mine = set(owned_buckets(region, before, giver.replica))
    theirs = set(owned_buckets(region, after, taker.replica))
    if steps and mine & theirs:
        return True
    # A region without buckets has one replica with an order, which takes along what waits.
    unmapped = not region.mapped and region.kind is not RegionKind.STATELESS
    return unmapped and first
