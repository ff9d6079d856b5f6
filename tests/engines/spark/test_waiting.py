"""Tuples that wait for others, from one batch to the next: nothing goes on without them."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.engines.checkpoint.restoring import gate_sections
from anabranch.engines.checkpoint.state_files import write_state
from anabranch.engines.spark.intake import Intake, Share
from anabranch.engines.spark.layout import StageLayout
from anabranch.engines.spark.replica import TaskReplica
from anabranch.engines.spark.state_cache import StateCache, cache_directory
from anabranch.engines.spark.state_loader import StateLoader, remove_cache
from anabranch.engines.spark.task_inputs import Batch, JobResult
from anabranch.engines.spark.task_report import StateSaved, StateWritten
from anabranch.flow import Flow
from anabranch.planning.plan import Plan
from anabranch.testing.compare import difference
from anabranch.testing.sequential import run_sequential
from tests.engines.spark.in_process import InProcess
from tests.engines.spark.one_by_one import OneByOne


def replicated(flow: Flow, **replicas: int) -> Plan:
    plan = Plan.sequential(flow)
    for region, number in replicas.items():
        plan = plan.with_replicas(region, number)
    return plan


class LateStart(InProcess):
    """One source has nothing to say in the first three batches."""

    silent = ""

    def _starve(self, intake: Intake) -> None:
        share, asked = intake._share, count()

        def later(name: str, plan: Plan, elapsed_s: float) -> Share | None:
            waits = name == self.silent and next(asked) < 3
            return None if waits else share(name, plan, elapsed_s)

        intake._share = later  # type: ignore[method-assign]

    def _resized(self, plan: Plan) -> Plan:
        return plan.with_source("left", batch_rows=5).with_source("right", batch_rows=5)


@pytest.mark.parametrize("silent", ["left", "right"])
@pytest.mark.parametrize("replicas", [{}, {"both": 2, "per-window": 2}])
def test_no_window_is_closed_before_a_source_that_has_said_nothing_yet(
    tmp_path: Path, silent: str, replicas: dict[str, int]
) -> None:
    flow = Flow("late-start", buckets=8)
    rows = [{"ts": ts, "k": "x"} for ts in range(20)]
    left = flow.source("left", ab.memory(rows), time="ts")
    right = flow.source("right", ab.memory(rows), time="ts")
    left.union("both", right).aggregate(
        "per-window", key="k", n=ab.count(), window=ab.tumbling(5)
    ).sink("out", ab.collect())
    expected = run_sequential(flow)
    assert [row["n"] for row in expected.rows("out")] == [10] * 4
    run = LateStart(flow, tmp_path / "checkpoint", seed=0)
    run.silent = silent
    got = run.run([replicated(flow, **replicas)])
    assert difference(flow, expected, got) is None
    told = [event for event in got.events if f"'{silent}': 0" in event]
    assert told[:3] == got.events[:3]  # it was silent indeed


@ab.shared(out="bucket: int64, seen: int64, v: int64", buckets=4)
def dealt(batch: pa.RecordBatch, bucket: Any) -> tuple[dict[str, Any], list[int]]:
    """Every bucket sees every tuple, and numbers its own."""
    values = batch["v"].to_pylist()
    mine = [row for row, v in enumerate(values) if v % bucket.count == bucket.index]
    first = bucket.state.get("seen", 0)
    bucket.state["seen"] = first + len(mine)
    columns = {
        "bucket": [bucket.index] * len(mine),
        "seen": list(range(first, first + len(mine))),
        "v": [values[row] for row in mine],
    }
    return columns, mine


class Forgetful(InProcess):
    """Cached state is lost before every batch: all of it, or what one replica had cached."""

    lost = "all"

    def _job(self, layout: StageLayout, batch: Batch) -> JobResult:
        if self.lost == "all":
            remove_cache(self._cache)
        else:
            cache = StateCache(cache_directory(self._cache))
            cache.sweep(sorted(cache.names())[1:])
        return super()._job(layout, batch)

    def _starve(self, intake: Intake) -> None:
        """Sources always have something."""

    def _resized(self, plan: Plan) -> Plan:
        # The faster source has to wait for the slower one.
        return plan.with_source("slow", batch_rows=2).with_source("fast", batch_rows=7)


def of_two_speeds() -> Flow:
    flow = Flow("two-speeds")
    slow = flow.source("slow", ab.memory([{"v": v} for v in range(40)]))
    fast = flow.source("fast", ab.memory([{"v": 100 + v} for v in range(40)]))
    slow.union("both", fast).apply("dealt", dealt).sink("out", ab.collect())
    return flow


@pytest.mark.parametrize("lost", ["all", "one"])
def test_a_shared_region_rebuilt_from_files_takes_the_tuples_that_waited_once(
    tmp_path: Path, lost: str
) -> None:
    flow = of_two_speeds()
    expected = run_sequential(flow)
    assert len(expected.rows("out")) == 80
    run = Forgetful(flow, tmp_path / "checkpoint", seed=1)
    run.lost = lost
    got = run.run([replicated(flow, dealt=2)])
    assert difference(flow, expected, got) is None
    assert run.loaded_bytes > 0


@pytest.mark.parametrize("lost", ["all", "one"])
@pytest.mark.parametrize("seed", range(3))
def test_buckets_that_come_together_from_files_and_memory_agree_on_what_waited(
    tmp_path: Path, lost: str, seed: int
) -> None:
    flow = of_two_speeds()
    expected = run_sequential(flow)
    plans = [replicated(flow, dealt=number) for number in (2, 1, 3, 2, 4, 1)]
    run = Forgetful(flow, tmp_path / "checkpoint", seed)
    run.lost = lost
    got = run.run(plans)
    assert difference(flow, expected, got) is None


def test_what_an_earlier_version_kept_beside_the_state_of_a_sink_comes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = Flow("merged")
    slow = flow.source("slow", ab.memory([{"v": v} for v in range(40)]))
    fast = flow.source("fast", ab.memory([{"v": 100 + v} for v in range(40)]))
    slow.union("both", fast).sink("out", ab.collect())
    plan = Plan.sequential(flow).with_source("slow", batch_rows=2).with_source("fast", batch_rows=7)

    def beside_state(self: StateLoader, run: TaskReplica, waiting: Any) -> StateSaved:
        name = self._name("out", run.replica)
        file = StateWritten(False, *write_state(self.storage, name, gate_sections(waiting)))
        return StateSaved("out", run.replica, name, (0,), file)

    with OneByOne(flow, tmp_path, plan) as run:
        with monkeypatch.context() as earlier:
            earlier.setattr(StateLoader, "_save_gate", beside_state)
            for _ in range(3):
                run.next()
        run.plan = plan.with_replicas("out", 2).with_range_rows("out", 4)
        run.to_the_end()
    rows = flow.graph.steps["out"].body.sink.table().to_pylist()
    assert rows == run_sequential(flow).rows("out")
