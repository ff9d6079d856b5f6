"""The parts of `benchmarks/spark_sql.py`: ratios, what counts as agreement, and its own flow."""

import sys
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from anabranch.testing import run_sequential

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import apps_agreement as agreement
from harness import Sample, ratios
from spark_sql import CONTESTS, market

ROWS = 300
WINNERS = pd.DataFrame({"auction": [1, 2, 3, 4], "price": [10, 20, 30, 40], "bid_dateTime": 0})


def test_ratios_are_of_neighbouring_turns():
    ours, theirs = Sample.of([8.0, 4.0, 2.0]), Sample.of([4.0, 2.0, 2.0])
    assert ratios(ours, theirs).values == (2.0, 2.0, 1.0)
    assert ratios(ours, theirs).median == 2.0


def test_every_query_has_a_bar_and_checks_all_that_both_write():
    bars = {each.name: each.bar for each in CONTESTS}
    assert bars == {
        "nexmark-q3": 2.0,
        "nexmark-q4": 2.0,
        "nexmark-q5": 5.0,
        "nexmark-q7": 2.5,
        "nexmark-q8": 2.0,
        "nexmark-q9": 2.0,
        "market": 3.0,
    }
    for each in CONTESTS:
        written = {sink for sink in each.build(rows=100).sinks() if "late" not in sink}
        assert set(each.checks) == written


def test_results_that_are_open_at_the_end_may_be_missing_but_not_most_and_not_wrong():
    theirs = WINNERS.drop(3)
    assert agreement.nexmark_q9(WINNERS, theirs)
    assert not agreement.nexmark_q9(WINNERS, WINNERS.drop([1, 2, 3]))
    assert not agreement.nexmark_q9(WINNERS, theirs.assign(price=[10, 20, 31]))


def test_a_join_without_an_end_must_give_every_pair():
    assert agreement.nexmark_q3(WINNERS, WINNERS)
    assert not agreement.nexmark_q3(WINNERS, WINNERS.drop(3))


@pytest.mark.parametrize(
    ("auctions", "price", "same"), [(99, 10.0, True), (40, 10.0, False), (99, 12.0, False)]
)
def test_averages_are_of_most_auctions_and_near(auctions, price, same):
    ours = pd.DataFrame({"category": [10, 10], "auctions": [50, 100], "avg_price": [9.0, 10.1]})
    theirs = pd.DataFrame({"category": [10], "auctions": [auctions], "avg_price": [price]})
    assert agreement.nexmark_q4(ours, theirs) is same


def test_the_market_counts_every_bid_once_by_minute_and_once_by_visit():
    flow = market(rows=ROWS)
    [source] = flow.sources().values()
    [part] = source.parts()
    bids = source.read(part, 0, ROWS).batch.to_pylist()
    found = run_sequential(flow)
    by_segment: Counter[str] = Counter()
    for row in found.rows("minutes-out"):
        by_segment[row["segment"]] += row["bids"]
    assert by_segment == Counter(f"segment-{bid['auction'] % 10_000 % 100}" for bid in bids)
    by_bidder: Counter[int] = Counter()
    fees: Counter[int] = Counter()
    for row in found.rows("visits-out"):
        by_bidder[row["bidder"]] += row["bids"]
        fees[row["bidder"]] += row["fees"]
    assert by_bidder == Counter(bid["bidder"] for bid in bids)
    assert fees.total() == sum(bid["auction"] % 10_000 % 7 for bid in bids)
    assert max(row["highest"] for row in found.rows("minutes-out")) == max(
        bid["price"] for bid in bids
    )
