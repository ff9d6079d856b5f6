from dataclasses import replace
from itertools import combinations, pairwise, product

import numpy as np
import pytest

from anabranch.errors import PlanError
from anabranch.graph import StateKind
from anabranch.planning.answer import RegionChoice, replicable
from anabranch.planning.machine import Machine
from anabranch.planning.models.fission import check, estimate
from anabranch.planning.planners.exhaustive import MOST_PLANS, count_plans, exhaustive
from anabranch.planning.planners.planner import Problem
from anabranch.planning.profile import OperatorProfile, Overheads, Profile, chain
from papers.pipelined_fission.random_profiles import (
    TABLE_1,
    ChainSettings,
    random_chain,
    random_graph,
)


def every_plan(problem):
    """All plans of a chain, written down in the plainest way: cuts first, replicas then."""
    (run,) = problem.runs
    places = range(1, len(run))
    for borders in (set(c) for n in range(len(run)) for c in combinations(places, n)):
        for seams in (set(c) for n in range(len(run)) for c in combinations(places, n)):
            if borders & seams:
                continue
            regions = [
                split(part, [cut - start for cut in seams])
                for start, part in zip(
                    [0, *sorted(borders)], split(run, sorted(borders)), strict=True
                )
            ]
            for replicas in product(range(1, problem.most_threads + 1), repeat=len(regions)):
                plan = [RegionChoice(p, n) for p, n in zip(regions, replicas, strict=True)]
                if sum(region.threads for region in plan) <= problem.most_threads and all(
                    region.replicas == 1
                    or replicable([problem.profile.by_name[name] for name in region.operators])
                    for region in plan
                ):
                    yield plan


def split(run, cuts):
    edges = [0, *sorted(cut for cut in cuts if 0 < cut < len(run)), len(run)]
    return tuple(run[start:end] for start, end in pairwise(edges))


@pytest.mark.parametrize("seed", range(8))
def test_it_counts_every_plan_and_finds_the_best_of_them(seed):
    rng = np.random.default_rng(seed)
    profile = random_chain(rng, replace(TABLE_1, operators=4, stateless=0.6, keys=2))
    problem = Problem(profile, Machine.of_cores(3), threads=5)
    plans = list(every_plan(problem))
    best = max(estimate(profile, plan, 3).throughput for plan in plans)
    found = exhaustive(problem)
    assert count_plans(problem) == len(plans)
    assert found.throughput == best
    assert found.bound == best
    check(profile, found.regions)
    assert found.threads <= 5


@pytest.mark.parametrize("seed", range(8))
def test_no_plan_drawn_at_random_is_better_in_a_graph(seed):
    rng = np.random.default_rng(seed)
    profile = random_graph(rng, replace(TABLE_1, operators=4, thread_switch=20.0))
    problem = Problem(profile, Machine.of_cores(4))
    found = exhaustive(problem)
    check(profile, found.regions)
    assert found.threads <= problem.most_threads
    for _ in range(300):
        assert estimate(profile, random_regions(rng, problem), 4).throughput <= found.throughput


def random_regions(rng, problem):
    regions = []
    for run in problem.runs:
        for part in split(run, [i for i in range(1, len(run)) if rng.random() < 0.5]):
            pipelines = split(part, [i for i in range(1, len(part)) if rng.random() < 0.5])
            members = [problem.profile.by_name[name] for name in part]
            replicas = int(rng.integers(1, 5)) if replicable(members) else 1
            regions.append(RegionChoice(pipelines, replicas))
    if sum(region.threads for region in regions) <= problem.most_threads:
        return regions
    return [RegionChoice((run,), 1) for run in problem.runs]


def test_of_equal_plans_the_one_with_the_fewest_threads_is_taken():
    read = OperatorProfile("read", 4.0, state=StateKind.STATEFUL)
    profile = chain([read, OperatorProfile("parse", 3.0)])
    found = exhaustive(Problem(profile, Machine.of_cores(4)))
    assert found.throughput == pytest.approx(1 / 4)
    assert found.threads == 2
    assert len(found.regions) == 1


def test_fixed_regions_are_only_cut_into_pipelines_and_replicated():
    profile = chain([OperatorProfile(name, 1.0) for name in "abc"])
    fixed = (("a", "b"), ("c",))
    found = exhaustive(Problem(profile, Machine.of_cores(6), regions=fixed))
    assert tuple(region.operators for region in found.regions) == fixed
    assert found.throughput == pytest.approx(2.0)


def test_more_replicas_than_help_are_not_used():
    profile = chain([OperatorProfile("a", 8.0, max_replicas=2)])
    found = exhaustive(Problem(profile, Machine.of_cores(8)))
    assert found.regions[0].replicas == 2
    assert found.throughput == pytest.approx(1 / 4)


def test_what_would_take_too_long_is_refused_with_the_count():
    rng = np.random.default_rng(1)
    profile = random_chain(rng, ChainSettings(operators=10, stateless=1.0, partitioned=0.0))
    problem = Problem(profile, Machine.of_cores(10))
    assert count_plans(problem) > MOST_PLANS
    with pytest.raises(PlanError, match="'exact'") as refusal:
        exhaustive(problem)
    assert refusal.value.got == f"{count_plans(problem):,}"


def test_operators_without_tuples_or_cost_do_no_harm():
    operators = (OperatorProfile("a", 1.0, 0.0), OperatorProfile("b", 2.0))
    profile = Profile(operators, chain(list(operators)).streams, Overheads(0.5))
    found = exhaustive(Problem(profile, Machine.of_cores(2), threads=1))
    assert found.throughput == pytest.approx(1.0)
