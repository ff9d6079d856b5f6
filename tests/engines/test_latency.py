"""Percentiles of latency, counted in classes."""

from __future__ import annotations

from random import Random

import pytest

from anabranch.engines.latency import Latencies


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99, 0.999])
def test_percentiles_are_right_to_seven_percent(share: float):
    rng, latencies = Random(1), Latencies()
    drawn = sorted(rng.lognormvariate(1, 2) for _ in range(5000))
    latencies.note([(each, 1) for each in drawn])
    exact = drawn[int(share * len(drawn)) - 1]
    assert exact * 0.999 <= latencies.percentile(share) <= exact * 1.075


def test_a_latency_counts_for_all_its_tuples():
    latencies = Latencies()
    latencies.note([(1.0, 10), (100.0, 990)])
    assert latencies.percentile(0.5) == pytest.approx(100, rel=0.075)
    assert latencies.percentile(0.01) == pytest.approx(1, rel=0.075)


def test_a_look_tells_what_came_since_the_last_one():
    latencies = Latencies()
    latencies.note([(1.0, 100)])
    assert latencies.look([0.5]) == [pytest.approx(1, rel=0.075)]
    latencies.note([(50.0, 1)])
    assert latencies.look([0.5]) == [pytest.approx(50, rel=0.075)]
    assert latencies.percentile(0.5) == pytest.approx(1, rel=0.075)


def test_a_look_at_nothing_new_tells_what_the_last_one_told_and_not_of_the_whole_run():
    latencies = Latencies()
    latencies.note([(800.0, 3000)])
    latencies.look([0.5])
    latencies.note([(8.0, 3)])
    for _ in range(3):
        assert latencies.look([0.5, 0.99]) == [pytest.approx(8, rel=0.075)] * 2
    latencies.note([(2.0, 1)])
    assert latencies.look([0.5]) == [pytest.approx(2, rel=0.075)]


def test_what_is_forgotten_is_not_looked_at_again():
    latencies = Latencies()
    latencies.note([(8.0, 3)])
    latencies.look([0.5])
    latencies.forget()
    assert latencies.look([0.5]) == [0.0]


@pytest.mark.parametrize("extreme", [0.0, -1.0, 1e-9, 1e12])
def test_extremes_are_counted_in_the_first_or_last_class(extreme: float):
    latencies = Latencies()
    latencies.note([(extreme, 1)])
    assert latencies.percentile(1.0) > 0


def test_without_tuples_there_is_no_latency():
    assert Latencies().percentile(0.5) == 0.0
