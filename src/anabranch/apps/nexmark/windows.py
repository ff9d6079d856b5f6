"""Queries over windows in time: q5, q7, q11, q12."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.apps.nexmark.events import Events
from anabranch.apps.nexmark.generator import BIDS, EVENTS
from anabranch.apps.nexmark.greatest import Contenders, greatest
from anabranch.apps.nexmark.hot_items import Hottest
from anabranch.flow import Stream
from anabranch.operators.aggregates import count
from anabranch.operators.base import Operator
from anabranch.operators.keyed import KeyedState, keyed
from anabranch.operators.shapes import map
from anabranch.operators.windows import session, tumbling

TEN_SECONDS, TWO_SECONDS = timedelta(seconds=10), timedelta(seconds=2)


def q5(events: Events) -> Stream:
    """Hot items: the auctions with most bids in the last ten seconds, every two seconds.

    All that tie are told, by their id.
    """
    return (
        events.in_time("bid", "auction")
        .aggregate("count", key="auction", window=tumbling(TWO_SECONDS), num=count())
        .apply("hottest", Hottest(TEN_SECONDS, TWO_SECONDS))
    )


@map(out="window_end: timestamp[us]", keeps="*")
def of_window(batch: pa.RecordBatch) -> dict[str, Any]:
    """When the window of ten seconds is over that a bid is in."""
    size = int(TEN_SECONDS.total_seconds())
    times = batch["dateTime"].cast(pa.timestamp("us"))
    ends = pc.ceil_temporal(times, size, "second", ceil_is_strictly_greater=True)
    return {"window_end": ends}


def q7(events: Events) -> Stream:
    """Highest bid: the bids with the highest price of each ten seconds.

    All that tie are told, in the order of their times. A bid on the border of two windows belongs
    to the one that begins there (Flink's SQL counts it to both).
    """
    bids = events.in_time("bid", "auction", "bidder", "price", "dateTime", "extra")
    windowed = bids.apply("window", of_window)
    return windowed.apply("contenders", Contenders("price")).apply(
        "highest", greatest("price", windowed.schema)
    )


def q11(events: Events) -> Stream:
    """User sessions: how many bids a bidder made without a pause of ten seconds.

    A pause of ten seconds to the millisecond parts two sessions, as in Beam; Flink merges those.
    """
    return events.in_time("bid", "bidder").aggregate(
        "session", key="bidder", window=session(TEN_SECONDS), bid_count=count()
    )


@map(out="all: int8", keeps="bidder")
def together(batch: pa.RecordBatch) -> dict[str, Any]:
    """One key for all, since there is one queue."""
    return {"all": np.zeros(batch.num_rows, np.int8)}


def arrivals(bids_per_s: float) -> Operator:
    """The step: when each bid arrives, if they arrive at an even pace."""

    @keyed(key="all", state="seen: int64", out="arrival: timestamp[us]", keeps="bidder")
    def arrivals(batch: pa.RecordBatch, state: KeyedState) -> dict[str, Any]:
        numbers = state["seen"] + np.arange(batch.num_rows)
        state["seen"] = state["seen"] + batch.num_rows
        micros = (numbers / bids_per_s * 1e6).astype(np.int64)
        return {"arrival": pa.array(micros).cast(pa.timestamp("us"))}

    return arrivals


def q12(events: Events) -> Stream:
    """Processing time: how many bids of a bidder arrive in ten seconds, whenever they were made.

    What a clock says when a bid is read differs from run to run, and a result must not. So the
    clock here is the pace of the source: bid n arrives n / (bids per second) after the first.
    """
    bids_per_s = events.pace.rate_per_s * BIDS / EVENTS
    return (
        events.read("bid", "bidder")
        .apply("together", together)
        .apply("arrivals", arrivals(bids_per_s))
        .timed("clock", "arrival")
        .aggregate("count", key="bidder", window=tumbling(TEN_SECONDS), bid_count=count())
    )
