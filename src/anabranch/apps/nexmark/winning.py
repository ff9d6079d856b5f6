"""Queries about what auctions were sold for: q4, q6, q9.

The winning bid of an auction is the highest that was made while it was open, from `dateTime` to
`expires`, both included; of equal ones the first. It is known when the auction is over. Whether it
reached the reserve is not asked, as in Flink's SQL; Beam asks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from anabranch.apps.nexmark.closing import WinningBids
from anabranch.apps.nexmark.events import AUCTION, Events
from anabranch.flow import Stream
from anabranch.operators.aggregates import count, mean
from anabranch.operators.invocation import Invocation
from anabranch.operators.shapes import map
from anabranch.operators.tuples import partitioned

LAST_SOLD = 10


@map(out="auction: int64", keeps="*")
def items(batch: pa.RecordBatch) -> dict[str, Any]:
    """Auctions, whose id has also the name that bids have for it."""
    return {"auction": batch["id"]}


OFFERED = ("auction", "bidder", "price")


def sold_items(events: Events, *columns: str, offered: Sequence[str] = OFFERED) -> Stream:
    """These columns of the auctions that were bid on, each with the bid that won it."""
    auctions = events.in_time("auction", *columns)
    bids = events.in_time("bid", *offered)
    return auctions.apply("items", items).apply("winning", WinningBids(), bids)


def q4(events: Events) -> Stream:
    """Average price for a category: of the winning bids of all auctions that are over.

    Differs from Flink's SQL, whose join takes rows however late they come: an auction or bid that
    is further behind than `lateness` goes to the sink `auction.late` or `bid.late`, and counts in
    no average. The number of auctions is told as well. The average is a fraction of a cent;
    Flink's is cut to whole cents, and counts auctions from their first bid on.
    """
    return sold_items(events, "id", "expires", "category").aggregate(
        "average", key="category", emit="changes", auctions=count(), avg_price=mean("price")
    )


@partitioned(key="seller", out="seller: int64, auction: int64, avg_price: float64")
def last_sold(ctx: Invocation) -> None:
    """The average price of what a seller sold last."""
    prices = ctx.state.setdefault("prices", deque(maxlen=LAST_SOLD))
    for sold in ctx.tuples():
        prices.append(sold.price)
        ctx.emit(auction=sold.auction, avg_price=sum(prices) / len(prices))


def q6(events: Events) -> Stream:
    """Average selling price by seller: of their last ten auctions, whenever one is over.

    Ten, as the benchmark says and as Beam does, in the order in which they were over.

    Differs from Flink's SQL, which Flink itself cannot run yet: that takes eleven (ten preceding
    rows and the current one), in the order of their winning bids, and cuts the average to whole
    cents. Its join takes rows however late they come; here an auction or bid that is further behind
    than `lateness` goes to the sink `auction.late` or `bid.late`, and counts in no average.
    """
    return sold_items(events, "id", "expires", "seller").apply("last-sold", last_sold)


def q9(events: Events) -> Stream:
    """Winning bids: each auction that was bid on, with the bid that won it.

    Differs from Flink's SQL, which tells the highest bid so far and corrects it: a result leaves
    once, when its auction is over. Flink's join takes rows however late they come; here an auction
    or bid that is further behind than `lateness` goes to the sink `auction.late` or `bid.late`, and
    is part of no result.
    """
    return sold_items(events, *AUCTION.names, offered=(*OFFERED, "extra"))
