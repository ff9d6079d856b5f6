"""Flows whose sources hold each other up come to their end; slow ones keep their bounds."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

from anabranch.engines.engine import Options
from anabranch.engines.local.engine import LocalEngine
from anabranch.flow import Flow
from anabranch.io import collect, generate
from anabranch.planning.plan import Plan
from anabranch.runtime.coordinator import Coordinator
from anabranch.testing.compare import difference
from anabranch.testing.result import RunResult
from anabranch.testing.sequential import run_sequential
from tests.waiting import wait_until

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
ROWS = 600
PATIENCE_S = 60.0

on_workers = pytest.mark.parametrize("workers", [0, 2])


def numbers(rng: Any, index: Any) -> dict[str, Any]:
    return {"ts": index, "k": index % 3}


@pytest.fixture
def relaxed(monkeypatch: pytest.MonkeyPatch) -> list[Coordinator]:
    """The coordinators that let sources give out more."""
    found: list[Coordinator] = []
    relax = Coordinator.relax

    def watched(coordinator: Coordinator) -> None:
        found.append(coordinator)
        relax(coordinator)

    monkeypatch.setattr(Coordinator, "relax", watched)
    return found


def diamond(rate_per_s: float | None) -> Flow:
    """One branch is far behind the other, and a join waits for both."""
    flow = Flow("diamond", buckets=4)
    source = flow.source("rows", generate(numbers, SCHEMA, ROWS, rate_per_s))
    early = source.timed("early", "ts", lateness=0)
    late = source.timed("late", "ts", lateness=ROWS // 2)
    early.join("both", late, key="k", within=2).sink("out", collect())
    return flow


@cache
def expected() -> RunResult:
    return run_sequential(diamond(None))


def run_diamond(rate_per_s: float | None, workers: int, beside: float | None = None) -> Any:
    """Run it, perhaps beside a source that has a row now and then; return what is wrong."""
    flow, sink = diamond(rate_per_s), collect()
    flow = flow.writing({"out": sink})
    if beside is not None:
        rows = generate(numbers, SCHEMA, None, beside)
        flow.source("trickle", rows).map("past", lambda b: {}, keeps="*").sink("aside", collect())
    plan = Plan.sequential(flow).with_source("rows", batch_rows=5)
    engine = LocalEngine(flow, plan, Options(workers=workers))
    engine.start(lambda event: None)
    wanted = expected().outputs["out"].num_rows
    wait_until(lambda: engine.wait(0.01) or sink.table().num_rows >= wanted)
    engine.stop()
    got = RunResult({"out": sink.table()}, expected().counters)
    return difference(diamond(None), expected(), got)


@on_workers
def test_a_join_of_branches_far_apart_gets_more_rows_and_ends(
    relaxed: list[Coordinator], workers: int
):
    assert run_diamond(None, workers) is None
    assert relaxed


@on_workers
def test_a_paced_source_that_is_held_up_does_not_hide_a_standstill(workers: int):
    assert run_diamond(1e6, workers) is None


@on_workers
def test_a_standstill_is_noticed_though_another_part_of_the_graph_goes_on(workers: int):
    assert run_diamond(None, workers, beside=20.0) is None


@on_workers
def test_sources_do_not_give_out_more_for_an_operator_that_is_slow(
    relaxed: list[Coordinator], workers: int
):
    def slow(batch: pa.RecordBatch) -> dict[str, Any]:
        time.sleep(0.25)  # longer than nobody reports anything before workers are asked
        return {}

    flow = Flow("slow")
    rows = generate(numbers, SCHEMA, 60)
    flow.source("rows", rows).map("slow", slow, keeps="*").sink("out", collect())
    plan = Plan.sequential(flow).with_source("rows", batch_rows=5)
    engine = LocalEngine(flow, plan, Options(workers=workers))
    engine.start(lambda event: None)
    assert engine.wait(PATIENCE_S)
    assert not relaxed
