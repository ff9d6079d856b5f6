"""Every feature of a scenario shows what it should, by figures that can be found by hand."""

import numpy as np
import pytest

from anabranch.engines.simulator.scenario import (
    Drift,
    Load,
    Scenario,
    Straggler,
    SwitchCost,
)
from anabranch.engines.simulator.shares import fixed_shares, zipf_weights
from anabranch.errors import PlanError
from anabranch.planning.answer import RegionChoice
from anabranch.planning.bucket_map import balanced
from anabranch.planning.machine import Machine
from tests.engines.simulator.measured import (
    alone,
    in_ms,
    keyed,
    operator,
    rate,
    settled_rate,
    simulation,
)

TWO_SOCKETS = Machine("two", sockets=2, cores_per_socket=4, nodes=2)


def test_load_in_steps_is_read_and_the_rest_is_backlog():
    loads = (Load(((0.0, 100.0), (2.0, 400.0), (4.0, 0.0))),)
    run = simulation(in_ms(operator("a", 4)), alone("a"), loads=loads)  # 250 a second at most
    run.advance(2.0)
    assert run.intake.sources["a"].read == pytest.approx(200)
    run.advance(2.0)
    source = run.intake.sources["a"]
    assert (source.read, source.backlog) == (pytest.approx(700), pytest.approx(300))
    run.advance(1.2)
    assert source.backlog == pytest.approx(0, abs=1e-6)


def test_load_may_be_unlimited_for_a_while():
    loads = (Load(((0.0, 100.0), (1.0, None), (2.0, 100.0))),)
    run = simulation(in_ms(operator("a", 1)), alone("a"), loads=loads)
    assert [rate(run, 1.0) for _ in range(3)] == pytest.approx([100, 1000, 100])


@pytest.mark.parametrize(("at_s", "expected"), [(1.0, 500), (3.5, 250), (8.0, 125)])
def test_a_cost_drifts_at_once_and_evenly(at_s, expected):
    drifts = (Drift("a", 2.0, at_s=2.0), Drift("a", 2.0, at_s=5.0, over_s=2.0))
    run = simulation(in_ms(operator("a", 2)), alone("a"), drifts=drifts)
    run.advance(at_s)
    assert rate(run, 0.5) == pytest.approx(expected)


def test_half_of_an_even_drift_is_half_of_it():
    drifts = (Drift("a", 3.0, at_s=0.0, over_s=10.0),)
    run = simulation(in_ms(operator("a", 1)), alone("a"), drifts=drifts)
    run.advance(4.95)
    assert rate(run, 0.1) == pytest.approx(500, rel=0.02)


def test_a_selectivity_drifts():
    drifts = (Drift("a", 4.0, at_s=5.0, of="selectivity"),)
    run = simulation(in_ms(operator("a", 1), operator("b", 1)), alone("a", "b"), drifts=drifts)
    assert rate(run) == pytest.approx(1000)
    run.advance(4.0)
    assert rate(run) == pytest.approx(250)


def test_a_slow_replica_of_a_stateless_region_takes_less():
    slow = (Straggler(4.0, 4.0, 12.0, region="a", replica=1),)
    run = simulation(in_ms(operator("a", 2)), [RegionChoice((("a",),), 2)], stragglers=slow)
    assert rate(run) == pytest.approx(1000)
    assert settled_rate(run) == pytest.approx(500 + 125)
    assert rate(run) == pytest.approx(1000)


def test_a_slow_replica_of_a_partitioned_region_holds_back_the_others():
    slow = (Straggler(4.0, region="a", replica=1),)
    run = simulation(in_ms(keyed("a", 2)), [RegionChoice((("a",),), 2)], stragglers=slow)
    assert settled_rate(run) == pytest.approx(2 * 125)


@pytest.mark.parametrize("place", [{"socket": 1}, {"node": 1}])
def test_a_slow_place_slows_down_who_sits_there(place):
    slow = (Straggler(2.0, **place),)
    regions = [RegionChoice((("a",),), 2, (0, 1))]
    run = simulation(in_ms(operator("a", 2)), regions, TWO_SOCKETS, stragglers=slow)
    assert settled_rate(run) == pytest.approx(500 + 250)


def test_threads_without_a_place_see_the_mean_speed():
    slow = (Straggler(2.0, socket=1),)
    run = simulation(in_ms(operator("a", 2)), alone("a"), TWO_SOCKETS, stragglers=slow)
    assert settled_rate(run) == pytest.approx(500 * 0.75)


def test_noise_leaves_the_mean_cost_as_it_is():
    loads = (Load(((0.0, 300.0),)),)
    run = simulation(
        in_ms(operator("a", 1)), alone("a"), noise=0.3, noise_s=0.02, seed=3, loads=loads
    )
    run.advance(100.0)
    busy_s = run.totals.operators["a"].busy_s
    assert busy_s / run.totals.operators["a"].rows_in == pytest.approx(1e-3, rel=0.02)


def test_noise_lets_queues_grow_below_the_limit():
    def waiting(noise):
        loads = (Load(((0.0, 900.0),)),)
        profile = in_ms(operator("a", 0.1), operator("b", 1))
        run = simulation(profile, alone("a", "b"), noise=noise, loads=loads, seed=3)
        return max(run.advance(0.1) or run.network.waiting for _ in range(100))

    assert waiting(0.0) == pytest.approx(0, abs=1e-6)
    assert waiting(0.3) > 5


def test_a_hot_bucket_bounds_the_speedup():
    """One key has a fifth of the tuples: more than five times one thread's rate is impossible."""
    profile = in_ms(keyed("a", 2, hottest_key_share=0.2))

    def at(replicas):
        return settled_rate(simulation(profile, [RegionChoice((("a",),), replicas)]))

    assert at(1) == pytest.approx(500)
    hot = 0.2 + 0.8 / 64  # of 256 buckets dealt to 64 replicas, the hottest has three others by it
    assert at(64) == pytest.approx(500 / hot, rel=0.01)
    assert at(256) < 2500


def test_keys_by_zipf_make_the_shares_of_the_buckets():
    weights = zipf_weights(256, keys=1000, exponent=1.0, seed=7)
    harmonic = float((1 / np.arange(1, 1001)).sum())
    assert weights.sum() == pytest.approx(1)
    assert weights.max() == pytest.approx(1 / harmonic, rel=0.2)
    shares = fixed_shares([keyed("a", 1, keys=1000)], 4, balanced(256, 4), {"a": 1.0}, seed=7)
    assert shares is not None
    run = simulation(
        in_ms(keyed("a", 2, keys=1000)), [RegionChoice((("a",),), 4)], skew={"a": 1.0}, seed=7
    )
    assert settled_rate(run) == pytest.approx(500 / shares.max())


def test_a_bucket_map_says_who_works_how_much():
    shares = fixed_shares([keyed("a", 1)], 2, (0, 0, 0, 1), {}, seed=0)
    assert shares is not None
    assert shares.tolist() == [0.75, 0.25]


def test_replicas_beyond_the_distinct_keys_do_not_help():
    profile = in_ms(keyed("a", 2, max_replicas=3))
    assert settled_rate(simulation(profile, [RegionChoice((("a",),), 5)])) == pytest.approx(1500)


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (lambda: Load(((0.0, -1.0),)), "loads.points"),
        (lambda: Load(((1.0, 5.0), (0.0, 5.0))), "loads.points"),
        (lambda: Load(((0.0, None),), linear=True), "loads.linear"),
        (lambda: Drift("a", 0.0), "drifts.factor"),
        (lambda: Drift("a", 1.0, of="colour"), "drifts.of"),
        (lambda: Straggler(2.0), "stragglers"),
        (lambda: Straggler(2.0, socket=0, node=0), "stragglers"),
        (lambda: Straggler(2.0, region="a"), "stragglers.replica"),
        (lambda: Straggler(2.0, 5.0, 4.0, socket=0), "stragglers.until_s"),
        (lambda: SwitchCost(dip_share=1.0), "switch.dip_share"),
        (lambda: Scenario(step_s=0.0), "step_s"),
        (lambda: Scenario(skew={"a": -1.0}), "skew.a"),
    ],
)
def test_bad_values_are_named(build, field):
    with pytest.raises(PlanError) as caught:
        build()
    assert caught.value.subject.name == f"scenario.{field}"


@pytest.mark.parametrize(
    "happening",
    [
        {"drifts": (Drift("who", 2.0),)},
        {"skew": {"who": 1.0}},
        {"loads": (Load(((0.0, 1.0),), "who"),)},
        {"stragglers": (Straggler(2.0, region="who", replica=0),)},
    ],
)
def test_unknown_names_are_refused(happening):
    with pytest.raises(PlanError, match="'who'"):
        simulation(in_ms(operator("a", 1)), alone("a"), **happening)


def test_a_straggler_has_to_be_on_the_machine():
    with pytest.raises(PlanError, match="socket of 0 to 1"):
        simulation(
            in_ms(operator("a", 1)),
            alone("a"),
            TWO_SOCKETS,
            stragglers=(Straggler(2.0, socket=2),),
        )
