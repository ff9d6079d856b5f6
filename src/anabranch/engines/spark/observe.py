"""From the reports of tasks to observations: rates, costs, and who worked how long."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch.engines.skipped_rows import skipped_row
from anabranch.engines.spark.batches import Done
from anabranch.engines.spark.layout import StageLayout
from anabranch.engines.spark.task_report import ReplicaWork, TaskReport, Work
from anabranch.events import (
    BatchTimes,
    Observation,
    PipelineMetrics,
    Reconfiguration,
    RegionMetrics,
    SkippedRow,
    SourceMetrics,
    StepMetrics,
)
from anabranch.flow import Flow
from anabranch.operators.base import Counters
from anabranch.planning.plan import Plan, RegionPlan
from anabranch.planning.regions import RegionKind
from anabranch.runtime.bucket_loads import Loads, bucket_rows, hottest_key


def observation_of(
    at_s: float,
    version: int,
    done: Done,
    first_skipped: Mapping[str, SkippedRow],
    backlog: dict[str, int | None],
    latency_ms: tuple[float, float],
    commit_s: float,
) -> Observation:
    """What was seen of one batch."""
    reports, plan, total_s = done.outcome.reports, done.plan, done.seconds
    steps = step_metrics(reports, done.manifest.counters, first_skipped, done.layout)
    return Observation(
        at_s,
        version,
        sum(done.read.values()),
        sum(r.rows for report in reports for found in report.sinks.values() for r in found),
        replace(
            batch_times(done.layout, reports, total_s, commit_s), discarded_jobs=done.discarded
        ),
        *latency_ms,
        steps,
        pipeline_metrics(plan, reports, total_s),
        region_metrics(plan, steps, reports, total_s),
        source_metrics(plan, done.read, backlog, reports, total_s),
    )


def reconfiguration_of(at_s: float, version: int, done: Done) -> Reconfiguration:
    """The change to a batch's plan; tuples stood still while its slowest task loaded state."""
    reports = done.outcome.reports
    loading = max((r.work.get(Work.LOAD, 0.0) for r in reports), default=0.0)
    return Reconfiguration(
        at_s,
        version,
        loading * 1000,
        tuple(done.before.diff(done.plan)),
        sum(r.state_loaded_bytes for r in reports),
        done.before.to_json(),
        done.plan.to_json(),
    )


class Skipped:
    """Remembers the first row that each step set aside in a run."""

    def __init__(self, flow: Flow) -> None:
        """Begin without any."""
        self._flow = flow
        self._first: defaultdict[str, Counters] = defaultdict(Counters)

    def note(self, reports: Sequence[TaskReport]) -> dict[str, SkippedRow]:
        """Take what the tasks of a batch report; return the first rows so far, by step."""
        for report in reports:
            for step, lost in report.counters.items():
                self._first[step].note(lost.first)
        found = {step: skipped_row(self._flow, each.first) for step, each in self._first.items()}
        return {step: row for step, row in found.items() if row is not None}


def step_metrics(
    reports: Sequence[TaskReport],
    totals: dict[str, dict[str, int]],
    first_skipped: Mapping[str, SkippedRow],
    layout: StageLayout,
) -> tuple[StepMetrics, ...]:
    """Rows and time of each step, over all tasks; what was lost on purpose since the start.

    Every replica of a shared region sees every tuple, which is still one tuple.
    """
    regions = (station.region for station in layout.stations.values())
    shared = {s for region in regions if region.kind is RegionKind.SHARED for s in region.steps}
    counted: defaultdict[str, list[float]] = defaultdict(lambda: [0, 0, 0.0])
    keys: defaultdict[str, int] = defaultdict(int)
    for report in reports:
        for step, work in report.steps.items():
            came = counted[step][0]
            counted[step][0] = max(came, work.rows_in) if step in shared else came + work.rows_in
            counted[step][1] += work.rows_out
            counted[step][2] += work.seconds
        for step, held in report.keys.items():
            keys[step] += held
    return tuple(
        StepMetrics(
            step,
            int(rows_in),
            int(rows_out),
            seconds,
            keys.get(step),
            first_skipped=first_skipped.get(step),
            **totals.get(step, {}),
        )
        for step, (rows_in, rows_out, seconds) in counted.items()
    )


def region_metrics(
    plan: Plan, steps: Sequence[StepMetrics], reports: Sequence[TaskReport], total_s: float
) -> tuple[RegionMetrics, ...]:
    """Throughput of each region, and how evenly its replicas and buckets share the work."""
    rows = {each.step: each.rows_in for each in steps}
    loaded: defaultdict[str, int] = defaultdict(int)
    for report in reports:
        for saved in report.state:
            loaded[saved.region] += report.state_loaded_bytes // len(report.state)
    dealt = loads_by_region(reports)
    return tuple(
        RegionMetrics(
            region.region,
            region.replicas,
            rows.get(region.pipelines[0][0], 0) / total_s if total_s else 0.0,
            loaded[region.region],
            replica_busy=replica_busy(region, reports, total_s),
            replica_in_steps=replica_in_steps(region, reports, total_s),
            bucket_rows=bucket_rows(dealt[region.region]),
            hottest_key=hottest_key(dealt[region.region]),
        )
        for region in plan.regions
    )


def loads_by_region(reports: Sequence[TaskReport]) -> defaultdict[str, list[Loads]]:
    """What each task dealt out to the buckets of each region."""
    found: defaultdict[str, list[Loads]] = defaultdict(list)
    for report in reports:
        for region, loads in report.dealt.items():
            found[region] += loads
    return found


def source_metrics(
    plan: Plan,
    read: dict[str, int],
    backlog: dict[str, int | None],
    reports: Sequence[TaskReport],
    total_s: float,
) -> tuple[SourceMetrics, ...]:
    """Tuples read of each source, how long the last had waited, how busy its readers are."""
    busy = source_busy(plan, reports, total_s)
    lags: defaultdict[str, list[float]] = defaultdict(list)
    for report in reports:
        for name, part in report.sources.items():
            lags[name] += [part.lag_ms] if part.lag_ms is not None else []
    return tuple(
        SourceMetrics(
            name,
            rows,
            rows / total_s if total_s else 0.0,
            backlog[name],
            max(lags[name], default=None),
            busy[name],
        )
        for name, rows in read.items()
    )


def batch_times(
    layout: StageLayout, reports: Sequence[TaskReport], total_s: float, commit_s: float
) -> BatchTimes:
    """Stages run one after another, their tasks side by side: the slowest task of each counts."""
    slowest = [
        max(tasks, key=lambda task: task.seconds)
        for stage in range(layout.last_stage + 1)
        if (tasks := [report for report in reports if report.stage == stage])
    ]
    tasks_s = sum(task.seconds for task in slowest)
    spent = {work: sum(task.work.get(work, 0.0) for task in slowest) for work in Work}
    named_s = sum(spent[work] for work in (Work.SCAN, Work.SHUFFLE, Work.STATE, Work.SINK))
    return BatchTimes(
        total_s=total_s,
        fixed_s=max(0.0, total_s - tasks_s),
        scan_s=spent[Work.SCAN],
        shuffle_s=spent[Work.SHUFFLE],
        compute_s=max(0.0, tasks_s - named_s),
        state_s=spent[Work.STATE],
        sink_s=spent[Work.SINK],
        commit_s=commit_s,
    )


def percentile(weighted: Iterable[tuple[float, int]], share: float) -> float:
    """The value that a share of the weight does not exceed.

    Example:
        >>> percentile([(10.0, 90), (50.0, 10)], 0.5), percentile([(10.0, 90), (50.0, 10)], 0.99)
        (10.0, 50.0)
    """
    values = sorted(weighted)
    bound = sum(weight for _, weight in values) * share
    passed = 0.0
    for value, weight in values:
        passed += weight
        if passed >= bound:
            return value
    return 0.0


# Who worked how long in a batch: sources, pipelines, replicas, and what they did besides steps.
#
# A task times its steps, its reading and its writing. Reading is the work of the source, writing
# that of the sink; whatever else a task did, such as taking rows over and saving state, is shared
# out among its steps by what these took.


@dataclass(frozen=True)
class TaskWork:
    """What one task spent its time on, in seconds.

    Attributes:
        steps: In each step.
        besides: For each step, in none.
        reading_s: For its source.
    """

    steps: Mapping[str, float]
    besides: Mapping[str, float]
    reading_s: float

    @staticmethod
    def of(report: TaskReport) -> TaskWork:
        """What a task reported.

        Example:
            >>> from anabranch.engines.spark.task_report import StepWork
            >>> from anabranch.io.sink import Receipt
            >>> steps = {"a": StepWork(9, 9, 2.0), "out": StepWork(9, 0, 0.0)}
            >>> work, sinks = {Work.SCAN: 3.0, Work.SINK: 1.0}, {"out": (Receipt("file", 9),)}
            >>> TaskWork.of(TaskReport(0, 0, seconds=8.0, work=work, steps=steps, sinks=sinks))
            TaskWork(steps={'a': 2.0, 'out': 0.0}, besides={'a': 2.0, 'out': 1.0}, reading_s=3.0)
        """
        spent = {step: work.seconds for step, work in report.steps.items()}
        sinks = report.sinks
        read_s, write_s = report.work.get(Work.SCAN, 0.0), report.work.get(Work.SINK, 0.0)
        if not spent:  # a reader alone: dealing its rows out is its work, too
            return TaskWork({}, {}, report.seconds)
        working = sum(spent.values())
        rest_s = max(0.0, report.seconds - working - read_s - write_s)
        shares = {step: s / working if working else 1 / len(spent) for step, s in spent.items()}
        besides = {
            step: rest_s * share + (write_s / len(sinks) if step in sinks else 0.0)
            for step, share in shares.items()
        }
        return TaskWork(spent, besides, read_s)

    def of_steps(self, steps: Sequence[str]) -> float:
        """Seconds for some steps, in them or besides."""
        return sum(self.steps.get(step, 0.0) + self.besides.get(step, 0.0) for step in steps)


def pipeline_metrics(
    plan: Plan, reports: Sequence[TaskReport], total_s: float
) -> tuple[PipelineMetrics, ...]:
    """Part of the batch that each pipeline worked, in its steps or besides."""
    tasks = [TaskWork.of(report) for report in reports]
    found = []
    for region in plan.regions:
        whole_s = total_s * region.replicas
        for pipeline in region.pipelines:
            busy_s = sum(task.of_steps(pipeline) for task in tasks)
            extra_s = sum(task.besides.get(step, 0.0) for task in tasks for step in pipeline)
            busy, extra = _share(busy_s, whole_s), _share(extra_s, whole_s)
            found.append(PipelineMetrics(region.region, pipeline, busy, extra))
    return tuple(found)


def replica_busy(
    region: RegionPlan, reports: Sequence[TaskReport], total_s: float
) -> tuple[float, ...]:
    """Part of the batch that each replica worked, in its busiest thread."""
    spent = [0.0] * region.replicas
    for report in reports:
        if (ran := report.replicas.get(region.region)) is not None:
            task = TaskWork.of(report)
            busiest_s = max(task.of_steps(pipeline) for pipeline in region.pipelines)
            spent[_replica(region, ran)] += busiest_s
    return tuple(_share(each, total_s) for each in spent)


def replica_in_steps(
    region: RegionPlan, reports: Sequence[TaskReport], total_s: float
) -> tuple[float, ...]:
    """The same, in steps alone."""
    spent = [0.0] * region.replicas
    for report in reports:
        if (ran := report.replicas.get(region.region)) is not None:
            spent[_replica(region, ran)] += ran.seconds
    return tuple(_share(each, total_s) for each in spent)


def source_busy(plan: Plan, reports: Sequence[TaskReport], total_s: float) -> dict[str, float]:
    """Part of the batch that the readers of each source worked, on average."""
    spent: defaultdict[str, float] = defaultdict(float)
    workers: defaultdict[str, set[int]] = defaultdict(set)
    for report in reports:
        for name in report.sources:
            spent[name] += TaskWork.of(report).reading_s
            workers[name].add(report.pid)
    # Partitions of a streaming DataFrame are read by as many workers as Spark had for them.
    readers = {s.source: max(s.replicas, len(workers[s.source])) for s in plan.sources}
    return {name: _share(spent[name], total_s * number) for name, number in readers.items()}


def _replica(region: RegionPlan, ran: ReplicaWork) -> int:
    # A region that joined the partitions of a streaming DataFrame has more tasks than replicas.
    return ran.replica % region.replicas


def _share(spent_s: float, whole_s: float) -> float:
    return min(1.0, spent_s / whole_s) if whole_s > 0 else 0.0
