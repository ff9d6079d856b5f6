"""Word count as Anabranch runs it on Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession
from spark_baselines import CORES
from word_data import Pass, WordFiles

import anabranch as ab
from anabranch.apps.word_count import split
from anabranch.engines.spark.layout import with_ranges
from anabranch.events import Event, Observed
from anabranch.planning.plan import Plan
from anabranch.planning.starting import side_by_side


def run_ours(
    session: SparkSession,
    files: WordFiles,
    work: Path,
    *,
    emit: str,
    listener: Callable[[Event], None] | None = None,
) -> Pass:
    """Count all words of the files from a fresh checkpoint, one batch of files a micro-batch.

    Args:
        session: Runs the query; the contenders share it, so it is left running.
        files: What is counted; `FILES_A_BATCH` files, in the order of names, are one micro-batch.
        work: A folder for this pass alone, not made yet: checkpoint and output go below it.
        emit: "changes", or "every" for a row per occurrence of a word.
        listener: Hears every event.
    """
    flow, plan = word_count(files, work / "out", emit)
    rows: list[int] = []

    def hear(event: Event) -> None:
        if isinstance(event, Observed):
            rows.append(event.observation.rows_in)
        if listener is not None:
            listener(event)

    handle = ab.start(
        flow, plan=plan, session=session, checkpoint=work / "checkpoint", listener=hear
    )
    handle.await_termination()
    if rows != [files.lines_a_batch] * files.batches:
        raise AssertionError(f"batches of {rows} lines, due were {files.lines_a_batch} in each")
    progress = handle.engine.query.recentProgress[: files.batches]
    seconds = tuple(each["durationMs"]["triggerExecution"] / 1000 for each in progress)
    return Pass(seconds, tuple(sorted((work / "out").glob("*.parquet"))))


def word_count(files: WordFiles, out: Path, emit: str) -> tuple[ab.Flow, Plan]:
    """The flow, and a plan that uses all cores."""
    flow = ab.Flow("word-count")
    (
        flow.source("lines", ab.files(f"{files.folder}/*", format=files.format))
        .apply("split", split)
        .aggregate("count", key="word", n=ab.count(), emit=emit)
        .sink("out", ab.parquet(out))
    )
    plan = side_by_side(flow, CORES, batch_rows=files.lines_a_batch)
    return flow, with_ranges(flow, plan)
