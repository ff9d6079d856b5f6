"""Flows with event time beside Spark SQL: NEXMark queries, and one flow that is two queries there.

Both read the same Parquet files, a few of each source in a micro-batch, on `local[2]` in one JVM,
and write Parquet; what they found is compared. Rates are those behind the first micro-batch, and
contenders take turns, as in `apps.py`, which this is a part of: Spark SQL has the best of several
queries, of two state stores and of two numbers of partitions, ours the best of a few plans.
`APPS_ONLY=nexmark-q7,market` in the environment measures those alone.

Spark writes no window and no auction that is open at the end of the files, so results are compared
where it does.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import apps_agreement as agreement
import pandas as pd
import pyarrow as pa
from apps import Contest, compare, wanted
from apps_baselines import one_query, queries_in_turn, queries_side_by_side, read
from apps_data import AppFiles
from harness import Report, main
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from spark_baselines import spark

import anabranch as ab
from anabranch.apps import APPS
from anabranch.apps.nexmark.events import Events
from anabranch.apps.nexmark.generator import EventRate
from anabranch.flow import Flow

LATENESS = "4 seconds"
LONGEST_AUCTION = "1 second"
"""At the pace of the generated events an auction is open for a third of a second at most."""

BID = "auction long, bidder long, price long, dateTime timestamp_ntz"
PERSON = "id long, name string, city string, state string, dateTime timestamp_ntz"
ITEM = "id long, dateTime timestamp_ntz, expires timestamp_ntz"
AUCTION = (
    f"{ITEM}, seller long, category long, initialBid long, reserve long, itemName string, "
    "description string, extra string"
)


# --- what Spark SQL is asked -------------------------------------------------------------------


def events(session: SparkSession, files: AppFiles, source: str, columns: str) -> DataFrame:
    """A kind of events with a watermark as late as ours."""
    read_in = read(session, files, source, columns)
    moment = F.col("dateTime").cast("timestamp")
    return read_in.withColumn("dateTime", moment).withWatermark("dateTime", LATENESS)


def q3(session: SparkSession, files: AppFiles) -> DataFrame:
    """A join of two streams without an end; without a watermark, since no row ever leaves."""
    people = read(session, files, "person", PERSON).where("state in ('OR', 'ID', 'CA')")
    auctions = read(session, files, "auction", "id long, seller long, category long")
    local = auctions.where("category = 10").select(F.col("id").alias("auction"), "seller")
    joined = people.join(local, F.col("id") == F.col("seller"))
    return joined.select("name", "city", "state", "auction")


def q4(session: SparkSession, files: AppFiles) -> DataFrame:
    """The price of each auction that is over; `averages` sums them up."""
    bids = events(session, files, "bid", BID)
    sold = sales(events(session, files, "auction", f"{ITEM}, category long"), bids)
    return sold.groupBy("id", "dateTime", "category").agg(F.max("price").alias("price"))


def averages(out: Path) -> Any:
    """What `foreachBatch` calls for q4: adds a batch's prices to the totals of each category.

    A second aggregation that changes earlier rows is refused behind the first, so totals are kept
    in the driver. That is less than Spark would have to do: they do not survive a restart.
    """
    totals = pd.DataFrame({"auctions": [], "price": []}, dtype="int64").rename_axis("category")

    def write(batch: DataFrame, number: int) -> None:
        nonlocal totals
        sums = F.count("*").alias("auctions"), F.sum("price").alias("price")
        found = batch.groupBy("category").agg(*sums).toPandas().set_index("category")
        totals = totals.add(found, fill_value=0)
        told = totals.assign(avg_price=totals["price"] / totals["auctions"]).reset_index()
        folder = out / f"batch={number:03}"
        folder.mkdir(parents=True, exist_ok=True)
        told.to_parquet(folder / "part.parquet", index=False)

    return write


def q5(session: SparkSession, files: AppFiles) -> DataFrame:
    """Bids per auction in sliding windows, then the most of each window; ties are one of them."""
    window = F.window("dateTime", "10 seconds", "2 seconds")
    return hottest(events(session, files, "bid", BID).groupBy(window, "auction").count())


def q5_by_panes(session: SparkSession, files: AppFiles) -> DataFrame:
    """The same, counted by two seconds first: a count goes into five windows, not every bid."""
    pane = F.window("dateTime", "2 seconds")
    panes = events(session, files, "bid", BID).groupBy(pane, "auction").count()
    window = F.window(F.window_time("window"), "10 seconds", "2 seconds")
    return hottest(panes.groupBy(window, "auction").agg(F.sum("count").alias("count")))


def hottest(counts: DataFrame) -> DataFrame:
    """The most of each window."""
    ended = F.window(F.window_time("window"), "2 seconds")
    return counts.groupBy(ended).agg(F.max(F.struct("count", "auction")).alias("hottest"))


def q7(session: SparkSession, files: AppFiles) -> DataFrame:
    """The highest bid of each tumbling window; of equal ones, one."""
    highest = F.max(F.struct("price", "bidder", "auction", "dateTime", "extra")).alias("highest")
    bids = events(session, files, "bid", f"{BID}, extra string")
    return bids.groupBy(F.window("dateTime", "10 seconds")).agg(highest)


def q8_by_windows(session: SparkSession, files: AppFiles) -> DataFrame:
    """People and sellers once for each window, then a join of those."""
    people, sellers = newcomers(session, files)
    once = people.groupBy("window", "id", "name").agg(F.count("*").alias("n")).drop("n")
    active = sellers.groupBy("window", "seller").agg(F.count("*").alias("n")).drop("n")
    return in_same_window(once, active)


def q8_by_duplicates(session: SparkSession, files: AppFiles) -> DataFrame:
    """The same without a wait for the end of a window."""
    people, sellers = newcomers(session, files)
    once = people.dropDuplicates(["window", "id", "name"])
    return in_same_window(once, sellers.dropDuplicates(["window", "seller"]))


def newcomers(session: SparkSession, files: AppFiles) -> tuple[DataFrame, DataFrame]:
    """People and sellers with their windows."""
    window = F.window("dateTime", "10 seconds").alias("window")
    people = events(session, files, "person", "id long, name string, dateTime timestamp_ntz")
    sellers = events(session, files, "auction", "seller long, dateTime timestamp_ntz")
    return people.select(window, "id", "name"), sellers.select(window, "seller")


def in_same_window(people: DataFrame, sellers: DataFrame) -> DataFrame:
    """Who came and put something up in the same window."""
    sellers = sellers.withColumnRenamed("window", "sold")
    same = (F.col("id") == F.col("seller")) & (F.col("window") == F.col("sold"))
    start = F.col("window.start").alias("starttime")
    return people.join(sellers, same).select("id", "name", start)


def q9(session: SparkSession, files: AppFiles) -> DataFrame:
    """The highest bid of each auction that is over, with all that is known of both."""
    bids = events(session, files, "bid", f"{BID}, extra string")
    item = [part.split()[0] for part in AUCTION.split(", ")]
    offer = F.struct("price", (-F.col("bid_ms")).alias("since"), "bidder", "bid_extra")
    best = F.max(offer).alias("best")
    rest = [F.first(name).alias(name) for name in item if name not in ("id", "dateTime")]
    sold = sales(events(session, files, "auction", AUCTION), bids)
    found = sold.groupBy("id", "dateTime").agg(best, *rest)
    made = F.timestamp_millis(-F.col("best.since")).alias("bid_dateTime")
    told = ("best.price", "best.bidder", "best.bid_extra", made)
    return found.select(F.col("id").alias("auction"), *item[1:], *told)


def sales(auctions: DataFrame, bids: DataFrame) -> DataFrame:
    """Auctions with the bids that were made while they were open.

    That no auction is open for longer than some time lets Spark forget both sides. One column of
    event time is all that an aggregation behind a join may see.
    """
    names = {"dateTime": "made", "extra": "bid_extra"}
    bids = bids.withColumnsRenamed({old: new for old, new in names.items() if old in bids.columns})
    open_then: Column = (
        (F.col("id") == F.col("auction"))
        & (F.col("made") >= F.col("dateTime"))
        & (F.col("made") <= F.col("expires").cast("timestamp"))
        & (F.col("made") <= F.col("dateTime") + F.expr(f"INTERVAL {LONGEST_AUCTION}"))
    )
    joined = auctions.join(bids, open_then)
    return joined.withColumn("bid_ms", F.unix_millis("made")).drop("made", "auction")


# --- a flow that is two queries ----------------------------------------------------------------

SEGMENTS = 10_000
MINUTE, PAUSE = timedelta(minutes=1), timedelta(seconds=10)


@ab.map(out="key: int64", keeps="*")
def segment_key(batch: pa.RecordBatch) -> dict[str, Any]:
    """The auction's id, up to the number of rows of the table."""
    return {"key": batch["auction"].to_numpy() % SEGMENTS}


def segments() -> pa.Table:
    """A segment of the market for each key, and what a bid costs there."""
    keys = range(SEGMENTS)
    names = [f"segment-{key % 100}" for key in keys]
    return pa.table({"key": keys, "segment": names, "fee": [key % 7 for key in keys]})


def market(*, rows: int | None) -> Flow:
    """Bids with their segment: by segment and minute, and by bidder without a pause."""
    flow = Flow("market")
    pace = EventRate(rate_per_s=10_000.0, delayed=0.1)
    made = Events(flow, ("bid",), None, rows, pace, timedelta(seconds=4), False, 0)
    bids = (
        made.in_time("bid", "auction", "bidder", "price")
        .apply("key", segment_key)
        .lookup("segment", segments(), key="key")
    )
    by_minute = {"bids": ab.count(), "fees": ab.sum("fee"), "highest": ab.max("price")}
    bids.aggregate("minutes", key="segment", window=ab.tumbling(MINUTE), **by_minute).sink(
        "minutes-out", ab.collect()
    )
    by_visit = {"bids": ab.count(), "fees": ab.sum("fee")}
    bids.aggregate("visits", key="bidder", window=ab.session(PAUSE), **by_visit).sink(
        "visits-out", ab.collect()
    )
    return flow


def with_segments(session: SparkSession, files: AppFiles) -> DataFrame:
    """Bids with their segment."""
    table = F.broadcast(session.createDataFrame(segments().to_pandas()))
    bids = events(session, files, "bid", BID).withColumn("key", F.col("auction") % SEGMENTS)
    return bids.join(table, "key")


def minutes(session: SparkSession, files: AppFiles) -> DataFrame:
    """By segment and minute."""
    sums = (F.count("*").alias("bids"), F.sum("fee").alias("fees"), F.max("price").alias("highest"))
    found = with_segments(session, files).groupBy(F.window("dateTime", "1 minute"), "segment")
    return flat(found.agg(*sums))


def visits(session: SparkSession, files: AppFiles) -> DataFrame:
    """By bidder without a pause."""
    found = with_segments(session, files)
    window = F.session_window("dateTime", "10 seconds").alias("window")
    sums = F.count("*").alias("bids"), F.sum("fee").alias("fees")
    return flat(found.groupBy(window, "bidder").agg(*sums))


def flat(windows: DataFrame) -> DataFrame:
    """When windows begin, as a column."""
    start = F.col("window.start").alias("window_start")
    return windows.withColumn("window_start", start).drop("window")


# --- the contests ------------------------------------------------------------------------------

BOTH = {"minutes-out": minutes, "visits-out": visits}


def nexmark(
    query: str, bar: float, rows: int, check: agreement.Check, *theirs: Any, **more: Any
) -> Contest:
    """A contest of a query of NEXMark."""
    build: Callable[..., Flow] = APPS[f"nexmark-{query}"].build
    versions = tuple(one_query(each, "append", **more) for each in theirs)
    return Contest(f"nexmark-{query}", build, versions, rows, bar, {"out": check}, "sql")


CONTESTS = (
    nexmark("q3", 2.0, 10_000_000, agreement.nexmark_q3, q3),
    nexmark("q4", 2.0, 2_000_000, agreement.nexmark_q4, q4, writer=averages),
    nexmark("q5", 5.0, 4_000_000, agreement.nexmark_q5, q5, q5_by_panes),
    nexmark("q7", 2.5, 4_000_000, agreement.nexmark_q7, q7),
    nexmark("q8", 2.0, 10_000_000, agreement.nexmark_q8, q8_by_windows, q8_by_duplicates),
    nexmark("q9", 2.0, 2_000_000, agreement.nexmark_q9, q9),
    Contest(
        "market",
        market,
        (queries_in_turn(BOTH, "append"), queries_side_by_side(BOTH, "append")),
        4_000_000,
        3.0,
        dict.fromkeys(BOTH, agreement.windows),
        "sql",
    ),
)


def measure(quick: bool) -> Report:
    report = Report("spark_sql", "Flows with event time are some times as fast as Spark SQL")
    session = spark()
    try:
        for contest in CONTESTS:
            if wanted(contest.name):
                compare(report, session, contest, quick)
    finally:
        session.stop()
    return report


if __name__ == "__main__":
    main(measure)
