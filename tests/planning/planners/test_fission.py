from dataclasses import replace

import numpy as np
import pytest

from anabranch.graph import StateKind
from anabranch.planning.machine import Machine
from anabranch.planning.models.fission import check, estimate
from anabranch.planning.planners.exhaustive import exhaustive
from anabranch.planning.planners.fission import fission
from anabranch.planning.planners.planner import Problem
from anabranch.planning.planners.sequential import sequential
from anabranch.planning.profile import OperatorProfile, Overheads, chain
from papers.pipelined_fission.random_profiles import TABLE_1, random_chain, random_graph

STATEFUL, PARTITIONED = StateKind.STATEFUL, StateKind.PARTITIONED


def regions(answer):
    return [("".join(region.operators), region.replicas) for region in answer.regions]


def problem(operators, cores, overheads=None, **others):
    return Problem(chain(operators, overheads), Machine.of_cores(cores), **others)


def owes_what_a_planner_owes(problem, answer):
    check(problem.profile, answer.regions)
    assert answer.threads <= problem.most_threads
    promised = estimate(problem.profile, answer.regions, problem.machine.capacity)
    assert answer.throughput == promised.throughput
    assert answer.utilization == promised.utilization


def test_it_is_within_five_percent_of_the_best_on_average_and_never_above_it():
    rng = np.random.default_rng(2016)
    reached = []
    for _ in range(250):
        settings = replace(TABLE_1, operators=int(rng.integers(2, 7)))
        asked = Problem(random_chain(rng, settings), Machine.of_cores(4))
        found, best = fission(asked), exhaustive(asked)
        owes_what_a_planner_owes(asked, found)
        assert found.throughput <= best.throughput
        reached.append(found.throughput / best.throughput)
    assert np.mean(reached) > 0.98


@pytest.mark.parametrize("seed", range(40))
def test_graphs_keys_and_bounds_get_plans_between_sequential_and_best(seed):
    rng = np.random.default_rng(seed)
    settings = replace(TABLE_1, operators=5, keys=2, most_replicas=3, thread_switch=30.0)
    asked = Problem(random_graph(rng, settings), Machine.of_cores(int(rng.integers(1, 6))))
    found = fission(asked)
    owes_what_a_planner_owes(asked, found)
    assert found.throughput <= exhaustive(asked).throughput
    assert found.throughput >= sequential(asked).throughput * (1 - 1e-12)


def test_pipelines_and_replicas_are_mixed():
    operators = [
        OperatorProfile("a", 2.0, state=STATEFUL),
        OperatorProfile("b", 2.0, state=STATEFUL),
        OperatorProfile("c", 6.0),
    ]
    found = fission(problem(operators, 5))
    assert found.throughput == pytest.approx(0.5)
    assert regions(found) == [("ab", 1), ("c", 3)]
    assert found.regions[0].pipelines == (("a",), ("b",))


def test_a_bottleneck_that_cannot_be_cut_does_not_end_the_cuts_elsewhere():
    # c has to be replicated before the cut between a and b shows.
    operators = [
        OperatorProfile("a", 4.0, state=STATEFUL),
        OperatorProfile("b", 4.0, state=STATEFUL),
        OperatorProfile("c", 16.0),
    ]
    assert fission(problem(operators, 8)).throughput == pytest.approx(1 / 4)


def test_keys_with_a_common_part_share_a_region():
    keys = [("x", "y"), ("y", "z"), ("y",)]
    operators = [
        OperatorProfile(name, 9.0, state=PARTITIONED, key=key)
        for name, key in zip("abc", keys, strict=True)
    ]
    assert regions(fission(problem(operators, 4, Overheads(2.0, 0.0)))) == [("abc", 4)]
    apart = [*operators[:2], replace(operators[2], key=("x",))]
    assert [names for names, _ in regions(fission(problem(apart, 4)))] == ["ab", "c"]


def test_a_region_not_costlier_than_alpha_keeps_one_replica():
    operators = [OperatorProfile("a", 1.0, state=STATEFUL), OperatorProfile("b", 10.0)]
    asked = problem(operators, 8)
    assert regions(fission(asked, alpha=9.0)) == [("a", 1), ("b", 8)]
    assert regions(fission(asked, alpha=10.0)) == [("a", 1), ("b", 1)]


def test_replicas_end_where_ordering_costs_more_than_they_gain():
    asked = problem([OperatorProfile("a", 100.0)], 12, Overheads(0.0, 30.0))
    # 30·log2 n + 100/n: 100, 80, 80.9
    assert regions(fission(asked)) == [("a", 2)]


def test_replicas_pay_for_what_they_cost_more():
    asked = problem([OperatorProfile("a", 100.0, replicas_cost=0.5)], 2)
    found = fission(asked)
    assert regions(found) == [("a", 2)]
    assert found.throughput == pytest.approx(2 / 150)
    owes_what_a_planner_owes(asked, found)


def test_growth_ends_at_the_bound_of_threads():
    operators = [
        OperatorProfile(name, 4.0, state=STATEFUL if name in "bd" else StateKind.STATELESS)
        for name in "abcde"
    ]
    for threads in range(1, 9):
        assert fission(problem(operators, 8, threads=threads)).threads <= threads


def test_free_replicas_of_one_operator_end_when_all_cores_are_used():
    found = fission(problem([OperatorProfile("a", 1.0)], 4, threads=50))
    assert found.throughput == pytest.approx(4.0)
    assert found.threads == 4


def test_fixed_regions_are_cut_and_replicated_as_they_are():
    operators = [OperatorProfile(name, 1.0) for name in "abc"]
    fixed = (("a", "b"), ("c",))
    asked = problem(operators, 6, regions=fixed)
    found = fission(asked)
    assert tuple(region.operators for region in found.regions) == fixed
    assert found.throughput == pytest.approx(2.0)


def test_one_core_gets_one_thread():
    rng = np.random.default_rng(4)
    for _ in range(20):
        assert fission(Problem(random_chain(rng), Machine.of_cores(1))).threads == 1
