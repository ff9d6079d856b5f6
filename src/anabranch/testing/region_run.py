"""One region in one epoch of an interleaved run: gates, channels, queues, routes onward.

An epoch is a finite run: every link into it ends with a barrier. When the barrier has left the last
pipeline of every replica, the region is done with the epoch and its state can move on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from anabranch.engines.channel import Channel
from anabranch.engines.routing import Router
from anabranch.planning.plan import Plan, RegionPlan
from anabranch.planning.regions import Edge, Region, RegionKind
from anabranch.state.gate import Gate
from anabranch.state.positions import Jumbo, Root
from anabranch.testing.result import Tap


class Delivery(NamedTuple):
    """What a link or queue carries; a barrier when there is no frontier."""

    jumbo: Jumbo | None
    frontier: Root | None


BARRIER = Delivery(None, None)


class LinkName(NamedTuple):
    """A link: an edge in one epoch, from one replica to one replica."""

    edge: int
    epoch: int
    producer: int
    consumer: int


class Links:
    """Every link of a run, made when first used: a producer may be an epoch ahead."""

    def __init__(self, capacity: int) -> None:
        """Links that refuse to grow far beyond `capacity` (back-pressure)."""
        self.capacity = capacity
        self._queues: dict[LinkName, deque[Delivery]] = {}

    def __getitem__(self, name: LinkName) -> deque[Delivery]:
        """The queue of a link."""
        return self._queues.setdefault(name, deque())


class InterleavedOutlet:
    """Sends what one replica of a region (or reader of a source) emits into the next regions."""

    def __init__(
        self,
        edges: list[Edge],
        found: dict[str, Region],
        plan: Plan,
        epoch: int,
        replica: int,
        links: Links,
    ) -> None:
        """Routes of one epoch."""
        self._links, self._epoch, self._replica = links, epoch, replica
        self._routes = [
            (edge, Router(found[edge.consumer], plan.region(edge.consumer))) for edge in edges
        ]

    def send(self, outputs: list[Jumbo | None], reached: list[Root], rng: Random) -> None:
        """Tuples to where they belong, each port's frontier to everyone."""
        for edge, router in self._routes:
            shares = router.route(outputs[edge.out_port], rng.randrange(router.replicas))
            for consumer, share in enumerate(shares):
                self._link(edge, consumer).append(Delivery(share, reached[edge.out_port]))

    def send_barrier(self) -> None:
        """The epoch ends here."""
        for queue in self._queues():
            queue.append(BARRIER)

    def has_room(self) -> bool:
        """Whether no link is full."""
        return all(len(queue) < self._links.capacity for queue in self._queues())

    def _queues(self) -> Iterator[deque[Delivery]]:
        for edge, router in self._routes:
            for consumer in range(router.replicas):
                yield self._link(edge, consumer)

    def _link(self, edge: Edge, consumer: int) -> deque[Delivery]:
        return self._links[LinkName(edge.number, self._epoch, self._replica, consumer)]


class ReplicaRun:
    """One replica: links → gate → pipelines with queues between them → outlet."""

    def __init__(
        self,
        channel: Channel,
        gate: Gate,
        incoming: list[tuple[LinkName, int]],
        links: Links,
        outlet: InterleavedOutlet,
    ) -> None:
        """Ready to take deliveries."""
        self.channel, self.gate, self.outlet = channel, gate, outlet
        self._links = links
        self._open = dict(incoming)
        for name, _ in incoming:
            self.gate.open(name)
        self._queues: list[deque[Delivery]] = [deque() for _ in channel.pipelines]
        self._barrier_queued = False
        self.done = False
        self.emitted: list[Jumbo] = []

    def intakes(self) -> list[LinkName]:
        """Links with something to take."""
        return [name for name in self._open if self._links[name]]

    def take(self, name: LinkName) -> None:
        """Take one delivery from a link."""
        jumbo, frontier = self._links[name].popleft()
        if frontier is None:
            del self._open[name]
        else:
            self.gate.add(name, self._open[name], jumbo, frontier)

    def workable(self) -> list[int]:
        """Pipelines that could run now."""
        last = len(self._queues) - 1
        room = [
            len(self._queues[p + 1]) < self._links.capacity if p < last else self.outlet.has_room()
            for p in range(last + 1)
        ]
        first = self.gate.has_news() or (not self._open and not self._barrier_queued)
        waiting = [first] + [bool(queue) for queue in self._queues[1:]]
        return [p for p in range(last + 1) if waiting[p] and room[p]]

    def work(self, pipeline: int, rng: Random, tap: Tap | None) -> None:
        """Run one pipeline on one delivery."""
        if pipeline > 0:
            delivery = self._queues[pipeline].popleft()
            if delivery.frontier is None:
                self._pass_barrier(pipeline)
            else:
                self._run(pipeline, [delivery.jumbo], delivery.frontier, rng, tap)
        elif self.gate.has_news():
            cuts = self.gate.candidates()
            upto = rng.choice(cuts) if cuts and rng.random() < 0.5 else None
            inputs, frontier = self.gate.ready(upto)
            self._run(0, inputs, frontier, rng, tap)
        else:
            self._barrier_queued = True
            self._pass_barrier(0)

    def _run(
        self,
        pipeline: int,
        inputs: list[Jumbo | None],
        frontier: Root,
        rng: Random,
        tap: Tap | None,
    ) -> None:
        outputs, reached = self.channel.run(pipeline, inputs, frontier, tap)
        if pipeline + 1 < len(self._queues):
            self._queues[pipeline + 1].append(Delivery(outputs[0], reached[0]))
        elif self.channel.region.kind is RegionKind.SINK:
            self.emitted += [j for j in outputs if j is not None and len(j)]
        else:
            self.outlet.send(outputs, reached, rng)

    def _pass_barrier(self, pipeline: int) -> None:
        if pipeline + 1 < len(self._queues):
            self._queues[pipeline + 1].append(BARRIER)
        else:
            self.outlet.send_barrier()
            self.done = True


@dataclass
class InterleavedRegion:
    """All replicas of a region in one epoch."""

    region: Region
    plan: RegionPlan
    epoch: int
    replicas: list[ReplicaRun]

    @property
    def done(self) -> bool:
        """Whether the barrier has passed every replica."""
        return all(r.done for r in self.replicas)

    def leftover(self) -> list[Jumbo | None]:
        """What the gates could not release, per port; shared replicas all hold the same."""
        givers = self.replicas[:1] if self.region.kind is RegionKind.SHARED else self.replicas
        per_replica = [r.gate.leftover() for r in givers]
        merged: list[Jumbo | None] = []
        for port in range(len(per_replica[0])):
            parts = [rest[port] for rest in per_replica]
            present = [p for p in parts if p is not None]
            merged.append(Jumbo.concat(present) if present else None)
        return merged

    def preload(self, leftover: list[Jumbo | None]) -> None:
        """Deal out what an earlier epoch left, under this epoch's bucket map."""
        for port, jumbo in enumerate(leftover):
            shares = Router(self.region, self.plan).route(jumbo, turn=0)
            for replica, share in zip(self.replicas, shares, strict=True):
                if share is not None:
                    replica.gate.preload(port, share)
