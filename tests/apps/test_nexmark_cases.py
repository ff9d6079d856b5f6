"""NEXMark as an application: what its references compare, its settings, its names, its summary."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pyarrow as pa
import pytest

from anabranch.apps import APPS
from anabranch.apps.nexmark import QUERIES, Summary, build
from anabranch.errors import BuildError
from anabranch.testing.sequential import run_sequential
from tests.apps.cases import cases, rows_of


def compared(query, size):
    """The rows of a case, and what its reference makes of them."""
    case = cases()[f"nexmark-{query}"]
    rows = rows_of(case.flow(size))
    return rows, case.expected(rows)


def found(rows, *names):
    return [tuple(row[name] for name in names) for row in rows]


def most_by(rows, *names):
    """How many rows of a group there are, the most first."""
    return [n for _, n in Counter(found(rows, *names)).most_common()]


@pytest.mark.parametrize("query", ["q3", "q4", "q5", "q6", "q7", "q8", "q9", "q11"])
def test_among_what_is_compared_some_events_come_too_late(query):
    _, wanted = compared(query, "shuffled")
    late = {sink: len(rows) for sink, rows in wanted.items() if sink.endswith("late")}
    assert late
    assert min(late.values()) >= 3, late


@pytest.mark.parametrize("query", ["q5", "q7"])
def test_among_what_is_compared_there_are_ties(query):
    for size, least in (("small", 3), ("large", 15), ("shuffled", 15)):
        _, wanted = compared(query, size)
        assert sum(n > 1 for n in most_by(wanted["out"], "window_end")) >= least


def test_among_what_is_compared_equal_bids_win():
    rows, wanted = compared("q9", "large")
    offers = Counter(found(rows["bid"], "auction", "price"))
    assert sum(offers[row["id"], row["price"]] > 1 for row in wanted["out"]) >= 10
    rows, _ = compared("q19", "large")
    assert most_by(rows["bid"], "auction")[0] > 10
    assert most_by(rows["bid"], "auction", "price")[0] > 10


def test_among_what_is_compared_a_bidder_bids_twice_in_a_millisecond():
    rows, wanted = compared("q18", "large")
    bids = Counter(found(rows["bid"], "bidder", "auction", "dateTime"))
    last = found(wanted["out"], "bidder", "auction", "dateTime")
    assert sum(bids[each] > 1 for each in last) >= 10


def test_among_what_is_compared_sellers_sold_more_than_the_last_ten():
    _, wanted = compared("q6", "large")
    assert most_by(wanted["out"], "seller")[0] > 10


def test_among_what_is_compared_there_are_several_days():
    for size, least in (("small", 2), ("large", 5)):
        _, wanted = compared("q17", size)
        assert len(most_by(wanted["out"], "day")) >= least
        assert most_by(wanted["out"], "auction")[0] >= 2, "an auction with bids on two days"


@pytest.mark.parametrize(
    "wrong",
    [
        {"rows": -1}, {"rate_per_s": 0.0}, {"rate_per_s": -5.0}, {"rate_per_s": float("inf")},
        {"rate_per_s": float("nan")}, {"delayed": 5.0}, {"delayed": -0.1},
        {"lateness": timedelta(seconds=-1)}, {"seed": -1},
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_named(wrong):
    (name,) = wrong
    with pytest.raises(BuildError, match=rf"nexmark-q5.*{name}: .* choose another value"):
        build(**wrong)


@pytest.mark.parametrize("rate_per_s", [1e-6, 1e9])
def test_rates_may_be_extreme(rate_per_s):
    assert run_sequential(build(query="q5", rows=200, rate_per_s=rate_per_s)).rows("out")


def test_the_summary_shows_the_last_results_shortly():
    table = pa.table({"auction": list(range(1000)), "extra": ["x" * 100] * 1000})
    lines = str(Summary.of({"out": table})).splitlines()
    assert lines[0] == "1,000 results; the last:"
    assert lines[-1] == "  auction 999, extra " + "x" * 23 + "…"
    assert len(lines) == 6


def test_every_query_is_an_application():
    assert {name for name in APPS if name.startswith("nexmark-")} == {
        f"nexmark-{q}" for q in QUERIES
    }
    assert repr(APPS["nexmark"].build()) == repr(APPS["nexmark-q5"].build())
