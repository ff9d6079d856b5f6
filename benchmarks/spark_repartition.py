"""Spark's own way to give a running count another number of state partitions.

The number is fixed in the checkpoint, so the query is stopped, the state of all keys is rewritten
offline (Spark 4.2 and later; only with RocksDB, and only once the last batch has finished), and the
query is started again.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from spark_baselines import parquet_writer, use

TOUCHED_SHARE = 100
TIMEOUT_S = 300


def spark_rescale_seconds(
    session: SparkSession, keys: int, partitions_from: int, partitions_to: int
) -> float:
    """Seconds from the order to stop until the first micro-batch with the new partitions is done.

    That batch holds a hundredth of the keys and waits when the query stops, so that what is
    measured is the time in which a stream stands still, not the work on its data.

    Args:
        session: Runs the query.
        keys: How many keys have state when the number changes.
        partitions_from: State partitions before.
        partitions_to: State partitions after.
    """
    with tempfile.TemporaryDirectory(prefix="rescale-", ignore_cleanup_errors=True) as folder:
        work = Path(folder)
        write_keys(work, "all", np.arange(keys))
        write_keys(work, "some", np.arange(0, keys, TOUCHED_SHARE))
        arrive(work, "all")
        use(session, "rocksdb", partitions_from)
        query = start(session, work)
        query.processAllAvailable()
        batch = last_batch(query)

        began = time.perf_counter()
        query.stop()
        arrive(work, "some")
        repartition(session, work / "checkpoint", partitions_to)
        query = start(session, work)
        # The repartition itself counts as a batch of the query, without data.
        await_batch(query, after=batch + 1)
        ended = time.perf_counter()

        query.stop()
        check(work, keys, partitions_to)
    return ended - began


def repartition(session: SparkSession, checkpoint: Path, partitions: int) -> None:
    """Rewrite the state offline."""
    # Not a public name yet, though the class behind it is documented.
    session._streamingCheckpointManager.repartition(str(checkpoint), partitions)


def start(session: SparkSession, work: Path) -> StreamingQuery:
    keys = session.readStream.schema("key string").parquet(str(work / "in"))
    return (
        keys.groupBy("key")
        .count()
        .writeStream.outputMode("update")
        .foreachBatch(parquet_writer(work / "out"))
        .option("checkpointLocation", str(work / "checkpoint"))
        .start()
    )


def write_keys(work: Path, name: str, numbers: np.ndarray) -> None:
    keys = pc.binary_join_element_wise("user-", pa.array(numbers).cast(pa.string()), "")
    pq.write_table(pa.table({"key": keys}), work / f"{name}.parquet")


def arrive(work: Path, name: str) -> None:
    """A file of keys comes into the folder that the query reads, whole."""
    (work / "in").mkdir(exist_ok=True)
    (work / f"{name}.parquet").rename(work / "in" / f"{name}.parquet")


def last_batch(query: StreamingQuery) -> int:
    """The number of the last batch with data."""
    return max(each["batchId"] for each in query.recentProgress if each["numInputRows"])


def await_batch(query: StreamingQuery, after: int) -> None:
    """Wait until a batch with data, later than one, has been committed."""
    deadline = time.perf_counter() + TIMEOUT_S
    while time.perf_counter() < deadline:
        if error := query.exception():
            raise error
        last = query.lastProgress
        if last and last["batchId"] >= after and last["numInputRows"]:
            return
        time.sleep(0.01)
    raise TimeoutError(f"no batch after {after} within {TIMEOUT_S} s")


def check(work: Path, keys: int, partitions: int) -> None:
    """Stop unless the state survived, and lies in as many partitions as were asked for."""
    parts = sorted(path for path in (work / "out").iterdir() if path.is_dir())
    last = pa.concat_tables(pq.read_table(path) for path in parts[-1].glob("*.parquet"))
    touched = len(range(0, keys, TOUCHED_SHARE))
    if last.num_rows != touched or pc.unique(last["count"]).to_pylist() != [2]:
        raise AssertionError(f"{last.num_rows} counts, {touched} of 2 were due")
    files = len(list(parts[-1].glob("*.parquet")))
    if files != partitions:
        raise AssertionError(f"{files} files were written, one for each of {partitions} was due")
