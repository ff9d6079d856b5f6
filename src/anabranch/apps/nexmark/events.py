"""Persons, auctions and bids: their columns, and where a query gets them from.

The columns are those of the benchmark's tables in Flink. Money is in whole cents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

import pyarrow as pa

from anabranch.apps.kit.inputs import FAR, Input, paths_of, read_rows
from anabranch.apps.nexmark.generator import (
    AUCTIONS,
    BIDS,
    EVENTS,
    PERSONS,
    Auctions,
    Bids,
    Block,
    EventRate,
    Persons,
    how_many,
    rows_of,
)
from anabranch.flow import Flow, Stream
from anabranch.io import collect, generate

TIME = "dateTime"
MOMENT = pa.timestamp("ms")


def _columns(required: dict[str, pa.DataType], optional: Sequence[str]) -> pa.Schema:
    needed = [pa.field(name, kind, nullable=False) for name, kind in required.items()]
    return pa.schema([*needed, *(pa.field(name, pa.string()) for name in optional)])


PERSON = _columns(
    {"id": pa.int64(), TIME: MOMENT},
    ["name", "emailAddress", "creditCard", "city", "state", "extra"],
)
AUCTION = _columns(
    {
        "id": pa.int64(),
        "initialBid": pa.int64(),
        "reserve": pa.int64(),
        TIME: MOMENT,
        "expires": MOMENT,
        "seller": pa.int64(),
        "category": pa.int64(),
    },
    ["itemName", "description", "extra"],
)
BID = _columns(
    {"auction": pa.int64(), "bidder": pa.int64(), "price": pa.int64(), TIME: MOMENT},
    ["channel", "url", "extra"],
)


class EventKind(NamedTuple):
    """A kind of event: its columns, who makes them, and its places among fifty events."""

    columns: pa.Schema
    rows: type[Block]
    before: int
    among_fifty: int


KINDS = {
    "person": EventKind(PERSON, Persons, 0, PERSONS),
    "auction": EventKind(AUCTION, Auctions, PERSONS, AUCTIONS),
    "bid": EventKind(BID, Bids, PERSONS + AUCTIONS, BIDS),
}


@dataclass(frozen=True)
class Events:
    """What a query reads, of files or generated.

    Attributes:
        flow: Where sources are added.
        sources: Which kinds of events the query reads.
        input: Files, None for generated events.
        rows: How many events of all kinds are generated; None for no end.
        pace: When generated events happen.
        lateness: How far out of order an event may come.
        paced: Whether events become due as they happen.
        seed: Decides the generated events.
    """

    flow: Flow
    sources: tuple[str, ...]
    input: Input | None
    rows: int | None
    pace: EventRate
    lateness: timedelta
    paced: bool
    seed: int

    def read(self, source: str, *columns: str) -> Stream:
        """Some columns of a kind of events, as they arrive."""
        kind = KINDS[source]
        wanted = pa.schema([kind.columns.field(name) for name in columns])
        if self.input is not None:
            paths = paths_of(self.input, source, self.sources)
            return read_rows(self.flow, source, paths, wanted)
        share = kind.among_fifty / EVENTS
        made = generate(
            rows_of(kind.rows, columns, self.pace),
            wanted,
            rows=None if self.rows is None else how_many(self.rows, kind.before, kind.among_fifty),
            rate_per_s=self.pace.rate_per_s * share if self.paced else None,
            seed=len(KINDS) * self.seed + list(KINDS).index(source),
        )
        return self.flow.source(source, made)

    def in_time(self, source: str, *columns: str) -> Stream:
        """The same in the order of event time; what comes too late goes to a sink of its own."""
        columns = columns if TIME in columns else (*columns, TIME)
        timed = self.read(source, *columns).timed(
            f"{source}.time", TIME, lateness=self.lateness, ahead=FAR
        )
        timed.late.sink("late" if len(self.sources) == 1 else f"{source}.late", collect())
        return timed
