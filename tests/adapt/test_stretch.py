"""STRETCH's thresholds: upper, target, bottom."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.adapt.guards import threads
from anabranch.adapt.history import Limits
from anabranch.adapt.policies.stretch import Stretch
from anabranch.planning.plan import Plan
from tests.adapt.linear_system import three_regions, two_steps_of_one_region
from tests.adapt.scripted import observation, seen

FLOW = three_regions()
START = Plan.sequential(FLOW)
WIDE = Limits(cores=100, replicas=100, threads=400)
CALM = {"b": [0.7], "c": [0.7]}


def proposal(plan: Plan, busy: dict[str, list[float]], growth: int = 0, limits: Limits = WIDE):
    window = [
        observation(plan, at_s=at_s, rate=1000.0, busy=CALM | busy, backlog=backlog)
        for at_s, backlog in ((1.0, 0), (2.0, growth))
    ]
    return Stretch().decide(None, seen(FLOW, plan, *window, limits=limits))[1]


@pytest.mark.parametrize(
    ("begin", "provisioned", "decommissioned"),
    [(5, 9, 2), (9, 16, 3), (18, 31, 7), (30, 52, 12), (40, 69, 17)],
)
def test_table_2(begin: int, provisioned: int, decommissioned: int):
    plan = START.with_replicas("a", begin)
    more = proposal(plan, {"a": [1.0]}, growth=200)  # 120 % of what the replicas can do
    fewer = proposal(plan, {"a": [0.3]})
    assert more is not None
    assert fewer is not None
    assert more.plan.region("a").replicas == provisioned
    assert fewer.plan.region("a").replicas == decommissioned


@pytest.mark.parametrize("load", [0.45, 0.7, 0.9])
def test_between_the_thresholds_nothing_changes(load: float):
    assert proposal(START.with_replicas("a", 4), {"a": [load]}) is None


def test_regions_beyond_a_threshold_change_together_and_say_why():
    plan = START.with_replicas("c", 3)
    found = proposal(plan, {"a": [0.95], "c": [0.2]})
    assert found is not None
    assert [found.plan.region(name).replicas for name in "abc"] == [2, 1, 1]
    assert found.why == (
        "region c: load 0.20 < 0.45, 3 → 1 replicas promise 0.60; "
        "region a: load 0.95 > 0.90, 1 → 2 replicas promise 0.47"
    )
    assert not found.trial


def test_the_busiest_pipeline_is_the_load_of_a_region():
    flow = two_steps_of_one_region()
    plan = Plan.sequential(flow).with_pipelines("one", 1, 1)
    found = {
        shares: Stretch().decide(None, seen(flow, plan, observation(plan, busy={"one": shares})))[1]
        for shares in ((0.3, 0.6), (0.1, 0.95))
    }
    assert found[0.3, 0.6] is None
    assert found[0.1, 0.95] is not None


@given(st.integers(1, 100), st.floats(0.0, 2.0))
@example(3, 0.44)  # rounded down, one replica would be left with 1.32
def test_a_change_never_leads_to_a_load_that_asks_for_the_way_back(replicas: int, load: float):
    policy = Stretch()
    wanted = policy.replicas(replicas, load)
    after = load * replicas / wanted
    if wanted < replicas:
        assert after <= policy.upper + 1e-6
    if wanted > replicas:
        assert after <= policy.target + 1e-6
        assert load * replicas / (wanted - 1) > policy.target - 1e-6  # no more than needed


@given(
    st.tuples(*[st.integers(1, 6)] * 3),
    st.tuples(*[st.floats(0.0, 1.0)] * 3),
    st.integers(0, 1000),
    st.integers(1, 12),
    st.integers(1, 40),
)
def test_no_proposal_goes_beyond_the_limits(begin, busy, growth, most, spare):
    plan = START
    for name, count in zip("abc", begin, strict=True):
        plan = plan.with_replicas(name, min(count, most))
    limits = Limits(cores=4, replicas=most, threads=threads(plan) + spare)
    shares = {name: [share] for name, share in zip("abc", busy, strict=True)}
    found = proposal(plan, shares, growth, limits)
    if found is not None:
        found.plan.validate(FLOW)
        assert max(found.plan.region(name).replicas for name in "abc") <= most
        assert threads(found.plan) <= limits.threads
