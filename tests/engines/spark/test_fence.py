"""Two runs of one checkpoint: the one that came last counts, whatever the other still does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.engines.checkpoint.checkpoint import Checkpoint
from anabranch.engines.checkpoint.manifest import Manifest
from anabranch.engines.spark.batches import Batches
from anabranch.engines.spark.layout import StageLayout
from anabranch.engines.spark.sinks import spark_sinks
from anabranch.engines.spark.task_inputs import Batch, JobResult, Program
from anabranch.errors import StateError
from anabranch.events import Event, Observed
from anabranch.flow import Flow
from anabranch.io.reading_back import read_back
from anabranch.planning.plan import Plan
from anabranch.testing.sequential import run_sequential
from tests.engines.spark.one_by_one import OneByOne

ROWS = [{"user": f"u{number % 5}", "n": number} for number in range(120)]


@ab.partitioned(key="user", out="user: string, total: int64")
def totals(ctx: ab.Invocation) -> None:
    for row in ctx.tuples():
        ctx.state["total"] = ctx.state.get("total", 0) + row.n
        ctx.emit(total=ctx.state["total"])


def build(directory: Path) -> Flow:
    flow = Flow("fence", buckets=8)
    added = flow.source("rows", ab.memory(ROWS)).apply("totals", totals)
    added.sink("out", ab.parquet(directory / "out"))
    added.filter("some", lambda batch: [n % 2 == 0 for n in batch["total"].to_pylist()]).sink(
        "even", ab.csv(directory / "even")
    )
    return flow


def plan_of(flow: Flow, batch_rows: int = 10) -> Plan:
    plan = Plan.sequential(flow).with_source("rows", batch_rows=batch_rows)
    return plan.with_replicas("totals", 2)


class Running(OneByOne):
    """A run of that flow."""

    def __init__(self, directory: Path) -> None:
        flow = build(directory)
        super().__init__(flow, directory / "checkpoint", plan_of(flow))

    def files(self, directory: Path) -> list[str]:
        """Everything that this run wrote and nobody has taken away."""
        return [
            str(file.relative_to(directory))
            for folder in ("checkpoint/state", "out", "even")
            for file in (directory / folder).iterdir()
            if self.checkpoint.token in file.name
        ]


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[list[Running]]:
    """Runs of one checkpoint, in the order of their starts."""
    begun: list[Running] = []
    yield begun
    for run in begun:
        run.close()


def assert_exactly_once(directory: Path) -> None:
    expected = run_sequential(build(directory / "never written"))
    for sink in ("out", "even"):
        assert read_back(directory / sink).to_pylist() == expected.rows(sink)


def test_tasks_and_a_driver_that_come_late_change_nothing(
    runs: list[Running], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Running(tmp_path)
    runs.append(old)
    for _ in range(3):
        old.next()
    kept = set(old.files(tmp_path))
    job = old.job

    def late(layout: StageLayout, batch: Batch) -> JobResult:
        """The batch is under way when another run takes over and is faster."""
        new = Running(tmp_path)
        runs.append(new)
        new.next()
        new.next()
        return job(layout, batch)

    monkeypatch.setattr(old, "job", late)
    with pytest.raises(StateError, match="another run took over"):
        old.next()
    orphans = set(old.files(tmp_path)) - kept
    assert {name.partition("/")[0] for name in orphans} == {"checkpoint", "out", "even"}

    new = runs[1]
    new.to_the_end()
    assert_exactly_once(tmp_path)
    assert not orphans & set(old.files(tmp_path))


def test_a_run_that_was_taken_over_between_batches_stops_with_a_clear_error(
    runs: list[Running], tmp_path: Path
) -> None:
    old = Running(tmp_path)
    old.next()
    new = Running(tmp_path)
    runs += [old, new]
    with pytest.raises(StateError, match=r"owned by this run \(1-.*\), got 2-.*one run at a time"):
        old.next()
    new.next()
    with pytest.raises(StateError, match="another run took over"):
        old.batches.next(2, old.plan, old.plan, 0.0, old.job)
    new.to_the_end()
    assert_exactly_once(tmp_path)


def test_a_manifest_that_slipped_through_the_fence_is_gone_on_from(
    runs: list[Running], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old driver looks at the fence, is held up while another run takes over, and publishes."""
    old = Running(tmp_path)
    old.next()
    publish = old.checkpoint.storage.create

    def held_up(path: str, data: bytes) -> bool:
        if path.startswith("manifests/") and len(runs) == 1:
            runs.append(Running(tmp_path))
        return publish(path, data)

    runs.append(old)
    monkeypatch.setattr(old.checkpoint.storage, "create", held_up)
    with pytest.raises(StateError, match="another run took over"):
        old.next()
    with pytest.raises(StateError, match="start again"):
        runs[1].next()
    third = Running(tmp_path)
    runs.append(third)
    third.to_the_end()
    assert_exactly_once(tmp_path)


def test_a_version_committed_while_the_run_is_taken_over_keeps_its_output(
    runs: list[Running], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new run has looked for the last version, but not opened its sinks, when another comes."""
    old = Running(tmp_path)
    runs.append(old)
    old.next()
    publish = old.checkpoint.storage.create
    program = Program(build(tmp_path), old.program.checkpoint, old.program.cache)
    opened: list[Checkpoint] = []

    def held_up(path: str, data: bytes) -> bool:
        if path.startswith("manifests/"):
            opened.append(Checkpoint.open(program.checkpoint, program.flow))
            assert opened[0].last is not None
            assert opened[0].last.version == 0
        return publish(path, data)

    monkeypatch.setattr(old.checkpoint.storage, "create", held_up)
    monkeypatch.setattr(old.checkpoint, "require_owned", lambda: None)  # it has just passed that
    old.next()
    visible = {file for folder in ("out", "even") for file in (tmp_path / folder).glob("part-*")}
    assert len([file for file in visible if file.stem == "part-00000001"]) == 2
    with pytest.raises(StateError, match=r"version 0 to be the last, got version 1.*start again"):
        Batches(program, opened[0], spark_sinks(program, opened[0].storage, None), None)
    assert all(file.exists() for file in visible)

    runs.append(Running(tmp_path))
    runs[-1].to_the_end()
    assert_exactly_once(tmp_path)


def test_a_run_that_is_taken_over_behind_its_manifest_leaves_the_commit_to_the_next(
    runs: list[Running], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Running(tmp_path)
    runs.append(old)
    publish = old.checkpoint.publish

    def taken_over(manifest: Manifest) -> None:
        publish(manifest)
        Checkpoint.open(old.program.checkpoint, old.program.flow)

    monkeypatch.setattr(old.checkpoint, "publish", taken_over)
    with pytest.raises(StateError, match="another run took over"):
        old.next()
    assert not list(tmp_path.glob("out/part-0*"))

    runs.append(Running(tmp_path))
    runs[-1].to_the_end()
    assert_exactly_once(tmp_path)


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_of_two_live_runs_on_spark_the_older_one_fails_and_the_newer_one_is_right(
    spark: SparkSession, tmp_path: Path
) -> None:
    begun = threading.Event()

    def hear(event: Event) -> None:
        if isinstance(event, Observed):
            begun.set()

    flow = build(tmp_path)
    options = {"plan": plan_of(flow, 5), "checkpoint": tmp_path / "checkpoint"}
    older = ab.start(flow, session=spark, listener=hear, **options)
    assert begun.wait(60)
    newer = ab.start(build(tmp_path), session=spark.newSession(), **options)
    with pytest.raises(StateError, match="another run took over"):
        older.await_termination(60)
    assert newer.await_termination(60)
    assert newer.result().ended
    assert_exactly_once(tmp_path)
