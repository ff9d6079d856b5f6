"""Queues: nothing is lost, nothing grows without bound, and steps do not show."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.engines.simulator.scenario import Load, Scenario, Straggler
from anabranch.engines.simulator.simulation import Simulation
from anabranch.planning.answer import RegionChoice
from anabranch.planning.machine import Machine
from anabranch.planning.profile import Profile, StreamProfile
from tests.engines.simulator.drawn import drawn_profile, drawn_regions
from tests.engines.simulator.measured import (
    alone,
    in_ms,
    keyed,
    operator,
    rate,
    settled_rate,
    simulation,
)
from tests.sampling import some


@settings(max_examples=some(40))
@given(st.integers(0, 10**6), st.floats(0.0, 0.5), st.integers(1, 6))
def test_tuples_that_came_are_handled_or_wait(seed, noise, cores):
    chance = random.Random(seed)
    profile = drawn_profile(chance, branching=True)
    regions = drawn_regions(chance, profile)
    scenario = Scenario(queue_tuples=50, noise=noise)
    run = Simulation(profile, regions, Machine.of_cores(cores), scenario, seed)
    run.advance(1.3)
    totals = run.totals.operators
    for region in run.network.regions:
        for number, pipeline in enumerate(region.spec.choice.pipelines):
            streams = profile.into(pipeline[0])
            if streams:
                came = sum(totals[s.producer].rows_in * s.selectivity for s in streams)
                waiting = float(region.queue[number].sum())
                assert came == pytest.approx(totals[pipeline[0]].rows_in + waiting, abs=1e-6)


@settings(max_examples=some(40))
@given(st.integers(0, 10**6), st.floats(0.0, 0.5), st.integers(1, 6))
def test_no_queue_is_longer_than_it_may_be(seed, noise, cores):
    chance = random.Random(seed)
    profile = drawn_profile(chance, branching=True)
    regions = drawn_regions(chance, profile)
    scenario = Scenario(queue_tuples=7, noise=noise)
    run = Simulation(profile, regions, Machine.of_cores(cores), scenario, seed)
    for _ in range(60):
        run.advance(0.02)
        for region in run.network.regions:
            own = region.queue if region.dealt_by_key else region.queue[1:]
            assert (own <= 7 + 1e-6).all()
            assert region.queue[0].sum() <= region.room[0].sum() + 1e-6


def test_a_full_queue_holds_back_the_source():
    run = simulation(in_ms(operator("fast", 1), operator("slow", 4)), alone("fast", "slow"))
    assert rate(run, 0.02) > 500  # nothing holds it back yet
    assert settled_rate(run) == pytest.approx(250)
    assert run.network.regions[1].waiting == pytest.approx(20)


def test_the_slower_branch_holds_back_the_other():
    operators = (operator("read", 1), operator("fast", 1), operator("slow", 5))
    streams = (StreamProfile("read", "fast", 1.0), StreamProfile("read", "slow", 1.0))
    run = simulation(Profile(operators, streams, unit="ms"), alone("read", "fast", "slow"))
    assert settled_rate(run) == pytest.approx(200)
    fast, slow = (run.totals.operators[name].rows_in for name in ("fast", "slow"))
    assert fast - slow == pytest.approx(20)  # what waits for the slow one


def test_a_stream_that_has_little_leaves_its_room_to_the_other():
    """The join handles 1000 a second: 100 from the left, and the rest from the right."""
    operators = (operator("left", 0.1), operator("right", 0.1), operator("join", 1))
    streams = (StreamProfile("left", "join", 1.0), StreamProfile("right", "join", 1.0))
    loads = (Load(((0.0, 100.0),), "left"), Load(((0.0, 5000.0),), "right"))
    profile = Profile(operators, streams, unit="ms")
    run = simulation(profile, alone("left", "right", "join"), loads=loads, queue_tuples=1)
    run.advance(4.0)
    assert rate(run, source="left") == pytest.approx(100, rel=0.01)
    assert rate(run, source="right") == pytest.approx(900, rel=0.01)


def test_sources_that_read_as_fast_as_they_can_keep_their_proportion():
    operators = (operator("few", 1.0), operator("many", 0.1, rate=4.0), operator("join", 1))
    streams = (StreamProfile("few", "join", 1.0), StreamProfile("many", "join", 1.0))
    run = simulation(Profile(operators, streams, unit="ms"), alone("few", "many", "join"))
    run.advance(4.0)
    assert rate(run, source="few") == pytest.approx(200)
    assert rate(run, source="many") == pytest.approx(800)


@pytest.mark.parametrize("step_s", [0.001, 0.007, 0.1])
def test_the_length_of_a_step_does_not_show(step_s):
    profile = in_ms(operator("a", 2, 3.0), keyed("b", 1), operator("c", 0.5))
    regions = [RegionChoice((("a",),)), RegionChoice((("b",), ("c",)), 2)]
    run = simulation(profile, regions, 2, step_s=step_s)
    assert settled_rate(run) == pytest.approx(settled_rate(simulation(profile, regions, 2)))


def test_how_time_is_cut_does_not_show():
    profile = in_ms(operator("a", 2, 3.0), keyed("b", 1))
    regions = [RegionChoice((("a",),)), RegionChoice((("b",),), 2)]
    whole, pieces = (simulation(profile, regions, 2, noise=0.3, seed=5) for _ in range(2))
    whole.advance(3.0)
    for _ in range(30):
        pieces.advance(0.1)
    assert pieces.intake.sources["a"].read == pytest.approx(whole.intake.sources["a"].read)


def test_the_same_seed_gives_the_same_run_and_another_seed_another():
    profile = in_ms(operator("a", 2), keyed("b", 5))
    regions = [RegionChoice((("a",),)), RegionChoice((("b",),), 3)]

    def read(seed):
        run = simulation(profile, regions, noise=0.3, seed=seed, skew={"b": 1.0})
        run.advance(2.0)
        return run.intake.sources["a"].read, run.network.regions[1].queue.tolist()

    assert read(1) == read(1)
    assert read(1) != read(2)


def test_a_bounded_stream_ends_when_all_is_handled():
    run = simulation(in_ms(operator("a", 1, 2.0), operator("b", 1)), alone("a", "b"), rows=1000)
    run.advance(60.0)
    assert run.ended
    assert run.totals.operators["b"].rows_in == pytest.approx(2000)
    assert run.now_s == pytest.approx(2.0, abs=0.05)


def test_steps_that_are_spared_change_nothing():
    """A load that rises evenly is never like the step before; one that stays is."""
    profile = in_ms(operator("a", 1), operator("b", 2))
    for points, expected in (((0.0, 300.0), 300.0), ((0.0, 900.0), 500.0)):
        run = simulation(profile, alone("a", "b"), loads=(Load((points,)),))
        assert settled_rate(run) == pytest.approx(expected)
        source = run.intake.sources["a"]
        assert source.read + source.backlog == pytest.approx(points[1] * run.now_s)
    rising = Load(((0.0, 0.0), (4.0, 400.0)), linear=True)
    run = simulation(profile, alone("a", "b"), loads=(rising,))
    run.advance(4.0)
    assert run.intake.sources["a"].read == pytest.approx(800)


def test_queues_hold_no_more_than_a_plan_allows():
    run = simulation(in_ms(operator("a", 1), operator("b", 4)), alone("a", "b"), queue_tuples=3)
    run.advance(2.0)
    assert np.allclose(run.network.regions[1].queue, 3)


def test_a_source_that_is_behind_gets_a_greater_part_of_the_cores():
    """On one core, `b` asks for more the longer its backlog is, until it keeps up."""
    profile = Profile((operator("a", 1), operator("b", 1)), unit="ms")
    run = simulation(profile, alone("a", "b"), 1, loads=(Load(((0.0, 400.0),), "b"),))
    run.advance(4.0)
    assert rate(run, source="b") == pytest.approx(400, rel=0.001)
    assert rate(run, source="a") == pytest.approx(600, rel=0.001)


def test_who_is_free_takes_what_waits_for_a_slow_replica():
    """Forty tuples wait for two replicas when one of them all but stops."""
    profile = in_ms(operator("read", 0.1), operator("a", 1))
    run = simulation(
        profile,
        [*alone("read"), RegionChoice((("a",),), 2)],
        loads=(Load(((0.0, 5000.0), (2.0, 0.0))),),
        stragglers=(Straggler(1e6, 1.0, region="a", replica=1),),
        rows=2500,
    )
    run.advance(1.0)
    assert run.network.waiting == pytest.approx(40)
    run.advance(3.0)
    assert run.ended
