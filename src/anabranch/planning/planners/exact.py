"""The best plan that Pipelined Fission's model has, found by its structure.

The paper searches all plans (2 minutes for 9 operators and 9 cores); see `best_cover.py` for what
makes that unnecessary. In a graph, chains are covered one behind the other: what one region
contributes depends on no other region.

Regions with one replica side by side are one region in the paper. The model gives them at least
the throughput of the merged one, so they are merged where nothing is lost by it.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from anabranch.errors import PlanError, Subject
from anabranch.planning.answer import Answer, RegionChoice
from anabranch.planning.models.fission import estimate
from anabranch.planning.planners.planner import Problem
from anabranch.planning.planners.search.best_cover import FREE, Cut, best_cover
from anabranch.planning.planners.search.region_options import Freedom, Option, cuttings, options

MOST_THREADS = 1024
"""Time and memory grow with the square of the threads; these take some seconds."""

ALTERNATING = ((1,), (0, 1))
"""In front of one replica stand several: two single ones would be a pipeline."""


def exact(problem: Problem) -> Answer:
    """The best plan with pipelines and replicas.

    Example:
        >>> from anabranch.planning.machine import Machine
        >>> from anabranch.planning.profile import OperatorProfile, chain
        >>> profile = chain([OperatorProfile("parse", 3.0), OperatorProfile("count", 1.0)])
        >>> exact(Problem(profile, Machine.of_cores(4))).throughput
        1.0
    """
    best = solve(problem, Freedom(), "exact")
    return replace(best, bound=best.throughput)


def solve(problem: Problem, freedom: Freedom, planner: str) -> Answer:
    """Return the best plan within a freedom; `planner` is the name that errors show."""
    if problem.most_threads > MOST_THREADS:
        raise PlanError(
            Subject("planner", planner),
            f"at most {MOST_THREADS} threads",
            str(problem.most_threads),
            "allow fewer, or use the planner 'fission'",
        )
    profile = problem.profile
    found: dict[Cut, list[Option]] = {}
    starts: set[int] = set()
    place = 0
    spare = problem.most_threads - problem.least_threads + 1
    for run in problem.runs:
        starts.add(place)
        for start in sorted({start for start, _ in problem.cuts(run)}):
            ways = cuttings(profile, run[start:], freedom.pipelines)
            for end in (end for first, end in problem.cuts(run) if first == start):
                found[place + start, place + end] = options(
                    profile, run[start:end], ways[end - start], spare, freedom.replicas
                )
        place += len(run)
    alternate = not freedom.pipelines and problem.regions is None
    solution = best_cover(
        found,
        problem.machine.capacity,
        problem.most_threads,
        ALTERNATING if alternate else FREE,
        frozenset(starts),
    )
    chosen = _merged(problem, [option.choice for option in solution.options])
    promised = estimate(profile, chosen, problem.machine.capacity)
    return Answer(chosen, promised.throughput, promised.utilization)


def _merged(problem: Problem, regions: list[RegionChoice]) -> tuple[RegionChoice, ...]:
    """Neighbours with one replica as one region, where the model loses nothing by it."""
    if problem.regions is not None:
        return tuple(regions)
    merged: list[RegionChoice] = []
    for region in regions:
        last = merged[-1] if merged else None
        if last and last.replicas == region.replicas == 1 and _adjacent(problem, last, region):
            merged[-1] = RegionChoice(last.pipelines + region.pipelines)
        else:
            merged.append(region)
    cores = problem.machine.capacity
    before = estimate(problem.profile, regions, cores).throughput
    after = estimate(problem.profile, merged, cores).throughput
    return tuple(merged if after >= before else regions)


def _adjacent(problem: Problem, first: RegionChoice, second: RegionChoice) -> bool:
    pair = (first.operators[-1], second.operators[0])
    return any(pair in pairwise(run) for run in problem.profile.chains)
