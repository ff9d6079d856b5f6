"""No more replicas than buckets: what comes beyond them would never get a tuple."""

from __future__ import annotations

from random import Random

import pytest

import anabranch as ab
from anabranch.errors import PlanError
from anabranch.flow import Flow
from anabranch.graph import StateKind
from anabranch.planning.flow_problem import as_plan, problem_for
from anabranch.planning.machine import Machine
from anabranch.planning.plan import Plan
from anabranch.planning.planners.registry import PLANNERS
from anabranch.planning.profile import OperatorProfile, chain
from anabranch.planning.starting import side_by_side
from anabranch.testing.random_plans import random_plan


@ab.shared(out="bucket: int64", buckets=3)
def seen(batch, bucket):
    return {"bucket": [bucket.index] * batch.num_rows}, list(range(batch.num_rows))


def flow_of(buckets: int) -> Flow:
    flow = Flow("few", buckets=buckets)
    rows = flow.source("s", ab.memory([{"k": 1, "v": 1}]))
    rows.aggregate("sum", key="k", v=ab.sum("v"), emit="every").sink("out", ab.collect())
    return flow


def flow_with_a_shared_region() -> Flow:
    flow = Flow("seen")
    flow.source("s", ab.memory([{"k": 1}])).apply("seen", seen).sink("out", ab.collect())
    return flow


def test_more_replicas_than_buckets_are_refused_with_what_to_do():
    flow = flow_of(buckets=4)
    plan = Plan.sequential(flow)
    plan.with_replicas("sum", 4).validate(flow)
    told = r"'sum': expected at most 4 replicas, one for each bucket, got 5; .*Flow\(buckets=…\)"
    with pytest.raises(PlanError, match=told):
        plan.with_replicas("sum", 5).validate(flow)


def test_a_region_that_sees_every_tuple_has_no_more_replicas_than_buckets_either():
    flow = flow_with_a_shared_region()
    plan = Plan.sequential(flow)
    plan.with_replicas("seen", 3).validate(flow)
    with pytest.raises(PlanError, match="'seen': expected at most 3 replicas"):
        plan.with_replicas("seen", 4).validate(flow)


def test_a_run_under_such_a_plan_does_not_begin():
    flow = flow_of(buckets=4)
    plan = Plan.sequential(flow).with_replicas("sum", 1000)
    with pytest.raises(PlanError, match="at most 4 replicas"):
        ab.start(flow, engine="local", plan=plan)


@pytest.mark.parametrize("buckets", [1, 2, 3, 256])
def test_random_plans_and_the_plan_to_start_with_keep_to_the_buckets(buckets: int):
    flow, rng = flow_of(buckets), Random(0)
    drawn = [random_plan(flow, rng) for _ in range(60)]
    for plan in [*drawn, side_by_side(flow, cores=16)]:
        plan.validate(flow)
    assert max(plan.region("sum").replicas for plan in drawn) == min(buckets, 4)


@pytest.mark.parametrize("name", PLANNERS)
def test_planners_keep_to_the_buckets(name: str):
    flow = flow_of(buckets=2)
    dear = OperatorProfile("sum", 90.0, state=StateKind.PARTITIONED, key=("k",))
    last = OperatorProfile("out", 1.0, state=StateKind.STATEFUL)
    profile = chain([OperatorProfile("s", 1.0), dear, last])
    machine = Machine.of_cores(8)
    plan = as_plan(flow, PLANNERS[name](problem_for(flow, profile, machine, threads=8)))
    assert plan.region("sum").replicas <= 2
