"""Stepwise profiling as a whole: its steps on a scripted cluster, and when they begin again."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from anabranch.adapt.history import Limits
from anabranch.adapt.policies.stepwise import Stepwise
from anabranch.adapt.policies.stepwise_moves import Phase, Profiling, latency_ms
from anabranch.adapt.policy import Outcome, Proposal, Trial
from anabranch.adapt.registry import policy
from anabranch.events import Observation
from anabranch.planning.plan import Plan
from tests.adapt.flows_of_regions import graph_of_regions
from tests.adapt.scripted import ROOMY, ScriptedRun, observation, seen
from tests.adapt.word_count_cluster import FLOW, SOURCE, START, Cluster, replicas

LIMITS = Limits(cores=12, replicas=24, threads=40)
Script = Callable[[Plan, int], Observation]


def profiled(script: Script, seconds: int = 240, limits: Limits = LIMITS) -> ScriptedRun:
    run = ScriptedRun(FLOW, START, script)
    run.go(run.tuned_by(Stepwise(), limits), seconds)
    return run


def said(run: ScriptedRun, *parts: str) -> bool:
    return any(all(part in decision.why for part in parts) for decision in run.journal)


# The word count of figures 3, 5 and 6


def test_word_count_goes_from_two_two_three_to_what_the_machine_can_do() -> None:
    run = profiled(Cluster().second)
    assert [replicas(plan) for plan in run.plans[:5]] == [
        (1, 1, 1, 1),  # features at a low load
        (1, 2, 2, 3),  # the ratios; readers bring less than that can handle
        (2, 2, 2, 3),  # a reader more: now operators are late
        (2, 4, 4, 6),  # operators by their ratios
        (3, 4, 4, 6),  # in time and more: another reader
    ]
    assert run.plans[0].source(SOURCE).in_flight_limit is not None
    assert run.plans[1].source(SOURCE).in_flight_limit is None
    assert said(run, "ratios parse:split:count = 2:2:3")
    final = Cluster().second(run.plan, 0)
    assert final.rows_in > 0.95 * 11_700  # what 4, 4, 6 replicas can do on twelve cores
    assert final.latency_p50_ms <= 500


def test_every_round_is_in_the_journal_in_words() -> None:
    run = profiled(Cluster().second)
    first = run.journal[0]
    assert (first.policy, first.outcome) == ("stepwise", "applied")
    assert first.why.startswith("features at a low load: everything once, ")
    assert said(run, "throughput increased to 4,000/s, 50 ms: 1 → 2 replicas of source parse.input")
    assert said(run, "platform capability reached")
    assert run.journal[-1].outcome == "noted"
    assert run.journal[-1].why.startswith("profiled: ")


def test_a_configuration_that_falls_far_below_the_best_is_left_for_the_best() -> None:
    """Beyond eight threads each costs 8 %: growth by the ratios loses far more than a tenth."""
    run = profiled(Cluster(penalty=0.08, cores=8.0).second)
    tried = [replicas(plan)[1:] for plan in run.plans]
    assert tried[tried.index((4, 4, 6)) + 1] == (2, 2, 3)
    assert (4, 4, 6) not in tried[tried.index((4, 4, 6)) + 1 :]


def test_both_sides_strengthened_in_vain_end_the_second_step_at_the_leanest_best() -> None:
    """Nothing helps beyond 4,000 a second, and nothing harms: algorithm 2 alone would go on."""
    run = profiled(Cluster(cores=4.0, penalty=0.0, waiting_ms=80.0).second)
    assert [replicas(plan) for plan in run.plans[1:]] == [
        (1, 2, 2, 3),
        (2, 2, 2, 3),
        (2, 4, 4, 6),
        (1, 2, 2, 3),
    ]
    assert said(run, "platform capability reached", "the best was in time")


def test_latency_beyond_the_bound_is_throttled_away() -> None:
    """Readers bring twice what operators can do: only fewer tweets under way are in time."""
    run = profiled(Cluster(per_reader=30_000.0).second)
    limit = run.plan.source(SOURCE).in_flight_limit
    assert limit is not None
    assert Cluster(per_reader=30_000.0).second(run.plan, 0).latency_p50_ms <= 500
    assert said(run, "tuples in flight")


def test_where_no_throttle_helps_throughput_counts() -> None:
    run = profiled(Cluster(per_reader=30_000.0, waiting_ms=3000.0).second)
    assert run.plan.source(SOURCE).in_flight_limit is None
    assert said(run, "500 ms cannot be kept without losing throughput")


# The third step


def third_step(**changes: object) -> tuple[Stepwise, Profiling]:
    memory = replace(Profiling(phase=Phase.OPERATORS, wish=START, cores=12), **changes)  # type: ignore[arg-type]
    return Stepwise(), memory


def waiting(
    plan: Plan, busy: dict[str, float], jumbos: float = 9.0, rate: float = 1000.0
) -> Observation:
    shown = observation(plan, rate=rate, busy={n: [b] for n, b in busy.items()}, latency_ms=900.0)
    regions = tuple(replace(r, queue_jumbos=jumbos) for r in shown.regions)
    return replace(shown, regions=regions)


@pytest.fixture
def features() -> object:
    profiler = Stepwise()
    view = seen(FLOW, START, observation(START, backlog=None), limits=LIMITS)
    return profiler.decide(profiler.begin(), view)[0].features


BUSY = {"parse": 0.7, "split": 0.9, "count": 0.8}


def test_the_operator_of_the_highest_capacity_is_tried_first(features: object) -> None:
    stepwise, memory = third_step(features=features)
    view = seen(FLOW, START, waiting(START, BUSY), limits=LIMITS)
    memory, found = stepwise.decide(memory, view)
    assert found is not None
    assert found.plan == START.with_replicas("split", 2)
    assert found.trial
    assert found.why.startswith("region split: capacity 0.90 is the highest not tried, 1 → 2")
    assert memory.trying == "split"


def judged(rate: float, features: object) -> tuple[Profiling, Outcome, Stepwise]:
    stepwise, memory = third_step(features=features)
    window = [waiting(START, BUSY, rate=1000.0 + wobble) for wobble in (-5, 0, 5)]
    before = seen(FLOW, START, *window, limits=LIMITS)
    memory, found = stepwise.decide(memory, before)
    assert found is not None
    after = [waiting(found.plan, BUSY, rate=rate + wobble) for wobble in (-5, 0, 5)]
    trial = Trial(before, found)
    memory, verdict = stepwise.judge(memory, seen(FLOW, found.plan, *after, limits=LIMITS), trial)
    return memory, verdict.outcome, stepwise


@pytest.mark.parametrize("rate", [1002.0, 900.0])
def test_a_replica_that_gains_nothing_is_revoked_and_the_next_region_tried(
    rate: float, features: object
) -> None:
    memory, outcome, stepwise = judged(rate, features)
    assert outcome is Outcome.REVERTED
    assert (memory.revoked, memory.revocations) == ({"split"}, 1)
    _, found = stepwise.decide(memory, seen(FLOW, START, waiting(START, BUSY), limits=LIMITS))
    assert found is not None
    assert found.plan == START.with_replicas("count", 2)


def test_a_replica_that_gains_stays_and_opens_all_regions_again(features: object) -> None:
    memory, outcome, _ = judged(1100.0, features)
    assert outcome is Outcome.KEPT
    assert (memory.revoked, memory.revocations) == (frozenset(), 0)


def test_two_revocations_in_a_row_end_it(features: object) -> None:
    stepwise, memory = third_step(features=features, revocations=2, revoked=frozenset({"split"}))
    view = seen(FLOW, START, waiting(START, BUSY), limits=LIMITS)
    memory, found = stepwise.decide(memory, view)
    assert found == Proposal(START, "profiled: 2 revocations in a row", trial=False)
    assert memory.phase is Phase.WATCHING


@pytest.mark.parametrize(("jumbos", "ends"), [(0.9, True), (1.1, False)])
def test_operators_within_twice_their_least_latency_end_it(
    jumbos: float, ends: bool, features: object
) -> None:
    """With one jumbo tuple ahead of it, each needs twice the time that it needs alone."""
    stepwise, memory = third_step(features=features)
    view = seen(FLOW, START, waiting(START, BUSY, jumbos), limits=LIMITS)
    memory, _ = stepwise.decide(memory, view)
    assert (memory.phase is Phase.WATCHING) == ends


def test_a_larger_k_ends_it_sooner(features: object) -> None:
    _, memory = third_step(features=features)
    view = seen(FLOW, START, waiting(START, BUSY, jumbos=1.5), limits=LIMITS)
    assert Stepwise(k=3.0).decide(memory, view)[0].phase is Phase.WATCHING
    assert Stepwise(k=2.0).decide(memory, view)[0].phase is Phase.OPERATORS


def test_a_wish_that_was_refused_counts_as_revoked(features: object) -> None:
    stepwise, memory = third_step(features=features, trying="split")
    view = seen(FLOW, START, waiting(START, BUSY), limits=LIMITS)
    _, found = stepwise.decide(memory, view)
    assert found is not None
    assert found.plan == START.with_replicas("count", 2)


# A load that is known, and recalibration


def test_a_load_that_is_served_is_nothing_to_profile_for() -> None:
    run = profiled(Cluster(offered=800.0).second)
    assert run.plans == []
    assert said(run, "profiled: 800 rows/s are served, nothing to profile for")


def test_a_backlog_that_grows_is_profiled_for_until_the_load_is_served() -> None:
    cluster = Cluster(offered=800.0)

    def script(plan: Plan, second: int) -> Observation:
        cluster.offered = 800.0 if second < 60 else 5000.0
        return cluster.second(plan, second)

    run = profiled(script, seconds=400)
    assert said(run, "backlog ", " rows grows by ", "recalibrating: features at a low load")
    assert said(run, "rows/s are served within 500 ms")
    assert cluster.backlog < 2500


def test_a_backlog_of_one_look_does_not_recalibrate() -> None:
    cluster = Cluster(offered=800.0)

    def script(plan: Plan, second: int) -> Observation:
        cluster.offered = 5000.0 if 60 <= second < 63 else 800.0
        return cluster.second(plan, second)

    assert profiled(script).plans == []


def test_latency_beyond_its_bound_recalibrates() -> None:
    cluster = Cluster(offered=800.0)

    def script(plan: Plan, second: int) -> Observation:
        shown = cluster.second(plan, second)
        return shown if second < 60 else replace(shown, latency_p50_ms=700.0)

    assert said(profiled(script), "latency 700 ms > 500 ms, recalibrating: ")


def test_other_cores_recalibrate() -> None:
    stepwise, memory = third_step(phase=Phase.WATCHING)
    view = seen(FLOW, START, observation(START, busy={"parse": [0.9]}), limits=ROOMY)
    memory, found = stepwise.decide(memory, view)
    assert found is not None
    assert found.why.startswith("12 → 24 cores, recalibrating: ")
    assert memory.cores == 24


def test_a_plan_of_somebody_else_recalibrates() -> None:
    stepwise, memory = third_step(phase=Phase.WATCHING)
    other = START.with_replicas("count", 5)
    view = seen(FLOW, other, observation(other, busy={"parse": [0.9]}), limits=LIMITS)
    _, found = stepwise.decide(memory, view)
    assert found is not None
    assert found.why.startswith("the plan was changed by somebody else, recalibrating: ")


def test_costs_that_grow_recalibrate_although_the_machine_was_at_its_limit() -> None:
    cluster = Cluster(offered=20_000.0)

    def script(plan: Plan, second: int) -> Observation:
        cluster.slower = 1.0 if second < 300 else 1.5
        return cluster.second(plan, second)

    run = ScriptedRun(FLOW, START, script)
    controller = run.tuned_by(Stepwise(), LIMITS)
    run.go(controller, 300)
    settled = len(run.plans)
    assert not said(run, "recalibrating")  # more comes than the machine can do: no news
    run.go(controller, 60, start=300)
    assert said(run, "backlog ", "recalibrating")
    assert len(run.plans) > settled


def test_the_registry_knows_it() -> None:
    assert policy("stepwise") == Stepwise()


def test_where_streams_fork_the_slow_way_counts() -> None:
    forked = graph_of_regions(first="quick slow")
    for flow, expected in ((FLOW, 200.0), (forked, 900.0)):
        plan = Plan.sequential(flow)
        shown = replace(observation(plan, latency_ms=200.0), latency_p99_ms=900.0)
        assert latency_ms(seen(flow, plan, shown)) == expected
