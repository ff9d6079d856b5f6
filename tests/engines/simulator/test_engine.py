"""The simulator as an engine: the events, observations and plan changes of a real one."""

from dataclasses import replace

import pytest

import anabranch as ab
from anabranch.apps import word_count
from anabranch.engines.engine import Options
from anabranch.engines.handle import Run
from anabranch.engines.registry import Simulated
from anabranch.engines.simulator.engine import SimulatorEngine
from anabranch.engines.simulator.flows import flow_of
from anabranch.engines.simulator.scenario import Load, Scenario, SwitchCost
from anabranch.errors import EngineError, PlanError
from anabranch.events import (
    HotKey,
    Observed,
    Reconfiguration,
    RegionMetrics,
    RunEnded,
    RunStarted,
)
from anabranch.flow import Flow
from anabranch.graph import StateKind
from anabranch.planning.bucket_map import balanced
from anabranch.planning.machine import Machine
from anabranch.planning.plan import Plan
from anabranch.planning.profile import OperatorProfile, Overheads, chain
from tests.engines.simulator.measured import in_ms, keyed, operator

PROFILE = in_ms(keyed("a", 2), operator("b", 1))
FLOW = flow_of(PROFILE)
START = Plan.sequential(FLOW)


def engine(plan=START, rows=None, scenario=None, flow=FLOW, profile=PROFILE, cores=8):
    made = SimulatorEngine(
        flow, plan, Options(rows=rows), profile, Machine.of_cores(cores), scenario
    )
    events = []
    made.start(events.append)
    return made, events


def observed(events):
    return [event.observation for event in events if isinstance(event, Observed)]


def test_time_passes_only_while_somebody_waits():
    run, events = engine()
    assert run.seconds == 0
    assert [type(event) for event in events] == [RunStarted]
    assert run.wait(2.5) is False
    assert run.seconds == pytest.approx(2.5)
    assert [o.at_s for o in observed(events)] == pytest.approx([1.0, 2.0])


def test_a_second_looks_as_it_would_on_threads():
    run, events = engine(START.with_pipelines("a", 1, 1))
    run.wait(3.0)
    last = observed(events)[-1]
    assert (last.rows_in, last.rows_out) == (500, 500)
    assert (last.step("a").rows_in, last.step("a").selectivity) == (500, 1.0)
    assert last.step("a").cost_us == pytest.approx(2000)
    busy = {p.steps: p.busy_share for p in last.pipelines}
    assert busy == {("a",): pytest.approx(1.0), ("b",): pytest.approx(0.5), ("b.output",): 0.0}
    (region, sink) = last.regions
    assert (region.region, region.replicas, region.rows_per_s) == ("a", 1, pytest.approx(500))
    assert sink.region == "b.output"
    (source,) = last.sources
    assert (source.source, source.rows, source.backlog_rows) == ("a.input", 500, None)
    assert source.rate_per_s == pytest.approx(500)
    assert 0 < last.latency_p50_ms <= last.latency_p99_ms


def test_overheads_are_busy_in_no_step():
    """The first pipeline works 5 us on a tuple and hands it over in 1; the second 3, and 1."""
    operators = [operator("read", 1.0), keyed("a", 4.0), operator("b", 3.0)]
    profile = chain(operators, Overheads(thread_switch=1.0), unit="us")
    flow = flow_of(profile)
    plan = Plan.sequential(flow).with_pipelines("a", 2, 1)
    run, events = engine(plan, flow=flow, profile=profile)
    run.wait(3.0)
    by_steps = {p.steps: p for p in observed(events)[-1].pipelines}
    first, second = by_steps["read", "a"], by_steps["b",]
    assert first.overhead_share / first.busy_share == pytest.approx(1 / 6)
    assert second.overhead_share / second.busy_share == pytest.approx(1 / 4)


def test_a_wish_is_in_force_after_its_pause_and_is_told():
    run, events = engine(scenario=Scenario(switch=SwitchCost(pause_ms=100.0)))
    run.wait(1.0)
    wide = START.with_replicas("a", 4)
    run.reconfigure(wide)
    assert run.plan == START
    run.wait(1.0)
    assert run.plan == wide
    (told,) = run.reconfigurations()
    assert told in events
    assert told.pause_ms == pytest.approx(100)
    assert told.at_s == pytest.approx(1.1, abs=0.03)
    assert told.moved == tuple(START.diff(wide))
    assert (Plan.from_json(told.before), Plan.from_json(told.after)) == (START, wide)
    run.wait(2.0)
    assert observed(events)[-1].rows_in == pytest.approx(4 * 333, rel=0.01)


def test_the_newest_wish_supersedes_older_ones():
    run, _ = engine()
    run.reconfigure(START.with_replicas("a", 2))
    run.reconfigure(START.with_replicas("a", 3))
    run.wait(1.0)
    assert [Plan.from_json(r.after).region("a").replicas for r in run.reconfigurations()] == [3]


def test_a_wish_during_a_change_is_taken_up_after_it():
    run, _ = engine(scenario=Scenario(switch=SwitchCost(pause_ms=500.0)))
    run.reconfigure(START.with_replicas("a", 2))
    run.wait(0.2)
    run.reconfigure(START.with_replicas("a", 3))
    run.wait(2.0)
    assert [Plan.from_json(r.after).region("a").replicas for r in run.reconfigurations()] == [2, 3]


def test_a_policy_that_listens_can_follow_a_load():
    """Twice the replicas while the backlog grows: the load of 1000 a second is met by four."""
    scenario = Scenario(loads=(Load(((0.0, 100.0), (3.0, 1000.0)), "a.input"),))
    run = SimulatorEngine(FLOW, START, Options(), PROFILE, Machine.of_cores(8), scenario)
    chosen, backlogs = [], [0]

    def decide(event):
        if isinstance(event, Observed):
            backlogs.append(event.observation.sources[0].backlog_rows)
            if backlogs[-1] > backlogs[-2]:
                replicas = event.observation.regions[0].replicas
                run.reconfigure(run.plan.with_replicas("a", 2 * replicas))
        if isinstance(event, Reconfiguration):
            chosen.append(run.plan.region("a").replicas)

    run.start(decide)
    run.wait(20.0)
    assert chosen == [2, 4]
    assert run.simulation.intake.sources["a"].backlog < 1


def test_busy_shares_are_those_of_the_second_alone():
    run, events = engine(scenario=Scenario(loads=(Load(((0.0, 250.0),)),)))
    run.wait(10.0)
    assert observed(events)[-1].pipelines[0].busy_share == pytest.approx(0.75)
    run.reconfigure(START.with_replicas("a", 3))
    run.wait(2.0)
    assert observed(events)[-1].pipelines[0].busy_share == pytest.approx(0.25)


def test_readers_are_as_busy_as_the_profile_says_that_reading_is():
    """Reading takes 1 ms, the region behind it 4: of ten readers' time a fortieth is work."""
    profile = in_ms(operator("read", 1), keyed("a", 4))
    flow = Flow("app")
    flow.source("read", ab.memory([{"k": 1}])).aggregate("a", key="k", n=ab.count()).sink(
        "out", ab.collect()
    )
    plan = Plan.sequential(flow).with_source("read", replicas=10)
    run, events = engine(plan, flow=flow, profile=profile, cores=16)
    run.wait(3.0)
    last = observed(events)[-1]
    (source,) = last.sources
    assert source.rate_per_s == pytest.approx(250, rel=0.01)
    assert source.busy_share == pytest.approx(0.025, rel=0.01)
    assert last.pipelines[0].busy_share == pytest.approx(1.0, rel=0.01)


def test_nobody_knows_how_busy_readers_are_that_no_profile_names():
    run, events = engine()
    run.wait(1.0)
    assert observed(events)[-1].sources[0].busy_share is None


def skewed(share: float, replicas: int) -> RegionMetrics:
    """One region in which a key has a share of the tuples, as the last second showed it."""
    keyed = {"state": StateKind.PARTITIONED, "key": ("k",), "keys": 1000}
    profile = chain([OperatorProfile("a", 1.0, hottest_key_share=share, **keyed)], unit="ms")
    flow = flow_of(profile)
    plan = Plan.sequential(flow).with_replicas("a", replicas)
    load = Scenario(loads=(Load(((0.0, 600.0),)),))
    run, events = engine(plan, scenario=load, flow=flow, profile=profile)
    run.wait(3.0)
    return observed(events)[-1].regions[0]


def test_replicas_are_as_busy_as_their_buckets_make_them():
    region = skewed(0.5, replicas=2)
    assert sum(region.bucket_rows) == pytest.approx(600, abs=len(region.bucket_rows) / 2)
    assert max(region.bucket_rows) >= 300
    owners = balanced(len(region.bucket_rows), 2)
    rows = [
        sum(n for n, o in zip(region.bucket_rows, owners, strict=True) if o == r) for r in (0, 1)
    ]
    assert region.replica_busy == pytest.approx([n * 1e-3 for n in rows], abs=0.1)
    assert region.hottest_key == HotKey("key 0", 0.5)


def test_a_replica_is_as_busy_as_its_busiest_thread():
    first, second = (
        OperatorProfile(name, cost, state=StateKind.PARTITIONED, key=("k",))
        for name, cost in (("one", 1.0), ("two", 3.0))
    )
    profile = chain([first, second], unit="ms")
    flow = flow_of(profile)
    plan = Plan.sequential(flow).with_pipelines("one", 1, 1).with_replicas("one", 2)
    load = Scenario(loads=(Load(((0.0, 200.0),)),))
    run, events = engine(plan, scenario=load, flow=flow, profile=profile)
    run.wait(3.0)
    assert observed(events)[-1].regions[0].replica_busy == pytest.approx((0.3, 0.3), rel=0.05)


def test_keys_that_do_not_stand_out_are_not_named_and_one_replica_deals_nothing_out():
    assert skewed(0.01, replicas=2).hottest_key is None
    alone = skewed(0.5, replicas=1)
    assert (alone.bucket_rows, alone.hottest_key) == ((), None)
    assert alone.replica_busy == pytest.approx([0.6])


def test_a_bounded_run_ends_by_itself():
    run, events = engine(rows=1000)
    assert run.wait() is True
    assert isinstance(events[-1], RunEnded)
    assert (events[-1].rows_in, events[-1].rows_out, events[-1].ended) == (1000, 1000, True)
    assert sum(o.rows_in for o in observed(events)) == 1000
    assert run.caught_up()


def test_a_run_that_is_stopped_has_not_ended():
    run, events = engine()
    run.wait(1.5)
    run.stop()
    run.stop()
    assert [event.ended for event in events if isinstance(event, RunEnded)] == [False]
    assert sum(o.rows_in for o in observed(events)) == run.rows[0]
    assert run.wait(1.0) is True
    assert run.seconds == pytest.approx(1.5)


def test_whoever_listens_may_stop_the_run():
    run = SimulatorEngine(FLOW, START, Options(), PROFILE, Machine.of_cores(2))
    run.start(lambda event: run.stop() if isinstance(event, Observed) else None)
    assert run.wait() is True
    assert run.seconds == pytest.approx(1.0)


def test_a_handle_holds_it_as_it_holds_others():
    made = SimulatorEngine(FLOW, START, Options(rows=2000), PROFILE, Machine.of_cores(2))
    handle = Run(FLOW.name, made, lambda event: None)
    made.start(handle.hear)
    assert handle.await_termination(1.0) is False
    assert handle.last_progress is not None
    assert handle.process_all_available()
    assert handle.result().rows_in == 2000
    assert handle.result().engine == "simulator"


def test_an_in_flight_limit_shortens_the_queues():
    """A flow whose source is in the profile, and whose sink is not."""
    flow = ab.Flow("two steps")
    counted = flow.source("read", ab.memory([{"k": 1}])).aggregate(
        "a", key="k", n=ab.count(), emit="every"
    )
    counted.sink("out", ab.collect())
    profile = in_ms(operator("read", 0.1), keyed("a", 2))
    waiting = []
    for limit in (None, 30):
        plan = Plan.sequential(flow).with_source("read", in_flight_limit=limit)
        run, events = engine(plan, flow=flow, profile=profile)
        run.wait(10.0)
        waiting.append(observed(events)[-1].regions[0].queue_rows)
    assert waiting == [pytest.approx(4096), pytest.approx(15)]


def test_placement_is_by_socket():
    machine = Machine("two", 2, 4, latency_ns=((0.0, 1e6), (1e6, 0.0)))
    profile = in_ms(
        operator("a", 1), OperatorProfile("b", 1, state=StateKind.STATEFUL, tuple_bytes=64)
    )
    flow = flow_of(profile)
    plan = Plan.sequential(flow)
    rates = []
    for sockets in (("socket0", "socket0"), ("socket0", "socket1")):
        placed = Plan(
            plan.flow,
            plan.fingerprint,
            tuple(_placed(r, s) for r, s in zip(plan.regions, (*sockets, None), strict=True)),
            plan.sources,
        )
        run = SimulatorEngine(flow, placed, Options(), profile, machine)
        run.start(lambda event: None)
        run.wait(20.0)
        rates.append(run.rows[1] / 20.0)
    assert rates == [pytest.approx(1000, rel=0.01), pytest.approx(500, rel=0.05)]


def _placed(region, socket):
    return region if socket is None else replace(region, placement=(socket,))


def test_what_it_cannot_do_is_refused_by_name():
    with pytest.raises(EngineError, match="checkpoint"):
        SimulatorEngine(FLOW, START, Options(checkpoint="here"), PROFILE, Machine.of_cores(2), None)
    with pytest.raises(PlanError, match=r"count\.combine"):
        SimulatorEngine(word_count.build(), None, Options(), PROFILE, Machine.of_cores(2))
    run, _ = engine()
    with pytest.raises(PlanError, match="socket0"):
        run.reconfigure(_with_region(START, _placed(START.region("a"), "moon")))
    with pytest.raises(PlanError):
        run.reconfigure(Plan.sequential(word_count.build()))


def _with_region(plan, region):
    kept = tuple(region if r.region == region.region else r for r in plan.regions)
    return Plan(plan.flow, plan.fingerprint, kept, plan.sources)


def test_a_user_starts_it_like_any_other_engine():
    profile = chain([OperatorProfile("parse", 2.0), OperatorProfile("count", 1.0)], unit="ms")
    flow, seen = flow_of(profile), []
    simulated = Simulated(Machine.of_cores(2), profile)
    run = ab.start(flow, engine="simulator", simulated=simulated, listener=seen.append)
    assert not run.await_termination(5.0)
    run.stop()
    assert run.result().rate_per_s == pytest.approx(2 / 0.003, rel=0.02)
    assert sum(isinstance(event, Observed) for event in seen) == 5
