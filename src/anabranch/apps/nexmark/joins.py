"""Queries that bring persons and auctions together: q3, q8."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.apps.nexmark.events import Events
from anabranch.flow import Stream
from anabranch.operators.row_wise.map_filter_expand import filter, map

CATEGORY = 10
STATES = pa.array(["OR", "ID", "CA"])
FOREVER = timedelta(days=365_000)
"""How long q3 keeps both sides, since the join of the SQL has no end."""

NEW = timedelta(seconds=10)


@filter()
def local(batch: pa.RecordBatch) -> Any:
    """People of Oregon, Idaho and California."""
    return pc.is_in(batch["state"], STATES)


@filter()
def of_category(batch: pa.RecordBatch) -> Any:
    """Auctions of category 10."""
    return pc.equal(batch["category"], CATEGORY)


@map(out="id: int64, auction: int64")
def by_seller(batch: pa.RecordBatch) -> dict[str, Any]:
    """An auction under its seller's id."""
    return {"id": batch["seller"], "auction": batch["id"]}


def q3(events: Events) -> Stream:
    """Local item suggestion: who sells what in category 10, of OR, ID and CA.

    A join without an end: both sides are kept, and a pair leaves when the second of them comes.

    Differs from Flink's SQL, whose join takes rows however late they come: a person or auction that
    is further behind than `lateness` goes to the sink `person.late` or `auction.late`, and its
    pairs are missing.
    """
    people = events.in_time("person", "id", "name", "city", "state").apply("local", local)
    auctions = (
        events.in_time("auction", "id", "seller", "category")
        .apply("category", of_category)
        .apply("by-seller", by_seller)
    )
    return people.join("join", auctions, key="id", within=FOREVER).map(
        "columns", lambda batch: {}, keeps=("name", "city", "state", "auction")
    )


@map(out="starttime: timestamp[us]", keeps=("id", "name"))
def entered(batch: pa.RecordBatch) -> dict[str, Any]:
    """A person, and when the window began in which they came."""
    return {"starttime": window_of(batch["dateTime"])}


@map(out="id: int64, starttime: timestamp[us]")
def sold(batch: pa.RecordBatch) -> dict[str, Any]:
    """A seller, and when the window began in which they put something up."""
    return {"id": batch["seller"], "starttime": window_of(batch["dateTime"])}


def window_of(times: pa.Array) -> pa.Array:
    """When the window of ten seconds began that each time is in.

    Example:
        >>> from datetime import datetime
        >>> window_of(pa.array([datetime(2015, 7, 15, 0, 0, 19)])).to_pylist()
        [datetime.datetime(2015, 7, 15, 0, 0, 10)]
    """
    return pc.floor_temporal(times.cast(pa.timestamp("us")), int(NEW.total_seconds()), "second")


def q8(events: Events) -> Stream:
    """Monitor new users: who came and put something up in the same window of ten seconds.

    Once per person and window, however many auctions they opened. Two times of one window are
    less than ten seconds apart, so nothing has to be remembered for longer.
    """
    people = events.in_time("person", "id", "name").apply("entered", entered)
    sellers = events.in_time("auction", "seller").apply("sold", sold)
    new = people.deduplicate("people", key=("id", "name", "starttime"), within=NEW)
    active = sellers.deduplicate("sellers", key=("id", "starttime"), within=NEW)
    return new.join("join", active, key=("id", "starttime"), within=NEW)
