"""Changes of plan: what waits is kept, time is lost as told, and the new plan works."""

import pytest

from anabranch.engines.simulator.costs import RegionSpec
from anabranch.engines.simulator.scenario import Load, SwitchCost
from anabranch.errors import PlanError
from anabranch.planning.answer import RegionChoice
from anabranch.planning.bucket_map import balanced, rebalanced
from tests.engines.simulator.measured import (
    alone,
    in_ms,
    keyed,
    operator,
    rate,
    settled_rate,
    simulation,
)

PROFILE = in_ms(operator("read", 0.1), keyed("a", 2), operator("b", 2))
FUSED = [RegionChoice((("read",),)), RegionChoice((("a", "b"),))]
CUT = [RegionChoice((("read",),)), RegionChoice((("a",), ("b",)))]
WIDE = [RegionChoice((("read",),)), RegionChoice((("a", "b"),), 4)]
NOTHING = SwitchCost(pause_ms=0.0)


def counted(run):
    """Tuples that were read, and those that were handled or wait."""
    totals = run.totals.operators
    return run.intake.sources["read"].read, totals["b"].rows_out + run.network.waiting


@pytest.mark.parametrize(("before", "after"), [(FUSED, WIDE), (CUT, WIDE), (WIDE, CUT)])
def test_what_waits_is_kept(before, after):
    run = simulation(PROFILE, before, switch=NOTHING)
    run.advance(2.0)
    run.switch(after)
    run.advance(0.5)
    assert not run.changing.busy
    read, there = counted(run)
    assert there == pytest.approx(read)
    run.advance(2.0)
    read, there = counted(run)
    assert there == pytest.approx(read)


def test_the_new_plan_works_as_if_it_had_always_been_there():
    run = simulation(PROFILE, FUSED, switch=NOTHING)
    assert settled_rate(run) == pytest.approx(250)
    run.switch(WIDE)
    assert settled_rate(run) == pytest.approx(1000)
    run.switch(CUT)
    assert settled_rate(run) == pytest.approx(500)
    run.switch(FUSED)
    assert settled_rate(run) == pytest.approx(250)


def test_a_pause_takes_its_time_and_no_more():
    """Half a second in which nothing is handled; then the new plan has four times the speed."""
    run = simulation(PROFILE, FUSED, switch=SwitchCost(pause_ms=500.0))
    run.advance(2.0)
    before = run.totals.operators["b"].rows_out
    run.switch(WIDE)
    run.advance(0.5)
    assert run.totals.operators["b"].rows_out == before
    run.advance(1.0)
    assert run.totals.operators["b"].rows_out - before == pytest.approx(1000, rel=0.01)


def test_regions_that_a_change_does_not_concern_go_on():
    profile = in_ms(operator("read", 1), keyed("a", 1), keyed("b", 1))
    run = simulation(
        profile, alone("read", "a", "b"), switch=SwitchCost(pause_ms=500.0), queue_tuples=1000
    )
    run.advance(1.0)
    before = run.totals.operators["a"].rows_out
    run.switch([*alone("read", "a"), RegionChoice((("b",),), 2)])
    run.advance(0.5)
    assert run.totals.operators["a"].rows_out - before == pytest.approx(500)


def test_a_pause_grows_with_the_buckets_and_bytes_that_move():
    cost = SwitchCost(pause_ms=10.0, per_bucket_ms=1.0, per_mb_ms=2.0, bucket_bytes=5e5)
    run = simulation(in_ms(keyed("a", 1)), alone("a"), switch=cost)
    old, new = balanced(256, 1), rebalanced(balanced(256, 1), 2)
    run = simulation(
        in_ms(keyed("a", 1)), [RegionSpec("a", RegionChoice((("a",),)), old)], switch=cost
    )
    run.switch([RegionSpec("a", RegionChoice((("a",),), 2), new)])
    assert run.changing.moved_buckets == 128
    assert run.changing.pause_s == pytest.approx(0.010 + 128 * (0.001 + 0.001))


def test_the_throughput_dips_after_a_change():
    run = simulation(PROFILE, FUSED, switch=SwitchCost(0.0, dip_share=0.3, dip_s=3.0))
    run.advance(2.0)
    run.switch(WIDE)
    run.advance(0.5)
    assert rate(run, 2.0) == pytest.approx(700)
    run.advance(1.0)
    assert rate(run, 2.0) == pytest.approx(1000)


def test_while_a_region_stands_still_the_load_is_backlog():
    loads = (Load(((0.0, 100.0),)),)
    run = simulation(in_ms(operator("a", 1)), alone("a"), loads=loads, switch=SwitchCost(1000.0))
    run.advance(1.0)
    run.switch([RegionChoice((("a",),), 2)])
    run.advance(1.0)
    assert run.intake.sources["a"].backlog == pytest.approx(100)
    run.advance(1.0)
    assert run.intake.sources["a"].backlog == pytest.approx(0, abs=1e-6)


def test_a_plan_that_changes_nothing_costs_nothing():
    run = simulation(PROFILE, FUSED, switch=SwitchCost(1000.0))
    run.switch(FUSED)
    assert not run.changing.busy


def test_regions_stay_what_they_are():
    run = simulation(PROFILE, FUSED)
    with pytest.raises(PlanError, match="keeps its regions"):
        run.switch(alone("read", "a", "b"))
