"""How jobs end: with the error of the user, with nothing left behind, and never past a hole."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.engines.spark import replica as station_module
from anabranch.engines.spark import task as task_module
from anabranch.engines.spark.job import outcome_of
from anabranch.engines.spark.layout import StageLayout
from anabranch.engines.spark.task import TaskRun
from anabranch.engines.spark.task_inputs import Batch, JobResult, Program
from anabranch.errors import OperatorError, StateError
from anabranch.flow import Flow
from anabranch.io.spark.dataframe_source import DataFrameSource
from anabranch.planning.plan import Plan
from tests.engines.spark.in_process import InProcess, Killed
from tests.engines.spark.one_by_one import OneByOne
from tests.engines.spark.test_bad_input import Faulty
from tests.engines.spark.test_dataframes import frame
from tests.engines.spark.test_layout import Pushed

ROWS = [{"k": number % 7, "v": number} for number in range(60)]


def breaks(batch: pa.RecordBatch) -> dict[str, Any]:
    if 50 in batch["v"].to_pylist():
        raise ValueError("mine")
    return {}


@ab.partitioned(key="k", out="k: int64, v: int64")
def by_key(ctx: ab.Invocation) -> None:
    for row in ctx.tuples():
        ctx.emit(v=row.v)


@ab.partitioned(key="v", out="v: int64, n: int64")
def by_value(ctx: ab.Invocation) -> None:
    for _ in ctx.tuples():
        ctx.emit(n=1)


STEPS = ("first", "left", "left-2", "right", "right-2")


def branching(broken: str) -> tuple[Flow, Plan]:
    """Stages behind each other, two branches, pipelines in threads; one step raises."""
    flow = Flow("branching", buckets=8)

    def passed(stream: Any, step: str) -> Any:
        return stream.map(step, breaks if step == broken else lambda batch: {}, keeps="*")

    first = passed(flow.source("rows", ab.memory(ROWS)), "first")
    passed(passed(first, "left"), "left-2").sink("lefts", ab.collect())
    keyed = first.apply("by-key", by_key)
    passed(passed(keyed, "right"), "right-2").apply("by-value", by_value).sink(
        "rights", ab.collect()
    )
    plan = Plan.sequential(flow).with_source("rows", replicas=2)
    plan = plan.with_replicas("first", 3).with_replicas("left", 2)
    plan = plan.with_replicas("by-key", 2).with_replicas("by-value", 3)
    return flow, plan.with_pipelines("left", 1, 1).with_pipelines("by-key", 1, 1, 1)


class WholeBatches(InProcess):
    """All rows in one batch."""

    def _resized(self, plan: Plan) -> Plan:
        return plan


@pytest.fixture
def _small_jumbos(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that work is under way in later stages when an earlier one fails."""
    monkeypatch.setattr(task_module, "SCAN_ROWS", 4)
    monkeypatch.setattr(station_module, "RUN_ROWS", 4)


@pytest.mark.usefixtures("_small_jumbos")
@pytest.mark.parametrize("broken", STEPS)
@pytest.mark.parametrize("seed", range(3))
def test_the_error_of_any_stage_reaches_the_driver_and_no_thread_stays(
    tmp_path: Path, broken: str, seed: int
) -> None:
    flow, plan = branching(broken)
    before = set(threading.enumerate())
    with pytest.raises(OperatorError, match="ValueError: mine") as caught:
        WholeBatches(flow, tmp_path / "checkpoint", seed).run([plan])
    assert caught.value.step == broken
    assert "in breaks" in str(caught.value.__cause__)
    assert set(threading.enumerate()) <= before


def two_pipelines(source: object) -> tuple[Flow, Plan]:
    """Readers that work on what they read, in two threads each."""
    flow = Flow("two-pipelines")
    rows = flow.source("rows", source).map("one", lambda batch: {}, keeps="*")
    rows.map("two", breaks, keeps="*").sink("out", ab.collect())
    return flow, Plan.sequential(flow).with_pipelines("one", 1, 1)


@pytest.mark.usefixtures("_small_jumbos")
def test_an_attempt_that_is_given_up_leaves_no_thread(tmp_path: Path) -> None:
    # More than queues can hold: what breaks is noticed while there is more to read.
    flow, plan = two_pipelines(ab.memory(ROWS * station_module.QUEUE_JUMBOS))
    before = set(threading.enumerate())
    with OneByOne(flow, tmp_path / "checkpoint", plan) as run:

        def given_up(layout: StageLayout, batch: Batch) -> JobResult:
            attempt = TaskRun(run.program, batch, 0, 0, "0").work(iter([]))
            next(attempt)
            assert set(threading.enumerate()) > before
            attempt.close()
            raise Killed

        with pytest.raises(Killed):
            run.batches.next(0, plan, plan, 0.0, given_up)
    assert set(threading.enumerate()) <= before


@pytest.mark.usefixtures("_small_jumbos")
def test_an_error_that_is_not_ours_leaves_no_thread(tmp_path: Path) -> None:
    flow, plan = two_pipelines(Faulty())
    before = set(threading.enumerate())
    with (
        OneByOne(flow, tmp_path / "checkpoint", plan) as run,
        pytest.raises(MemoryError, match="torn at row 30"),
    ):
        run.next()
    assert set(threading.enumerate()) <= before


@pytest.mark.usefixtures("_small_jumbos")
def test_an_error_in_a_partition_of_a_dataframe_is_told_and_leaves_no_thread() -> None:
    source = DataFrameSource(frame("k", "v"), "v", bounded=True)
    flow, plan = two_pipelines(source)
    program = Program(flow, "", "")
    rows = pa.StructArray.from_arrays(
        [pa.array([row[name] for row in ROWS]) for name in ("k", "v")], names=["k", "v"]
    )
    partition = pa.record_batch({"source": np.zeros(len(ROWS), np.int32), "rows": rows})
    before = set(threading.enumerate())
    batch = Batch(0, "", plan, {"rows": []}, {})
    beyond = program.layout(batch).tasks[0]
    sent = list(TaskRun(program, batch, 0, beyond, "0").work(iter([partition])))
    with pytest.raises(OperatorError, match="ValueError: mine") as caught:
        outcome_of(sent)
    assert caught.value.step == "two"
    assert set(threading.enumerate()) <= before


# Holes in the versions


def reports_nothing(layout: StageLayout, batch: Batch) -> JobResult:
    return JobResult([])


@pytest.mark.parametrize("asked", [2, 7])
def test_rows_that_spark_takes_for_done_must_not_be_skipped(tmp_path: Path, asked: int) -> None:
    flow = Flow("pushed")
    flow.source("s", Pushed()).sink("out", ab.collect())
    plan = Plan.sequential(flow)
    with OneByOne(flow, tmp_path / "checkpoint", plan) as run:
        assert run.batches.next(0, plan, plan, 0.0, reports_nothing) is not None
        with pytest.raises(StateError, match=rf"batch 0 again, or .*, got batch {asked}; .*afresh"):
            run.batches.next(asked, plan, plan, 0.0, reports_nothing)
        assert run.checkpoint.log(asked) is None
        assert run.batches.next(0, plan, plan, 0.0, reports_nothing) is None  # it has happened
        assert run.batches.next(1, plan, plan, 0.0, reports_nothing) is not None


def test_a_hole_is_no_loss_where_the_manifests_say_what_was_read(tmp_path: Path) -> None:
    flow = Flow("numbered")
    flow.source("s", ab.memory(ROWS)).sink("out", ab.collect())
    plan = Plan.sequential(flow).with_source("s", batch_rows=40)
    with OneByOne(flow, tmp_path / "checkpoint", plan) as run:
        for version in (0, 3, 4):
            run.batches.next(version, plan, plan, 0.0, run.job)
        assert run.batches.ended()
    assert flow.graph.steps["out"].body.sink.table().to_pylist() == ROWS
