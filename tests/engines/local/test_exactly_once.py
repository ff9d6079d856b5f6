"""The law with checkpoints: whatever is lost in a crash, the sinks end as if nothing had been."""

from __future__ import annotations

from pathlib import Path
from random import Random
from shutil import rmtree
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings

import anabranch as ab
from anabranch.engines.checkpoint.checkpoint import Checkpoint
from anabranch.engines.checkpoint.manifest import Manifest
from anabranch.engines.checkpoint.sinks import DELIVERED
from anabranch.engines.engine import Options
from anabranch.engines.local import engine as local_engine
from anabranch.engines.local import session
from anabranch.engines.local.engine import LocalEngine
from anabranch.errors import StateError
from anabranch.events import Observed
from anabranch.flow import Flow
from anabranch.graph import Role
from anabranch.io import call, collect, memory, parquet, read_back
from anabranch.operators.base import Counters
from anabranch.planning.plan import Plan
from anabranch.testing.compare import difference
from anabranch.testing.result import RunResult
from anabranch.testing.sequential import run_sequential
from tests.law.flows import Case, cases
from tests.sampling import SOAK, in_soak, sampled

CASES = in_soak(80, share=10)
DEADLINE_S = 60.0
MOST_STARTS = 40
REQUESTS = 10
"""Plans that are requested from outside; more without a pause could keep a run from its end."""


class Crash(Exception):
    """All is lost but what was saved."""


class Brittle:
    """A source that crashes the run now and then, and requests another plan in this process."""

    def __init__(self, source: Any, rng: Random, crash_share: float, request: Any = None) -> None:
        self._source, self._rng, self._share, self._request = source, rng, crash_share, request

    def __copy__(self) -> Brittle:
        return self

    def __reduce__(self) -> Any:
        return Brittle, (self._source, Random(self._rng.random()), self._share)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def read(self, part: str, start: int, rows: int) -> Any:
        if self._rng.random() < self._share:
            raise Crash
        if self._request is not None and self._rng.random() < 0.3:
            self._request()
        return self._source.read(part, start, rows)


class Requests:
    """Requests one of several plans of an engine."""

    def __init__(self, plans: list[Plan], rng: Random) -> None:
        self._plans, self._rng = plans, rng
        self.engine: LocalEngine | None = None

    def __call__(self) -> None:
        if self.engine is not None:
            self.engine.reconfigure(self._rng.choice(self._plans))


def run_with_crashes(
    flow: Flow,
    plans: list[Plan],
    seed_: int,
    directory: Path,
    workers: int,
    crash_share: float = 0.15,
) -> tuple[RunResult, int]:
    """Start again and again until the end; gives the result and how often it crashed."""
    rng = Random(seed_)
    sinks = {name: collect() for name in flow.names(Role.SINK)}
    counted = {name: Counters() for name in flow.names(Role.OPERATOR)}
    rows = rng.choice((1, 2, 5))
    small = [_small(plan, rows) for plan in plans]

    def hear(event: Any) -> None:
        if isinstance(event, Observed):
            for step in event.observation.steps:
                if step.step in counted:
                    counted[step.step] = Counters(
                        step.skipped, step.late, step.behind, step.most_behind, step.ahead
                    )

    for start in range(MOST_STARTS):
        share = crash_share if start < MOST_STARTS // 2 else 0.0
        request = Requests(small, rng)
        sources = {
            name: Brittle(flow.graph.steps[name].body.source, rng, share, request)
            for name in flow.names(Role.SOURCE)
        }
        engine = LocalEngine(
            flow.reading(sources).writing(sinks),
            rng.choice(small),
            Options(checkpoint=directory, workers=workers),
        )
        request.engine = engine
        engine.start(hear)
        try:
            for _ in range(REQUESTS):
                if engine.wait(0.02 * rng.random()):
                    break
                request()
            assert engine.wait(DEADLINE_S), "the run did not end"
            return RunResult({n: sink.table() for n, sink in sinks.items()}, counted), start
        except Crash:
            continue
    raise AssertionError("it never ended")


def _small(plan: Plan, rows: int) -> Plan:
    for source in plan.sources:
        plan = plan.with_source(source.source, batch_rows=rows)
    return plan


def holds(case: Case, directory: Path, workers: int) -> None:
    rmtree(directory, ignore_errors=True)
    expected = run_sequential(case.flow)
    plans = [case.plan, *case.changes]
    got, crashes = run_with_crashes(case.flow, plans, case.seed, directory, workers)
    found = difference(case.flow, expected, got)
    assert found is None, f"{case}\nafter {crashes} crashes\n{found}"


@pytest.fixture
def saving_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_engine, "SAVE_S", 0.0)
    monkeypatch.setattr(local_engine, "TICK_S", 0.001)


@sampled
@pytest.mark.timeout(0)
@pytest.mark.usefixtures("saving_all_the_time")
@pytest.mark.parametrize("workers", [0, 2])
def test_crashes_do_not_show(workers: int, tmp_path: Path) -> None:
    law(None if SOAK else workers, CASES // 2, tmp_path / "checkpoint", workers)()


def law(number: int | None, examples: int, directory: Path, workers: int) -> Any:
    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=False,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases())
    def property_(case: Case) -> None:
        holds(case, directory, workers)

    return property_ if number is None else seed(number)(property_)


# Two runs on one checkpoint


def to_files(folder: Path, *, overwrite: bool = False) -> Flow:
    flow = Flow("f")
    flow.source("rows", memory([{"x": n} for n in range(10)])).sink(
        "out", parquet(folder / "out", overwrite=overwrite)
    )
    return flow


def parts(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "out").glob("part-0*"))


def take_over(folder: Path) -> None:
    Checkpoint.open(folder / "checkpoint", to_files(folder))


def test_a_start_that_was_overtaken_leaves_the_files_of_the_newer_run(tmp_path, monkeypatch):
    options: Any = {"engine": "local", "checkpoint": tmp_path / "checkpoint"}
    ab.run(to_files(tmp_path), **options)
    shown = parts(tmp_path)
    assert shown
    manifests = tmp_path / "checkpoint" / "manifests"
    aside = manifests.rename(tmp_path / "aside")  # the start looks before the manifest is there

    def late(*given: object, **named: object) -> None:
        manifests.rmdir()
        aside.rename(manifests)

    monkeypatch.setattr(session, "require_same_parts", late)
    with pytest.raises(StateError, match="to be the last"):
        ab.run(to_files(tmp_path, overwrite=True), **options)
    assert parts(tmp_path) == shown


def test_a_run_that_is_taken_over_behind_its_manifest_leaves_the_commit_to_the_next(
    tmp_path, monkeypatch
):
    options: Any = {"engine": "local", "checkpoint": tmp_path / "checkpoint"}
    publish = Checkpoint.publish

    def taken_over(checkpoint: Checkpoint, manifest: Manifest) -> None:
        publish(checkpoint, manifest)
        take_over(tmp_path)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "publish", taken_over)
        with pytest.raises(StateError, match="another run took over"):
            ab.run(to_files(tmp_path), **options)
    assert parts(tmp_path) == []
    ab.run(to_files(tmp_path), **options)
    assert read_back(tmp_path / "out")["x"].to_pylist() == list(range(10))


def test_a_run_that_is_taken_over_while_it_commits_does_not_note_the_delivery(tmp_path):
    flow = Flow("f")
    flow.source("rows", memory([{"x": 1}])).sink("out", call(lambda *_: take_over(tmp_path)))
    with pytest.raises(StateError, match="another run took over"):
        ab.run(flow, engine="local", checkpoint=tmp_path / "checkpoint")
    assert not (tmp_path / "checkpoint" / DELIVERED).exists()
