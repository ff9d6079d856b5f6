"""How many cores a target needs, and how sure that is."""

from __future__ import annotations

from dataclasses import replace
from math import inf, log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import PlanError
from anabranch.graph import StateKind
from anabranch.planning.answer import Answer
from anabranch.planning.machine import Machine
from anabranch.planning.models.fission import estimate
from anabranch.planning.models.latency import latency
from anabranch.planning.profile import OperatorProfile, Overheads, chain
from anabranch.planning.sizing import (
    CALL_S,
    MODEL_ERROR,
    Cores,
    Fit,
    Shortfall,
    SizedBatches,
    Target,
    bounds,
    fewest_cores,
    fewest_slots,
    size,
)
from tests.sampling import some

PARSE = OperatorProfile("parse", 3.0)
COUNT = OperatorProfile("count", 1.0)
READ = OperatorProfile("read", 0.5, state=StateKind.STATEFUL)
WORK = chain([READ, PARSE, COUNT], unit="ms")
RUNS = (("read",), ("parse", "count"))
PLACE = Cores(Machine.of_cores(1), RUNS)


def needed(rate, latency_ms=None, profile=WORK, place=PLACE, **more):
    return fewest_cores(profile, Target(rate, latency_ms, **more), place)


# Rates


def test_headroom_is_part_of_the_need():
    assert needed(444.0, headroom=0.0).cores == 2
    assert needed(444.0, headroom=0.2).cores == 3


@given(rate=st.floats(1.0, 1600.0), headroom=st.floats(0.0, 0.2))
@settings(max_examples=some(60))
def test_the_plan_carries_the_rate_and_one_core_fewer_does_not(rate, headroom):
    found = needed(rate, headroom=headroom)
    assert found.rate_per_s >= rate * (1 + headroom) * (1 - 1e-9)
    promised = estimate(WORK, found.answer.regions, found.cores)
    assert promised.throughput * 1e3 == pytest.approx(found.rate_per_s)
    if found.cores > 1:
        fewer = Target(rate, None, headroom, most_cores=found.cores - 1)
        assert isinstance(fewest_cores(WORK, fewer, PLACE), Shortfall)


def test_cores_that_share_a_memory_are_worth_less():
    weak = replace(PLACE, machine=replace(Machine.of_cores(1), parallel_share=0.5))
    assert (needed(600.0).cores, needed(600.0, place=weak).cores) == (4, 7)  # 3.24 at work


def test_a_stateful_bottleneck_is_named():
    found = needed(3000.0)
    assert (found.what, found.best) == ("rate", pytest.approx(2000.0))
    assert "read is stateful" in found.because


def test_too_few_cores_are_named():
    found = needed(1500.0, most_cores=4)
    assert found.best == pytest.approx(4 / 4.5 * 1000)
    assert found.because == "4 cores are all at work"


def test_replicas_that_cost_more_than_they_gain_are_named():
    dear = replace(WORK, overheads=Overheads(0.0, 2.0))
    assert "more replicas cost more than they gain" in needed(1000.0, profile=dear).because


# Latencies


def test_a_tuple_takes_its_work_and_its_wait():
    steady = chain([replace(PARSE, cost_p99=3.0)], unit="ms")
    place = Cores(Machine.of_cores(1), (("parse",),))
    found = fewest_cores(steady, Target(100.0, None, 0.0), place)
    wait = log(100 * 0.3) / 0.7 / 2 * 3.0  # M/D/1
    assert found.latency_ms == pytest.approx(3.0 + wait, rel=1e-3)


def test_a_shorter_latency_needs_no_fewer_cores():
    cores = [needed(400.0, latency).cores for latency in (100.0, 40.0, 22.5)]
    assert cores == sorted(cores)
    assert cores[0] < cores[-1]


def test_a_latency_below_the_work_cannot_be_had():
    found = needed(400.0, 2.0)
    assert found.what == "latency"
    assert found.best > 4.0
    assert found.because.startswith("region parse works 4 ms on 1 row")


def test_jumbo_tuples_are_as_large_as_the_latency_allows():
    place = replace(PLACE, batches=(16, 8, 4, 2, 1))
    sizes = [needed(100.0, limit, place=place).batch_rows for limit in (1000.0, 300.0, 60.0)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 16
    assert sizes[-1] < 8


def test_small_jumbo_tuples_make_parallelism_dear():
    profile = replace(WORK, overheads=Overheads(0.01, 0.01))
    place = replace(PLACE, batches=(16_384,), per_jumbo=True)
    small = replace(place, batches=(256,))
    assert needed(900.0, profile=profile, place=place).cores == 5
    assert isinstance(needed(900.0, profile=profile, place=small), Shortfall)


def test_at_a_low_rate_nobody_waits_for_a_jumbo_tuple_to_be_full():
    place = replace(PLACE, batches=(256,))
    assert needed(10.0, 50.0, place=place).because == "256 rows take 2.55e+04 ms to come"
    found = needed(10.0, 50.0, place=replace(place, linger_s=0.004))
    assert found.latency_ms < 50.0


def test_rows_that_linger_in_vain_are_worked_on_as_they_come():
    alone = replace(PLACE, batches=(256,), linger_s=0.0)
    assert needed(10.0, place=alone).latency_ms == needed(10.0).latency_ms


def test_small_jumbo_tuples_that_cost_too_much_grow_at_the_source():
    cheap = chain([OperatorProfile("read", 1.0)], unit="us")
    place = Cores(Machine.of_cores(1), (("read",),), (16_384,), per_jumbo=True, linger_s=1e-5)
    found = fewest_cores(cheap, Target(200e3), place)  # 3 rows linger: a call takes 100 us a row
    assert found.busy_cores < 1
    assert 2 * CALL_S * 1e3 < found.latency_ms < 50.0


def test_rows_that_wait_without_end_are_never_in_time():
    alone = Cores(Machine.of_cores(1), (("read",),))
    profile = chain([replace(READ, cost=1.0)], unit="ms")
    found = fewest_cores(profile, Target(1000.0, headroom=0.0), alone)
    assert (found.what, found.best) == ("rate", pytest.approx(1000.0))
    assert "without end" in found.because
    assert fewest_cores(profile, Target(990.0, headroom=0.0), alone).latency_ms < inf


def test_the_slowest_way_through_a_graph_counts():
    found = needed(100.0)
    whole = latency(WORK, found.answer.regions, 0.1)
    assert [each.region.operators[0] for each in whole.regions] == ["read", "parse"]
    assert whole.slowest.region.operators[0] == "parse"


# How sure


def test_costs_may_be_lower_and_higher_by_the_error_of_the_model():
    low, high = bounds(WORK)
    assert low.work == pytest.approx(WORK.work * (1 - MODEL_ERROR))
    assert high.work == pytest.approx(WORK.work * (1 + MODEL_ERROR))


def test_costs_that_vary_may_be_a_deviation_higher():
    varying = chain([replace(PARSE, cost_p99=3.0 * 2.0)], unit="ms")
    _, high = bounds(varying)
    assert high.work == pytest.approx(3.0 * (1 + MODEL_ERROR) * 2 ** (1 / 2.326), rel=1e-3)


@given(rate=st.floats(1.0, 1400.0))
@settings(max_examples=some(40))
def test_what_is_needed_lies_in_the_interval(rate):
    target = Target(rate)
    found = size("demo", WORK, target, lambda profile: fewest_cores(profile, target, PLACE))
    assert isinstance(found.well, Fit)
    assert isinstance(found.fit, Fit)
    assert found.well.cores <= found.fit.cores
    assert isinstance(found.badly, Shortfall) or found.fit.cores <= found.badly.cores


# Micro-batches


def batches(cores):
    """0.2 s, and a millisecond a row on one core."""
    return SizedBatches(Answer((), 0.0, 0.0), lambda rows: 0.2 + rows / 1000 / cores, 0.001)


def test_batches_grow_until_one_takes_as_long_as_its_rows():
    found = fewest_slots(Target(500.0), batches)
    assert found.cores == 1
    assert found.latency_ms == pytest.approx(800.0, rel=1e-3)
    assert found.batch_rows == pytest.approx(200, abs=1)


def test_a_shorter_batch_needs_more_cores():
    assert fewest_slots(Target(500.0, 600.0), batches).cores == 2


def test_no_batch_is_shorter_than_what_is_fixed():
    found = fewest_slots(Target(500.0, 300.0), batches)
    assert found.what == "latency"
    assert found.best > 400.0


def test_batches_that_never_keep_up_are_said():
    found = fewest_slots(Target(1e6, most_cores=4), batches)
    assert (found.what, found.best) == ("rate", pytest.approx(4000.0, rel=1e-2))


@pytest.mark.parametrize(("field", "value"), [("rate_per_s", 0.0), ("latency_ms", -1.0)])
def test_targets_are_above_nothing(field, value):
    with pytest.raises(PlanError, match="a number above 0"):
        Target(**{"rate_per_s": 1.0, field: value})
