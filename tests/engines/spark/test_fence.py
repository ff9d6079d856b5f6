"""Two runs of one checkpoint: the one that came last counts, whatever the other still does."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.engines.checkpoint.checkpoint import Checkpoint
from anabranch.engines.spark.batches import Batches, Done
from anabranch.engines.spark.job import outcome_of
from anabranch.engines.spark.keeper import remove_lot
from anabranch.engines.spark.layout import Layout
from anabranch.engines.spark.program import Batch, Outcome, Program
from anabranch.engines.spark.sinks import Sinks
from anabranch.engines.spark.task import TaskRun
from anabranch.errors import StateError
from anabranch.events import Event, Observed
from anabranch.flow import Flow
from anabranch.io.read_back import read_back
from anabranch.plan.plan import Plan
from anabranch.testing.sequential import run_sequential

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


class Running:
    """A run whose batches are made one by one, its tasks in this process."""

    def __init__(self, directory: Path) -> None:
        flow = build(directory)
        self.program = Program(flow, str(directory / "checkpoint"), uuid4().hex)
        self.checkpoint = Checkpoint.open(self.program.checkpoint, flow)
        sinks = Sinks(self.program, self.checkpoint.storage, None)
        self.batches = Batches(self.program, self.checkpoint, sinks, None)
        self.plan = plan_of(flow)

    def next(self) -> Done:
        last = self.checkpoint.last
        version = 0 if last is None else last.version + 1
        done = self.batches.next(version, self.plan, self.plan, 0.0, self.job)
        assert done is not None
        return done

    def to_the_end(self) -> None:
        while not self.batches.ended():
            self.next()

    def job(self, layout: Layout, batch: Batch) -> Outcome:
        program, batch = pickle.loads(self.program.packed()), pickle.loads(pickle.dumps(batch))
        inbox: dict[int, list[pa.RecordBatch]] = {task: [] for task in range(layout.tasks[0])}
        for stage in range(layout.last_stage + 1):
            following = layout.tasks[stage + 1] if stage < layout.last_stage else 1
            sent: dict[int, list[pa.RecordBatch]] = {task: [] for task in range(following)}
            for task, rows in inbox.items():
                run = TaskRun(program, batch, stage, task, f"{stage}.{task}")
                for row in run.work(iter(rows)):
                    sent[row.column(0)[0].as_py()].append(row)
            inbox = sent
        return outcome_of(inbox[0])

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
        remove_lot(run.program.lot)


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

    def late(layout: Layout, batch: Batch) -> Outcome:
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
    """The old driver looks at the fence, is held up while another run takes over, and commits."""
    old = Running(tmp_path)
    old.next()
    publish = old.checkpoint.storage.create

    def held_up(path: str, data: bytes) -> bool:
        if path.startswith("manifests/") and len(runs) == 1:
            runs.append(Running(tmp_path))
        return publish(path, data)

    runs.append(old)
    monkeypatch.setattr(old.checkpoint.storage, "create", held_up)
    old.next()
    with pytest.raises(StateError, match="start again"):
        runs[1].next()
    third = Running(tmp_path)
    runs.append(third)
    third.to_the_end()
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
