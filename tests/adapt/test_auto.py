"""`auto` jumps by the model, keeps what helped, gives back what is not needed, and stays calm."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from math import ceil, log2

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.adapt.controller import Controller
from anabranch.adapt.estimates.measured import measured_profile
from anabranch.adapt.guards import threads
from anabranch.adapt.history import Limits
from anabranch.adapt.policies.auto import Auto, halfway
from anabranch.adapt.topology import Topology
from anabranch.flow import Flow
from anabranch.graph import StateKind
from anabranch.io import collect, memory
from anabranch.planning.flow_problem import FlowModel
from anabranch.planning.machine import Machine
from anabranch.planning.plan import Plan
from anabranch.planning.profile import OperatorProfile, Overheads, Profile, chain
from tests.adapt.modelled import PARSE_COUNT_TOP, Modelled
from tests.adapt.scripted import ScriptedRun, seen
from tests.sampling import some


def tuned(system: Modelled, seconds: int, plan: Plan | None = None) -> ScriptedRun:
    run = system.run(plan)
    limits = Limits.for_cores(system.cores, Topology.of(system.flow))
    run.go(run.tuned_by(Auto(), limits, system.model), seconds)
    return run


def test_one_jump_reaches_the_best_plan_of_a_system_that_the_model_knows() -> None:
    system = Modelled(PARSE_COUNT_TOP)
    run = tuned(system, 60)
    best = system.model.best(system.whole, Plan.sequential(system.flow))
    assert len(run.plans) == 1
    assert system.capacity(run.plan) >= 0.95 * system.capacity(best)
    assert [d.outcome for d in run.journal] == ["tried", "kept"]


def test_the_journal_says_what_was_seen_promised_and_gained() -> None:
    run = tuned(Modelled(PARSE_COUNT_TOP), 20)
    assert run.journal[1].why.startswith("1.00 of the plan used at 14,285 rows/s, 1 → ")
    assert "promises 7.18×" in run.journal[1].why
    assert "tried, gained 618%" in run.journal[1].why


class Timed(Modelled):
    """A clock, and nothing else that costs much."""

    def __post_init__(self) -> None:
        self.flow = Flow("timed")
        rows = self.flow.source("rows", memory([{"ts": 1}]))
        rows.timed("clock", "ts").sink("out", collect())
        self.model = FlowModel(self.flow, Machine.of_cores(self.cores), Overheads())

    @cached_property
    def whole(self) -> Profile:
        return self.profile


CLOCK = chain(
    [
        OperatorProfile("rows", 1.0),
        OperatorProfile("clock", 20.0, replicas_cost=0.25),
        OperatorProfile("out", 1.0, state=StateKind.STATEFUL),
    ],
    unit="us",
)


def test_a_clock_that_limits_the_run_gets_replicas() -> None:
    run = tuned(Timed(CLOCK), 60)
    assert run.plan.region("clock").replicas > 4
    assert [d.outcome for d in run.journal] == ["tried", "kept"]


@pytest.mark.parametrize("replicas", [1, 3])
def test_measured_costs_of_a_clock_are_those_of_one_replica(replicas: int) -> None:
    system = Timed(CLOCK)
    plan = Plan.sequential(system.flow).with_replicas("clock", replicas)
    found = measured_profile(seen(system.flow, plan, system.observe(plan, 0)))
    assert found is not None
    assert found.by_name["clock"].cost == pytest.approx(20.0, rel=1e-3)


def test_it_does_no_more_than_the_load_needs() -> None:
    system = Modelled(PARSE_COUNT_TOP, offered=lambda second: 20_000.0)
    run = tuned(system, 120)
    needed = system.model.best(system.whole, run.plan, 20_000.0)
    assert system.capacity(run.plan) >= 20_000.0
    assert threads(run.plan) <= threads(needed) + 1
    assert len(run.plans) <= 2


def test_what_the_load_no_longer_needs_is_given_back() -> None:
    system = Modelled(PARSE_COUNT_TOP, offered=lambda s: 60_000.0 if s < 60 else 5_000.0)
    run = tuned(system, 150)
    first = Plan.sequential(system.flow)
    widest = max(threads(plan) for plan in run.plans)
    assert widest > threads(first)
    assert threads(run.plan) == threads(first)


ASKS = chain(
    [
        OperatorProfile("ask", 20.0, state=StateKind.PARTITIONED, key=("bike",), wait=980.0),
        OperatorProfile("note", 4.0, state=StateKind.STATEFUL),
    ],
    unit="us",
)
"""A step that asks a service for each tuple: a millisecond of a thread, hardly any of a core."""


def test_a_step_that_waits_gets_more_replicas_than_there_are_cores() -> None:
    system = Modelled(ASKS, cores=2, offered=lambda second: 3_000.0)
    run = tuned(system, 90)
    assert run.plan.region("ask").replicas == 4
    assert system.capacity(run.plan) >= 3_000.0


def test_replicas_that_wait_for_a_service_are_not_taken_for_idle() -> None:
    system = Modelled(ASKS, cores=2, offered=lambda second: 1_700.0)
    busy = Plan.sequential(system.flow).with_replicas("ask", 2)
    assert all(p.region("ask").replicas >= 2 for p in tuned(system, 300, busy).plans)
    slack = Modelled(ASKS, cores=2, offered=lambda second: 500.0)
    assert tuned(slack, 300, busy).plan.region("ask").replicas == 1


def test_a_load_that_swings_within_the_band_changes_nothing() -> None:
    def swing(second: int) -> float:
        return 20_000.0 * (1.0 + (0.08 if second % 10 < 5 else -0.08))

    system = Modelled(PARSE_COUNT_TOP, offered=swing)
    settled = tuned(system, 60).plan
    run = tuned(Modelled(PARSE_COUNT_TOP, offered=swing), 600, settled)
    assert run.plans == []


def test_a_jump_that_does_not_help_is_reverted_and_not_tried_again_under_the_same_load() -> None:
    system = Modelled(PARSE_COUNT_TOP, contention=0.5)
    run = tuned(system, 400)
    assert run.plan == Plan.sequential(system.flow)
    wider = [plan for plan in run.plans if plan != run.plan]
    assert wider
    assert len(wider) == len(set(wider))


def test_where_nothing_comes_any_more_one_copy_of_everything_is_left() -> None:
    system = Modelled(PARSE_COUNT_TOP, offered=lambda s: 60_000.0 if s < 60 else 0.0)
    run = tuned(system, 120)
    assert max(threads(plan) for plan in run.plans) > threads(Plan.sequential(system.flow))
    assert threads(run.plan) == threads(Plan.sequential(system.flow))
    assert "failed" not in [decision.outcome for decision in run.journal]


def test_a_load_that_begins_and_ends_does_not_confuse_it() -> None:
    system = Modelled(PARSE_COUNT_TOP, offered=lambda s: 0.0 if s % 40 < 20 else 30_000.0)
    run = tuned(system, 400)
    assert "failed" not in [decision.outcome for decision in run.journal]


def test_a_jump_that_makes_every_tuple_dearer_is_reverted() -> None:
    system = Modelled(PARSE_COUNT_TOP, contention=0.4, dearer=True)
    run = tuned(system, 60)
    assert run.journal[1].outcome == "reverted"
    assert "lost" in run.journal[1].why
    assert run.plan == Plan.sequential(system.flow)


def test_half_of_a_step_that_was_too_long_is_tried_before_none_is() -> None:
    system = Modelled(PARSE_COUNT_TOP, contention=0.28)
    run = tuned(system, 60)
    outcomes = [decision.outcome for decision in run.journal]
    assert outcomes[:4] == ["tried", "reverted", "tried", "kept"]
    assert run.journal[2].why.startswith("half of that, 1 → 4 replicas of region count")
    assert run.plan.region("count").replicas == 4


def test_what_is_left_of_a_file_is_read_as_fast_as_it_can_be() -> None:
    system = Modelled(PARSE_COUNT_TOP, offered=lambda second: 0.0, backlog=2_000_000.0)
    run = tuned(system, 8)
    best = system.model.best(system.whole, Plan.sequential(system.flow))
    assert system.capacity(run.plan) >= 0.95 * system.capacity(best)


def test_batches_that_follow_each_other_half_empty_do_not_look_like_a_full_plan() -> None:
    system = Modelled(PARSE_COUNT_TOP, offered=lambda second: 2_000.0, fixed_s=0.3)
    assert tuned(system, 60).plans == []
    wide = Plan.sequential(system.flow).with_replicas("count", 6)
    assert threads(tuned(system, 60, wide).plan) < threads(wide)


def test_a_run_that_stands_still_is_left_alone() -> None:
    system = Modelled(PARSE_COUNT_TOP)
    system.known[Plan.sequential(system.flow)] = 1e-9
    system.offered = lambda second: 1_000.0
    run = tuned(system, 60)
    assert run.journal == []


def test_another_load_ends_the_wait_after_a_revert() -> None:
    # Nothing helps at first; from second 100 on four times as much comes, and it may look again.
    system = Modelled(
        PARSE_COUNT_TOP,
        offered=lambda second: 13_000.0 if second < 100 else 40_000.0,
        contention=0.5,
    )
    policy = Auto(longest_wait=1_000)
    memory = replace(policy.begin(), wait=500)
    plan = Plan.sequential(system.flow)
    window = [system.observe(plan, second) for second in range(100, 106)][-3:]
    looked = seen(system.flow, plan, *window, model=system.model)
    barred = plan.with_replicas("count", 2)
    memory, held = policy.decide(memory, replace(looked, barred=frozenset({barred})))
    assert held is None
    _, proposal = policy.decide(memory, looked)
    assert proposal is not None


def test_it_keeps_to_limits_that_a_user_gives() -> None:
    system = Modelled(PARSE_COUNT_TOP)
    run = system.run()
    tight = Limits(cores=8, replicas=2, threads=7)
    run.go(run.tuned_by(Auto(), tight, system.model), 60)
    assert [d.outcome for d in run.journal] == ["tried", "kept"]
    assert max(region.replicas for region in run.plan.regions) == 2
    assert threads(run.plan) <= 7


def test_without_a_model_nothing_is_proposed() -> None:
    flow = Modelled(PARSE_COUNT_TOP).flow
    policy = Auto()
    _, proposal = policy.decide(policy.begin(), seen(flow, Plan.sequential(flow)))
    assert proposal is None


ATTEMPTS = 2
"""How often it may look for a better plan in five minutes in which nothing changes."""

OPERATORS = st.builds(
    OperatorProfile,
    name=st.just(""),
    cost=st.floats(1.0, 100.0),
    selectivity=st.sampled_from([0.3, 0.7, 1.0, 2.0]),
    state=st.sampled_from([StateKind.STATELESS, StateKind.PARTITIONED, StateKind.STATEFUL]),
)


@st.composite
def chains(draw: st.DrawFn) -> Profile:
    drawn = draw(st.lists(OPERATORS, min_size=1, max_size=5))
    named = [
        OperatorProfile(
            f"o{n}",
            o.cost,
            o.selectivity,
            o.state,
            ("k",) if o.state is StateKind.PARTITIONED else (),
        )
        for n, o in enumerate(drawn)
    ]
    return chain(named, unit="us")


@st.composite
def systems(draw: st.DrawFn) -> Modelled:
    profile = draw(chains())
    loads = draw(st.lists(st.floats(0.05, 3.0), min_size=1, max_size=4))
    alone = 1e6 / profile.work
    greedy = draw(st.booleans())

    def offered(second: int) -> float | None:
        return None if greedy else alone * loads[min(second // 50, len(loads) - 1)]

    contention = draw(st.sampled_from([0.0, 0.05, 0.5]))
    return Modelled(profile, draw(st.integers(1, 12)), offered, contention)


@settings(max_examples=some(12))
@given(systems())
def test_it_stays_within_bounds_and_comes_to_rest(system: Modelled) -> None:
    limits = Limits.for_cores(system.cores, Topology.of(system.flow))
    run = tuned(system, 300)
    for plan in run.plans:
        plan.validate(system.flow)
        assert threads(plan) <= limits.threads
        assert all(region.replicas <= limits.replicas for region in plan.regions)
    assert "refused" not in [d.outcome for d in run.journal if "load has not changed" not in d.why]
    assert "failed" not in [d.outcome for d in run.journal]
    # The load is constant from second 150 on at the latest; what changes after that is little.
    constant = system.offered(10_000)
    system.offered, system.backlog = lambda second: constant, 0.0
    settled = tuned(system, 150, run.plan)
    halves = ceil(log2(limits.replicas)) + 1  # a step that is too long is halved, and taken back
    assert len(tuned(system, 300, settled.plan).plans) <= ATTEMPTS * halves + 1


@settings(max_examples=some(20))
@given(systems())
def test_decisions_depend_on_what_is_seen_alone(system: Modelled) -> None:
    first = tuned(system, 150)
    system.backlog = 0.0
    second = tuned(system, 150)
    assert first.plans == second.plans
    assert [str(d) for d in first.journal] == [str(d) for d in second.journal]


@settings(max_examples=some(20))
@given(systems())
def test_a_revert_restores_the_plan_exactly(system: Modelled) -> None:
    run = tuned(system, 300)
    plans = [Plan.sequential(system.flow), *run.plans]
    before, place = plans[0], 0
    for decision, following in pairwise([*run.journal, None]):
        if decision is None:
            break
        instead = following is not None and following.why.startswith("half of that")
        if decision.outcome == "tried":
            before = before if decision.why.startswith("half of that") else plans[place]
            place += 1
        elif decision.outcome == "reverted" and not instead and place + 1 < len(plans):
            place += 1
            assert plans[place] == before


def test_half_of_a_step_has_the_ranges_of_the_whole_one() -> None:
    whole = Plan.sequential(Modelled(PARSE_COUNT_TOP).flow)
    sink = whole.regions[-1].region
    wide = whole.with_replicas(sink, 5).with_range_rows(sink, 64)
    half = halfway(whole, wide)
    assert half == whole.with_replicas(sink, 3).with_range_rows(sink, 64)


@pytest.mark.parametrize("cores", [1, 2])
def test_small_machines_are_not_crowded(cores: int) -> None:
    system = Modelled(PARSE_COUNT_TOP, cores=cores)
    run = tuned(system, 60)
    limits = Limits.for_cores(cores, Topology.of(system.flow))
    assert threads(run.plan) <= limits.threads
    assert isinstance(run.tuned_by(Auto()), Controller)
