"""The exact planners against the referee that enumerates, and what must hold for any plan."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from anabranch.errors import PlanError
from anabranch.graph import StateKind
from anabranch.planning.machine import Machine
from anabranch.planning.models.fission import check, estimate
from anabranch.planning.planners.exact import exact, fission_only, pipelining_only
from anabranch.planning.planners.exhaustive import exhaustive
from anabranch.planning.planners.fission import fission
from anabranch.planning.planners.planner import Planner, Problem
from anabranch.planning.planners.registry import PLANNERS as BY_NAME
from anabranch.planning.planners.sequential import sequential
from anabranch.planning.profile import OperatorProfile, Overheads, Profile, chain
from papers.pipelined_fission.random_profiles import TABLE_1, random_chain, random_graph
from tests.sampling import few

PLANNERS = (exact, pipelining_only, fission_only)


def drawn(seed: int, graph: bool = False) -> Problem:
    """A problem of the size that can be enumerated, with settings from Table 1's ranges."""
    rng = np.random.default_rng(seed)
    settings = replace(
        TABLE_1,
        operators=int(rng.integers(1, 7)),
        thread_switch=float(rng.choice([0.0, 1.0, 30.0, 210.0])),
        replication=float(rng.choice([0.0, 10.0, 50.0, 190.0])),
        keys=int(rng.integers(1, 3)),
        most_replicas=3 if seed % 3 == 0 else None,
    )
    profile = random_graph(rng, settings) if graph else random_chain(rng, settings)
    return Problem(profile, Machine.of_cores(int(rng.integers(1, 7))))


@pytest.mark.parametrize("block", few(range(10), 3))
def test_exact_is_what_enumeration_finds_on_chains(block: int):
    for seed in range(block * 60, block * 60 + 60):
        problem = drawn(seed)
        best = exhaustive(problem).throughput
        assert exact(problem).throughput == pytest.approx(best, rel=1e-9), seed


def test_exact_is_what_enumeration_finds_where_operators_wait():
    for seed in range(100):
        rng, problem = np.random.default_rng(seed), drawn(seed)
        waits = rng.choice([0.0, 50.0, 400.0], len(problem.profile.operators))
        pairs = zip(problem.profile.operators, waits, strict=True)
        operators = tuple(replace(operator, wait=float(wait)) for operator, wait in pairs)
        waiting = replace(problem, profile=replace(problem.profile, operators=operators))
        best = exhaustive(waiting).throughput
        assert exact(waiting).throughput == pytest.approx(best, rel=1e-9), seed


def test_exact_is_what_enumeration_finds_where_replicas_make_operators_dearer():
    for seed in range(100):
        rng, problem = np.random.default_rng(seed), drawn(seed)
        further = rng.choice([0.0, 0.25, 1.5], len(problem.profile.operators))
        pairs = zip(problem.profile.operators, further, strict=True)
        operators = tuple(replace(operator, replicas_cost=float(n)) for operator, n in pairs)
        dearer = replace(problem, profile=replace(problem.profile, operators=operators))
        best = exhaustive(dearer).throughput
        assert exact(dearer).throughput == pytest.approx(best, rel=1e-9), seed


def test_more_replicas_are_found_where_two_are_no_gain():
    dear = chain([OperatorProfile("a", 1.0, replicas_cost=1.5)])
    found = exact(Problem(dear, Machine.of_cores(8)))
    assert found.regions[0].replicas == 8
    assert found.throughput == pytest.approx(8 / 2.5)


def test_a_wait_takes_threads_and_no_cores():
    asks = chain([OperatorProfile("ask", 1.0, wait=9.0)])
    found = exact(Problem(asks, Machine.of_cores(2), threads=8))
    assert (found.regions[0].replicas, found.throughput) == (8, pytest.approx(0.8))
    assert found.utilization == pytest.approx(0.8)


def test_exact_is_what_enumeration_finds_on_graphs():
    for seed in range(150):
        problem = drawn(seed, graph=True)
        best = exhaustive(problem).throughput
        assert exact(problem).throughput == pytest.approx(best, rel=1e-9), seed


def test_exact_is_what_enumeration_finds_where_regions_are_given():
    for seed in range(100):
        problem = drawn(seed)
        names = [operator.name for operator in problem.profile.operators]
        middle = len(names) // 2
        given = tuple(tuple(part) for part in (names[:middle], names[middle:]) if part)
        fixed = replace(problem, regions=given)
        best = exhaustive(fixed)
        found = exact(fixed)
        assert tuple(region.operators for region in found.regions) == given
        assert found.throughput == pytest.approx(best.throughput, rel=1e-9), seed


@pytest.mark.parametrize("planner", PLANNERS)
def test_answers_are_plans_within_all_bounds_and_promise_what_the_model_says(planner: Planner):
    for seed in range(100):
        problem = drawn(seed, graph=seed % 2 == 0)
        answer = planner(problem)
        check(problem.profile, answer.regions)
        assert answer.threads <= problem.most_threads
        promised = estimate(problem.profile, answer.regions, problem.machine.capacity)
        assert (answer.throughput, answer.utilization) == (
            promised.throughput,
            promised.utilization,
        )
        assert answer.throughput <= exact(problem).throughput * (1 + 1e-12)


def test_pipelining_only_has_no_replicas_and_fission_only_one_thread_per_replica():
    for seed in range(60):
        problem = drawn(seed)
        assert all(region.replicas == 1 for region in pipelining_only(problem).regions)
        replicas = fission_only(problem).regions
        assert all(len(region.pipelines) == 1 for region in replicas)
        singles = [region.replicas == 1 for region in replicas]
        assert not any(a and b for a, b in pairwise(singles))


def stateful(*costs: float, switch: float = 0.0) -> Profile:
    operators = [
        OperatorProfile(f"o{number}", cost, state=StateKind.STATEFUL)
        for number, cost in enumerate(costs, 1)
    ]
    return chain(operators, Overheads(switch, 0.0))


def test_stateful_operators_are_split_where_that_shortens_the_longest_pipeline():
    answer = exact(Problem(stateful(2.0, 2.0, 3.0, 1.0), Machine.of_cores(4), threads=2))
    assert answer.throughput == 1 / 4
    assert [region.pipelines for region in answer.regions] == [(("o1", "o2"), ("o3", "o4"))]


def test_a_costly_thread_switch_keeps_everything_in_one_thread():
    answer = exact(Problem(stateful(1.0, 1.0, switch=5.0), Machine.of_cores(4)))
    assert (answer.threads, answer.throughput) == (1, 0.5)


def test_no_more_threads_than_the_throughput_needs():
    profile = chain(
        [OperatorProfile("slow", 10.0, state=StateKind.STATEFUL), OperatorProfile("fast", 1.0)]
    )
    assert exact(Problem(profile, Machine.of_cores(8))).threads == 2


def test_a_bound_on_replicas_is_kept():
    bounded = chain(
        [OperatorProfile("o", 4.0, state=StateKind.PARTITIONED, key=("k",), max_replicas=3)]
    )
    answer = exact(Problem(bounded, Machine.of_cores(8)))
    assert (answer.regions[0].replicas, answer.throughput) == (3, 0.75)


def test_fewer_cores_than_work_scale_the_promise_down():
    profile = chain([OperatorProfile("o", 4.0)])
    machine = replace(Machine.of_cores(2), parallel_share=0.9)
    answer = exact(Problem(profile, machine))
    assert answer.throughput == pytest.approx(1.8 / 4)
    assert answer.utilization == pytest.approx(1.8)


def test_too_few_threads_for_the_regions_are_refused():
    profile = stateful(1.0, 1.0)
    with pytest.raises(PlanError, match="at least 2: every region needs one"):
        Problem(profile, Machine.of_cores(1), threads=1, regions=(("o1",), ("o2",)))


def test_one_core_gains_nothing_over_the_sequential_plan():
    for seed in range(40):
        problem = replace(drawn(seed), machine=Machine.of_cores(1))
        assert exact(problem).throughput == pytest.approx(sequential(problem).throughput)


def test_cores_are_not_oversubscribed_where_that_gains_nothing():
    for cores in (2, 4, 8):
        answer = exact(Problem(chain([OperatorProfile("o", 4.0)]), Machine.of_cores(cores)))
        assert (answer.threads, answer.throughput) == (cores, cores / 4)


def test_keys_bound_what_replicas_gain():
    skewed = OperatorProfile(
        "count", 10.0, state=StateKind.PARTITIONED, key=("k",), keys=100, hottest_key_share=0.4
    )
    for planner in (exact, exhaustive, fission):
        answer = planner(Problem(chain([skewed]), Machine.of_cores(8)))
        assert answer.regions[0].replicas == 3
        assert answer.throughput == pytest.approx(2.5 / 10)
    few = replace(skewed, keys=2, hottest_key_share=None)
    assert exact(Problem(chain([few]), Machine.of_cores(8))).regions[0].replicas == 2


def test_a_slower_clock_makes_everything_slower():
    profile = replace(chain([OperatorProfile("o", 4.0)]), ghz=2.0)
    machine = replace(Machine.of_cores(1), ghz=1.0)
    assert exact(Problem(profile, machine)).throughput == pytest.approx(1 / 8)


@pytest.mark.parametrize("name", ["exact", "fission-only", "pipelining-only"])
def test_more_threads_than_tables_can_hold_are_refused_by_the_planner_that_was_asked(name):
    problem = Problem(chain([OperatorProfile("o", 4.0)]), Machine.of_cores(20_000))
    with pytest.raises(PlanError, match=f"^planner '{name}': .*; .*use the planner 'fission'"):
        BY_NAME[name](problem)
