"""Flows that stand for profiles."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.engines.simulator.flows import flow_of
from anabranch.graph import Role, StateKind
from anabranch.io.memory_source import memory
from anabranch.planning.plan import Plan
from anabranch.planning.profile import Profile, StreamProfile
from anabranch.testing import run_sequential
from tests.engines.simulator.drawn import drawn_profile
from tests.engines.simulator.measured import in_ms, keyed, operator
from tests.sampling import some


@settings(max_examples=some(50))
@given(st.integers(0, 10**6))
def test_every_profile_has_a_flow_with_its_operators(seed):
    profile = drawn_profile(random.Random(seed), branching=True)
    flow = flow_of(profile)
    assert sorted(flow.names(Role.OPERATOR)) == sorted(profile.by_name)
    for name, known in profile.by_name.items():
        body = flow.graph.steps[name].body
        assert body.state is StateKind(known.state.value)
        assert body.key == known.key
        found = [i.step for i in flow.graph.steps[name].inputs if i is not None]
        assert found == [s.producer for s in profile.into(name)] or found == [f"{name}.input"]
    Plan.sequential(flow).validate(flow)


def test_a_run_of_operators_with_one_key_is_one_region():
    profile = in_ms(operator("parse", 1), keyed("count", 1), operator("shape", 1))
    plan = Plan.sequential(flow_of(profile))
    assert plan.region("count").pipelines == (("parse", "count", "shape"),)


def test_it_lets_tuples_through():
    profile = Profile(
        (operator("left", 1), keyed("right", 1), operator("both", 1, state=StateKind.STATEFUL)),
        (StreamProfile("left", "both", 1.0), StreamProfile("right", "both", 1.0)),
    )
    flow = flow_of(profile, order="total")
    schema = flow.graph.steps["left.input"].body.source.schema
    rows = {
        "left.input": memory([{"k": 1}, {"k": 2}], schema),
        "right.input": memory([{"k": 3}], schema),
    }
    result = run_sequential(flow.reading(rows))
    assert sorted(row["k"] for row in result.rows("both.output")) == [1, 2, 3]


def test_shared_operators_have_buckets():
    profile = in_ms(operator("join", 1, state=StateKind.SHARED))
    plan = Plan.sequential(flow_of(profile))
    assert len(plan.with_replicas("join", 3).region("join").bucket_map) > 0


@pytest.mark.parametrize("name", ["a", "a b", "a.input"])
def test_names_of_operators_stay(name):
    assert name in flow_of(in_ms(operator(name, 1))).graph.steps
