"""`check` on threads: plans change while rows come, an honest flow passes, a liar is found."""

from __future__ import annotations

import copy
import pickle
import time
from random import Random

import pyarrow as pa
import pytest

from anabranch.apps import word_count
from anabranch.engines.local.engine import LocalEngine
from anabranch.errors import EngineError
from anabranch.events import Reconfiguration
from anabranch.flow import Flow
from anabranch.io import collect, generate, memory, stamped
from anabranch.planning.plan import Plan
from anabranch.running import run
from anabranch.testing import on_engine
from anabranch.testing.checking import check
from anabranch.testing.on_engine import run_watched, small_batches
from tests.nudging import Nudging, nudging

ROWS = 200
X = pa.schema([("x", pa.int64())])


@pytest.fixture
def seen_rows(monkeypatch) -> list[int]:
    """How many rows had been read each time that another plan was in force."""
    rows: list[int] = []
    whole = on_engine.start

    def start(flow, *, listener, **options):
        def hear(event):
            if isinstance(event, Reconfiguration):
                rows.append(handle.engine.rows[0])
            listener(event)

        handle = whole(flow, listener=hear, **options)
        return handle

    monkeypatch.setattr(on_engine, "start", start)
    return rows


def test_plans_change_on_threads_while_rows_come(seen_rows):
    report = check(word_count.build(), engine="local", cases=20, rows=ROWS, processes=0)
    assert (report.ok, report.runs) == (True, 21)
    midway = [rows for rows in seen_rows if 0 < rows < ROWS]
    assert len(midway) >= 5, seen_rows


def test_a_plan_is_in_force_before_the_last_rows_though_the_engine_takes_its_time(monkeypatch):
    drive = LocalEngine._drive

    def late(engine):
        time.sleep(0.5)  # all rows would have been read by then
        drive(engine)

    monkeypatch.setattr(LocalEngine, "_drive", late)
    flow = word_count.build(rows=ROWS)
    plan = Plan.sequential(flow).with_source("lines", batch_rows=ROWS // 4)
    plans = [plan, plan.with_replicas("count", 2)]
    _, handle = run_watched(flow, "local", plans, deadline_s=60.0)
    assert len(handle.reconfigurations) == 1


def test_an_operator_that_depends_on_batching_is_found_on_threads():
    flow = Flow("lying")
    flow.source("s", memory([{"x": i} for i in range(20)])).map(
        "liar", lambda b: {"n": list(range(b.num_rows))}, out="n: int64"
    ).sink("out", collect())
    report = check(flow, engine="local", cases=2, processes=0)
    assert (report.finding.question, report.finding.step) == ("depends on batching", "liar")
    assert report.finding.how.startswith("local with 65536 → ")


def test_a_run_without_an_end_is_an_error_at_the_deadline():
    flow = Flow("endless")
    source = generate(lambda rng, index: {"x": index}, X, rows=None, rate_per_s=10)
    flow.source("s", source).sink("out", collect())
    with pytest.raises(EngineError, match="an end within"):
        run_watched(flow, "local", [Plan.sequential(flow)], deadline_s=0.05)


def test_batches_are_smaller_where_they_cost_little():
    flow = word_count.build()
    sizes = {
        engine: min(
            small_batches(Plan.sequential(flow), 240, Random(seed), engine).sources[0].batch_rows
            for seed in range(50)
        )
        for engine in ("spark", "local")
    }
    assert sizes == {"spark": 40, "local": 10}


def test_a_source_that_nudges_stays_behind_when_it_travels():
    calls: list[int] = []
    source = Nudging(memory([{"x": 1}]), lambda: calls.append(1))
    assert source.read("memory", 0, 5).batch.to_pylist() == [{"x": 1}]
    assert copy.copy(source).read("memory", 0, 5) is not None
    assert calls == [1, 1]
    there = pickle.loads(pickle.dumps(source))
    assert there.read("memory", 0, 5).batch.to_pylist() == [{"x": 1}]
    assert calls == [1, 1]


def test_the_stamps_of_a_source_that_nudges_are_those_of_its_source():
    source = stamped(generate(lambda rng, index: {"x": index}, X), lambda: 7)
    flow = Flow("stamped")
    flow.source("s", source).sink("out", out := collect())
    calls: list[int] = []
    run(nudging(flow, lambda: calls.append(1)), engine="local", rows=ROWS)
    assert calls
    assert out.table().num_rows == ROWS
    assert source.latest == 7
    assert source.record["generated"] == [], "nobody reads those rows again"
