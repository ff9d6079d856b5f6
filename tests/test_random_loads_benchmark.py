"""Random loads and troubles: within their bounds, quiet at first, the same for the same seed."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from anabranch.engines.simulator.scenario import Scenario
from papers.pipelined_fission.random_profiles import random_chain

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from random_loads import STEPS, TRACES, TraceSettings, random_load, random_troubles

SETTINGS = TraceSettings()
CAPACITY = 1000.0


def drawn(trace, seed):
    return random_load(np.random.default_rng(seed), trace, CAPACITY, SETTINGS)


@pytest.mark.parametrize("trace", TRACES)
def test_rates_are_parts_of_the_capacity(trace):
    for seed in range(30):
        rates = [rate for _, rate in drawn(trace, seed).points if rate is not None]
        assert all(SETTINGS.least * CAPACITY <= rate <= SETTINGS.most * CAPACITY for rate in rates)


@pytest.mark.parametrize("trace", TRACES)
def test_nothing_changes_at_first(trace):
    for seed in range(30):
        load = drawn(trace, seed)
        assert load.rate(0.0) == load.rate(SETTINGS.hold_s - 1)


@pytest.mark.parametrize("trace", TRACES)
def test_hardly_any_load_stays_as_it_is(trace):
    changing = 0
    for seed in range(30):
        load = drawn(trace, seed)
        changing += len({load.rate(float(at_s)) for at_s in range(int(SETTINGS.seconds))}) > 1
    assert changing >= 28


def test_some_steps_have_more_to_read_than_anybody_can():
    steps = [rate for seed in range(100) for _, rate in drawn(STEPS, seed).points]
    assert 0.15 < sum(rate is None for rate in steps) / len(steps) < 0.35


def test_the_same_seed_gives_the_same():
    profile, regions = random_chain(np.random.default_rng(1)), {"o1": True, "o2": False}
    for seed in range(10):
        some, same = (
            random_troubles(np.random.default_rng(seed), profile, regions) for _ in range(2)
        )
        assert some == same


def test_troubles_name_what_there_is_and_come_after_a_while():
    profile, regions = random_chain(np.random.default_rng(1)), {"o1": True, "o2": False}
    found = [random_troubles(np.random.default_rng(s), profile, regions) for s in range(60)]
    for each in found:
        scenario = Scenario(
            drifts=each.drifts, stragglers=each.stragglers, skew=dict(each.skew), noise=each.noise
        )
        scenario.require(profile.by_name, [], regions)
        assert all(moment >= SETTINGS.hold_s for moment in scenario.moments())
    assert {s.region for each in found for s in each.stragglers} == {"o1"}
    for kind in ("drifts", "stragglers", "skew", "noise"):
        assert 10 < sum(bool(getattr(each, kind)) for each in found) < 55
