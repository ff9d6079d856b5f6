"""What plans of a flow promise on Spark, for those who plan while it runs.

There is no structure to exploit as on threads: stages follow each other, and what is dealt out
anew is a stage of its own. So plans are improved one setting at a time, as the model of a batch
(`planning/models/spark.py`) says, until none helps. The batch is a lever like the others: a longer
one pays its fixed cost less often, and makes everybody wait longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import ceil

from anabranch.engines.spark.layout import RegionStage, StageLayout, layout, with_ranges
from anabranch.engines.spark.task_inputs import RUN_ROWS, SCAN_ROWS
from anabranch.flow import Flow
from anabranch.planning.models.model import Bounds
from anabranch.planning.models.spark import Slots, SparkCosts, Task, TaskPhase, batch_s
from anabranch.planning.plan import Plan
from anabranch.planning.profile import NANOSECONDS, Profile
from anabranch.planning.regions import Region, RegionKind, regions, sources_of
from anabranch.runtime.ranges import Ranges

USUAL = SparkCosts(
    batch_s=0.15,
    stage_s=0.03,
    task_s=0.02,
    shuffle_row_ns=145.0,
    shuffle_byte_ns=5.9,
    sink_byte_ns=20.0,
)
"""What Spark took on the machine that it was measured on; `anabranch calibrate` measures others."""

LONGEST_BATCH_S = 2.0
"""Results of a batch are seen when it is over, so it must not grow without end."""
BATCH_ROWS = tuple(2**n for n in range(14, 23))
WORTH = 0.02
"""A setting that promises less than this part more is not worth a longer batch or a thread."""
MOST_ROUNDS = 8
ENDLESS = Bounds(1_000_000, 1_000_000)
WAVES = 2
"""More tasks than slots may balance uneven ones."""


class SparkModel:
    """What plans promise on Spark; see `Model`.

    Args:
        flow: The application.
        slots: Tasks at once, and cores for them.
        costs: What Spark takes.
    """

    def __init__(self, flow: Flow, slots: Slots, costs: SparkCosts = USUAL) -> None:
        self._flow, self._slots, self._costs = flow, slots, costs
        self._regions = regions(flow)

    def rate_per_s(self, profile: Profile, plan: Plan) -> float:
        """Rows of a batch by its seconds."""
        rows = sum(source.batch_rows for source in plan.sources)
        return rows / self.batch_s(profile, plan)

    def batch_s(self, profile: Profile, plan: Plan) -> float:
        """Seconds of a full batch."""
        rows = sum(source.batch_rows for source in plan.sources)
        return predicted_batch_s(self._flow, plan, profile, self._costs, self._slots, rows)

    def best(
        self,
        profile: Profile,
        plan: Plan,
        rate_per_s: float | None = None,
        bounds: Bounds | None = None,
    ) -> Plan:
        """The best plan from here, then what it does not need taken back again."""
        found = plan
        for _ in range(MOST_ROUNDS):
            better = self._improved(profile, found, bounds or ENDLESS)
            if better == found:
                break
            found = better
        enough = self.rate_per_s(profile, found) * (1 - WORTH)
        wanted = enough if rate_per_s is None else min(rate_per_s, enough)
        return self._pruned(profile, found, wanted)

    def _improved(self, profile: Profile, plan: Plan, bounds: Bounds) -> Plan:
        """One setting after another, each at its best."""
        settings = [self._widths, self._batches]
        settings += [partial(self._replicas, region) for region in self._regions]
        settings += [partial(_pipelines, region) for region in self._regions]
        for ways in settings:
            every = (with_ranges(self._flow, way) for way in ways(plan))
            within = [way for way in every if _within(way, bounds)]
            allowed = [way for way in within if self.batch_s(profile, way) <= LONGEST_BATCH_S]
            plan = max([plan, *allowed], key=partial(self.rate_per_s, profile))
        return plan

    def _pruned(self, profile: Profile, plan: Plan, wanted: float) -> Plan:
        """Shorter batches and fewer threads, as long as the rate is still there."""
        settings = [self._batches]
        settings += [partial(_pipelines, region) for region in self._regions]
        settings += [partial(self._replicas, region) for region in self._regions]
        for ways in settings:
            every = (with_ranges(self._flow, way) for way in ways(plan))
            cheaper = (way for way in every if _price(way) < _price(plan))
            fast = (way for way in cheaper if self.rate_per_s(profile, way) >= wanted)
            plan = min(fast, key=_price, default=plan)
        return plan

    # Plans that differ in one setting

    def _widths(self, plan: Plan) -> Iterator[Plan]:
        """Everything equally wide: neighbours of one width share tasks."""
        for width in range(1, self._slots.tasks + 1):
            wide = plan
            for region in self._regions:
                wide = _with_width(wide, region, width) or wide
            yield wide

    def _replicas(self, region: Region, plan: Plan) -> Iterator[Plan]:
        for width in range(1, WAVES * self._slots.tasks + 1):
            wide = _with_width(plan, region, width)
            if wide is not None:
                yield wide

    def _batches(self, plan: Plan) -> Iterator[Plan]:
        for rows in BATCH_ROWS:
            other = plan
            for source in plan.sources:
                other = other.with_source(source.source, batch_rows=rows)
            yield other


def _pipelines(region: Region, plan: Plan) -> Iterator[Plan]:
    """One pipeline, or two."""
    if region.kind is RegionKind.SOURCE or len(region.steps) < 2:
        return
    yield plan.with_pipelines(region.name, len(region.steps))
    for cut in range(1, len(region.steps)):
        yield plan.with_pipelines(region.name, cut, len(region.steps) - cut)


def _with_width(plan: Plan, region: Region, width: int) -> Plan | None:
    """A plan with so many replicas of a region; None where there cannot be as many."""
    if width > 1 and (not region.replicable or (region.mapped and width > region.buckets)):
        return None
    if region.kind is RegionKind.SOURCE:
        return plan.with_source(region.name, replicas=width)
    return plan.with_replicas(region.name, width)


def _within(plan: Plan, bounds: Bounds) -> bool:
    widest = max([r.replicas for r in plan.regions] + [s.replicas for s in plan.sources])
    return widest <= bounds.replicas and _price(plan)[1] <= bounds.threads


def _price(plan: Plan) -> tuple[int, int]:
    """Rows that wait for each other, and threads."""
    working = sum(region.replicas * len(region.pipelines) for region in plan.regions)
    readers = sum(source.replicas for source in plan.sources)
    return sum(source.batch_rows for source in plan.sources), working + readers


# What a plan would do on Spark: its stages and tasks, filled with the work that a profile tells.
#
# The stages are those of `layout.py`. Steps work on the tuples that reach them, shared out among
# replicas by their buckets. Two things are known of steps that shrink what they pass on by key:
# what combines before a shuffle passes on no more than one tuple for each key and task, and changes
# are told once for each key and batch.


def predicted_batch_s(
    flow: Flow,
    plan: Plan,
    profile: Profile,
    costs: SparkCosts,
    slots: Slots,
    rows: int,
    jumbo_rows: int = SCAN_ROWS,
) -> float:
    """Seconds of a micro-batch of so many rows, read in jumbo tuples of at most `jumbo_rows`."""
    stages = stages_of(flow, plan, profile, costs, rows, jumbo_rows, slots.tasks)
    return batch_s(costs, stages, slots)


def stages_of(
    flow: Flow,
    plan: Plan,
    profile: Profile,
    costs: SparkCosts,
    rows: int,
    jumbo_rows: int = SCAN_ROWS,
    slots: int | None = None,
) -> list[list[Task]]:
    """The tasks of every stage, with their work."""
    return _Stages(flow, plan, profile, costs, rows, jumbo_rows, slots).stages()


class _Stages:
    def __init__(
        self,
        flow: Flow,
        plan: Plan,
        profile: Profile,
        costs: SparkCosts,
        rows: int,
        jumbo_rows: int,
        slots: int | None,
    ) -> None:
        self._flow, self._plan, self._profile, self._costs = flow, plan, profile, costs
        self._layout: StageLayout = layout(flow, plan, slots=slots)
        self._contexts = flow.contexts()
        self._unit_s = NANOSECONDS[profile.unit or "ns"] / 1e9
        self._home = {step: s for s in self._layout.stations.values() for step in s.region.steps}
        self._staged = {name for name, sink in flow.sinks().items() if sink.traits.staged}
        self._into: dict[str, float] = {}
        self._over: dict[tuple[str, str], float] = {}
        self._count(rows)
        readers = max((source.replicas for source in plan.sources), default=1)
        self._jumbos = ceil(rows / readers / jumbo_rows) * readers

    def _count(self, rows: int) -> None:
        """Tuples that reach each step in a batch, and from each step each of its readers."""
        for operator in self._profile.operators:
            name = operator.name
            streams = self._profile.into(name)
            if not streams:
                self._into[name] = rows * operator.rate
                continue
            self._into[name] = 0.0
            for s in streams:
                told = self._told(s.producer, name, self._into[s.producer] * s.selectivity)
                self._over[s.producer, name] = self._over.get((s.producer, name), 0.0) + told
                self._into[name] += told

    def _told(self, producer: str, consumer: str, tuples: float) -> float:
        """What a step passes on, once tuples of one key are merged into one."""
        body = self._flow.graph.steps[producer].body
        if getattr(body, "before_shuffle", False):
            keys = self._profile.by_name[consumer].keys
            tasks = self._home[producer].replicas
            return tuples if keys is None else min(tuples, float(keys * tasks))
        outputs = self._contexts[producer].outputs
        if outputs and outputs[0].changelog is not None and producer in self._profile.by_name:
            keys = self._profile.by_name[producer].keys
            return tuples if keys is None else min(tuples, float(keys))
        return tuples

    def stages(self) -> list[list[Task]]:
        """Stage by stage, its tasks in order."""
        found: list[list[Task]] = []
        for stage, width in enumerate(self._layout.tasks):
            found.append([self._task(self._layout.hosted(stage, task)) for task in range(width)])
        return found

    def _task(self, hosted: Sequence[tuple[RegionStage, int]]) -> Task:
        phases: list[TaskPhase] = []
        shuffled = shuffled_bytes = 0.0
        for station, replica in hosted:
            share = self._share(station, replica)
            threads = tuple(self._pipeline_s(p) * share for p in self._pipelines(station))
            streams_on = station.joined and station.region.kind is RegionKind.STATELESS
            if streams_on and phases:  # works on what comes: in the thread that brings it
                first, *others = phases.pop().threads
                threads = (first + threads[0], *others, *threads[1:])
            phases.append(TaskPhase(threads, self._jumbos_of(station, share)))
            came = self._dealt_to(station) * share
            shuffled += came
            shuffled_bytes += came * self._profile.by_name[station.region.steps[0]].tuple_bytes
        return Task(tuple(phases), shuffled, shuffled_bytes / shuffled if shuffled else 0.0)

    def _dealt_to(self, station: RegionStage) -> float:
        """Tuples that come to a station from other tasks."""
        entry = station.region.steps[0]
        stations = self._layout.stations
        ends = {
            stations[link.producer].region.steps[-1]
            for link in self._layout.into(station.region.name)
            if not link.local
        }
        return sum(self._over.get((end, entry), 0.0) for end in ends)

    def _jumbos_of(self, station: RegionStage, share: float) -> float:
        """Jumbo tuples that a replica works on, one after another.

        What needs no order is worked on as it comes; what does is gathered, and then released in
        pieces that are as large as they may be.
        """
        if station.region.kind in (RegionKind.SOURCE, RegionKind.STATELESS):
            return self._jumbos / station.replicas
        return ceil(self._into[station.region.steps[0]] * share / RUN_ROWS)

    def _pipelines(self, station: RegionStage) -> tuple[tuple[str, ...], ...]:
        if station.region.kind is RegionKind.SOURCE:
            return (station.region.steps,)
        return self._plan.region(station.region.name).pipelines

    def _pipeline_s(self, steps: tuple[str, ...]) -> float:
        """Work of a pipeline in a batch, over all replicas."""
        return sum(self._step_s(step) for step in steps)

    def _step_s(self, step: str) -> float:
        operator = self._profile.by_name[step]
        seconds = self._into[step] * operator.cost * self._unit_s
        if step in self._staged:
            written = self._into[step] * operator.tuple_bytes
            seconds += written * self._costs.sink_byte_ns / 1e9
        return seconds

    def _share(self, station: RegionStage, replica: int) -> float:
        """Part of a region's work that one of its replicas does.

        All replicas of a shared region see every tuple, and each works for its own buckets. Those
        of a sink that is a stage of its own share the ranges of a batch.
        """
        region = station.region
        if region.kind is RegionKind.SINK and station.replicas > 1 and not station.joined:
            every = sources_of(self._flow, self._flow.graph.steps[region.name])
            ranges = Ranges.of(self._plan.region(region.name))
            return ranges.share(replica, round(min(self._into[source] for source in every)))
        if region.kind is RegionKind.PARTITIONED and station.replicas > 1:
            owners = self._plan.region(region.name).bucket_map
            return owners.count(replica) / len(owners)
        return 1 / station.replicas
