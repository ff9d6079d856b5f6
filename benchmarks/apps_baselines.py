"""Applications as PySpark's Structured Streaming guide shows how to write them.

What SQL cannot say (the last thousand readings, the latest average) is a pandas function
with state by key, `applyInPandasWithState`, vectorized within a key. State holds bytes where an
array is meant, since PySpark 4.3 stumbles over arrays there. Rows of a key may come in any order,
so the function sorts them, as every user has to. All write Parquet by `foreachBatch`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from apps_data import FILES_A_BATCH, AppFiles
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupStateTimeout
from spark_baselines import CORES, STORES, parquet_writer, use

Query = Callable[[SparkSession, AppFiles], DataFrame]
Settings = tuple[str, int]
"""A state store, and how many partitions there are behind a shuffle."""

Version = Callable[[SparkSession, AppFiles, Settings, Path], list[float]]
"""Runs over all files from a fresh checkpoint: seconds of each batch that had rows."""

SETTINGS: tuple[Settings, ...] = tuple(product(STORES, (CORES, 2 * CORES)))


def read(session: SparkSession, files: AppFiles, source: str, columns: str) -> DataFrame:
    """The files of a source as a stream."""
    reader = session.readStream.schema(columns).option("maxFilesPerTrigger", FILES_A_BATCH)
    return reader.parquet(str(files.folder / source))


def word_count(session: SparkSession, files: AppFiles) -> DataFrame:
    """Split, explode, group, count."""
    lines = read(session, files, "lines", "line string")
    return lines.select(F.explode(F.split("line", " ")).alias("word")).groupBy("word").count()


def word_count_pandas(session: SparkSession, files: AppFiles) -> DataFrame:
    """Split in pandas, count word by word."""

    def split(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            yield pd.DataFrame({"word": frame["line"].str.split(" ").explode()})

    def count(
        key: tuple[str], frames: Iterator[pd.DataFrame], state: Any
    ) -> Iterator[pd.DataFrame]:
        total = (state.get[0] if state.exists else 0) + sum(map(len, frames))
        state.update((total,))
        yield pd.DataFrame({"word": [key[0]], "n": [total]})

    words = read(session, files, "lines", "line string").mapInPandas(split, "word string")
    return words.groupBy("word").applyInPandasWithState(
        count, "word string, n long", "n long", "update", GroupStateTimeout.NoTimeout
    )


def spike_detection(session: SparkSession, files: AppFiles) -> DataFrame:
    """A rolling mean over the last readings of a device and the new ones."""
    window, threshold = 1000, 0.03

    def detect(
        key: tuple[int], frames: Iterator[pd.DataFrame], state: Any
    ) -> Iterator[pd.DataFrame]:
        frame = pd.concat(list(frames)).sort_values("ts", ignore_index=True)
        last = np.frombuffer(state.get[0]) if state.exists else np.empty(0)
        values = pd.Series(np.concatenate([last, frame["value"]]))
        average = values.rolling(window, min_periods=1).mean().iloc[len(last) :].to_numpy()
        state.update((values.to_numpy()[-(window - 1) :].tobytes(),))
        off = (frame["value"] - average).abs()
        yield frame.assign(average=average, spike=off > threshold * np.abs(average))

    readings = read(session, files, "readings", "device long, ts timestamp_ntz, value double")
    return readings.groupBy("device").applyInPandasWithState(
        detect,
        "device long, ts timestamp_ntz, value double, average double, spike boolean",
        "last binary",
        "append",
        GroupStateTimeout.NoTimeout,
    )


def finance(session: SparkSession, files: AppFiles) -> DataFrame:
    """Trades and quotes of a ticker together, in the order of time."""
    window = 4

    def bargains(
        key: tuple[str], frames: Iterator[pd.DataFrame], state: Any
    ) -> Iterator[pd.DataFrame]:
        frame = pd.concat(list(frames)).sort_values(["ts", "is_quote"], ignore_index=True)
        past, latest = state.get if state.exists else (b"", np.nan)
        before = pd.DataFrame(np.frombuffer(past, np.int64).reshape(-1, 2), columns=["worth", "n"])
        trades = frame[~frame["is_quote"]]
        sold = pd.DataFrame({"worth": trades["price"] * trades["volume"], "n": trades["volume"]})
        sums = pd.concat([before, sold]).rolling(window).sum().iloc[len(before) :]
        frame["vwap"] = (sums["worth"] / sums["n"]).reindex(frame.index).ffill().fillna(latest)
        kept = pd.concat([before, sold]).iloc[-(window - 1) :].to_numpy(np.int64).tobytes()
        state.update((kept, float(frame["vwap"].iloc[-1])))
        found = frame[frame["is_quote"] & (frame["vwap"] > frame["price"])]
        index = found["volume"] * np.exp(found["vwap"] - found["price"])
        if found.empty:
            return
        yield pd.DataFrame(
            {
                "ts": found["ts"],
                "ticker": key[0],
                "ask": found["price"],
                "size": found["volume"],
                "vwap": found["vwap"],
                "index": index,
            }
        )

    trades = read(
        session, files, "trades", "ts timestamp_ntz, ticker string, price int, volume int"
    )
    quotes = read(session, files, "quotes", "ts timestamp_ntz, ticker string, ask int, size int")
    # Whole numbers of 64 bits in pandas, so that no sum wraps around.
    both = trades.select(
        "ts",
        "ticker",
        F.col("price").cast("long"),
        F.col("volume").cast("long"),
        F.lit(False).alias("is_quote"),
    ).union(
        quotes.select(
            "ts",
            "ticker",
            F.col("ask").cast("long"),
            F.col("size").cast("long"),
            F.lit(True).alias("is_quote"),
        )
    )
    return both.groupBy("ticker").applyInPandasWithState(
        bargains,
        "ts timestamp_ntz, ticker string, ask long, size long, vwap double, index double",
        "past binary, latest double",
        "append",
        GroupStateTimeout.NoTimeout,
    )


def one_query(query: Query, mode: str, writer: Callable[[Path], Any] = parquet_writer) -> Version:
    """A version that is one query; `writer` makes what `foreachBatch` calls."""

    def run(session: SparkSession, files: AppFiles, settings: Settings, work: Path) -> list[float]:
        running = _start(session, query(session, files), mode, settings, writer, work, "out")
        running.awaitTermination()
        return [_seconds(each) for each in _full(running)]

    return run


def queries_in_turn(queries: Mapping[str, Query], mode: str) -> Version:
    """A version that is several queries, by sink, one after another."""

    def run(session: SparkSession, files: AppFiles, settings: Settings, work: Path) -> list[float]:
        spent = []
        for sink, query in queries.items():
            frame = query(session, files)
            running = _start(session, frame, mode, settings, parquet_writer, work, sink)
            running.awaitTermination()
            spent.append([_seconds(each) for each in _full(running)])
        return [sum(batch) for batch in zip(*spent, strict=True)]

    return run


def queries_side_by_side(queries: Mapping[str, Query], mode: str) -> Version:
    """The same, all at once: the first batches are over when the last of them is."""

    def run(session: SparkSession, files: AppFiles, settings: Settings, work: Path) -> list[float]:
        running = [
            _start(session, query(session, files), mode, settings, parquet_writer, work, sink)
            for sink, query in queries.items()
        ]
        for each in running:
            each.awaitTermination()
        ends = [[_began(p) + _seconds(p) for p in _full(each)] for each in running]
        over = [max(batch) for batch in zip(*ends, strict=True)]
        began = min(_began(_full(each)[0]) for each in running)
        return [end - before for before, end in zip([began, *over], over, strict=False)]

    return run


def _start(
    session: SparkSession,
    frame: DataFrame,
    mode: str,
    settings: Settings,
    writer: Callable[[Path], Any],
    work: Path,
    sink: str,
) -> StreamingQuery:
    use(session, *settings)
    return (
        frame.writeStream.outputMode(mode)
        .foreachBatch(writer(work / sink))
        .option("checkpointLocation", str(work / f"checkpoint-{sink}"))
        .trigger(availableNow=True)
        .start()
    )


def _full(query: StreamingQuery) -> list[Any]:
    return [each for each in query.recentProgress if each["numInputRows"]]


def _began(progress: Any) -> float:
    return datetime.fromisoformat(progress["timestamp"]).timestamp()


def _seconds(progress: Any) -> float:
    return progress["durationMs"]["triggerExecution"] / 1000
