"""Queries that look at one bid at a time: q0, q1, q2, q13."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.apps.nexmark.events import Events
from anabranch.flow import Stream
from anabranch.operators.row_wise.map_filter_expand import filter, map

EUROS = pa.scalar(Decimal("0.908"), pa.decimal128(3, 3))
EVERY = 123
SIDE_ROWS = 10_000
SELECTED = ("auction", "bidder", "price", "dateTime", "extra")
"""What the SQL takes of a bid."""


def q0(events: Events) -> Stream:
    """Pass through: every bid as it is, which shows what the machinery alone costs."""
    return events.read("bid", *SELECTED)


@map(out={"price": pa.decimal128(23, 3)}, keeps=("auction", "bidder", "dateTime", "extra"))
def in_euros(batch: pa.RecordBatch) -> dict[str, Any]:
    """Cents times 0.908, exactly."""
    return {"price": pc.multiply(batch["price"].cast(pa.decimal128(19)), EUROS)}


def q1(events: Events) -> Stream:
    """Currency conversion: each bid with its price in euro cents, to three decimals."""
    return events.read("bid", *SELECTED).apply("convert", in_euros)


@filter()
def selected(batch: pa.RecordBatch) -> Any:
    """Whether 123 divides the auction's id."""
    return pa.array(batch["auction"].to_numpy() % EVERY == 0)


def q2(events: Events) -> Stream:
    """Selection: auction and price of the bids on every 123rd auction."""
    return events.read("bid", "auction", "price").apply("select", selected)


@map(out="key: int64", keeps="*")
def side_key(batch: pa.RecordBatch) -> dict[str, Any]:
    """The auction's id, up to the number of rows on the side."""
    return {"key": batch["auction"].to_numpy() % SIDE_ROWS}


def q13(events: Events) -> Stream:
    """Bounded side input: each bid with what a table of ten thousand rows says of its auction.

    The table has a number and its text; the auction's id modulo ten thousand is looked up.
    """
    numbers = pa.array(range(SIDE_ROWS), pa.int64())
    side = pa.table({"key": numbers, "value": numbers.cast(pa.string())})
    return (
        events.read("bid", "auction", "bidder", "price", "dateTime")
        .apply("key", side_key)
        .lookup("enrich", side, key="key")
        .map("columns", lambda batch: {}, keeps=("auction", "bidder", "price", "dateTime", "value"))
    )
