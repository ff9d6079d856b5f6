"""Checkpoints that go from the local engine to Spark and back, each row exactly once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from shutil import unpack_archive
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.engines.checkpoint.checkpoint import Checkpoint
from anabranch.engines.checkpoint.manifest import Manifest
from anabranch.events import Event, RunStarted
from anabranch.flow import Flow
from anabranch.io.reading_back import read_back
from anabranch.planning.plan import Plan
from anabranch.testing.sequential import run_sequential
from tests.engines.checkpoint.earlier_flow import build
from tests.engines.checkpoint.test_earlier_versions import WRITTEN, rows_to_come
from tests.engines.spark.conftest import spark

__all__ = ["spark"]  # a fixture: one session for all tests of a worker

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

FILES, FILE_ROWS = 6, 300
BATCH_ROWS = 60
DEADLINE_S = 60.0

Rows = list[dict[str, Any]]


@ab.partitioned(key="k", out="k: string, v: int64, total: int64")
def totals(ctx: ab.Invocation) -> None:
    for row in ctx.tuples():
        ctx.state["total"] = ctx.state.get("total", 0) + row.v
        ctx.emit(v=row.v, total=ctx.state["total"])


@ab.shared(out="v: int64, bucket: int64, seen: int64")
def seen(batch: Any, bucket: Any) -> Any:
    columns: dict[str, list[int]] = {"v": [], "bucket": [], "seen": []}
    for v in batch["v"].to_pylist():
        bucket.state["seen"] = bucket.state.get("seen", 0) + 1
        columns["v"].append(v)
        columns["bucket"].append(bucket.index)
        columns["seen"].append(bucket.state["seen"])
    return columns, list(range(len(columns["v"])))


def slowly(batch: Any) -> dict[str, Any]:
    """Leaves time to stop a run in the middle; the sequential run has one row at a time."""
    if batch.num_rows > 1:
        time.sleep(0.02)
    return {}


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    """Two sources of several files, in event time: their rows wait for each other."""
    for name, step in (("left", 3), ("right", 2)):
        folder = tmp_path / name
        folder.mkdir()
        for number in range(FILES):
            rows = range(number * FILE_ROWS, (number + 1) * FILE_ROWS)
            columns = {
                "ts": [row // step for row in rows],
                "k": ["abcdefg"[row * row % 11 % 7] for row in rows],
                "v": list(rows),
            }
            pq.write_table(pa.table(columns), folder / f"{number}.parquet")
    made = Flow("portable", buckets=8)
    left = made.source("left", ab.files(tmp_path / "left"), time="ts")
    right = made.source("right", ab.files(tmp_path / "right"), time="ts")
    left = left.map("slowly", slowly, keeps=["ts", "k", "v"])
    left.aggregate("windows", key="k", window=ab.tumbling(50), n=ab.count(), v=ab.sum("v")).sink(
        "windowed", ab.parquet(tmp_path / "windowed")
    )
    left.join("pairs", right, key="k", within=1).sink("joined", ab.parquet(tmp_path / "joined"))
    added = left.apply("totals", totals)
    added.filter("odd", lambda batch: [v % 2 == 1 for v in batch["v"].to_pylist()]).sink(
        "added", ab.parquet(tmp_path / "added")
    )
    left.apply("seen", seen).sink("counted", ab.parquet(tmp_path / "counted"))
    return made


def plans(flow: Flow) -> Iterator[Plan]:
    """Narrow, wide, and with pipelines cut, again and again."""
    plan = Plan.sequential(flow)
    for source in plan.sources:
        plan = plan.with_source(source.source, batch_rows=BATCH_ROWS, replicas=2)
    wide = plan.with_replicas("totals", 3).with_replicas("pairs", 2).with_replicas("windows", 2)
    while True:
        yield wide.with_pipelines("totals", 1, 1)
        yield plan
        yield plan.with_replicas("totals", 2).with_pipelines("totals", 1, 1)
        yield wide.with_replicas("seen", 2)


def part_of_the_way(
    flow: Flow, directory: Path, plan: Plan, engine: str, rows: int, **options: Any
) -> Manifest:
    """Run until so many rows were read, and stop."""
    run = ab.start(flow, engine=engine, plan=plan, checkpoint=directory, **options)
    until_s = time.monotonic() + DEADLINE_S
    while run.result().rows_in < rows and time.monotonic() < until_s:
        time.sleep(0.01)
    run.stop()
    last = Checkpoint.open(directory, flow).last
    assert last is not None
    assert not last.ended
    return last


def in_order(rows: Rows) -> list[str]:
    return sorted(map(repr, rows))


def test_a_run_goes_from_engine_to_engine_and_each_row_is_written_once(
    flow: Flow, tmp_path: Path, spark: SparkSession
) -> None:
    directory, plan = tmp_path / "checkpoint", plans(flow)
    legs = []
    for rows in (600, 400):
        legs.append(part_of_the_way(flow, directory, next(plan), "local", rows, workers=2))
        legs.append(part_of_the_way(flow, directory, next(plan), "spark", rows, session=spark))
    zeros = [leg.batch_zero for leg in legs]
    assert zeros == [None, legs[0].version + 1, None, legs[2].version + 1]
    assert {path.name for path in directory.glob("spark*")} == {f"spark-{z}" for z in zeros[1::2]}
    ab.run(flow, engine="local", plan=next(plan), checkpoint=directory, workers=2)
    expected = run_sequential(flow)
    for sink in ("windowed", "joined", "added", "counted"):
        assert in_order(read_back(tmp_path / sink).to_pylist()) == in_order(expected.rows(sink))


def test_without_a_plan_a_run_goes_on_under_that_of_the_other_engine(
    flow: Flow, tmp_path: Path, spark: SparkSession
) -> None:
    directory = tmp_path / "checkpoint"
    plan = next(plans(flow)).with_workers("totals", 1)
    part_of_the_way(flow, directory, plan, "local", 600, workers=2)
    events: list[Event] = []
    ab.run(flow, engine="spark", checkpoint=directory, session=spark, listener=events.append)
    (started,) = (event for event in events if isinstance(event, RunStarted))
    assert Plan.from_json(started.plan) == plan
    assert in_order(read_back(tmp_path / "added").to_pylist()) == in_order(
        run_sequential(flow).rows("added")
    )


def test_after_going_back_to_a_version_of_the_local_engine_spark_counts_anew(
    flow: Flow, tmp_path: Path, spark: SparkSession
) -> None:
    directory, plan = tmp_path / "checkpoint", plans(flow)
    local = part_of_the_way(flow, directory, next(plan), "local", 600, workers=2)
    part_of_the_way(flow, directory, next(plan), "spark", 200, session=spark)
    ab.rollback(flow, directory, local.version)
    again = part_of_the_way(flow, directory, next(plan), "spark", 200, session=spark)
    assert again.batch_zero == local.version + 1
    ab.run(flow, engine="spark", plan=next(plan), checkpoint=directory, session=spark)
    assert in_order(read_back(tmp_path / "joined").to_pylist()) == in_order(
        run_sequential(flow).rows("joined")
    )


@pytest.mark.parametrize(("written", "engine"), [("local", "spark"), ("spark", "local")])
def test_the_other_engine_goes_on_from_a_checkpoint_of_an_earlier_version(
    tmp_path: Path, spark: SparkSession, written: str, engine: str
) -> None:
    unpack_archive(WRITTEN / f"{written}.zip", tmp_path)
    flow = build()
    session = spark if engine == "spark" else None
    ab.run(flow, engine=engine, checkpoint=tmp_path, session=session)
    (sink,) = flow.sinks().values()
    assert sink.table().to_pylist() == rows_to_come()  # type: ignore[attr-defined]
