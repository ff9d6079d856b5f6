"""DS2: replicas from true rates, the whole graph in one step."""

from __future__ import annotations

from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.adapt.estimates.measured import demanded
from anabranch.adapt.guards import threads
from anabranch.adapt.history import Limits
from anabranch.adapt.policies.ds2 import Ds2
from anabranch.planning.plan import Plan
from tests.adapt.linear_system import (
    NAMES,
    LinearSystem,
    three_regions,
    two_steps_of_one_region,
)
from tests.adapt.scripted import ROOMY, ScriptedRun, observation, seen
from tests.sampling import some

FLOW = three_regions()
START = Plan.sequential(FLOW)
DOUBLES_THEN_HALVES = {"a": 2.0, "b": 0.5, "c": 1.0}


def replicas(plan: Plan) -> tuple[int, ...]:
    return tuple(plan.region(name).replicas for name in NAMES)


def two_seconds(plan: Plan, growth: int | None, **values):
    waiting = [None, None] if growth is None else [5000, 5000 + growth]
    return [
        observation(plan, at_s=at_s, backlog=backlog, **values)
        for at_s, backlog in zip((1.0, 2.0), waiting, strict=True)
    ]


# The case of these tests, by hand. The source reads 1000 tuples/s and 500 a second pile up, so 1500
# have to be served. a does 1000 tuples in 0.8 s of work: 1250 a replica. b gets 2000 tuples and
# spends 4 × 0.25 s on them: 2000 a replica, 3000 to come. c gets 1000 and spends 0.9 s: 1111 a
# replica, 1500 to come. So 1500/1250 = 1.2, 3000/2000 = 1.5, 1500/1111 = 1.35: two of each.
BY_HAND = {
    "rate": 1000.0,
    "busy": {"a": [0.8], "b": [0.25], "c": [0.9], "c.output": [0.1]},
    "steps": {
        "a": (1000, 2000, 0.8),
        "b": (2000, 1000, 1.0),
        "c": (1000, 1000, 0.9),
        "c.output": (1000, 1000, 0.1),
    },
}


def test_three_operators_computed_by_hand_change_in_one_step():
    plan = START.with_replicas("b", 4)
    looked = seen(FLOW, plan, *two_seconds(plan, growth=500, **BY_HAND))
    demand = demanded(looked)
    assert demand is not None
    assert demand.rate_per_s == pytest.approx(1500)
    assert [demand.work[name] for name in NAMES] == pytest.approx([1.2, 1.5, 1.35])
    assert [demand.true_rate(name) for name in NAMES] == pytest.approx([1250, 2000, 1000 / 0.9])
    _, proposal = Ds2().decide(Ds2().begin(), looked)
    assert proposal is not None
    assert replicas(proposal.plan) == (2, 2, 2)
    assert not proposal.trial
    assert proposal.why == (
        "region a: 1,500 rows/s at 1,250 rows/s a replica needs 2, not 1; "
        "region b: 3,000 rows/s at 2,000 rows/s a replica needs 2, not 4; "
        "region c: 1,500 rows/s at 1,111 rows/s a replica needs 2, not 1"
    )


def test_what_is_left_of_a_file_is_to_be_read_as_fast_as_it_can_be():
    looked = seen(FLOW, START, *two_seconds(START, growth=-1000, **BY_HAND))
    demand = demanded(looked)
    assert demand is not None
    assert demand.greedy
    assert demand.rate_per_s > 1000


def test_a_backlog_that_shrinks_while_more_comes_is_served_at_the_rate_that_comes():
    looked = seen(FLOW, START, *two_seconds(START, growth=-400, **BY_HAND))
    demand = demanded(looked)
    assert demand is not None
    assert (demand.greedy, demand.rate_per_s) == (False, pytest.approx(600))


def test_a_region_is_as_fast_as_its_busiest_pipeline():
    flow = two_steps_of_one_region()
    plan = Plan.sequential(flow).with_pipelines("one", 1, 1).with_replicas("one", 2)
    busy = {"one": [0.2, 0.6], "two.output": [0.0]}
    demand = demanded(seen(flow, plan, *two_seconds(plan, growth=0, busy=busy)))
    assert demand is not None
    assert demand.work["one"] == pytest.approx(1.2)


def test_decisions_count_when_enough_of_them_agree():
    policy = Ds2(activation=3)
    looked = seen(FLOW, START, *two_seconds(START, growth=500, **BY_HAND))
    calm = seen(FLOW, START, *two_seconds(START, growth=0, **BY_HAND))
    memory, proposals = policy.begin(), []
    for each in (looked, calm, looked):
        memory, proposal = policy.decide(memory, each)
        proposals.append(proposal)
    assert proposals[:2] == [None, None]
    assert replicas(proposals[2].plan) == (2, 1, 2)  # the median, region by region


def test_what_the_sources_fall_short_of_is_made_up_for_once():
    """The model sees no loss: as many are read as work allows, yet 8 % less than what comes."""
    values = BY_HAND | {"busy": {"a": [0.45], "b": [0.45], "c": [0.45], "c.output": [0.1]}}
    policy, plan = Ds2(), START
    memory, proposal = policy.decide(
        policy.begin(), seen(FLOW, plan, *two_seconds(plan, growth=1200, **values))
    )
    assert memory.boost == pytest.approx(2.0)  # 2200 / 1000, but no more than twice
    assert replicas(proposal.plan) == (2, 2, 2)
    assert "2.00× to make up" in proposal.why
    again, second = policy.decide(
        memory, seen(FLOW, plan, *two_seconds(plan, growth=1200, **values))
    )
    assert again.boost == memory.boost
    assert second == proposal
    other, _ = policy.decide(memory, seen(FLOW, plan, *two_seconds(plan, growth=0, **values)))
    assert other.boost == 1.0  # another load


def test_a_decrease_that_leaves_too_little_free_is_left_out():
    plan = START.with_replicas("a", 2).with_replicas("b", 2).with_replicas("c", 2)
    tight, loose = {"a": [0.47], "b": [0.4], "c": [0.5]}, BY_HAND["steps"]
    looked = seen(
        FLOW,
        plan,
        *two_seconds(plan, growth=0, rate=1000.0, busy=tight | {"c.output": [0.1]}, steps=loose),
    )
    _, proposal = Ds2().decide(Ds2().begin(), looked)
    assert replicas(proposal.plan) == (2, 1, 2)


def test_more_than_can_be_served_is_cut_to_what_the_slowest_region_allows():
    limits = Limits(cores=8, replicas=4, threads=100)
    looked = seen(
        FLOW,
        START,
        *two_seconds(START, growth=9000, **BY_HAND),
        limits=limits,
    )
    # 10 000 would need 8, 20 (here b has one replica: 0.25 s for 2000) and 9; c can do 4/9 of it.
    _, proposal = Ds2().decide(Ds2().begin(), looked)
    assert replicas(proposal.plan) == (4, 2, 4)


def test_nothing_is_decided_before_anything_was_read():
    looked = seen(FLOW, START, observation(START, rate=0.0))
    assert Ds2().decide(Ds2().begin(), looked) == (Ds2().begin(), None)


RATES = st.fixed_dictionaries({name: st.floats(500.0, 5000.0) for name in NAMES})
PASSES = st.fixed_dictionaries({name: st.floats(0.3, 3.0) for name in NAMES})


@settings(max_examples=some(60))
@given(RATES, PASSES, st.floats(1000.0, 8000.0), st.tuples(*[st.integers(1, 8)] * 3))
def test_a_linear_system_converges_in_at_most_three_steps_and_stays(rates, passes, offered, begin):
    system = LinearSystem(rates, passes, lambda second: offered)
    plan = START
    for name, count in zip(NAMES, begin, strict=True):
        plan = plan.with_replicas(name, count)
    run = ScriptedRun(FLOW, plan, system.script)
    run.go(run.tuned_by(Ds2()), 40)
    assert len(run.plans) <= 3
    reach = {"a": 1.0, "b": passes["a"], "c": passes["a"] * passes["b"]}
    needed = {name: offered * reach[name] / rates[name] for name in NAMES}
    servable = min([1.0, *(ROOMY.replicas / each for each in needed.values())])
    for name in NAMES:
        work = servable * needed[name]
        assert ceil(work - 0.02) <= run.plan.region(name).replicas <= ceil(work * 1.12)


def test_a_system_that_loses_with_replicas_converges_within_three_steps():
    rates = {"a": 1000.0, "b": 2500.0, "c": 1200.0}
    system = LinearSystem(rates, DOUBLES_THEN_HALVES, lambda second: 5000.0, loss=0.03)
    run = ScriptedRun(FLOW, START, system.script)
    run.go(run.tuned_by(Ds2()), 120)
    assert len(run.plans) <= 3
    assert system.script(run.plan, 200).rows_in >= 5000


def test_replicas_follow_the_load_up_and_down():
    rates = {"a": 1000.0, "b": 2500.0, "c": 1200.0}
    system = LinearSystem(
        rates, DOUBLES_THEN_HALVES, lambda second: 3500.0 if 20 <= second < 60 else 800.0
    )
    run = ScriptedRun(FLOW, START, system.script)
    controller, reached = run.tuned_by(Ds2()), []
    for begin, end in ((0, 20), (20, 60), (60, 100)):
        run.go(controller, end - begin, begin)
        reached.append(replicas(run.plan))
    assert reached == [(1, 1, 1), (4, 3, 3), (1, 1, 1)]
    assert len(run.plans) <= 4  # a window may straddle a step of the load
    assert {decision.outcome for decision in run.journal} == {"applied"}


@settings(max_examples=some(60))
@given(
    RATES,
    st.one_of(st.none(), st.floats(100.0, 1e6)),
    st.integers(1, 8),
    st.integers(6, 30),
)
def test_no_proposal_goes_beyond_the_limits(rates, offered, most, most_threads):
    system = LinearSystem(rates, DOUBLES_THEN_HALVES, lambda second: offered)
    limits = Limits(cores=4, replicas=most, threads=most_threads)
    run = ScriptedRun(FLOW, START, system.script)
    run.go(run.tuned_by(Ds2(), limits), 30)
    assert not [decision for decision in run.journal if decision.outcome in ("refused", "failed")]
    assert max(replicas(run.plan)) <= most
    assert threads(run.plan) <= most_threads


def test_a_greedy_source_gets_all_that_the_limits_allow():
    system = LinearSystem(
        {"a": 1000.0, "b": 4000.0, "c": 1000.0}, DOUBLES_THEN_HALVES, lambda second: None
    )
    limits = Limits(cores=4, replicas=16, threads=12)
    run = ScriptedRun(FLOW, START, system.script)
    run.go(run.tuned_by(Ds2(), limits), 40)
    assert [replicas(plan) for plan in run.plans] == [(4, 2, 4)]
    assert ROOMY.threads > threads(run.plan) == 12
