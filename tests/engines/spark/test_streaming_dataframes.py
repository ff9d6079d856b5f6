"""Streaming DataFrames on real Spark: every row once, whatever Spark's micro-batches look like."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from threading import Event

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import anabranch as ab
from anabranch.events import Observed
from anabranch.flow import Flow
from anabranch.io.reading_back import read_back
from anabranch.planning.plan import Plan
from anabranch.testing.sequential import run_sequential

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

FILE_ROWS = 10


def readings(rows: int, seed: int) -> pa.Table:
    """Rows (n, ts, k, v), in the order of both n and ts."""
    rng = Random(seed)
    times = sorted(rng.randrange(rows) for _ in range(rows))
    return pa.table(
        {
            "n": pa.array(range(rows), pa.int64()),
            "ts": pa.array(times, pa.int64()),
            "k": [rng.choice("abc") for _ in range(rows)],
            "v": pa.array([rng.randrange(100) for _ in range(rows)], pa.int64()),
        }
    )


def written(table: pa.Table, folder: Path) -> Path:
    """The rows in files that Spark takes one after another."""
    folder.mkdir()
    for number, start in enumerate(range(0, len(table), FILE_ROWS)):
        path = folder / f"{number:03d}.parquet"
        pq.write_table(table.slice(start, FILE_ROWS), path)
        os.utime(path, (1000 + number, 1000 + number))
    return folder


def streamed(spark: SparkSession, folder: Path) -> DataFrame:
    """A file a micro-batch."""
    reader = spark.readStream.schema("n bigint, ts bigint, k string, v bigint")
    return reader.option("maxFilesPerTrigger", 1).parquet(str(folder))


def test_a_bounded_dataframe_goes_on_behind_a_micro_batch_without_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    texts = ["a\nb\n", "", "c\n", "", "", "d\ne\n"]
    (tmp_path / "in").mkdir()
    for number, text in enumerate(texts):
        path = tmp_path / "in" / f"{number}.txt"
        path.write_text(text)
        os.utime(path, (1000 + number, 1000 + number))
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(tmp_path / "in"))
    numbered = lines.selectExpr("value as line", "ascii(value) as number")
    flow = Flow("empty-files")
    source = ab.dataframe(numbered, order="number", bounded=True)
    flow.source("lines", source).sink("out", ab.collect())
    batches: list[int] = []

    def hear(event: object) -> None:
        if isinstance(event, Observed):
            batches.append(event.observation.rows_in)

    result = ab.run(flow, session=spark, listener=hear)
    assert result.ended
    assert result.rows_in == 5
    found = flow.graph.steps["out"].body.sink.table()["line"].to_pylist()
    assert found == ["a", "b", "c", "d", "e"]
    assert 0 in batches[: batches.index(1)]  # the empty file was a micro-batch of its own


def test_two_dataframes_and_files_meet_by_event_time_as_in_the_sequential_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables = {"left": readings(40, 1), "right": readings(30, 2)}
    flow = Flow("meeting", buckets=16)
    left, right = (
        flow.source(
            name,
            ab.dataframe(streamed(spark, written(table, tmp_path / name)), order="n", bounded=True),
            time="ts",
        )
        for name, table in tables.items()
    )
    folder = written(readings(30, 3), tmp_path / "beside")
    beside = flow.source("beside", ab.files(folder / "*.parquet"), time="ts")
    left.join("pair", right, key="k", within=3).sink("pairs", ab.collect())
    left.union("both", beside).aggregate(
        "per-window", key="k", window=ab.tumbling(8), n=ab.count(), most=ab.max("v")
    ).sink("windows", ab.collect())
    beside.sink("copy", ab.collect())

    rows = {name: ab.memory(table) for name, table in tables.items()}
    expected = run_sequential(flow.reading(rows))
    assert len(expected.rows("pairs")) > 30
    assert len(expected.rows("windows")) > 10
    plan = Plan.sequential(flow).with_source("beside", batch_rows=12)
    plan = plan.with_replicas("pair", 2).with_replicas("per-window", 2)
    result = ab.run(flow, plan=plan, session=spark)
    assert result.rows_in == 100
    for sink in ("pairs", "windows", "copy"):
        assert flow.graph.steps[sink].body.sink.table().to_pylist() == expected.rows(sink), sink


def forget(folder: Path, version: int) -> None:
    """Remove what was written for a version and later ones, as if that had not happened yet."""
    for path in folder.iterdir():
        number = path.name.lstrip(".").split(".")[0]
        if number.isdigit() and int(number) >= version:
            path.unlink()


@pytest.mark.parametrize("lost", [(), ("spark/commits",), ("spark/commits", "manifests")])
def test_a_run_that_goes_on_has_every_row_of_a_dataframe_once(
    spark: SparkSession, tmp_path: Path, lost: tuple[str, ...]
) -> None:
    """Stopped; or killed before Spark's commit of a batch, or before the manifest as well."""
    table = readings(60, 4)
    folder = written(table, tmp_path / "in")

    def built() -> Flow:
        flow = Flow("going-on", buckets=16)
        flow.source(
            "rows", ab.dataframe(streamed(spark, folder), order="n", bounded=True)
        ).aggregate("totals", key="k", emit="every", n=ab.count(), sum=ab.sum("v")).sink(
            "out", ab.parquet(tmp_path / "out")
        )
        return flow

    reached = Event()

    def hear(event: object) -> None:
        if isinstance(event, Observed) and event.observation.batch >= 1:
            reached.set()

    flow = built()
    plan = Plan.sequential(flow).with_replicas("totals", 2)
    options = {"session": spark, "checkpoint": tmp_path / "checkpoint"}
    handle = ab.start(flow, plan=plan, listener=hear, **options)
    assert reached.wait(60)
    handle.stop()
    first = handle.result()
    assert not first.ended
    last = len(list((tmp_path / "checkpoint" / "manifests").iterdir())) - 1
    assert last >= 1
    if lost:
        forget(tmp_path / "checkpoint" / "spark" / "offsets", last + 1)
    for part in lost:
        forget(tmp_path / "checkpoint" / part, last)
    second = ab.run(built(), **options)
    assert second.ended
    if "manifests" not in lost:
        assert first.rows_in + second.rows_in == 60
    expected = run_sequential(flow.reading({"rows": ab.memory(table)}))
    assert read_back(tmp_path / "out").to_pylist() == expected.rows("out")
