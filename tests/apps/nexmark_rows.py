"""NEXMark by hand: events, and what a query makes of them."""

from __future__ import annotations

from datetime import datetime, timedelta

import pyarrow as pa

from anabranch.apps.nexmark import build
from anabranch.graph import Role
from anabranch.testing.checking import Recording
from anabranch.testing.sequential import run_sequential

NOON = datetime(2015, 7, 15, 12)
USUAL = {
    "person": {"id": 1, "name": "Ann", "city": "Bend", "state": "OR"},
    "auction": {"id": 7, "seller": 1, "category": 10, "initialBid": 1, "reserve": 1},
    "bid": {"auction": 7, "bidder": 5, "price": 100},
}


def at(seconds):
    return NOON + timedelta(seconds=seconds)


def auction(opens, over, **more):
    return {"dateTime": at(opens), "expires": at(over), **more}


def bid(seconds, price=100, **more):
    return {"dateTime": at(seconds), "price": price, **more}


def fed(query, **given):
    """A query on events of which only what matters is given."""
    flow = build(query=query, rows=1)
    tables = {}
    for name in flow.names(Role.SOURCE):
        schema = flow.graph.steps[name].body.source.schema
        rows = [{**USUAL[name], **row} for row in given.get(name, [])]
        tables[name] = pa.Table.from_pylist(
            [{column: row.get(column) for column in schema.names} for row in rows], schema
        )
    return Recording(tables, {name: {} for name in tables}).feed(flow)


def ask(query, **given):
    return run_sequential(fed(query, **given)).rows("out")


def found(rows, *names):
    return [tuple(row[name] for name in names) for row in rows]
