"""Where a plan's replicas run: stages of one Spark job, and tasks of a stage.

A stage is a wave of tasks behind a shuffle. A region opens a stage only where its tuples have to be
dealt out anew; where every tuple would stay in the task that made it, the region *joins* that task
and no shuffle is paid. So the plan with one replica of everything is one task per source chain.

A sink that joined readers knows only how far its own reader has come. While tuples wait at its
gates, because another engine has read them ahead, it is a stage of its own.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from anabranch.flow import Flow
from anabranch.planning.plan import Plan
from anabranch.planning.regions import (
    Region,
    RegionKind,
    needs_order,
    region_edges,
    regions,
    sources_of,
)

RANGES_A_BATCH = 2
"""Ranges of each batch that a replica of a sink gets at least: then all have something to do."""


@dataclass(frozen=True)
class Link:
    """A stream from one region into a port of another.

    Attributes:
        number: Place in the flow's list of such streams.
        producer: Region that it leaves.
        out_port: Port of the producer's last step.
        consumer: Region that it enters.
        in_port: Port of the consumer's first step.
        local: Whether it stays in the task.
    """

    number: int
    producer: str
    out_port: int
    consumer: str
    in_port: int
    local: bool


@dataclass(frozen=True)
class RegionStage:
    """Where the replicas of one region run.

    Attributes:
        region: The region.
        stage: Number of the stage, from 0.
        first_task: Task of replica 0; the others follow.
        replicas: How many tasks it runs in.
        joined: Whether it runs in its producer's tasks.
        sliced: Whether its tasks read slices of one sequence, so that the furthest of them says how
            far it has come.
        pushed: Whether it works on the partitions of a streaming DataFrame, in further tasks whose
            number is Spark's.
    """

    region: Region
    stage: int
    first_task: int
    replicas: int
    joined: bool
    sliced: bool
    pushed: bool


@dataclass(frozen=True)
class StageLayout:
    """Stations in topological order, the links between them, and how many tasks a stage has."""

    stations: dict[str, RegionStage]
    links: tuple[Link, ...]
    tasks: tuple[int, ...]

    @property
    def last_stage(self) -> int:
        """Number of the last stage."""
        return len(self.tasks) - 1

    def out_of(self, region: str) -> list[Link]:
        """Links that leave a region."""
        return [link for link in self.links if link.producer == region]

    def into(self, region: str) -> list[Link]:
        """Links that enter a region."""
        return [link for link in self.links if link.consumer == region]

    def roots(self, stage: int, task: int) -> list[tuple[RegionStage, int]]:
        """The stations that a task begins with, and the number of the replica: one, as it is."""
        return [
            (s, task - s.first_task)
            for s in self.stations.values()
            if s.stage == stage and not s.joined and 0 <= task - s.first_task < s.replicas
        ]


def layout(flow: Flow, plan: Plan, waiting: Collection[str] = ()) -> StageLayout:
    """Lay a plan out over stages and tasks.

    Args:
        flow: The application.
        plan: The plan.
        waiting: Regions at whose gates tuples wait; they join no other.

    Example:
        >>> from anabranch.apps import word_count
        >>> flow = word_count.build()
        >>> plan = Plan.sequential(flow)
        >>> layout(flow, plan).tasks
        (1,)
        >>> layout(flow, plan.with_replicas("count", 3)).tasks
        (1, 3)
    """
    found = regions(flow)
    edges, sources = region_edges(flow, found), flow.sources()
    stations: dict[str, RegionStage] = {}
    links: list[Link] = []
    tasks: list[int] = []
    for region in found:
        entering = [
            (edge.number, stations[edge.producer], edge.out_port, edge.in_port)
            for edge in edges
            if edge.consumer == region.name
        ]
        replicas = (
            plan.source(region.name).replicas
            if region.kind is RegionKind.SOURCE
            else plan.region(region.name).replicas
        )
        if region.kind is RegionKind.CLOCK:
            replicas = 1  # the sequencer would have to answer while the batch runs
        producers = [producer for _, producer, _, _ in entering]
        alone = region.name in waiting or len(producers) != 1
        joined = not alone and _stays(flow, region, replicas, producers[0])
        if joined:
            home = producers[0]
            station = replace(home, region=region, joined=True)
        else:
            stage = max((p.stage + 1 for p in producers), default=0)
            tasks += [0] * (stage + 1 - len(tasks))
            reads = region.kind is RegionKind.SOURCE
            pushed = reads and sources[region.name].pushed
            replicas = 1 if pushed else replicas
            station = RegionStage(region, stage, tasks[stage], replicas, False, reads, pushed)
            tasks[stage] += replicas
        stations[region.name] = station
        links += [
            Link(number, producer.region.name, out_port, region.name, in_port, joined)
            for number, producer, out_port, in_port in entering
        ]
    return StageLayout(stations, tuple(sorted(links, key=lambda link: link.number)), tuple(tasks))


def _stays(flow: Flow, region: Region, replicas: int, producer: RegionStage) -> bool:
    """Whether every tuple may be worked on in the task that made it."""
    if producer.pushed and region.kind is RegionKind.STATELESS:
        return True
    if not producer.pushed and producer.replicas == 1 and replicas == 1:
        return True
    if region.kind is RegionKind.STATELESS:
        return replicas == producer.replicas
    if region.kind is not RegionKind.SINK:
        return False
    # Each task reads a run of the source's rows, and what it makes of them is a run as well.
    runs = producer.sliced and not producer.pushed and replicas == producer.replicas
    return runs or not needs_order(flow, region)


def with_ranges(flow: Flow, plan: Plan) -> Plan:
    """Return the plan with ranges that divide every batch among the replicas of a sink.

    Sinks that join the tasks of their readers write slices instead; their ranges stay.

    Example:
        >>> import anabranch as ab
        >>> flow = ab.Flow("copy")
        >>> _ = flow.source("rows", ab.memory([{"x": 1}])).sink("out", ab.collect())
        >>> plan = Plan.sequential(flow).with_source("rows", batch_rows=100_000)
        >>> with_ranges(flow, plan.with_replicas("out", 2)).region("out").range_rows
        16384
    """
    wide = [name for name in flow.sinks() if plan.region(name).replicas > 1]
    stations = layout(flow, plan).stations if wide else {}
    for name in (each for each in wide if not stations[each].joined):
        [source] = sources_of(flow, flow.graph.steps[name])
        most = plan.source(source).most_rows // (RANGES_A_BATCH * plan.region(name).replicas)
        plan = plan.with_range_rows(name, 1 << max(most.bit_length() - 1, 0))
    return plan
