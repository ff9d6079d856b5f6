"""The simulation against the models, where no queue matters."""

import random
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from anabranch.engines.simulator.scenario import Scenario
from anabranch.engines.simulator.simulation import Simulation
from anabranch.planning.answer import RegionChoice
from anabranch.planning.machine import Machine
from anabranch.planning.models.fission import estimate
from anabranch.planning.profile import OperatorProfile, chain
from papers.briskstream import model as briskstream
from tests.engines.simulator.drawn import drawn_profile, drawn_regions
from tests.sampling import some

EXACTLY = 1e-6
PER_S = {"us": 1e6, "ns": 1e9}
EIGHT_SOCKETS = Machine(
    "eight sockets",
    sockets=8,
    cores_per_socket=18,
    latency_ns=tuple(
        tuple(50.0 if i == j else 150.0 + 40 * abs(i - j) for j in range(8)) for i in range(8)
    ),
    bandwidth_mb_s=tuple(
        tuple(54_000.0 if i == j else 13_000.0 for j in range(8)) for i in range(8)
    ),
)


@settings(max_examples=some(60))
@given(st.integers(0, 10**6), st.booleans(), st.integers(1, 12))
def test_throughput_is_that_of_pipelined_fission(seed, branching, cores):
    chance = random.Random(seed)
    profile = drawn_profile(chance, branching)
    regions = drawn_regions(chance, profile)
    run = Simulation(profile, regions, Machine.of_cores(cores), Scenario(queue_tuples=50), seed)
    run.advance(4.0)
    before = {name: source.read for name, source in run.intake.sources.items()}
    run.advance(2.0)
    expected = estimate(profile, regions, cores).throughput * PER_S["us"]
    for name, source in run.intake.sources.items():
        assert (source.read - before[name]) / 2.0 / source.part == pytest.approx(
            expected, rel=EXACTLY
        )


def test_replicas_cost_what_they_cost_more_in_the_model():
    clock = OperatorProfile("clock", 2.0, replicas_cost=0.25)
    profile = chain([OperatorProfile("read", 0.1), clock], unit="us")
    regions = [RegionChoice((("read",),)), RegionChoice((("clock",),), 2)]
    run = Simulation(profile, regions, Machine.of_cores(4), Scenario(queue_tuples=50), 0)
    run.advance(4.0)
    [source] = run.intake.sources.values()
    before, worked = source.read, run.totals.operators["clock"].busy_s
    run.advance(2.0)
    read = source.read - before
    assert read / 2.0 == pytest.approx(estimate(profile, regions, 4).throughput * 1e6, rel=1e-3)
    busy_s = run.totals.operators["clock"].busy_s - worked
    assert busy_s == pytest.approx(2.5e-6 * read, rel=1e-3)


@settings(max_examples=some(30))
@given(st.integers(0, 10**6), st.integers(1, 12))
def test_cores_at_work_are_those_of_pipelined_fission(seed, cores):
    chance = random.Random(seed)
    profile = drawn_profile(chance, branching=True)
    regions = drawn_regions(chance, profile)
    run = Simulation(profile, regions, Machine.of_cores(cores), Scenario(queue_tuples=50), seed)
    run.advance(4.0)
    before = _busy_s(run)
    run.advance(2.0)
    expected = estimate(profile, regions, cores).utilization
    assert (_busy_s(run) - before) / 2.0 == pytest.approx(expected, rel=EXACTLY)


def _busy_s(run):
    return sum(pipeline.busy_s for pipeline in run.totals.pipelines.values())


@settings(max_examples=some(40))
@given(st.integers(0, 10**6))
def test_throughput_of_placed_chains_is_that_of_briskstream(seed):
    """Replicas of an operator on one socket are alike, so that over-supply is back-pressure."""
    chance = random.Random(seed)
    drawn = drawn_profile(chance, branching=False)
    operators = tuple(
        replace(one, tuple_bytes=chance.choice([0, 40, 216, 1000]), max_replicas=None, rate=1.0)
        for one in drawn.operators
    )
    profile = replace(drawn, operators=operators, overheads=None, unit="ns")
    regions = [
        replace(r, pipelines=(r.operators,), placement=(chance.randrange(8),) * r.replicas)
        for r in drawn_regions(chance, profile)
    ]
    expected = briskstream.rates(profile, regions, EIGHT_SOCKETS)
    assume(not expected.violations)
    run = Simulation(profile, regions, EIGHT_SOCKETS, Scenario(queue_tuples=50), seed)
    run.advance(0.2)
    last = profile.operators[-1].name
    before = run.totals.operators[last].rows_in
    run.advance(0.2)
    handled = (run.totals.operators[last].rows_in - before) / 0.2
    assert handled == pytest.approx(expected.bounded * PER_S["ns"], rel=EXACTLY)
