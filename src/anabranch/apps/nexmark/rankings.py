"""Queries whose result is a table that changes with every bid: q17, q18, q19.

Each row that leaves takes the place of the one with the same key. No time is needed: what the
table says in the end does not depend on when a bid was made.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.apps.nexmark.events import BID, Events
from anabranch.flow import Stream
from anabranch.operators.aggregates import count, max, mean, min, sum
from anabranch.operators.shapes import map

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


def q18(events: Events) -> Stream:
    """Last bid: of each bidder the latest on each auction; the first of one millisecond."""
    return events.read("bid", *BID.names).top_n(
        "last", 1, by="dateTime", key=("bidder", "auction"), emit="changes"
    )


def q19(events: Events) -> Stream:
    """Top ten: the ten highest bids on each auction; of equal ones the first that arrived."""
    return events.read("bid", *BID.names).top_n(
        "top", 10, by="price", key="auction", emit="changes"
    )
