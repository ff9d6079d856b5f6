"""The layout of a plan: its units, the host of each, and the links between them.

A *unit* is what runs at once: one pipeline of one replica of a region, or one reader of a source.
Everybody computes the same layout from flow, plan and number of workers, so that only plans have to
be sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from anabranch.flow import Flow
from anabranch.planning.plan import Plan, RegionPlan
from anabranch.planning.regions import (
    Edge,
    Region,
    RegionKind,
    needs_order,
    region_edges,
    regions,
)
from anabranch.runtime.messages import HOME, Link, UnitId


class Topology:
    """What follows from a flow alone: regions, streams between them, and who needs order.

    Args:
        flow: The application.
    """

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.contexts = flow.contexts()
        found = regions(flow)
        self.regions = {region.name: region for region in found}
        self.edges = region_edges(flow, found)
        self.ordered = {region.name: needs_order(flow, region) for region in found}
        self.ports = {
            region.name: len(flow.graph.steps[region.steps[0]].inputs) for region in found
        }
        sinks = flow.sinks()
        # Staged sinks may be Python objects of the caller's process.
        self.at_home = {name for name, sink in sinks.items() if sink.traits.staged}


@dataclass(frozen=True)
class Exit:
    """One way out of a unit.

    Attributes:
        edge: Number of the stream; pipelines of one replica are connected by INNER.
        out_port: Port of the unit's last step.
        region: The region that it leads to.
        links: One link to each unit that may get tuples.
    """

    edge: int
    out_port: int
    region: str
    links: tuple[Link, ...]


@dataclass(frozen=True)
class Entrance:
    """One way into a unit: a link, and the input port that it leads to."""

    link: Link
    port: int


INNER = -1
"""The edge between two pipelines of one replica."""

CLOCK = -2
"""The edge between two replicas of a clock."""

ANYWHERE = (RegionKind.STATELESS, RegionKind.CLOCK)
"""In regions of these kinds, any replica can process any tuple."""


@dataclass(frozen=True)
class Layout:
    """The units of a plan.

    Attributes:
        topology: What follows from the flow.
        plan: The plan.
        workers: How many worker hosts there are, numbered from 1; none: everything is at home.
    """

    topology: Topology
    plan: Plan
    workers: int = 0

    @cached_property
    def units(self) -> dict[UnitId, int]:
        """Return the host of each unit, upstream first."""
        found: dict[UnitId, int] = {}
        for region in self.topology.regions.values():
            for unit in self.of_region(region.name):
                found[unit] = self._host(region, unit)
        return found

    def of_region(self, name: str) -> list[UnitId]:
        """Return the units of one region or source."""
        if self.topology.regions[name].kind is RegionKind.SOURCE:
            return [UnitId(name, reader) for reader in range(self.plan.source(name).replicas)]
        plan = self.plan.region(name)
        return [
            UnitId(name, replica, pipeline)
            for replica in range(plan.replicas)
            for pipeline in range(len(plan.pipelines))
        ]

    def _host(self, region: Region, unit: UnitId) -> int:
        if not self.workers or region.name in self.topology.at_home:
            return HOME
        if region.kind is RegionKind.SOURCE:
            given, ordinal, replicas = self.plan.source(region.name).workers, unit.replica, 1
        else:
            plan = self.plan.region(region.name)
            given, replicas = plan.workers, plan.replicas
            ordinal = unit.replica * len(plan.pipelines) + unit.pipeline
        if given:
            return 1 + given[ordinal] % self.workers
        # Replicas already use the workers; pipelines of few replicas are spread over them.
        own = unit.replica if replicas >= self.workers else ordinal
        return 1 + own % self.workers

    def steps(self, unit: UnitId) -> tuple[str, ...]:
        """Return the steps that a unit runs."""
        if self.topology.regions[unit.region].kind is RegionKind.SOURCE:
            return (unit.region,)
        return self.region_plan(unit).pipelines[unit.pipeline]

    def region_plan(self, unit: UnitId) -> RegionPlan:
        """Return the plan of the region of a unit that is not a reader."""
        return self.plan.region(unit.region)

    @cached_property
    def in_slices(self) -> frozenset[str]:
        """Clocks of several replicas, and the regions that their tuples come through."""
        found = {
            region.name
            for region in self.topology.regions.values()
            if region.kind is RegionKind.CLOCK and self.plan.region(region.name).replicas > 1
        }
        for edge in reversed(self.topology.edges):
            if edge.consumer in found:
                found.add(edge.producer)
        return frozenset(found)

    @cached_property
    def exits(self) -> dict[UnitId, list[Exit]]:
        """Return the ways out of each unit."""
        found: dict[UnitId, list[Exit]] = {unit: [] for unit in self.units}
        for unit in self.units:
            following = unit._replace(pipeline=unit.pipeline + 1)
            if following in self.units:
                link = Link(INNER, unit, following)
                found[unit].append(Exit(INNER, 0, unit.region, (link,)))
        for edge in self.topology.edges:
            producers = self._last_units(edge.producer)
            consumers = [u for u in self.of_region(edge.consumer) if u.pipeline == 0]
            for producer, reached in zip(
                producers, self._reached(edge, producers, consumers), strict=True
            ):
                links = tuple(Link(edge.number, producer, consumer) for consumer in reached)
                found[producer].append(Exit(edge.number, edge.out_port, edge.consumer, links))
        return found

    @cached_property
    def entrances(self) -> dict[UnitId, list[Entrance]]:
        """Return the ways into each unit."""
        ports = {edge.number: edge.in_port for edge in self.topology.edges} | {INNER: 0}
        found: dict[UnitId, list[Entrance]] = {unit: [] for unit in self.units}
        for link in self._links():
            found[link.consumer].append(Entrance(link, ports[link.edge]))
        return found

    def _links(self) -> Iterator[Link]:
        return (link for exits in self.exits.values() for each in exits for link in each.links)

    def _last_units(self, region: str) -> list[UnitId]:
        units = self.of_region(region)
        last = max(unit.pipeline for unit in units)
        return [unit for unit in units if unit.pipeline == last]

    def _reached(
        self, edge: Edge, producers: Sequence[UnitId], consumers: Sequence[UnitId]
    ) -> list[list[UnitId]]:
        """Return, by producer, the consumers that may get its tuples.

        Any replica of a stateless region can process any tuple, and any replica of a clock can
        judge it. Where each host has both producers and consumers, tuples stay on their host.
        """
        everyone = [list(consumers) for _ in producers]
        if self.topology.regions[edge.consumer].kind not in ANYWHERE:
            return everyone
        near = [[c for c in consumers if self.units[c] == self.units[p]] for p in producers]
        if all(near) and {c for each in near for c in each} == set(consumers):
            return near
        return everyone
