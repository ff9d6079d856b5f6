"""The law of time: what an application finds does not depend on the years that its data are of."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import pytest

from anabranch.apps import APPS
from anabranch.flow import Flow
from anabranch.graph import Role
from anabranch.io import memory
from anabranch.testing.checking import Recording
from anabranch.testing.result import RunResult
from anabranch.testing.sequential import run_sequential
from tests.apps.cases import EVERYTHING, cases
from tests.sampling import few

YEARS = {"before 1970": -60, "far ahead": 7900, "long ago": -1900}
"""The data are of 2000 to 2026."""

TOLD_AS_TEXT = {"day"}
BY_DAY, NO_TIMES = {"nexmark-q17"}, {"nexmark-q2", "nexmark-q12"}


@cache
def recorded(name: str) -> tuple[Flow, Recording, RunResult]:
    """An application, its own data, and what it finds in them."""
    flow = APPS[name].build(**cases()[name].small)
    recording = Recording.of(flow, EVERYTHING)
    return flow, recording, run_sequential(recording.feed(flow))


def has_times(name: str) -> bool:
    flow = APPS[name].build(**cases()[name].small)
    schemas = [flow.graph.steps[source].body.source.schema for source in flow.names(Role.SOURCE)]
    return any(pa.types.is_timestamp(kind) for schema in schemas for kind in schema.types)


def shifted(table: pa.Table, by: timedelta) -> pa.Table:
    columns = [
        pc.add(column, pa.scalar(by, pa.duration(column.type.unit))).cast(column.type)
        if pa.types.is_timestamp(column.type)
        else column
        for column in table.columns
    ]
    return pa.table(columns, schema=table.schema)


def timeless(table: pa.Table) -> pa.Table:
    kept = [f.name for f in table.schema if not pa.types.is_timestamp(f.type)]
    return table.select([name for name in kept if name not in TOLD_AS_TEXT])


WITH_TIMES = [name for name in APPS if name.startswith("nexmark-")]
WITH_TIMES += ["band-join", "finance", "spike-detection"]


def test_no_application_with_times_is_left_out():
    assert {name for name in cases() if has_times(name)} <= {*WITH_TIMES, "nexmark"}


def require_the_same(name: str, by: timedelta) -> None:
    flow, recording, expected = recorded(name)
    moved = {source: memory(shifted(t, by)) for source, t in recording.tables.items()}
    got = run_sequential(flow.reading(moved))
    assert sum(table.num_rows for table in expected.outputs.values())
    for sink, table in expected.outputs.items():
        assert timeless(got.outputs[sink]).equals(timeless(table)), sink
    assert got.counters == expected.counters


@pytest.mark.parametrize("years", few(YEARS, 1))
@pytest.mark.parametrize("name", WITH_TIMES)
def test_data_of_other_years_have_the_same_results(name, years):
    require_the_same(name, timedelta(days=365 * YEARS[years]))


@pytest.mark.parametrize("name", [name for name in WITH_TIMES if name not in BY_DAY | NO_TIMES])
def test_data_that_run_over_1970_have_the_same_results(name):
    table = next(iter(recorded(name)[1].tables.values()))
    times = next(c for c in table.columns if pa.types.is_timestamp(c.type)).cast("timestamp[us]")
    minutes = pc.min(times).as_py() + (pc.max(times).as_py() - pc.min(times).as_py()) / 2
    require_the_same(name, datetime(1970, 1, 1) - minutes.replace(second=0, microsecond=0))


BID = {"auction": 1, "bidder": 1, "price": 5, "extra": ""}


@pytest.mark.parametrize(
    ("time", "sink"),
    [
        ("9999-12-31 23:59:59", "late"),
        ("0001-01-01 00:00:00", "late"),
        ("9999-12-31 23:59:59-05:00", "bid.bad"),
        ("0000-06-01 00:00:00", "bid.bad"),
    ],
)
@pytest.mark.parametrize("query", ["q5", "q7", "q11"])
def test_a_file_of_one_time_that_no_clock_can_take_has_no_results(tmp_path, query, time, sink):
    path = tmp_path / "bids.jsonl"
    path.write_text(json.dumps({**BID, "dateTime": time}) + "\n")
    app = APPS[f"nexmark-{query}"]
    found = run_sequential(app.build(input=str(path))).outputs
    assert {name: table.num_rows for name, table in found.items() if table.num_rows} == {sink: 1}
    assert str(app.module.Summary.of(found)) == "0 results"


def test_a_tweet_of_the_last_second_is_set_aside(tmp_path):
    tweet = {"created_at": "Fri Dec 31 23:59:59 +0000 9999", "text": "this is the #end"}
    (tmp_path / "tweets.jsonl").write_text(json.dumps(tweet) + "\n")
    app = APPS["sentiment"]
    found = run_sequential(app.build(input=str(tmp_path / "tweets.jsonl"))).outputs
    assert found["late"].num_rows == 1
    assert "no hashtags" in str(app.module.Summary.of(found))


@pytest.mark.parametrize("query", ["q4", "q6", "q9"])
def test_an_auction_that_ends_beyond_the_calendar_is_bad_and_harms_no_other(tmp_path, query):
    begin, moment = 1_436_918_400_000, pa.timestamp("ms")
    auctions = {
        "id": [1, 2],
        "initialBid": [1, 1],
        "reserve": [1, 1],
        "dateTime": pa.array([begin, begin + 1], moment),
        "expires": pa.array([begin + 1000, 600_000_000_000_000], moment),
        "seller": [1, 2],
        "category": [10, 11],
    }
    bids = {
        "auction": [1, 2],
        "bidder": [5, 6],
        "price": [7, 8],
        "dateTime": pa.array([begin + 10, begin + 20], moment),
    }
    for name, columns in {"auction": auctions, "bid": bids}.items():
        pa.parquet.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    paths = {name: str(tmp_path / f"{name}.parquet") for name in ("auction", "bid")}
    app = APPS[f"nexmark-{query}"]
    found = run_sequential(app.build(input=paths)).outputs
    assert found["auction.bad"]["error"].to_pylist() == ["a year outside of 1 to 9999 in 'expires'"]
    assert found["out"].num_rows == 1
    assert str(app.module.Summary.of(found)).startswith("1 results")
