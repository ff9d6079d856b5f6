"""Queries whose result is a table that changes with every bid: q17, q18, q19.

Each row that leaves takes the place of the one with the same key. No time is needed: what the
table says in the end does not depend on when a bid was made.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.apps.nexmark.events import BID, Events
from anabranch.columns.grouped_rows import Runs
from anabranch.flow import Stream
from anabranch.operators.aggregates.functions import count, max, mean, min, sum
from anabranch.operators.keyed.keyed import KeyedState, keyed
from anabranch.operators.row_wise.map_filter_expand import map
from anabranch.state.positions import FIRST, Ints

CHEAP, DEAR = 10_000, 1_000_000


@map(out="day: date32, rank1: int8, rank2: int8, rank3: int8", keeps=("auction", "price"))
def ranked(batch: pa.RecordBatch) -> dict[str, Any]:
    """The day of a bid, and a one for the rank of its price."""
    prices = batch["price"].to_numpy()
    ranks = (prices < CHEAP, (prices >= CHEAP) & (prices < DEAR), prices >= DEAR)
    ones = {f"rank{n}": rank.astype(np.int8) for n, rank in enumerate(ranks, start=1)}
    return {"day": batch["dateTime"].cast(pa.date32(), safe=False), **ones}


def q17(events: Events) -> Stream:
    """Auction statistics: how many bids an auction got on a day, and at which prices.

    The average is a fraction of a cent; Flink's is cut to whole cents.
    """
    return (
        events.read("bid", "auction", "price", "dateTime")
        .apply("rank", ranked)
        .aggregate(
            "report",
            key=("auction", "day"),
            emit="changes",
            total_bids=count(),
            rank1_bids=sum("rank1"),
            rank2_bids=sum("rank2"),
            rank3_bids=sum("rank3"),
            min_price=min("price"),
            max_price=max("price"),
            avg_price=mean("price"),
            sum_price=sum("price"),
        )
    )


WHOSE = ("bidder", "auction")


@keyed(key=WHOSE, state="turns: int64, latest: int64", out="turn: int64", keeps=BID.names)
def later(batch: pa.RecordBatch, state: KeyedState) -> tuple[dict[str, Any], Ints]:
    """Bids before which none was made later, numbered: the last of those is the last bid."""
    runs = Runs(state.codes, state.groups)
    times = batch["dateTime"].cast(pa.int64()).to_numpy()
    before = np.where(state["turns"] > 0, state["latest"], FIRST)
    latest = runs.accumulate(np.maximum, before, times)
    passes = times == latest
    turns = runs.accumulate(np.add, state["turns"], passes.astype(np.int64))
    ends = runs.last_rows()
    state["turns"], state["latest"] = turns[ends], latest[ends]
    chosen = np.flatnonzero(passes)
    return {"turn": turns[chosen]}, chosen


def q18(events: Events) -> Stream:
    """Last bid: of each bidder the latest on each auction, with its rank, which is 1.

    Of several of one millisecond it is the last that arrived.
    """
    bids = events.read("bid", *BID.names).apply("later", later)
    return bids.top_n("last", 1, by="turn", key=WHOSE, emit="changes").map(
        "columns", lambda batch: {}, keeps=("rank", *BID.names)
    )


def q19(events: Events) -> Stream:
    """Top ten: the ten highest bids on each auction; of equal ones the first that arrived."""
    return events.read("bid", *BID.names).top_n(
        "top", 10, by="price", key="auction", emit="changes"
    )
