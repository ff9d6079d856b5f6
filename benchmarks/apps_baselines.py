"""Applications as PySpark's Structured Streaming guide shows how to write them.

What Spark does in SQL is written in SQL's terms: windows with a watermark, one aggregation behind
another. What SQL cannot say (the last thousand readings, the latest average) is a pandas function
with state by key, `applyInPandasWithState`, vectorized within a key. State holds bytes where an
array is meant, since PySpark 4.3 stumbles over arrays there. Rows of a key may come in any order,
so the function sorts them, as every user has to. All write Parquet by `foreachBatch`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from apps_data import FILES_A_BATCH, AppFiles
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout
from spark_baselines import CORES, STORES, parquet_writer, use

Query = Callable[[SparkSession, AppFiles], DataFrame]
Settings = tuple[str, int]
"""A state store, and how many partitions there are behind a shuffle."""

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


def bids(session: SparkSession, files: AppFiles) -> DataFrame:
    """Bids with a watermark as late as ours."""
    columns = "auction long, bidder long, price long, dateTime timestamp_ntz, extra string"
    read_in = read(session, files, "bid", columns)
    moment = F.col("dateTime").cast("timestamp").alias("dateTime")
    wanted = read_in.select("auction", "bidder", "price", moment, "extra")
    return wanted.withWatermark("dateTime", "4 seconds")


def nexmark_q5(session: SparkSession, files: AppFiles) -> DataFrame:
    """Bids per auction in sliding windows, then the most of each window; ties are one of them."""
    window = F.window("dateTime", "10 seconds", "2 seconds")
    return _hottest(bids(session, files).groupBy(window, "auction").count())


def nexmark_q5_by_panes(session: SparkSession, files: AppFiles) -> DataFrame:
    """The same, counted by two seconds first: a count goes into five windows, not every bid."""
    panes = bids(session, files).groupBy(F.window("dateTime", "2 seconds"), "auction").count()
    window = F.window(F.window_time("window"), "10 seconds", "2 seconds")
    counts = panes.groupBy(window, "auction").agg(F.sum("count").alias("count"))
    return _hottest(counts)


def _hottest(counts: DataFrame) -> DataFrame:
    ended = F.window(F.window_time("window"), "2 seconds")
    return counts.groupBy(ended).agg(F.max(F.struct("count", "auction")).alias("hottest"))


def nexmark_q7(session: SparkSession, files: AppFiles) -> DataFrame:
    """The highest bid of each tumbling window; of equal ones, one."""
    columns = "price", "bidder", "auction", "dateTime", "extra"
    highest = F.max(F.struct(*columns)).alias("highest")
    return bids(session, files).groupBy(F.window("dateTime", "10 seconds")).agg(highest)


def run(
    session: SparkSession,
    query: Query,
    mode: str,
    settings: Settings,
    files: AppFiles,
    work: Path,
) -> list[float]:
    """Run a query over all files from a fresh checkpoint: seconds of each batch that had rows."""
    use(session, *settings)
    running = (
        query(session, files)
        .writeStream.outputMode(mode)
        .foreachBatch(parquet_writer(work / "out"))
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    running.awaitTermination()
    return [
        each["durationMs"]["triggerExecution"] / 1000
        for each in running.recentProgress
        if each["numInputRows"]
    ]
