"""Figure 5's join: its results do not depend on threads, its counts are exact."""

from itertools import product

import pytest

from anabranch.testing import run_sequential
from anabranch.testing.on_engine import run_on_engine
from papers.stretch.figure5 import imbalance, joining, plan_for, rate_for, shares
from papers.stretch.pace import Pace

RATE, ROWS, WINDOW_S = 100, 800, 6.0
PACE = Pace([(0.0, RATE)])


def joined(**given):
    return joining(PACE, WINDOW_S, paced=False, rows=ROWS, buckets=28, **given)


@pytest.fixture(scope="module")
def expected():
    table = run_sequential(joined()[0]).outputs["out"]
    assert table.num_rows > 0
    return table


def pairs_within_the_window() -> int:
    reach = int(WINDOW_S * RATE)
    return sum(abs(r - s) <= reach for r, s in product(range(ROWS), repeat=2))


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_every_pair_is_decided_once_whatever_the_threads(expected, threads, indexed):
    flow, join = joined(indexed=indexed)
    result = run_on_engine(flow, "local", [plan_for(flow, threads)])
    assert result.outputs["out"].equals(expected)
    assert join.comparisons() == pairs_within_the_window()


@pytest.mark.parametrize("numbers", [(1, 2), (2, 1), (1, 4, 7, 2)])
def test_every_pair_is_decided_once_though_threads_come_and_go(expected, numbers):
    flow, join = joined()
    plans = [plan_for(flow, threads) for threads in numbers]
    result = run_on_engine(flow, "local", plans)
    assert result.outputs["out"].equals(expected)
    assert join.comparisons() == pairs_within_the_window()


def test_threads_share_the_comparisons_evenly():
    flow, join = joined()
    run_on_engine(flow, "local", [plan_for(flow, 2)])
    done = join.shares(since=0, threads=2)
    assert len(done) == 2
    assert 0 < imbalance(done) < 5


def test_counts_are_compared_where_all_threads_have_been():
    slow, quick = [(1, 100), (2, 200)], [(1, 90), (2, 190), (3, 990)]
    assert shares([slow, quick], since=1) == [100, 100]


def test_a_thread_that_began_later_is_compared_from_there_on():
    old, young = [(1, 500), (2, 600), (3, 700)], [(2, 50), (3, 150)]
    assert shares([old, young], since=0) == [100, 100]


def test_nothing_done_is_even():
    assert shares([], since=0) == []
    assert imbalance([0, 0]) == 0


def test_the_greatest_rate_makes_as_many_comparisons_as_threads_can():
    rate, window_s = rate_for(8e7, window_s=4.0), 4.0
    assert 2 * rate * rate * window_s == pytest.approx(8e7)
