"""Exactly once, on every engine that keeps checkpoints: what was stopped or failed goes on."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.engines.handle import Run
from anabranch.engines.registry import ENGINES
from anabranch.errors import AnabranchError
from anabranch.events import Event, Observed
from anabranch.flow import Flow
from anabranch.graph import Role
from anabranch.io.reading_back import read_back
from anabranch.planning.plan import Plan
from anabranch.testing.compare import difference
from anabranch.testing.result import RunResult
from anabranch.testing.sequential import run_sequential
from tests.conformance.capabilities import CANNOT
from tests.conformance.flows import NAMES, subject
from tests.conformance.ways import SLOW, changing, marked, options_of
from tests.nudging import nudging
from tests.sampling import ALL, sampled

pytestmark = sampled

BATCHES = {SLOW: 6}
MANY_BATCHES = 40
PATIENCE_S = 30.0
TAKEN_UP_S = 0.1
STILL_NOT_S = 2.0
FEW_READS = 4
ABLE = [engine for engine in ENGINES if (engine, "checkpoint") not in CANNOT]
FLOWS = NAMES if ALL else ["readings"]


def to_files(flow: Flow, folder: Path) -> Flow:
    return flow.writing({sink: ab.parquet(folder / sink) for sink in flow.names(Role.SINK)})


def in_files(flow: Flow, folder: Path) -> RunResult:
    return RunResult({sink: read_back(folder / sink) for sink in flow.names(Role.SINK)})


def in_batches(plan: Plan, rows: int, engine: str) -> Plan:
    batches = BATCHES.get(engine, MANY_BATCHES)
    for source in plan.sources:
        plan = plan.with_source(source.source, batch_rows=max(1, rows // batches))
    return plan


@pytest.mark.parametrize(
    ("engine", "name"),
    [marked(engine, name) for engine in ABLE for name in FLOWS if ALL or engine != SLOW],
)
def test_a_run_stopped_again_and_again_goes_on_under_other_plans(engine, name, request, tmp_path):
    seen = subject(name)
    flow = to_files(seen.flow, tmp_path)
    given = {"checkpoint": tmp_path / "checkpoint", **options_of(engine, request)}
    plans = [in_batches(plan, seen.rows, engine) for plan in changing(flow, 0)]
    ends = [stopped_early(flow, plan, engine, **given).result().ended for plan in plans]
    assert not any(ends)
    same = nudging(flow, lambda: None)  # a checkpoint knows the kind of its sources
    assert ab.run(same, engine=engine, **given).ended
    got = in_files(flow, tmp_path)
    got.counters.update(seen.expected.counters)  # a run counts what it has seen itself
    assert difference(flow, seen.expected, got) is None


def stopped_early(flow: Flow, plan: Plan, engine: str, **options: Any) -> Run:
    """Start, and stop with the first batch that is done, or the second one that is read here."""
    started = Future[Run]()
    reads, stopping = count(), threading.Event()

    def stop_soon() -> None:
        done = next(reads)
        if done >= 1:
            started.result(PATIENCE_S).stop()
            # A reader would be through before the engine hears of it: on a busy machine it may
            # take a while until the one that is to hear it gets its turn.
            stopping.wait(TAKEN_UP_S if done < FEW_READS else STILL_NOT_S)

    def hear(event: Event) -> None:
        if isinstance(event, Observed):
            started.result(PATIENCE_S).stop()

    fed = nudging(flow, stop_soon)
    handle = ab.start(fed, engine=engine, plan=plan, listener=hear, **options)
    started.set_result(handle)
    handle.await_termination()
    stopping.set()
    return handle


class Stumbles(Exception):
    """What the user's code raises while a file is there."""


@pytest.mark.parametrize("engine", [marked(engine) for engine in ABLE])
def test_a_run_that_failed_goes_on_when_the_cause_is_mended(engine, request, tmp_path):
    stone = tmp_path / "stone"
    rows = [{"key": f"k{i % 5}", "i": i} for i in range(60)]

    def careful(batch: Any) -> dict[str, Any]:
        if 47 in batch["i"].to_pylist() and stone.exists():
            raise Stumbles
        return {}

    flow = Flow("stumbling", buckets=8)
    (
        flow.source("rows", ab.memory(rows))
        .map("careful", careful, keeps=["key", "i"])
        .aggregate("count", key="key", n=ab.count(), emit="every")
        .sink("out", ab.parquet(tmp_path / "out"))
    )
    plan = Plan.sequential(flow).with_source("rows", batch_rows=10)
    given = {"plan": plan, "checkpoint": tmp_path / "checkpoint", **options_of(engine, request)}
    stone.touch()
    with pytest.raises(AnabranchError, match="Stumbles"):
        ab.run(flow, engine=engine, **given)
    assert read_back(tmp_path / "out").num_rows < len(rows)
    stone.unlink()
    assert ab.run(flow, engine=engine, **given).ended
    expected = run_sequential(flow).rows("out")
    assert read_back(tmp_path / "out").to_pylist() == expected
