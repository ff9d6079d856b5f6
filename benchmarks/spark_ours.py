"""Word count, and a change of the number of replicas, as Anabranch runs them on Spark."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from word_data import Pass, WordFiles


def run_ours(session: SparkSession, files: WordFiles, work: Path, *, emit: str) -> Pass:
    """Count all words of the files from a fresh checkpoint, one batch of files a micro-batch.

    Args:
        session: Runs the query; the contenders share it, so it must be left running.
        files: What is counted; `FILES_A_BATCH` files, in the order of names, are one micro-batch.
        work: A folder for this pass alone, not made yet: checkpoint and output go below it. The
            caller removes it.
        emit: "changes", or "every" for a row per occurrence of a word.

    Returns:
        Seconds of each micro-batch, the first one too, as Spark's progress tells them
        (`spark_baselines.batch_seconds` reads and checks it), and the Parquet files that count as
        written, with columns `word` (text) and `n` (int64, the count so far).
    """
    raise NotImplementedError("the Spark engine")


def ours_rescale_seconds(
    session: SparkSession, keys: int, partitions_from: int, partitions_to: int
) -> float:
    """Seconds that a plan change adds, under the conditions of `spark_rescale_seconds`.

    Args:
        session: Runs the query.
        keys: How many keys have state when the plan changes.
        partitions_from: Replicas before.
        partitions_to: Replicas after.

    Returns:
        From asking for the plan until the first micro-batch under it, of `keys` / 100 rows, is
        committed.
    """
    raise NotImplementedError("the Spark engine")
