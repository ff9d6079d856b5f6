"""Word count on real Spark, under many plans: always what a Counter says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.apps import word_count
from anabranch.events import Event, Observed
from anabranch.flow import Flow
from anabranch.io.reading_back import read_back
from anabranch.planning.plan import Plan

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

WORDS = [f"w{number}" for number in range(50)]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    rng = Random(7)
    for number in range(6):
        lines = [" ".join(rng.choices(WORDS, k=8)) for _ in range(200)]
        (folder / f"{number}.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def expected(text: Path) -> Counter[str]:
    return Counter(word for file in text.iterdir() for word in file.read_text().split())


def counted(rows: list[dict[str, object]]) -> dict[object, object]:
    """The last count told of each word."""
    return {row["word"]: row["n"] for row in rows}


def flow_of(text: Path, out: Path) -> Flow:
    return word_count.build(input=f"{text}/*.txt").writing({"out": ab.parquet(out)})


def plan_of(flow: Flow, replicas: int) -> Plan:
    plan = Plan.sequential(flow).with_source("lines", batch_rows=250)
    return plan.with_replicas("count", replicas)


@pytest.mark.parametrize("replicas", [1, 2, 5])
def test_counts_are_right_with_replicas(
    spark: SparkSession, text: Path, expected: Counter[str], tmp_path: Path, replicas: int
) -> None:
    flow = flow_of(text, tmp_path / "out")
    result = ab.run(flow, plan=plan_of(flow, replicas), session=spark)
    assert counted(read_back(tmp_path / "out").to_pylist()) == expected
    assert result.rows_in == 1200
    assert result.ended


def test_counts_are_right_with_readers_side_by_side_and_two_pipelines(
    spark: SparkSession, text: Path, expected: Counter[str], tmp_path: Path
) -> None:
    flow = flow_of(text, tmp_path / "out")
    plan = plan_of(flow, 2).with_source("lines", replicas=2).with_replicas("split", 2)
    ab.run(flow, plan=plan.with_pipelines("split", 1, 1), session=spark)
    assert counted(read_back(tmp_path / "out").to_pylist()) == expected


def test_counts_are_right_when_the_plan_changes_at_every_third_batch(
    spark: SparkSession, text: Path, expected: Counter[str], tmp_path: Path
) -> None:
    flow = flow_of(text, tmp_path / "out")
    plan = plan_of(flow, 1).with_source("lines", batch_rows=60)
    plans = [plan.with_replicas("count", replicas) for replicas in (1, 3, 2, 5)]

    def change(event: Event) -> None:
        if isinstance(event, Observed) and event.observation.batch % 3 == 2:
            handle.reconfigure(plans[(event.observation.batch // 3 + 1) % len(plans)])

    handle = ab.start(flow, plan=plan, session=spark, listener=change)
    assert handle.await_termination(100)
    assert counted(read_back(tmp_path / "out").to_pylist()) == expected
    changes = handle.reconfigurations
    assert len(changes) >= 4
    assert [change.batch % 3 for change in changes] == [0] * len(changes)
    assert all(change.loaded_bytes > 0 for change in changes)


def test_counts_are_right_from_a_streaming_dataframe(
    spark: SparkSession, text: Path, expected: Counter[str], tmp_path: Path
) -> None:
    lines = spark.readStream.option("maxFilesPerTrigger", 2).text(str(text))
    numbered = lines.selectExpr("value as line", "xxhash64(value) as number")
    flow = Flow("from-dataframe")
    (
        flow.source("lines", ab.dataframe(numbered, order="number", bounded=True))
        .apply("split", word_count.split)
        .aggregate("count", key="word", n=ab.count(), emit="changes")
        .sink("out", ab.parquet(tmp_path / "out"))
    )
    plan = Plan.sequential(flow).with_replicas("count", 2)
    result = ab.run(flow, plan=plan, session=spark)
    assert counted(read_back(tmp_path / "out").to_pylist()) == expected
    assert result.rows_in == 1200
