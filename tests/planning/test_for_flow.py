"""Planners answer in operators; flows run in regions."""

from dataclasses import replace

import pytest

import anabranch as ab
from anabranch.apps import word_count
from anabranch.errors import PlanError
from anabranch.graph import StateKind
from anabranch.planning.answer import Answer, RegionChoice
from anabranch.planning.flow_problem import as_plan, problem_for
from anabranch.planning.machine import Machine
from anabranch.planning.planners.registry import PLANNERS
from anabranch.planning.profile import OperatorProfile, Overheads, chain

FOUR = Machine.of_cores(4)


def profile(count_cost: float = 8.0):
    return chain(
        [
            OperatorProfile("lines", 1.0),
            OperatorProfile("split", 6.0, selectivity=1.0),
            OperatorProfile("count.combine", 2.0),
            OperatorProfile("count", count_cost, state=StateKind.PARTITIONED, key=("word",)),
            OperatorProfile("out", 1.0, state=StateKind.STATEFUL),
        ]
    )


def test_regions_of_the_flow_are_kept_and_bound_replicas():
    flow = word_count.build(rows=10)
    problem = problem_for(flow, profile(), FOUR)
    assert problem.regions == (("lines",), ("split", "count.combine"), ("count",), ("out",))
    assert problem.profile.by_name["count"].max_replicas == flow.buckets
    assert problem.profile.by_name["out"].max_replicas == 1


@pytest.mark.parametrize("name", PLANNERS)
def test_every_planner_answers_with_a_plan_that_the_flow_can_run(name: str):
    flow = word_count.build(rows=10)
    answer = PLANNERS[name](problem_for(flow, profile(), Machine.of_cores(2), threads=8))
    assert answer.throughput > 0
    plan = as_plan(flow, answer)
    plan.validate(flow)
    by_region = {choice.operators: choice for choice in answer.regions}
    assert plan.region("split").replicas == by_region["split", "count.combine"].replicas


def test_replicas_pipelines_and_places_are_taken_over():
    flow = word_count.build(rows=10)
    answer = Answer(
        (
            RegionChoice((("lines",),), 2),
            RegionChoice((("split",), ("count.combine",)), 3),
            RegionChoice((("count",),), 2, placement=(0, 1)),
            RegionChoice((("out",),), 1),
        ),
        1.0,
        1.0,
    )
    plan = as_plan(flow, answer)
    assert plan.source("lines").replicas == 2
    assert plan.region("split").pipelines == (("split",), ("count.combine",))
    assert plan.region("split").replicas == 3
    assert plan.region("count").placement == ("socket0", "socket1")


def copied(sink):
    """lines → out, and what its two steps cost."""
    flow = ab.Flow("copied")
    flow.source("lines", ab.memory([{"line": "a"}])).sink("out", sink)
    return flow, chain([OperatorProfile("lines", 1.0), OperatorProfile("out", 9.0)])


def test_a_sink_whose_rows_pass_the_driver_has_one_replica(tmp_path):
    flow, costs = copied(ab.collect())
    assert problem_for(flow, costs, FOUR).profile.by_name["out"].max_replicas == 1
    flow, costs = copied(ab.parquet(tmp_path))
    assert problem_for(flow, costs, FOUR).profile.by_name["out"].max_replicas is None


def test_replicas_of_a_sink_take_batches_in_turn(tmp_path):
    flow, _ = copied(ab.parquet(tmp_path))
    answer = Answer((RegionChoice((("lines",),), 2), RegionChoice((("out",),), 2)), 1.0, 1.0)
    start = ab.plan(flow).with_source("lines", batch_rows=5_000)
    assert as_plan(flow, answer, start).region("out").range_rows == 8_192


@pytest.mark.parametrize("name", ["exact", "fission", "rlas"])
def test_planners_give_replicas_to_the_clock_of_one_source(name: str):
    flow = ab.Flow("timed")
    flow.source("rows", ab.memory([{"ts": 1}])).timed("clock", "ts").sink("out", ab.collect())
    costs = chain(
        [
            OperatorProfile("rows", 1.0),
            OperatorProfile("clock", 8.0, replicas_cost=0.25),
            OperatorProfile("out", 1.0, state=StateKind.STATEFUL),
        ]
    )
    best = as_plan(flow, PLANNERS[name](problem_for(flow, costs, FOUR)))
    assert best.region("clock").replicas > 1


def test_an_answer_that_cuts_regions_elsewhere_is_refused():
    answer = Answer((RegionChoice((("lines", "split"),), 1),), 1.0, 1.0)
    with pytest.raises(PlanError, match="regions may be cut elsewhere"):
        as_plan(word_count.build(rows=10), answer)


def test_ab_plan_takes_a_planner():
    flow = word_count.build(rows=10)
    best = ab.plan(flow, planner="exact", profile=profile(40.0), machine=FOUR)
    assert best.region("count").replicas > 1
    assert ab.plan(flow) == ab.Plan.sequential(flow)


def test_ab_plan_counts_what_parallelism_costs_on_the_machine():
    flow = word_count.build(rows=10)
    dear = replace(FOUR, overheads={"local": Overheads(1e6, 1e6)})
    priced = ab.plan(flow, profile=replace(profile(40.0), unit="us"), machine=dear)
    assert priced.region("count").replicas == 1
