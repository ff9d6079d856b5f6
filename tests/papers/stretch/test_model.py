"""STRETCH's models against the numbers of the paper, and the laws behind them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import PlanError
from papers.stretch.model import (
    PURE,
    VIRTUAL,
    LineCosts,
    Thresholds,
    fitted,
    line_rate_on,
    rates,
    scales_to,
    series,
    threads_for,
    virtual_is_better,
)

STARTING = (5, 9, 18, 30, 40)
costs = st.floats(0.01, 100)
lines = st.builds(LineCosts, take_in=costs, process=costs, put_out=costs, share=costs, merge=costs)


@pytest.mark.parametrize(
    ("load", "expected"), [(1.2, (9, 16, 31, 52, 69)), (0.3, (2, 3, 7, 12, 17))]
)
def test_table_2(load, expected):
    assert tuple(threads_for(n, load) for n in STARTING) == expected


def test_threads_stay_while_the_load_is_between_the_thresholds():
    assert [threads_for(10, load) for load in (0.45, 0.7, 0.9)] == [10, 10, 10]
    assert threads_for(10, 0.449) == 6
    assert threads_for(10, 0.901) == 13


def test_a_number_that_comes_out_even_is_not_rounded_up():
    assert 1.2 * 7 / 0.7 > 12  # what binary fractions would give
    assert threads_for(7, 1.2) == 12


def test_one_thread_always_stays():
    assert threads_for(1, 0.0) == threads_for(2, 0.3) == 1


# By hand from Table 1, in units of d^I: what T^I, T^P and T^O spend on a tuple.
PURE_BY_HAND = {1: (1.1, 16, 1), 2: (1.2, 8, 1.2), 4: (1.4, 4, 1.8), 8: (1.8, 2, 3.4)}
VIRTUAL_BY_HAND = {1: (1.01, 16, 1), 2: (1.02, 8, 1.02), 8: (1.08, 2, 1.24), 16: (1.16, 1, 1.64)}


@pytest.mark.parametrize(("line", "by_hand"), [(PURE, PURE_BY_HAND), (VIRTUAL, VIRTUAL_BY_HAND)])
def test_figure_3_at_the_powers_of_two(line, by_hand):
    for found, expected in zip(series(line, by_hand), by_hand.values(), strict=True):
        assert [1 / rate for rate in found] == pytest.approx(expected)


def test_figure_3_crossings():
    # P_SN: T^P 16/6 = 2.67 is above T^O 1 + 0.6·log2 6 = 2.55, 16/7 = 2.29 below 2.97.
    # V_SN: T^P 16/11 = 1.45 is above T^O 1 + 0.11·log2 11 = 1.38, 16/12 = 1.33 below 1.43.
    assert (scales_to(PURE), scales_to(VIRTUAL)) == (6, 11)
    assert rates(PURE, 7).bottleneck == rates(VIRTUAL, 12).bottleneck == "T^O"
    # T^P overtakes T^I: 16/n = 1 + 0.1·n between 8 and 9, 16/n = 1 + 0.01·n between 14 and 15.
    faster = [
        next(n for n in range(1, 20) if rates(line, n).process > rates(line, n).take_in)
        for line in (PURE, VIRTUAL)
    ]
    assert faster == [9, 15]


@given(lines, st.integers(2, 64))
def test_costs_are_found_again_from_what_threads_spent(line, most):
    spent = {n: (1 / (r := rates(line, n)).take_in, line.process, 1 / r.put_out) for n in (1, most)}
    found = fitted(spent)
    bounds = (found.share, found.merge, found.process, found.put_out)
    assert bounds == pytest.approx((line.share, line.merge, line.process, line.put_out), rel=1e-6)
    assert found.take_in == pytest.approx(max(line.take_in, spent[1][0] / 2), rel=1e-6)


def test_a_line_needs_one_run_with_one_thread_to_be_fitted():
    with pytest.raises(PlanError, match="one thread"):
        fitted({2: (1.0, 1.0, 1.0)})


@given(lines, st.integers(1, 64), st.integers(1, 64))
def test_cores_bound_a_line_until_there_are_enough_of_them(line, threads, cores):
    bounded = line_rate_on(cores, line, threads)
    assert bounded <= line_rate_on(cores + 1, line, threads) <= rates(line, threads).line
    assert line_rate_on(threads + 2, line, threads) == pytest.approx(rates(line, threads).line)


def test_both_conditions_of_section_8_hold_from_9_to_11_threads():
    assert [n for n in range(1, 73) if virtual_is_better(n)] == [9, 10, 11]


def test_the_line_has_nothing_to_gain_when_another_thread_is_the_bottleneck_from_the_start():
    assert scales_to(LineCosts(take_in=2, process=1)) == 0


@given(lines, st.integers(1, 200))
def test_more_threads_process_faster_and_slow_down_the_others(line, n):
    now, then = rates(line, n), rates(line, n + 1)
    assert then.process > now.process
    assert then.take_in < now.take_in
    assert then.put_out < now.put_out


@given(lines)
def test_the_line_grows_in_proportion_as_long_as_it_scales(line):
    most = min(scales_to(line), 100)
    for n in range(1, most + 1):
        assert rates(line, n).line == pytest.approx(n * rates(line, 1).process)
    assert rates(line, scales_to(line) + 1).bottleneck != "T^P"


@given(lines, st.floats(0.01, 1))
def test_cheaper_sharing_scales_at_least_as_far(line, part):
    cheaper = LineCosts(
        line.take_in, line.process, line.put_out, line.share * part, line.merge * part
    )
    assert scales_to(cheaper) >= scales_to(line)


@given(st.integers(1, 500), st.floats(0, 3), st.floats(0, 3))
def test_more_load_never_asks_for_fewer_threads(n, one, other):
    low, high = sorted((one, other))
    assert threads_for(n, low) <= threads_for(n, high)


@given(st.integers(1, 500), st.floats(0.91, 5))
def test_added_threads_are_the_fewest_that_bring_the_load_to_the_target(n, load):
    wanted = threads_for(n, load)
    assert load * n / wanted <= 0.7 + 1e-9
    assert load * n / (wanted - 1) > 0.7 - 1e-9


@given(st.integers(1, 500), st.floats(0, 0.44))
def test_threads_that_stay_bear_at_least_the_target(n, load):
    wanted = threads_for(n, load)
    assert wanted == 1 or load * n / wanted >= 0.7 - 1e-9


@pytest.mark.parametrize("wrong", [-1.0, 0.0, math.inf, math.nan])
def test_costs_that_are_no_times_are_refused(wrong):
    with pytest.raises(PlanError, match="above 0"):
        LineCosts(take_in=wrong)


def test_what_cannot_be_is_refused():
    with pytest.raises(PlanError, match="in order"):
        Thresholds(upper=0.5)
    with pytest.raises(PlanError, match="at least one thread"):
        rates(PURE, 0)
    with pytest.raises(PlanError):
        threads_for(0, 1.2)
