"""The coordinator: one epoch after another, each of them whole."""

from __future__ import annotations

import pytest

from anabranch.operators.base import Counters
from anabranch.planning.plan import Plan
from anabranch.runtime.coordinator import Coordinator
from anabranch.runtime.layout import Topology
from anabranch.runtime.messages import Begin, Claim, Done, Entered, Promise, SinkEnded, UnitId
from anabranch.state.positions import START
from tests.runtime.cluster import COORDINATOR, Cluster
from tests.runtime.switching import SOURCES
from tests.runtime.test_host import EXPECTED, FLOW, NUMBERED, PLAN, results

TOPOLOGY = Topology(FLOW)
OTHER, THIRD = PLAN.with_replicas("chained", 2), PLAN.with_replicas("chained", 3)


def running(workers: int = 2, steps: int = 120) -> Cluster:
    """A run in the middle."""
    cluster = Cluster(FLOW, PLAN, workers).steps(steps)
    assert not cluster.coordinator.passing
    return cluster


def begun(cluster: Cluster) -> list[Plan]:
    """The plans of the epochs that were announced, by number."""
    plans = {each.epoch: each.plan for each in cluster.sent(Begin)}
    return [plans[epoch] for epoch in sorted(plans)]


def claimed(cluster: Cluster) -> int:
    return len(cluster.sent(Claim))


# Requests


def test_of_several_plans_that_are_requested_the_newest_counts():
    cluster = running()
    cluster.coordinator.request(OTHER)
    cluster.coordinator.request(THIRD)
    assert begun(cluster.settle()) == [PLAN, THIRD]


def test_a_plan_that_is_requested_while_an_epoch_begins_comes_after_it():
    cluster = running()
    cluster.coordinator.request(OTHER)
    with cluster.without((2, COORDINATOR)):
        cluster.settle()
        cluster.coordinator.request(THIRD)
        cluster.settle()
        assert begun(cluster) == [PLAN, OTHER]
    assert begun(cluster.settle()) == [PLAN, OTHER, THIRD]


def test_saving_begins_an_epoch_under_the_same_plan():
    cluster = running()
    cluster.coordinator.save()
    assert begun(cluster.settle()) == [PLAN, PLAN]


def test_a_plan_and_a_save_that_are_requested_together_are_one_epoch():
    cluster = running()
    cluster.coordinator.request(OTHER)
    cluster.coordinator.save()
    cluster.settle()
    assert [(each.plan, each.saves) for each in cluster.passages[1:]] == [(OTHER, True)]


def test_further_workers_are_used_from_the_next_epoch_on():
    coordinator = Coordinator(TOPOLOGY, PLAN, 1)
    coordinator.take_outbox()
    coordinator.widen(3)
    before = coordinator.layout.workers
    coordinator._passage = None  # all have entered the first epoch
    coordinator.save()
    coordinator.tick(0.0)
    announced = [host for host, message in coordinator.take_outbox() if isinstance(message, Begin)]
    assert (before, coordinator.layout.workers, announced) == (1, 3, [0, 1, 2, 3])


# An epoch happens whole


def test_no_epoch_begins_before_every_claim_is_finished():
    cluster = running()
    with cluster.without((1, COORDINATOR), (2, COORDINATOR)):
        cluster.steps(50)
        assert not all(source.at_rest for source in cluster.coordinator.sources.values())
        cluster.coordinator.request(OTHER)
        cluster.settle()
        assert begun(cluster) == [PLAN]
    assert begun(cluster.settle()) == [PLAN, OTHER]


def test_nothing_is_given_out_while_an_epoch_is_about_to_begin():
    cluster = running()
    with cluster.without((1, COORDINATOR), (2, COORDINATOR)):
        cluster.steps(50)
        cluster.coordinator.request(OTHER)
        before = claimed(cluster)
        cluster.settle()
        assert claimed(cluster) == before


@pytest.mark.parametrize("late", [(COORDINATOR, 2), (2, COORDINATOR), (1, 2)])
def test_an_epoch_is_complete_when_every_unit_has_entered_it(late: tuple[int, int]):
    cluster = running()
    cluster.coordinator.request(THIRD)
    with cluster.without(late):
        cluster.settle()
        assert cluster.coordinator.passing
    cluster.settle()
    assert [each.plan for each in cluster.passages] == [PLAN, THIRD]


def test_a_complete_epoch_has_been_entered_by_all_units_and_waits_for_none():
    cluster = running()
    cluster.coordinator.request(OTHER)
    cluster.settle()
    (_, passage) = cluster.passages
    replicas = {unit.replica for unit in passage.entered if unit.region == "chained"}
    assert (replicas, passage.awaited) == ({0, 1}, set())


def test_a_complete_epoch_reads_on_at_its_offsets():
    cluster = running()
    cluster.coordinator.save()
    cluster.settle()
    offsets = cluster.passages[1].offsets
    rest = Cluster(FLOW, PLAN, 1, offsets=offsets, epoch=7).settle()
    first = [each for each in rest.sent(Claim) if each.epoch == 7]
    starts = {each.reader.region: each.start for each in reversed(first)}
    assert starts == {name: offsets[name].open[0] for name in SOURCES}


def test_changes_at_any_moment_change_no_result():
    for steps in range(60, 300, 20):
        cluster = running(steps=steps) if steps >= 100 else Cluster(FLOW, PLAN, 2).steps(steps)
        cluster.coordinator.request(OTHER)
        assert results(cluster.settle()) == EXPECTED


# The end


def alone() -> Coordinator:
    """A coordinator whose units have all entered the first epoch."""
    coordinator = Coordinator(TOPOLOGY, PLAN, 0)
    for unit in coordinator.layout.units:
        coordinator.receive(Entered(0, unit), 0.0)
    for source in coordinator.sources.values():
        source.stop()  # nothing is asked for, so that an epoch may begin at once
    coordinator.tick(0.0)
    coordinator.take_outbox()
    return coordinator


def test_a_run_has_ended_when_every_sink_has():
    coordinator = alone()
    states = [coordinator.ended]
    for sink in ("chain", "numbers"):
        coordinator.receive(SinkEnded(0, UnitId(sink, 0)), 0.0)
        states.append(coordinator.ended)
    assert states == [False, False, True]


def test_the_end_of_a_sink_counts_in_whichever_epoch_it_comes():
    coordinator = alone()
    coordinator.receive(SinkEnded(3, UnitId("chain", 0)), 0.0)
    before = coordinator.ended
    coordinator.receive(SinkEnded(0, UnitId("numbers", 0)), 0.0)
    assert (before, coordinator.ended) == (False, True)


def test_sinks_end_again_in_a_new_epoch():
    cluster = Cluster(FLOW, PLAN, 2).settle()
    cluster.coordinator.save()
    cluster.settle()
    ends = [each.epoch for each in cluster.sent(SinkEnded)]
    assert (sorted(ends), cluster.coordinator.ended) == ([0, 0, 1, 1], True)


def test_an_epoch_knows_whether_the_one_before_had_ended():
    cluster = Cluster(FLOW, PLAN, 2).settle()
    cluster.coordinator.save()
    cluster.settle()
    assert cluster.passages[-1].ended


def test_nothing_is_read_after_a_stop():
    cluster = running()
    cluster.coordinator.stop()
    before = claimed(cluster)
    cluster.settle()
    assert (claimed(cluster), cluster.coordinator.ended) == (before, False)


# Reports


def test_counters_of_all_epochs_add_up():
    coordinator = alone()
    for late in (2, 3):
        coordinator.receive(Done(0, NUMBERED, {"numbered": Counters(late=late)}), 0.0)
    assert coordinator.counters["numbered"].late == 5


def test_counters_go_on_where_an_earlier_run_was():
    coordinator = Coordinator(TOPOLOGY, PLAN, 0, counters={"numbered": Counters(late=4)})
    coordinator.receive(Done(0, NUMBERED, {"numbered": Counters(late=1)}), 0.0)
    assert coordinator.counters["numbered"].late == 5


def test_an_epoch_change_took_as_long_as_the_unit_that_stood_longest():
    coordinator = alone()
    coordinator.save()
    coordinator.tick(0.0)
    for number, unit in enumerate(coordinator.layout.units):
        coordinator.receive(Done(0, unit, {}), 0.0)
        coordinator.receive(Entered(1, unit, stood_s=float(number % 4)), 0.0)
    passage = coordinator.tick(0.0)
    assert (passage.epoch, passage.stood_s) == (1, 3.0)


def test_a_coordinator_does_not_take_messages_for_hosts():
    with pytest.raises(TypeError, match="a coordinator does not take Promise"):
        alone().receive(Promise(0, UnitId("left", 0), START), 0.0)


def test_a_limit_holds_for_each_source():
    cluster = Cluster(FLOW, PLAN, 1, limit=10).settle()
    assert {name: source.rows for name, source in cluster.coordinator.sources.items()} == {
        "left": 10,
        "right": 10,
    }
