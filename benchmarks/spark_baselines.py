"""Word count as Spark users write it: in SQL, and with pandas functions.

Both keep their state in Spark's checkpoint and write each micro-batch as Parquet. In update mode
Spark's own file sink is refused, so `foreachBatch` writes a folder per batch; overwriting it makes
a replay harmless.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import explode, split
from pyspark.sql.streaming.state import GroupStateTimeout
from word_data import FILES_A_BATCH, Pass, WordFiles

from anabranch.engines.spark.session import session as library_session

CORES = 2
STATE = "org.apache.spark.sql.execution.streaming.state."
STORES = {
    "hdfs": STATE + "HDFSBackedStateStoreProvider",
    "rocksdb": STATE + "RocksDBStateStoreProvider",
}
# What was fastest on two cores; `word_count.py` reports the others.
BEST_STORE = "hdfs"
BEST_PARTITIONS = 2


def spark() -> SparkSession:
    """The session that all contenders share: the library's, with its settings for all of them."""
    conf = {"spark.driver.memory": "6g", "spark.sql.session.timeZone": "UTC"}
    return library_session(f"local[{CORES},4]", app="benchmark", conf=conf)


def run_sql(
    session: SparkSession,
    files: WordFiles,
    work: Path,
    *,
    store: str = BEST_STORE,
    partitions: int = BEST_PARTITIONS,
) -> Pass:
    """Spark SQL: split, explode, group, count; generated Java code, combined before the shuffle.

    Args:
        session: Runs the query.
        files: What is counted.
        work: A folder that is made for this pass: checkpoint and output.
        store: Which state store, a key of `STORES`.
        partitions: Shuffle partitions, so also the number of state stores.
    """
    words = read_lines(session, files).select(explode(split("line", " ")).alias("word"))
    counts = words.groupBy("word").count().withColumnRenamed("count", "n")
    return run(session, counts, files, work, store, partitions)


def run_pandas(
    session: SparkSession,
    files: WordFiles,
    work: Path,
    *,
    store: str = BEST_STORE,
    partitions: int = BEST_PARTITIONS,
) -> Pass:
    """PySpark with pandas: `mapInPandas` splits, `applyInPandasWithState` counts, word by word."""

    # Functions within functions reach the workers by value: these have no path to this file.
    def split_lines(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            yield pd.DataFrame({"word": frame["line"].str.split(" ").explode()})

    def count(
        key: tuple[str], frames: Iterator[pd.DataFrame], state: Any
    ) -> Iterator[pd.DataFrame]:
        before = state.get[0] if state.exists else 0
        total = before + sum(len(frame) for frame in frames)
        state.update((total,))
        yield pd.DataFrame({"word": [key[0]], "n": [total]})

    counts = (
        read_lines(session, files)
        .mapInPandas(split_lines, "word string")
        .groupBy("word")
        .applyInPandasWithState(
            count, "word string, n long", "n long", "update", GroupStateTimeout.NoTimeout
        )
    )
    return run(session, counts, files, work, store, partitions)


def read_lines(session: SparkSession, files: WordFiles) -> DataFrame:
    """The files as a stream of lines, one batch's files at a time."""
    column = "value" if files.format == "text" else "line"
    reader = session.readStream.format(files.format).schema(f"{column} string")
    lines = reader.option("maxFilesPerTrigger", FILES_A_BATCH).load(str(files.folder))
    return lines.withColumnRenamed(column, "line")


def run(
    session: SparkSession,
    counts: DataFrame,
    files: WordFiles,
    work: Path,
    store: str,
    partitions: int,
) -> Pass:
    """Run a query over all that there is, from a fresh checkpoint."""
    out = work / "out"
    use(session, store, partitions)
    query = (
        counts.writeStream.outputMode("update")
        .foreachBatch(parquet_writer(out))
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    seconds = batch_seconds(query.recentProgress, files)
    return Pass(seconds, tuple(sorted(out.rglob("*.parquet"))))


def use(session: SparkSession, store: str, partitions: int) -> None:
    """Settings that the next query takes."""
    session.conf.set("spark.sql.streaming.stateStore.providerClass", STORES[store])
    session.conf.set("spark.sql.shuffle.partitions", str(partitions))


def parquet_writer(out: Path) -> Any:
    """What `foreachBatch` calls."""

    def write(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(str(out / f"batch={number}"))

    return write


def batch_seconds(progress: list[Mapping[str, Any]], files: WordFiles) -> tuple[float, ...]:
    """Durations of the micro-batches: listing, log, jobs and commit together.

    Stops when Spark cut the batches in another way than the files do.
    """
    full = [each for each in progress if each["numInputRows"]]
    rows = [each["numInputRows"] for each in full]
    if rows != [files.lines_a_batch] * files.batches:
        raise AssertionError(f"batches of {rows} lines, due were {files.lines_a_batch} in each")
    return tuple(each["durationMs"]["triggerExecution"] / 1000 for each in full)


def remove(work: Path) -> None:
    """Give back the disk space of a pass."""
    # A state store of the stopped query may still be cleaning up after itself.
    shutil.rmtree(work, ignore_errors=True)
