"""The layout of a plan: where units are, and which links connect them."""

from __future__ import annotations

from pathlib import Path

from anabranch.flow import Flow
from anabranch.io import collect, jsonl, memory
from anabranch.planning.plan import Plan
from anabranch.runtime.layout import INNER, Layout, Topology
from anabranch.runtime.messages import HOME, Link, UnitId
from tests.runtime.switching import switching_flow

FLOW = switching_flow()
TOPOLOGY = Topology(FLOW)
PLAN = Plan.sequential(FLOW)


def hosts(layout: Layout, region: str) -> list[int]:
    return [layout.units[unit] for unit in layout.of_region(region)]


def reached(layout: Layout, producer: UnitId, region: str) -> list[int]:
    """The replicas of a region that a unit has links to."""
    exits = [each for each in layout.exits[producer] if each.region == region]
    return [link.consumer.replica for each in exits for link in each.links]


def test_without_workers_everything_is_at_home():
    assert set(Layout(TOPOLOGY, PLAN).units.values()) == {HOME}


def test_replicas_are_spread_over_the_workers():
    layout = Layout(TOPOLOGY, PLAN.with_replicas("chained", 5), 3)
    assert hosts(layout, "chained") == [1, 2, 3, 1, 2]


def test_pipelines_of_few_replicas_are_spread_over_the_workers():
    layout = Layout(TOPOLOGY, PLAN.with_pipelines("chained", 1, 1), 3)
    assert hosts(layout, "chained") == [1, 2]


def test_pipelines_of_enough_replicas_stay_together():
    plan = PLAN.with_replicas("chained", 2).with_pipelines("chained", 1, 1)
    assert hosts(Layout(TOPOLOGY, plan, 2), "chained") == [1, 1, 2, 2]


def test_units_are_on_the_workers_that_the_plan_names():
    plan = PLAN.with_replicas("chained", 2).with_pipelines("chained", 1, 1)
    layout = Layout(TOPOLOGY, plan.with_workers("chained", 2, 0, 1, 1), 3)
    assert hosts(layout, "chained") == [3, 1, 2, 2]


def test_readers_are_on_the_workers_that_the_plan_names():
    plan = PLAN.with_source("left", replicas=2).with_workers("left", 1, 0)
    assert hosts(Layout(TOPOLOGY, plan, 2), "left") == [2, 1]


def test_a_plan_for_more_workers_than_there_are_uses_those_that_there_are():
    layout = Layout(TOPOLOGY, PLAN.with_workers("numbered", 5), 2)
    assert hosts(layout, "numbered") == [2]


def test_sinks_that_may_be_objects_of_the_caller_stay_at_home():
    assert hosts(Layout(TOPOLOGY, PLAN, 2), "chain") == [HOME]


def test_other_sinks_are_on_workers(tmp_path: Path):
    flow = Flow("written")
    flow.source("rows", memory([{"x": 1}])).sink("out", jsonl(tmp_path))
    assert hosts(Layout(Topology(flow), Plan.sequential(flow), 2), "out") == [1]


def test_every_producer_reaches_every_replica_of_a_region_with_state():
    plan = PLAN.with_replicas("weighed", 2).with_replicas("chained", 3)
    layout = Layout(TOPOLOGY, plan, 2)
    assert [reached(layout, UnitId("weighed", r), "chained") for r in (0, 1)] == [[0, 1, 2]] * 2


def test_pipelines_of_a_replica_are_connected_by_one_link():
    layout = Layout(TOPOLOGY, PLAN.with_replicas("chained", 2).with_pipelines("chained", 1, 1))
    first, second = UnitId("chained", 1, 0), UnitId("chained", 1, 1)
    assert [each.links for each in layout.exits[first]] == [(Link(INNER, first, second),)]


def test_the_last_pipeline_of_a_replica_leads_out_of_the_region():
    layout = Layout(TOPOLOGY, PLAN.with_pipelines("chained", 1, 1))
    assert reached(layout, UnitId("chained", 0, 1), "chain") == [0]


def test_every_exit_is_the_entrance_of_another_unit():
    plan = PLAN.with_replicas("weighed", 3).with_replicas("merged", 2)
    layout = Layout(TOPOLOGY, plan, 2)
    out = [link for exits in layout.exits.values() for each in exits for link in each.links]
    into = [each.link for entrances in layout.entrances.values() for each in entrances]
    assert sorted(out) == sorted(into)


def test_streams_into_one_step_enter_by_ports_of_their_own():
    layout = Layout(TOPOLOGY, PLAN)
    ports = {e.link.producer.region: e.port for e in layout.entrances[UnitId("merged", 0)]}
    assert ports == {"left.time": 0, "right.time": 1}


# Near links


def flat_layout(readers: int, replicas: int, workers: int) -> Layout:
    flow = Flow("flat")
    rows = flow.source("rows", memory([{"k": 1, "v": 2}]))
    rows.filter("odd", lambda batch: batch["v"]).sink("out", collect())
    plan = Plan.sequential(flow).with_source("rows", replicas=readers)
    return Layout(Topology(flow), plan.with_replicas("odd", replicas), workers)


def test_tuples_for_a_stateless_region_stay_on_their_host():
    layout = flat_layout(readers=2, replicas=4, workers=2)
    assert [reached(layout, UnitId("rows", r), "odd") for r in (0, 1)] == [[0, 2], [1, 3]]


def test_where_a_host_has_producers_alone_tuples_go_to_all_replicas():
    layout = flat_layout(readers=2, replicas=1, workers=2)
    assert [reached(layout, UnitId("rows", r), "odd") for r in (0, 1)] == [[0], [0]]


def test_where_a_host_has_replicas_alone_they_get_tuples_of_all_producers():
    layout = flat_layout(readers=1, replicas=3, workers=2)
    assert reached(layout, UnitId("rows", 0), "odd") == [0, 1, 2]
