"""Where a plan's replicas run: stages of one Spark job, and tasks of a stage.

A stage is a wave of tasks behind a shuffle. A region opens a stage only where its tuples have to be
dealt out anew; where every tuple would stay in the task that made it, the region *joins* that task
and no shuffle is paid. So the plan with one replica of everything is one task.

Tuples stay where they are made
- if their region has one replica, and so have those that they come from: these share a task;
- if the region keeps no state, and has as many replicas as its producer; a region that only
  combines before a deal does so wherever the tuples are;
- if their region is a clock with several replicas, and each task reads a slice of its source;
- if the region is partitioned by the key by which they were dealt out already, into as many
  replicas with the same buckets. A region without state, whose tuples have to be dealt out in any
  case, is dealt out by the key of the region downstream, if it carries that key unchanged;
- if their sink need not restore order, or each task writes a run of the rows of one source.

A region that several streams enter joins the latest of its producers; streams that come from
earlier stages are dealt out to it there. Producers of one stage and width share tasks where that
lets a region join them: then their work is done in turn, but none of their tuples passes a shuffle.

Each task costs something to launch. So a stage has no more of them than Spark runs at once, unless
one region has more replicas; further regions share tasks, whose replicas work in turn.

A clock judges slices in the tasks of their readers before it is known what the slices before them
show; `clocks.py` checks the verdicts. Otherwise it has one task, as it has in a batch whose clocks
are *serial*.

A replica of a sink that joined readers knows only how far its own reader has come. While tuples
wait at the gates of several, because another engine has read them ahead, they are a stage of their
own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import inf

from anabranch.flow import Flow
from anabranch.planning.plan import Plan
from anabranch.planning.regions import (
    Edge,
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
        group: Number of the regions that hand on tuples within their tasks; others share tasks only
            because there are no more of them.
        joined: Whether it gets everything from regions in the same tasks.
        sliced: Whether its tasks read slices of one sequence, so that the furthest of them says how
            far it has come.
        pushed: Whether it works on the partitions of a streaming DataFrame, in further tasks whose
            number is Spark's.
        dealt_for: The region by whose key and buckets its tuples are dealt out.
    """

    region: Region
    stage: int
    first_task: int
    replicas: int
    group: int
    joined: bool
    sliced: bool
    pushed: bool
    dealt_for: str

    @property
    def judges_slices(self) -> bool:
        """Return whether it is a clock whose tasks each judge what they have read."""
        return self.region.kind is RegionKind.CLOCK and self.replicas > 1


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

    def clocks_in_slices(self) -> list[RegionStage]:
        """The clocks whose tasks each judge what they have read."""
        return [station for station in self.stations.values() if station.judges_slices]

    def dealt_for(self, link: Link) -> Region:
        """The region by whose key and buckets the tuples of a link are dealt out."""
        return self.stations[self.stations[link.consumer].dealt_for].region

    def hosted(self, stage: int, task: int) -> list[tuple[RegionStage, int]]:
        """The stations of a task, in the order of the stream, and the number of the replica."""
        return [
            (s, task - s.first_task)
            for s in self.stations.values()
            if s.stage == stage and 0 <= task - s.first_task < s.replicas
        ]

    def grouped_with(self, region: str) -> list[RegionStage]:
        """The stations of a region's group, in the order of the stream."""
        own = self.stations[region]
        return [s for s in self.stations.values() if s.group == own.group]


def layout(
    flow: Flow,
    plan: Plan,
    waiting: Collection[str] = (),
    slots: int | None = None,
    *,
    serial_clocks: bool = False,
) -> StageLayout:
    """Lay a plan out over stages and tasks.

    Args:
        flow: The application.
        plan: The plan.
        waiting: Regions at whose gates tuples wait; with several replicas, they join no other.
        slots: Tasks that Spark runs at once; None for any number.
        serial_clocks: Whether each clock has one task, whatever the plan says.

    Example:
        >>> from anabranch.apps import word_count
        >>> flow = word_count.build()
        >>> plan = Plan.sequential(flow)
        >>> layout(flow, plan).tasks
        (1,)
        >>> layout(flow, plan.with_replicas("count", 3)).tasks
        (1, 3)
    """
    found = _Layout(flow, plan, waiting, serial_clocks)
    for region in regions(flow):
        found.place(region)
    return found.numbered(slots)


@dataclass(eq=False)
class _Tasks:
    """As many tasks of a stage as each of their regions has replicas."""

    stage: int
    width: int
    pushed: bool = False


@dataclass(eq=False)
class _Placed:
    """A region, its tasks, and the region by whose key its tuples are dealt out."""

    region: Region
    tasks: _Tasks
    joined: bool
    dealt_for: Region

    @property
    def anyhow(self) -> bool:
        """Return whether any of its replicas may get any of its tuples."""
        return self.dealt_for.kind is RegionKind.STATELESS


class _Layout:
    """Places one region after another, upstream first."""

    def __init__(
        self, flow: Flow, plan: Plan, waiting: Collection[str], serial_clocks: bool
    ) -> None:
        self._flow, self._plan, self._waiting = flow, plan, waiting
        self._serial_clocks = serial_clocks
        self._edges = region_edges(flow, regions(flow))
        self._placed: dict[str, _Placed] = {}

    def place(self, region: Region) -> None:
        """Let a region join the tasks of its producers, or open tasks in a later stage."""
        entering = self._into(region)
        tasks = self._tasks_to_join(region, entering)
        if tasks is None:
            tasks = self._new_tasks(region, entering)
        joined = bool(entering) and all(self._maker(edge).tasks is tasks for edge in entering)
        self._placed[region.name] = _Placed(region, tasks, joined, region)

    def numbered(self, slots: int | None) -> StageLayout:
        """Number the tasks of each stage; those that are too many for the slots share numbers."""
        placed = self._placed.values()
        groups = list(dict.fromkeys(each.tasks for each in placed))
        first: dict[_Tasks, int] = {}
        widths: list[int] = []
        for stage in range(1 + max(group.stage for group in groups)):
            here = [group for group in groups if group.stage == stage]
            first |= _first_tasks(here, slots)
            widths.append(max(first[group] + group.width for group in here))
        stations = {
            each.region.name: RegionStage(
                each.region,
                each.tasks.stage,
                first[each.tasks],
                each.tasks.width,
                groups.index(each.tasks),
                each.joined,
                each.tasks.stage == 0,
                each.tasks.pushed,
                each.dealt_for.name,
            )
            for each in placed
        }
        links = (self._link(edge) for edge in self._edges)
        return StageLayout(stations, tuple(links), tuple(widths))

    def _link(self, edge: Edge) -> Link:
        local = self._maker(edge).tasks is self._placed[edge.consumer].tasks
        ends = edge.producer, edge.out_port, edge.consumer, edge.in_port
        return Link(edge.number, *ends, local)

    def _into(self, region: Region) -> list[Edge]:
        return [edge for edge in self._edges if edge.consumer == region.name]

    def _maker(self, edge: Edge) -> _Placed:
        return self._placed[edge.producer]

    def _new_tasks(self, region: Region, entering: Sequence[Edge]) -> _Tasks:
        if region.kind is RegionKind.SOURCE:
            pushed = self._flow.sources()[region.name].pushed
            return _Tasks(0, 1 if pushed else self._plan.source(region.name).replicas, pushed)
        stage = max(self._maker(edge).tasks.stage for edge in entering) + 1
        return _Tasks(stage, self._replicas(region))

    def _replicas(self, region: Region) -> int:
        """Return how many replicas get tuples, if these are dealt out."""
        if region.kind is RegionKind.CLOCK:
            return 1
        return self._plan.region(region.name).replicas

    def _tasks_to_join(self, region: Region, entering: Sequence[Edge]) -> _Tasks | None:
        """The tasks of the latest producers, which share them from now on; None if it cannot be."""
        if not entering or (region.name in self._waiting and self._replicas(region) > 1):
            return None
        last = max(self._maker(edge).tasks.stage for edge in entering)
        late = [edge for edge in entering if self._maker(edge).tasks.stage == last]
        first, *others = dict.fromkeys(self._maker(edge).tasks for edge in late)
        if not all(_may_share(first, other) for other in others):
            return None
        if not all(self._stays(region, edge) for edge in late):
            return None
        if region.kind is RegionKind.PARTITIONED:
            for dealt in (each for edge in late for each in self._dealt(edge, region.key) or ()):
                dealt.dealt_for = region if dealt.anyhow else dealt.dealt_for
        for each in self._placed.values():
            each.tasks = first if each.tasks in others else each.tasks
        return first

    def _stays(self, region: Region, edge: Edge) -> bool:
        """Return whether every tuple of a stream may be worked on in the task that made it."""
        tasks, replicas = self._maker(edge).tasks, self._replicas(region)
        if region.kind is RegionKind.STATELESS:
            return tasks.pushed or tasks.width == replicas or self._only_combines(region)
        if region.kind is RegionKind.SINK and not needs_order(self._flow, region):
            return True
        if region.kind is RegionKind.CLOCK and self._judges_slices(region, tasks):
            return True
        if tasks.pushed or tasks.width != replicas:
            return False
        if replicas == 1:
            return True
        if region.kind is RegionKind.SINK:
            # Each task reads a run of the source's rows, and what it makes of them is a run, too.
            return tasks.stage == 0
        return region.kind is RegionKind.PARTITIONED and self._is_dealt_for(region, edge)

    def _judges_slices(self, clock: Region, tasks: _Tasks) -> bool:
        """Return whether tasks have slices that a clock may judge without the other slices.

        How far an interleaved source has come depends on all of its parts.
        """
        wide = self._plan.region(clock.name).replicas > 1 and clock.name not in self._waiting
        if self._serial_clocks or not wide:
            return False
        [source] = sources_of(self._flow, self._flow.graph.steps[clock.name])
        interleaved = self._flow.sources()[source].interleaved
        return tasks.stage == 0 and tasks.width > 1 and not interleaved

    def _only_combines(self, region: Region) -> bool:
        return all(self._flow.graph.steps[step].body.before_shuffle for step in region.steps)

    def _is_dealt_for(self, region: Region, edge: Edge) -> bool:
        """Return whether tuples of a stream are, or may be, dealt out as a keyed region asks."""
        dealt = self._dealt(edge, region.key)
        if dealt is None:
            return False
        owners = self._plan.region(region.name).bucket_map
        return all(
            each.anyhow
            or (
                each.dealt_for.key == region.key
                and self._plan.region(each.dealt_for.name).bucket_map == owners
            )
            for each in dealt
        )

    def _dealt(self, edge: Edge, key: tuple[str, ...]) -> list[_Placed] | None:
        """The regions whose deals brought the tuples of a stream to their tasks.

        None if a key is not carried unchanged from there.
        """
        maker = self._maker(edge)
        kept = edge.out_port == 0 and self._carries(maker.region, key)
        if not kept or maker.region.kind not in (RegionKind.PARTITIONED, RegionKind.STATELESS):
            return None
        entering = self._into(maker.region)
        stayed = [each for each in entering if self._maker(each).tasks is maker.tasks]
        if not stayed or maker.region.kind is RegionKind.PARTITIONED:
            return [maker]
        if len(stayed) < len(entering):
            return None
        found: list[_Placed] = []
        for each in stayed:
            more = self._dealt(each, key)
            if more is None:
                return None
            found += more
        return found

    def _carries(self, region: Region, key: tuple[str, ...]) -> bool:
        """Return whether a key passes unchanged from all inputs of a region to its first output."""
        if region.kind is RegionKind.SOURCE:
            return False
        types = self._flow.resolve().types
        for name in region.steps:
            step = self._flow.graph.steps[name]
            inputs = [types[given].schema for given in step.inputs if given is not None]
            if not all(set(key) <= set(schema.names) for schema in inputs):
                return False
            if not set(key) <= step.body.keeps(inputs[0]):
                return False
        return True


def _first_tasks(groups: Sequence[_Tasks], slots: int | None) -> dict[_Tasks, int]:
    """Return the first task of each group: one after another, as far as slots go, and again."""
    last = max(slots or inf, *(group.width for group in groups))
    first: dict[_Tasks, int] = {}
    following = 0
    for group in groups:
        first[group] = following if following + group.width <= last else 0
        following = first[group] + group.width
    return first


def _may_share(tasks: _Tasks, other: _Tasks) -> bool:
    """Return whether the work of two groups of tasks may be done by one.

    Readers of several sources say how far each has come only where one task has read them whole.
    """
    whole = tasks.stage > 0 or (tasks.width == 1 and not tasks.pushed and not other.pushed)
    return tasks.width == other.width and whole


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
        # Rows of several sources have the same numbers: a batch has those that all have passed.
        every = sources_of(flow, flow.graph.steps[name])
        rows = min(plan.source(source).most_rows for source in every)
        most = rows // (RANGES_A_BATCH * plan.region(name).replicas)
        plan = plan.with_range_rows(name, 1 << max(most.bit_length() - 1, 0))
    return plan
