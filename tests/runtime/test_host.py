"""Hosts: units enter an epoch together with their state, in whatever order messages come."""

from __future__ import annotations

import pickle
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anabranch.flow import Flow
from anabranch.io import collect, memory
from anabranch.planning.plan import Plan
from anabranch.runtime.host import Host
from anabranch.runtime.layout import Layout
from anabranch.runtime.messages import (
    Acks,
    Barrier,
    Begin,
    Delivery,
    Done,
    Entered,
    Finished,
    Handover,
    UnitId,
)
from anabranch.state.positions import START, Root
from anabranch.testing.compare import difference
from anabranch.testing.interleaved import Interleaved
from anabranch.testing.sequential import run_sequential
from tests.law.flows import Case, cases
from tests.runtime.cluster import COORDINATOR, Cluster
from tests.runtime.switching import SOURCES, any_plan, numbered, switching_flow
from tests.runtime.test_unit import tuples

FLOW = switching_flow()
PLAN = Plan.sequential(FLOW)
for _source in SOURCES:
    PLAN = PLAN.with_source(_source, batch_rows=4, in_flight_limit=4)
SINKS = ("numbers", "chain")
EXPECTED = {sink: run_sequential(FLOW).rows(sink) for sink in SINKS}

NUMBERED = UnitId("numbered", 0)
BEFORE_A_CHANGE = 120


def results(cluster: Cluster) -> dict[str, list[dict[str, object]]]:
    return {sink: cluster.rows(sink) for sink in SINKS}


def changed(old: Plan, new: Plan, workers: int = 2) -> Cluster:
    """A run in the middle, with another plan requested."""
    cluster = Cluster(FLOW, old, workers).steps(BEFORE_A_CHANGE)
    assert not cluster.coordinator.ended
    cluster.coordinator.request(new)
    return cluster


def moved() -> Cluster:
    """A run in the middle; one unit is to move from worker 1 to worker 2."""
    old, new = (PLAN.with_workers("numbered", worker) for worker in (0, 1))
    return changed(old, new)


# Units that move


def test_a_unit_that_moves_is_on_its_new_host_alone():
    cluster = moved()
    before = cluster.where(NUMBERED)
    cluster.settle()
    assert (before, cluster.where(NUMBERED)) == ([1], [2])


def test_a_unit_that_moves_goes_on_where_it_was():
    assert results(moved().settle()) == EXPECTED


def test_a_unit_does_not_enter_an_epoch_without_its_state():
    cluster = moved()
    with cluster.without((1, 2)):
        cluster.settle()
        entered = [each.unit for each in cluster.sent(Entered) if each.epoch == 1]
        assert NUMBERED not in entered
        assert cluster.coordinator.passing
    assert results(cluster.settle()) == EXPECTED


def test_a_host_reports_how_long_a_unit_could_not_work():
    cluster = moved()
    with cluster.without((1, 2)):
        cluster.settle()
        cluster.time_s += 500.0
    cluster.settle()
    (stood,) = [e.stood_s for e in cluster.sent(Entered) if e.epoch == 1 and e.unit == NUMBERED]
    assert stood >= 500.0


def test_a_unit_that_keeps_what_it_has_does_not_stand_still():
    cluster = changed(PLAN, PLAN.with_replicas("chained", 2)).settle()
    stood = [e.stood_s for e in cluster.sent(Entered) if e.epoch == 1 and e.unit == NUMBERED]
    assert stood == [0.0]


# Messages in other orders


def announced_late() -> Cluster:
    """A run in the middle; worker 2, which has one unit, is to get the next epoch late."""
    apart = PLAN.with_workers("numbered", 1)
    return changed(apart, apart.with_replicas("chained", 2).with_workers("chained", 0))


def test_barriers_of_a_peer_may_come_before_the_epoch_is_announced():
    cluster = announced_late()
    with cluster.without((COORDINATOR, 2)):
        cluster.settle()
        host = cluster.hosts[2]
        assert (host.units[NUMBERED].is_over(), host.runnable()) == (True, [])
    assert results(cluster.settle()) == EXPECTED


def test_tuples_of_a_peer_may_come_before_the_epoch_is_announced():
    cluster = announced_late()
    with cluster.without((COORDINATOR, 2)):
        cluster.settle()
        early = [each.epoch for each in cluster.hosts[2]._unannounced]
        assert set(early) == {1}
    assert results(cluster.settle()) == EXPECTED


def test_state_may_come_before_the_epoch_is_announced():
    cluster = moved()
    with cluster.without((COORDINATOR, 2)):
        cluster.settle()
        come = list(cluster.hosts[2]._handovers)
    assert come == [(1, NUMBERED)]
    assert results(cluster.settle()) == EXPECTED


def test_a_delivery_for_an_epoch_that_is_not_announced_waits_for_it():
    cluster = Cluster(FLOW, PLAN)
    host = Host(0, cluster.topology, cluster)
    layout = Layout(cluster.topology, PLAN)
    (link,) = [each.link for each in layout.entrances[NUMBERED]]
    host.receive(Delivery(0, link, None, Root(5, 0, 0, 0)))
    before = host.runnable()
    host.receive(Begin(0, PLAN, 0))
    assert (before, host.runnable()) == ([], [NUMBERED])


def test_a_barrier_for_an_epoch_that_is_not_announced_waits_for_it():
    cluster = Cluster(FLOW, PLAN)
    host = Host(0, cluster.topology, cluster)
    layout = Layout(cluster.topology, PLAN)
    (link,) = [each.link for each in layout.entrances[NUMBERED]]
    host.receive(Begin(0, PLAN, 0))
    host.receive(Barrier(1, link))
    assert not host.units[NUMBERED].is_over()


@pytest.mark.parametrize("late", [(COORDINATOR, 1), (COORDINATOR, 2), (1, 2), (2, 1), (0, 1)])
def test_any_wire_may_be_slow_while_the_plan_changes(late: tuple[int, int]):
    old = PLAN.with_replicas("chained", 3).with_replicas("weighed", 2)
    new = PLAN.with_replicas("weighed", 3).with_pipelines("chained", 1, 1)
    cluster = changed(old, new)
    with cluster.without(late):
        cluster.settle()
    assert results(cluster.settle()) == EXPECTED


@given(st.integers(0, 2**32))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_any_plans_on_any_workers_give_the_sequential_result(seed: int):
    rng = Random(seed)
    cluster = Cluster(FLOW, any_plan(FLOW, rng), rng.randint(0, 3))
    for _ in range(3):
        cluster.steps(rng.randint(0, 60))
        cluster.coordinator.request(any_plan(FLOW, rng))
    cluster.settle()
    while not cluster.coordinator.ended:
        cluster.coordinator.relax()
        cluster.settle()
    assert results(cluster) == EXPECTED


# What a host reports


def test_units_downstream_come_first():
    cluster = Cluster(FLOW, PLAN)
    order = list(cluster.topology.regions)
    for _ in range(60):
        cluster.step()
        units = [unit for unit in cluster.hosts[0].runnable() if unit.region not in SOURCES]
        places = [order.index(unit.region) for unit in units]
        assert places == sorted(places, reverse=True)


def test_every_unit_reports_that_it_is_done_and_that_it_goes_on():
    cluster = moved().settle()
    done = [each.unit for each in cluster.sent(Done) if each.epoch == 0]
    entered = [each.unit for each in cluster.sent(Entered) if each.epoch == 1]
    units = sorted(cluster.coordinator.layout.units)
    assert (sorted(done), sorted(entered)) == (units, units)


def test_nothing_is_saved_unless_it_is_asked_for():
    assert moved().settle().saved == []


def test_what_is_saved_is_reported():
    cluster = changed(PLAN, PLAN)
    cluster.coordinator.save()
    cluster.settle()
    saved = {each.unit for each in cluster.sent(Done) if each.saved is not None}
    units = {unit for unit in cluster.coordinator.layout.units if unit.region not in SOURCES}
    assert saved == units == {unit for _, unit, _, _ in cluster.saved}


def test_a_unit_saves_before_it_hands_over():
    cluster = moved()
    cluster.coordinator.save()
    cluster.settle()
    ((_, _, snapshot, _),) = [each for each in cluster.saved if each[1] == NUMBERED]
    (buckets,) = [pickle.loads(part) for part in snapshot["numbered"]]
    assert list(buckets) == [0]


def test_a_host_does_not_take_reports():
    cluster = Cluster(FLOW, PLAN)
    with pytest.raises(TypeError, match="a host does not take Finished"):
        cluster.hosts[0].receive(Finished(NUMBERED, 0, 1, part_over=False))


def test_changes_of_one_claim_are_reported_as_one_number():
    cluster = Cluster(FLOW, PLAN).settle()
    sent = [change for acks in cluster.sent(Acks) for change in acks.changes.values()]
    assert 0 not in sent


@pytest.mark.parametrize(("timed", "expected"), [(False, True), (True, False)])
def test_a_host_holds_tuples_back_where_no_time_orders_them(timed: bool, expected: bool):
    flow = Flow("held")
    clock = {"time": "ts"} if timed else {}
    rows = flow.source("rows", memory([{"ts": 1, "k": 1, "v": 1}]), **clock)
    narrow = rows.map("narrow", lambda batch: {}, keeps=["k", "v"])
    narrow.apply("numbered", numbered).sink("out", collect())
    plan = Plan.sequential(flow)
    cluster = Cluster(flow, plan)
    (entrance,) = Layout(cluster.topology, plan).entrances[NUMBERED]
    host = cluster.hosts[0]
    host.receive(Begin(0, plan, 0))
    host.receive(Delivery(0, entrance.link, tuples(1, 2), START))
    assert host.holds_back() is expected


def test_layouts_of_epochs_that_are_over_are_forgotten():
    cluster = Cluster(FLOW, PLAN, 2)
    for worker in (0, 1, 0, 1):
        cluster.steps(30)
        cluster.coordinator.request(PLAN.with_workers("numbered", worker))
    cluster.settle()
    newest = len(cluster.passages) - 1
    assert [min(host._layouts) >= newest - 1 for host in cluster.hosts] == [True] * 3


def test_a_handover_goes_once_to_each_unit_that_it_concerns():
    cluster = changed(PLAN, PLAN.with_replicas("chained", 2)).settle()
    takers = [each.taker for each in cluster.sent(Handover)]
    assert takers == [UnitId("chained", 1)]


def test_links_of_units_on_one_host_need_no_messages():
    cluster = Cluster(FLOW, PLAN).settle()
    assert cluster.sent(Delivery) == []


# Acknowledgements


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(cases())
def test_nothing_is_under_way_when_a_run_is_over(case: Case):
    run = Interleaved(
        case.flow, case.plan, Random(case.seed), list(case.changes), case.crashes, 8, None
    )
    run.run()
    assert {n: d._flying for n, d in run._coordinator.sources.items() if d._flying} == {}


def test_the_interleaved_run_takes_plans_that_name_workers():
    rng = Random(3)
    changes = [any_plan(FLOW, rng) for _ in range(4)]
    run = Interleaved(FLOW, any_plan(FLOW, rng), Random(5), changes, 0, 8, None)
    assert difference(FLOW, run_sequential(FLOW), run.run()) is None
