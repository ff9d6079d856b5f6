"""What a plan would do on Spark: its stages and tasks, filled with the work that a profile tells.

The stages are those of `layout.py`. Steps work on the tuples that reach them, shared out among
replicas by their buckets. Two things are known of steps that shrink what they pass on by key: what
combines before a shuffle passes on no more than one tuple for each key and task, and changes are
told once for each key and batch.
"""

from __future__ import annotations

from math import ceil

from anabranch.engines.spark.layout import Layout, Station, layout
from anabranch.flow import Flow
from anabranch.planning.models.spark import Phase, Slots, SparkCosts, Task, batch_s
from anabranch.planning.plan import Plan
from anabranch.planning.profile import NANOSECONDS, Profile
from anabranch.planning.regions import RegionKind

SCAN_ROWS, RUN_ROWS = 1 << 17, 1 << 20
"""What a task reads and releases at once (`task.py` and `station.py`)."""


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
    return batch_s(costs, stages_of(flow, plan, profile, costs, rows, jumbo_rows), slots)


def stages_of(
    flow: Flow,
    plan: Plan,
    profile: Profile,
    costs: SparkCosts,
    rows: int,
    jumbo_rows: int = SCAN_ROWS,
) -> list[list[Task]]:
    """The tasks of every stage, with their work."""
    return _Stages(flow, plan, profile, costs, rows, jumbo_rows).stages()


class _Stages:
    def __init__(
        self,
        flow: Flow,
        plan: Plan,
        profile: Profile,
        costs: SparkCosts,
        rows: int,
        jumbo_rows: int,
    ) -> None:
        self._flow, self._plan, self._profile, self._costs = flow, plan, profile, costs
        self._layout: Layout = layout(flow, plan)
        self._contexts = flow.contexts()
        self._unit_s = NANOSECONDS[profile.unit or "ns"] / 1e9
        self._home = {step: s for s in self._layout.stations.values() for step in s.region.steps}
        self._staged = {name for name, sink in flow.sinks().items() if sink.traits.staged}
        self._into: dict[str, float] = {}
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
            self._into[name] = sum(
                self._told(s.producer, name, self._into[s.producer] * s.selectivity)
                for s in streams
            )

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
            roots = (self._layout.roots(stage, task)[0] for task in range(width))
            found.append([self._task(station, replica) for station, replica in roots])
        return found

    def _task(self, root: Station, replica: int) -> Task:
        phases: list[Phase] = []
        for station in self._family(root):
            share = self._share(station, replica)
            threads = tuple(self._pipeline_s(p) * share for p in self._pipelines(station))
            streams_on = station.joined and station.region.kind is RegionKind.STATELESS
            if streams_on and phases:  # works on what comes: in the thread that brings it
                first, *others = phases.pop().threads
                threads = (first + threads[0], *others, *threads[1:])
            phases.append(Phase(threads, self._jumbos_of(station, share)))
        entry = root.region.steps[0]
        shuffled = 0.0
        if root.region.kind is not RegionKind.SOURCE:
            shuffled = self._into[entry] * self._share(root, replica)
        return Task(tuple(phases), shuffled, self._profile.by_name[entry].tuple_bytes)

    def _jumbos_of(self, station: Station, share: float) -> float:
        """Jumbo tuples that a replica works on, one after another.

        What needs no order is worked on as it comes; what does is gathered, and then released in
        pieces that are as large as they may be.
        """
        if station.region.kind in (RegionKind.SOURCE, RegionKind.STATELESS):
            return self._jumbos / station.replicas
        return ceil(self._into[station.region.steps[0]] * share / RUN_ROWS)

    def _family(self, root: Station) -> list[Station]:
        """The stations of one task, in the order of the stream."""
        place = (root.stage, root.first_task)
        return [s for s in self._layout.stations.values() if (s.stage, s.first_task) == place]

    def _pipelines(self, station: Station) -> tuple[tuple[str, ...], ...]:
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

    def _share(self, station: Station, replica: int) -> float:
        """Part of a region's work that one of its replicas does.

        All replicas of a shared region see every tuple, and each works for its own buckets.
        """
        region = station.region
        if region.kind is RegionKind.PARTITIONED and station.replicas > 1:
            owners = self._plan.region(region.name).bucket_map
            return owners.count(replica) / len(owners)
        return 1 / station.replicas
