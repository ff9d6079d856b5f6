"""Who worked how long in a batch: sources, pipelines, replicas, and what they did besides steps.

A task times its steps, its reading and its writing. Reading is the work of the source, writing that
of the sink; whatever else a task did, such as taking rows over and saving state, is shared out
among its steps by what these took.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anabranch.engines.spark.task_report import ReplicaWork, TaskReport, Work
from anabranch.events import PipelineMetrics
from anabranch.planning.plan import Plan, RegionPlan


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
            >>> work, sinks = {Work.SCAN: 3.0, Work.SINK: 1.0}, {"out": Receipt("file", 9)}
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
