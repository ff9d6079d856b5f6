"""Latency of a plan, held against what is known of queues and against a queue run by hand."""

from __future__ import annotations

from dataclasses import replace
from math import inf, log
from random import Random

import pytest

from anabranch.graph import StateKind
from anabranch.planning.answer import RegionChoice
from anabranch.planning.models.latency import Latency, gathered_rows, latency
from anabranch.planning.profile import OperatorProfile, Overheads, chain

RANDOM = OperatorProfile("parse", 1.0)
STEADY = replace(RANDOM, cost_p99=1.0)
BUSY = (0.05, 0.1, 0.3, 0.5, 0.8, 0.95)


def alone(operator: OperatorProfile, rate: float, rows: float = 1.0) -> Latency:
    return latency(chain([operator]), [RegionChoice(((operator.name,),))], rate, rows)


def lindley(serve, busy: float, tuples: int = 100_000) -> tuple[float, float]:
    """What 99 in a hundred wait and take at most: each waits for what is left of the one before."""
    draw = Random(7)
    waits, taken = [], []
    wait = 0.0
    for _ in range(tuples):
        served = serve(draw)
        waits.append(wait)
        taken.append(wait + served)
        wait = max(0.0, wait + served - draw.expovariate(busy))
    return tuple(sorted(each)[int(0.99 * tuples)] for each in (waits, taken))


@pytest.mark.parametrize("busy", BUSY)
def test_random_work_waits_as_in_the_closed_form(busy):
    (region,) = alone(RANDOM, busy).regions
    assert region.wait == pytest.approx(busy / (1 - busy))
    assert region.wait_p99 == pytest.approx(log(100 * busy) / (1 - busy))


@pytest.mark.parametrize("busy", [0.001, *BUSY])
def test_random_work_takes_what_the_closed_form_says_or_up_to_15_percent_more(busy):
    exact = log(100) / (1 - busy)
    assert exact <= alone(RANDOM, busy).p99 <= 1.15 * exact


@pytest.mark.parametrize("busy", [0.3, 0.5, 0.8])
def test_a_queue_run_by_hand_with_random_work_agrees(busy):
    wait, taken = lindley(lambda draw: draw.expovariate(1.0), busy)
    found = alone(RANDOM, busy)
    assert found.regions[0].wait_p99 == pytest.approx(wait, rel=0.1)
    assert 0.95 * taken <= found.p99 <= 1.2 * taken


@pytest.mark.parametrize("busy", [0.1, 0.3, 0.5, 0.8])
def test_a_queue_run_by_hand_with_steady_work_is_no_slower(busy):
    wait, taken = lindley(lambda draw: 1.0, busy)
    found = alone(STEADY, busy)
    assert 0.95 * wait <= found.regions[0].wait_p99 <= 1.4 * wait
    assert 0.95 * taken <= found.p99 <= 1.3 * taken


def test_two_alike_regions_take_little_more_than_two_queues_in_a_row():
    profile = chain([RANDOM, replace(RANDOM, name="count")])
    plan = [RegionChoice((("parse",),)), RegionChoice((("count",),))]
    erlang_p99 = 6.638 / (1 - 0.5)  # two exponential times, one behind the other
    assert erlang_p99 <= latency(profile, plan, 0.5).p99 <= 1.2 * erlang_p99


def test_a_tuple_that_hardly_ever_waits_takes_its_work():
    assert alone(STEADY, 0.005).p99 == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize("rate", [1.0, 1.5])
def test_a_region_that_is_always_at_work_has_no_latency(rate):
    assert alone(RANDOM, rate).p99 == inf


def test_a_jumbo_tuple_is_handed_on_when_it_is_full_or_has_lingered():
    assert gathered_rows(rate=1000.0, batch_rows=256, linger=0.002) == pytest.approx(3.0)
    assert gathered_rows(rate=1e6, batch_rows=256, linger=0.002) == 256
    found = alone(STEADY, 0.1, rows=gathered_rows(0.1, 256, 20.0))
    assert (found.gathering, found.regions[0].work) == (pytest.approx(20.0), pytest.approx(3.0))


def test_what_threads_take_for_each_other_is_work_as_well():
    profile = chain(
        [replace(STEADY, name="read", cost=0.1, cost_p99=0.1, state=StateKind.STATEFUL), STEADY],
        overheads=Overheads(0.25, 0.0),
    )
    plan = [RegionChoice((("read",),)), RegionChoice((("parse",),))]
    assert [each.work for each in latency(profile, plan, 0.01).regions] == pytest.approx(
        [0.35, 1.25]
    )
