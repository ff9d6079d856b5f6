"""The second step of stepwise profiling: Algorithm 2 by its lines, the t-test, growth, throttle."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_ind

from anabranch.adapt.guards import beyond
from anabranch.adapt.history import Limits
from anabranch.adapt.policies.stepwise_moves import (
    Move,
    Side,
    Throttle,
    Trend,
    compared,
    grown_by,
    next_move,
    read_more,
    throttled,
    with_replicas,
)
from anabranch.planning.plan import Plan
from tests.adapt.flows_of_regions import line_of_regions
from tests.adapt.scripted import seen

FLOW = line_of_regions("parse", "split", "count")
START = Plan.sequential(FLOW)
RATIOS = {"parse": 2, "split": 2, "count": 3}
UP, SAME, DOWN = Trend.INCREASED, Trend.UNCHANGED, Trend.DECREASED


@pytest.mark.parametrize(
    ("change", "last", "in_time", "far_below", "expected"),
    [
        (UP, Side.SOURCE, False, False, Move.SINKS),  # lines 3, 4
        (UP, Side.SINKS, True, False, Move.SOURCE),  # line 6
        (UP, Side.THROTTLE, True, False, Move.SOURCE),
        (SAME, Side.SINKS, True, False, Move.SOURCE),  # lines 9, 10
        (SAME, Side.SINKS, False, False, Move.SOURCE),
        (SAME, Side.SOURCE, True, False, Move.SINKS),  # lines 12, 13
        (SAME, Side.THROTTLE, True, False, Move.END),  # lines 16, 17
        (SAME, Side.THROTTLE, False, False, Move.THROTTLE_MORE),  # line 19
        (DOWN, Side.SINKS, True, True, Move.BACK_AND_THROTTLE),  # lines 23 to 25
        (DOWN, Side.SOURCE, False, True, Move.BACK_AND_THROTTLE),
        (DOWN, Side.SINKS, False, False, Move.SOURCE),  # lines 27, 28
        (DOWN, Side.SOURCE, True, False, Move.SINKS),  # lines 30, 31
        (DOWN, Side.THROTTLE, True, False, Move.THROTTLE_LESS),  # lines 33, 34
        (SAME, Side.NOTHING, True, False, Move.SOURCE),  # the first configuration of all
        (SAME, Side.NOTHING, False, False, Move.SINKS),
    ],
)
def test_algorithm_2(
    change: Trend, last: Side, in_time: bool, far_below: bool, expected: Move
) -> None:
    assert next_move(change, last, in_time, far_below) is expected


def test_operators_grow_by_their_ratios_again_and_again() -> None:
    view = seen(FLOW, START)
    first = with_replicas(view, START, RATIOS)
    assert [first.region(n).replicas for n in RATIOS] == [2, 2, 3]
    second = grown_by(view, first, RATIOS)
    assert second is not None
    assert [second.region(n).replicas for n in RATIOS] == [4, 4, 6]


def test_what_has_no_room_stays_while_the_others_grow() -> None:
    view = seen(FLOW, START, limits=Limits(4, replicas=3, threads=50))
    grown = grown_by(view, with_replicas(view, START, RATIOS), RATIOS)
    assert grown is not None
    assert [grown.region(n).replicas for n in RATIOS] == [3, 3, 3]
    assert grown_by(view, grown, RATIOS) is None


def test_threads_that_do_not_do_for_all_are_dealt_out_in_turn() -> None:
    view = seen(FLOW, START, limits=Limits(4, replicas=9, threads=9))  # five are in use
    grown = grown_by(view, START, RATIOS)
    assert grown is not None
    assert [grown.region(n).replicas for n in RATIOS] == [3, 2, 2]


def test_sources_get_a_reader_each_until_there_is_no_room() -> None:
    view = seen(FLOW, START, limits=Limits(4, replicas=2, threads=50))
    more = read_more(view, START)
    assert more is not None
    assert more.source("parse.input").replicas == 2
    assert read_more(view, more) is None


def test_a_throttle_bounds_the_tuples_of_the_sources() -> None:
    plan = throttled(seen(FLOW, START), START, 700)
    assert plan.source("parse.input").in_flight_limit == 700
    assert throttled(seen(FLOW, START), plan, None) == START


def test_a_throttle_is_found_by_bisection() -> None:
    first = Throttle().stronger(first=4000)
    assert first.tuples == 4000
    late = first.told(latency_met=False).stronger(first=4000)
    assert late.tuples == 2000
    good = late.told(latency_met=True).weaker()
    assert good.tuples == 2828  # between 2000, which is in time, and 4000, which is not
    assert good.told(latency_met=False).stronger(first=4000).tuples == 2378
    assert good.tries == 3


def test_the_test_agrees_with_that_of_scipy_on_samples() -> None:
    draw = np.random.default_rng(0)
    seen_both = set()
    for _ in range(200):
        before = list(draw.normal(100, 4, size=20))
        after = list(draw.normal(100 + draw.uniform(-6, 6), 4, size=20))
        found = compared(before, after, least=0.0)
        significant = ttest_ind(before, after, equal_var=False).pvalue < 0.05
        assert (found is not SAME) == significant
        seen_both.add(found)
    assert seen_both == {UP, SAME, DOWN}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([100, 120, 80, 100], [105, 125, 85, 105], SAME),  # fluctuates more than it differs
        ([100, 101, 99, 100], [105, 106, 104, 105], UP),
        ([100, 101, 99, 100], [95, 96, 94, 95], DOWN),
        ([100.0] * 4, [100.5] * 4, SAME),  # nothing fluctuates, and it is too little
        ([100.0] * 4, [102.0] * 4, UP),
        ([100.0], [200.0], SAME),  # one value alone
        ([], [100.0, 101.0], SAME),
    ],
)
def test_a_change_is_significant_and_large_enough(
    before: list[float], after: list[float], expected: Trend
) -> None:
    assert compared(before, after) is expected


@given(
    replicas=st.tuples(*[st.integers(1, 8)] * 3),
    ratios=st.tuples(*[st.integers(1, 10)] * 3),
    most=st.integers(1, 12),
    threads=st.integers(5, 40),
)
def test_growth_keeps_the_bounds_and_never_takes_away(
    replicas: tuple[int, ...], ratios: tuple[int, ...], most: int, threads: int
) -> None:
    names, limits = ("parse", "split", "count"), Limits(4, replicas=most, threads=threads)
    view = seen(FLOW, START, limits=limits)
    plan = with_replicas(view, START, dict(zip(names, replicas, strict=True)))
    assert beyond(plan, limits) is None
    grown = grown_by(view, plan, dict(zip(names, ratios, strict=True)))
    if grown is not None:
        assert beyond(grown, limits) is None
        more = [grown.region(n).replicas - plan.region(n).replicas for n in names]
        assert all(0 <= given <= ratio for given, ratio in zip(more, ratios, strict=True))
        assert sum(more) > 0
