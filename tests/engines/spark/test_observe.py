"""Who worked how long in a batch, from made-up reports of tasks; no Spark is needed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from anabranch.engines.spark.observe import (
    pipeline_metrics,
    replica_busy,
    replica_in_steps,
    source_busy,
)
from anabranch.engines.spark.task_report import (
    ReplicaWork,
    SourceRead,
    StepWork,
    TaskReport,
    Work,
)
from anabranch.io.sink import Receipt
from anabranch.planning.plan import Plan, RegionPlan, SourcePlan

TOTAL_S = 10.0
LINES = {"lines": SourceRead(1)}


def report(steps: dict[str, float], task_s: float, replica: int = 0, **others: Any) -> TaskReport:
    """The report of a task with these seconds in its steps; each step is a region of its name."""
    return TaskReport(
        0,
        replica,
        others.pop("pid", replica),
        task_s,
        steps={step: StepWork(1, 1, spent) for step, spent in steps.items()},
        replicas={step: ReplicaWork(replica, spent) for step, spent in steps.items()},
        **others,
    )


def plan(*regions: RegionPlan, readers: int = 1) -> Plan:
    return Plan("flow", "", regions, (SourcePlan("lines", readers),))


def region(name: str, replicas: int = 1, *pipelines: tuple[str, ...]) -> RegionPlan:
    return RegionPlan(name, pipelines or ((name,),), replicas)


def test_reading_counts_for_the_source_and_not_for_the_region_behind_it() -> None:
    slow = report({"split": 1.0}, 9.0, work={Work.SCAN: 7.0}, sources=LINES)
    both = plan(region("split"))
    assert source_busy(both, [slow], TOTAL_S) == {"lines": pytest.approx(0.7)}
    [split] = pipeline_metrics(both, [slow], TOTAL_S)
    assert (split.busy_share, split.overhead_share) == pytest.approx((0.2, 0.1))


def test_readers_without_steps_deal_out_what_they_read_and_that_is_their_work() -> None:
    told = [report({}, 6.0, replica, work={Work.SCAN: 4.0}, sources=LINES) for replica in (0, 1)]
    assert source_busy(plan(readers=2), told, TOTAL_S) == {"lines": pytest.approx(0.6)}


def test_a_streaming_dataframe_has_as_many_readers_as_there_were_workers() -> None:
    told = [
        report({"split": 0.0}, 2.0, work={Work.SCAN: 2.0}, sources=LINES, pid=number % 2)
        for number in range(8)
    ]
    assert source_busy(plan(region("split")), told, TOTAL_S) == {"lines": pytest.approx(0.8)}


def test_a_source_of_which_nothing_was_read_was_idle() -> None:
    assert source_busy(plan(), [], TOTAL_S) == {"lines": 0.0}
    assert source_busy(plan(), [], 0.0) == {"lines": 0.0}


def test_writing_counts_for_the_sink_alone() -> None:
    told = report(
        {"count": 3.0, "out": 0.0},
        9.0,
        work={Work.SINK: 6.0},
        sinks={"out": Receipt("file", 1)},
    )
    shares = pipeline_metrics(plan(region("count"), region("out")), [told], TOTAL_S)
    assert [each.busy_share for each in shares] == pytest.approx([0.3, 0.6])


def test_what_is_done_in_no_step_is_shared_out_by_what_steps_took() -> None:
    told = report({"a": 3.0, "b": 1.0}, 8.0, work={Work.SHUFFLE: 2.0, Work.STATE: 1.0})
    shares = pipeline_metrics(plan(region("a"), region("b")), [told], TOTAL_S)
    assert [each.overhead_share for each in shares] == pytest.approx([0.3, 0.1])


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_the_replicas_of_a_region_are_on_average_as_busy_as_the_region(replicas: int) -> None:
    told = [
        report({"count": 0.5 + n}, 2.0 + n, n, work={Work.SCAN: 0.5, Work.STATE: 0.5})
        for n in range(replicas)
    ]
    both = plan(region("count", replicas))
    [whole] = pipeline_metrics(both, told, TOTAL_S)
    busy = replica_busy(both.regions[0], told, TOTAL_S)
    assert sum(busy) / replicas == pytest.approx(whole.busy_share)
    assert busy == pytest.approx([(1.5 + n) / TOTAL_S for n in range(replicas)])
    in_steps = replica_in_steps(both.regions[0], told, TOTAL_S)
    assert in_steps == pytest.approx([(0.5 + n) / TOTAL_S for n in range(replicas)])


def test_a_replica_is_as_busy_as_its_busiest_pipeline() -> None:
    told = replace(report({"a": 1.0, "b": 4.0}, 5.0), replicas={"a": ReplicaWork(0, 4.0)})
    cut = region("a", 1, ("a",), ("b",))
    assert replica_busy(cut, [told], TOTAL_S) == pytest.approx((0.4,))
    assert [p.busy_share for p in pipeline_metrics(plan(cut), [told], TOTAL_S)] == [0.1, 0.4]


def test_partitions_of_a_streaming_dataframe_count_for_the_replicas_that_there_are() -> None:
    told = [report({"split": 1.0}, 1.0, replica) for replica in range(4)]
    assert replica_busy(region("split", 2), told, TOTAL_S) == pytest.approx((0.2, 0.2))
