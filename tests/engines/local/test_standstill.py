"""Flows whose queues block each other come to their end; slow ones keep their bounds."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

from anabranch.engines.engine import Options
from anabranch.engines.local import engine as engine_module
from anabranch.engines.local.engine import LocalEngine
from anabranch.engines.local.gate import QUOTA, ElasticGate
from anabranch.flow import Flow
from anabranch.io import call, collect, generate
from anabranch.planning.plan import Plan
from anabranch.testing.compare import difference
from anabranch.testing.result import RunResult
from anabranch.testing.sequential import run_sequential
from tests.waiting import wait_until

TRIES = 5
"""A thread that a busy machine holds up between two steps looks like one that stands still."""

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
ROWS = 600
PATIENCE_S = 60.0


def numbers(rng: Any, index: Any) -> dict[str, Any]:
    return {"ts": index, "k": index % 3}


@pytest.fixture
def relaxed(monkeypatch: pytest.MonkeyPatch) -> list[ElasticGate]:
    """The gates that had to be relaxed."""
    gates: list[ElasticGate] = []
    relax = ElasticGate.relax

    def watched(gate: ElasticGate) -> None:
        gates.append(gate)
        relax(gate)

    monkeypatch.setattr(ElasticGate, "relax", watched)
    return gates


def diamond(rate_per_s: float | None) -> Flow:
    """One branch is far behind the other, and a join waits for both."""
    flow = Flow("diamond", buckets=4)
    source = flow.source("rows", generate(numbers, SCHEMA, ROWS, rate_per_s))
    early = source.timed("early", "ts", lateness=0)
    late = source.timed("late", "ts", lateness=ROWS // 2)
    early.join("both", late, key="k", within=2).sink("out", collect())
    return flow


def run_diamond(rate_per_s: float | None, beside: float | None = None) -> tuple[bool, Any]:
    """Run it, perhaps beside a source that has a row now and then; whether it ended, and how.

    The other source has rows for longer than anybody waits.
    """
    flow, sink = diamond(rate_per_s), collect()
    flow = flow.writing({"out": sink})
    if beside is not None:
        rows = generate(numbers, SCHEMA, None, beside)
        flow.source("trickle", rows).map("past", lambda b: {}, keeps="*").sink("aside", collect())
    plan = Plan.sequential(flow).with_source("rows", batch_rows=5)
    engine = LocalEngine(flow, plan, Options())
    engine.start(lambda event: None)
    until = time.monotonic() + PATIENCE_S
    while not (engine.wait(0.05) or engine.region("out").ended) and time.monotonic() < until:
        pass
    ended = engine.region("out").ended
    engine.stop()
    got = RunResult({"out": sink.table()}, expected().counters)
    return ended, difference(diamond(None), expected(), got)


@cache
def expected() -> RunResult:
    return run_sequential(diamond(None))


def test_a_join_of_branches_far_apart_gets_longer_queues_and_ends(relaxed: list[ElasticGate]):
    assert run_diamond(None) == (True, None)
    assert relaxed


def test_a_paced_source_that_is_held_up_does_not_hide_a_standstill():
    assert run_diamond(1e6) == (True, None)


def keeps_its_bounds(run: Callable[[], None], relaxed: list[ElasticGate]) -> bool:
    """Whether nothing had to be relaxed in one of several runs."""
    for _ in range(TRIES):
        relaxed.clear()
        run()
        if not relaxed:
            return True
    return False


def test_queues_are_not_made_longer_for_a_source_that_is_slow(relaxed: list[ElasticGate]):
    def run() -> None:
        flow = Flow("slow")
        rows = generate(numbers, SCHEMA, 12, rate_per_s=20.0)
        whole = flow.source("rows", rows, time="ts").map("all", lambda b: {}, keeps="*")
        whole.sink("out", collect())
        engine = LocalEngine(flow, Plan.sequential(flow), Options())
        engine.start(lambda event: None)
        assert engine.wait(PATIENCE_S)

    assert keeps_its_bounds(run, relaxed)


def test_queues_are_not_made_longer_for_an_operator_that_is_slow(relaxed: list[ElasticGate]):
    def slow(batch: pa.RecordBatch) -> dict[str, Any]:
        time.sleep(0.25)  # several ticks
        return {}

    def run() -> None:
        flow = Flow("slow")
        rows = generate(numbers, SCHEMA, 60)
        flow.source("rows", rows).map("slow", slow, keeps="*").sink("out", collect())
        plan = Plan.sequential(flow).with_source("rows", batch_rows=5)
        engine = LocalEngine(flow, plan, Options())
        engine.start(lambda event: None)
        wait_until(engine.region("slow").gate.held_up)
        assert engine.wait(PATIENCE_S)

    assert keeps_its_bounds(run, relaxed)


def test_a_slow_sink_keeps_the_bounds_of_the_queues(
    relaxed: list[ElasticGate], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(engine_module, "DRAIN_S", 0.1)
    most: list[int] = []

    def run() -> None:
        flow = Flow("slow")
        rows = generate(numbers, SCHEMA)
        sink = call(lambda batch, version: time.sleep(0.25))
        flow.source("rows", rows).map("all", lambda b: {}, keeps="*").sink("out", sink)
        plan = Plan.sequential(flow).with_source("rows", batch_rows=100)
        engine = LocalEngine(flow, plan, Options())
        engine.start(lambda event: None)
        until = time.monotonic() + 2.0
        most[:] = [0]
        while time.monotonic() < until:
            most.append(sum(gate.length()[0] for gate in engine._parts.gates.values()))
            time.sleep(0.01)
        engine.stop()

    assert keeps_its_bounds(run, relaxed)
    assert max(most) <= 4 * QUOTA


def test_a_standstill_is_noticed_though_another_part_of_the_graph_goes_on():
    """The diamond blocks itself while a source of its own trickles on beside it."""
    assert run_diamond(None, beside=20.0) == (True, None)
