"""The references are compared on data that reach what an application can do."""

from __future__ import annotations

from functools import cache

import pytest

from tests.apps.cases import Row, cases, rows_of

SIZES = ("small", "large", "shuffled")

FEWEST = {
    "log-watch": {"out": 30, "late": 5, "RawLines.bad": 3},
    "network-monitoring": {"out": 100, "late": 5, "lines.bad": 2},
    "finance": {"out": 150, "trades.late": 5, "quotes.late": 5},
    "band-join": {"out": 2_000, "r.late": 5, "s.late": 5},
    "sentiment": {"out": 50, "late": 3, "tweets.bad": 20, "dated.bad": 10, "users": 80},
}
"""How many rows the sinks of an application get, at least, in all sizes together."""

KINDS = {
    "outliers": ("fraud-detection", lambda row: row["outlier"], 30),
    "honest customers": ("fraud-detection", lambda row: row["score"] and not row["outlier"], 500),
    "accounts too young for a score": ("fraud-detection", lambda row: row["score"] is None, 100),
    "spikes": ("spike-detection", lambda row: row["spike"], 40),
    "readings that are no spikes": ("spike-detection", lambda row: not row["spike"], 1_000),
    "break-ins after bursts": ("log-watch", lambda row: row["bursts"] > 0, 10),
    "users who were broken into before": ("log-watch", lambda row: row["break_in"] > 1, 10),
}
"""What there are of rows of the main result: of which application, and how many at least."""


@cache
def expected(name: str) -> dict[str, list[Row]]:
    """What the reference of an application says of all its data."""
    case = cases()[name]
    told: dict[str, list[Row]] = {}
    for size in SIZES if case.disorder else SIZES[:2]:
        for sink, rows in case.expected(rows_of(case.flow(size))).items():
            told.setdefault(sink, []).extend(rows)
    return told


@pytest.mark.parametrize(
    ("name", "sink"), [(n, sink) for n, sinks in FEWEST.items() for sink in sinks]
)
def test_every_sink_has_something_to_compare(name, sink):
    assert len(expected(name)[sink]) >= FEWEST[name][sink]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_result_comes_up(kind):
    name, is_one, least = KINDS[kind]
    assert sum(bool(is_one(row)) for row in expected(name)["out"]) >= least


@pytest.mark.parametrize("name", ["log-watch", "network-monitoring"])
def test_some_lines_tell_of_several_attempts_and_some_are_told_by_pam(name):
    lines = [row["line"] for rows in rows_of(cases()[name].flow("large")).values() for row in rows]
    assert sum("message repeated" in line and "Failed" in line for line in lines) >= 3
    assert sum("authentication failure" in line for line in lines) >= 3
