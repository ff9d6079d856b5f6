"""The best plan that Pipelined Fission's model has, found by its structure.

The paper searches all plans (2 minutes for 9 operators and 9 cores); `best_cover` makes
that unnecessary. In a graph, chains are covered one behind the other: what one region
contributes depends on no other region.

Regions with one replica side by side are one region in the paper. The model gives them at least
the throughput of the merged one, so they are merged where nothing is lost by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from anabranch.errors import PlanError, Subject
from anabranch.planning.answer import Answer, RegionChoice
from anabranch.planning.models.fission import estimate
from anabranch.planning.planners.planner import Problem
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


# The best way to cover a line of operators with regions: the search behind the exact planners.
#
# The throughput of a plan is the smaller of 1 / the longest turn of a region and cores / the work
# of all regions (`planning/models/fission.py`). So for a given longest turn, the best plan is the
# one with the least work, and work adds up over regions: it is found by dynamic programming over
# (place in the line, threads used). A longer turn allows the same regions and more, so the least
# work falls where the longest turn rises; the best plan is where the two cross, and that is found
# by bisection over the turns that regions can have. Nothing is enumerated and nothing rounded.

Floats = np.ndarray[Any, np.dtype[np.float64]]
Cut = tuple[int, int]

FREE = ((0,),)
"""Regions of any kind stand side by side."""


class Solution(NamedTuple):
    """A cover: what to minimize (the longest turn, or work by cores), and its options in order."""

    value: float
    options: tuple[Option, ...]


def best_cover(
    options: dict[Cut, list[Option]],
    cores: float,
    threads: int,
    layers: Sequence[Sequence[int]] = FREE,
    starts: frozenset[int] = frozenset(),
) -> Solution:
    """Cover the places 0 … n by cuts, each run by one of its options.

    Args:
        options: By first and behind-last place.
        cores: What all cores together do.
        threads: The most threads.
        layers: Which kinds of options may stand in front of each kind. There is one kind, or two:
            0 for one replica, 1 for several.
        starts: Places where the one in front does not matter.
    """
    search = _Search(options, cores, threads, layers, starts)
    turns = np.unique(search.turns)
    low, high = 0, len(turns) - 1  # the first turn at which the work is no longer what counts
    while low < high:
        middle = (low + high) // 2
        if search.least_work(turns[middle]) / cores <= turns[middle]:
            high = middle
        else:
            low = middle + 1
    # Of equals the longer turn: it is had with fewer threads.
    candidates = [turns[i] for i in (low, low - 1) if i >= 0]
    best = min(candidates, key=search.value)
    return search.solution(float(best))


class _Search:
    """Options as arrays, and the dynamic program over them."""

    def __init__(
        self,
        options: dict[Cut, list[Option]],
        cores: float,
        threads: int,
        layers: Sequence[Sequence[int]],
        starts: frozenset[int],
    ) -> None:
        self._cores = cores
        self._threads = threads
        self._layers = layers
        self._starts = starts | {0}
        self._places = max(end for _, end in options)
        # Sorted by cut, layer and threads, so that a minimum by these is one `reduceat`.
        split = len(layers) > 1
        rows = [
            (cut, int(split and option.replicas > 1), option.threads, option)
            for cut, found in options.items()
            for option in found
        ]
        rows.sort(key=lambda row: row[:3])
        self._options = [row[3] for row in rows]
        self.turns = np.array([row[3].turn for row in rows])
        self._works = np.array([row[3].work for row in rows])
        groups = [row[:3] for row in rows]
        firsts = [i for i, group in enumerate(groups) if i == 0 or group != groups[i - 1]]
        self._firsts = np.array(firsts)
        self._ends = [*firsts[1:], len(rows)]
        self._group_of = {groups[i]: number for number, i in enumerate(firsts)}
        self._pieces: dict[tuple[int, int, int], tuple[Any, Any]] = {}
        by_piece: dict[tuple[int, int, int], list[int]] = {}
        for (cut, layer, _), number in self._group_of.items():
            by_piece.setdefault((*cut, layer), []).append(number)
        for piece, numbers in by_piece.items():
            used = np.array([groups[firsts[number]][2] for number in numbers])
            self._pieces[piece] = (np.array(numbers), used)
        steps = np.arange(threads + 1)
        self._left = steps[:, None] - steps[None, :]  # threads left for what stands in front

    def least_work(self, longest: float) -> float:
        """The least work of a cover whose turns do not exceed the longest."""
        return float(min(table.min() for table in self._tables(longest)[self._places]))

    def value(self, longest: float) -> float:
        return max(longest, self.least_work(longest) / self._cores)

    def _allowed(self, longest: float) -> Floats:
        """The least work by cut, layer and threads."""
        works = np.where(self.turns <= longest, self._works, np.inf)
        return np.asarray(np.minimum.reduceat(works, self._firsts))

    def _tables(self, longest: float) -> list[list[Floats]]:
        """By place and layer: the least work up to there, by threads used."""
        least = self._allowed(longest)
        layers = range(len(self._layers))
        nothing = np.full(self._threads + 1, np.inf)
        tables = [[nothing.copy() for _ in layers] for _ in range(self._places + 1)]
        tables[0][0][0] = 0.0
        for (start, end, layer), (numbers, used) in sorted(self._pieces.items(), key=_by_end):
            work = nothing.copy()
            work[used] = least[numbers]
            if np.isinf(work).all():
                continue
            before = self._before(tables, start, layer)
            padded = np.append(before, np.inf)  # a negative number of threads left
            joined = padded[np.maximum(self._left, -1)] + work[None, :]
            np.minimum(tables[end][layer], joined.min(axis=1), out=tables[end][layer])
        return tables

    def _before(self, tables: list[list[Floats]], place: int, layer: int) -> Floats:
        every = place in self._starts
        layers = range(len(self._layers)) if every else self._layers[layer]
        return np.asarray(np.minimum.reduce([tables[place][each] for each in layers]))

    def solution(self, longest: float) -> Solution:
        """A cover of the least work, with as few threads as that takes."""
        tables = self._tables(longest)
        goal = self.value(longest)
        last = tables[self._places]
        _, place, layer, left = min(
            (threads, self._places, layer, threads)
            for layer in range(len(last))
            for threads in range(self._threads + 1)
            if max(longest, last[layer][threads] / self._cores) <= goal
        )
        chosen: list[Option] = []
        while place > 0:
            option, place, layer, left = self._step_back(tables, longest, place, layer, left)
            chosen.append(option)
        return Solution(goal, tuple(reversed(chosen)))

    def _step_back(
        self, tables: list[list[Floats]], longest: float, place: int, layer: int, left: int
    ) -> tuple[Option, int, int, int]:
        """The option that ends at a place, and where it came from."""
        wanted = tables[place][layer][left]
        for (start, end, kind), (numbers, _) in self._pieces.items():
            if end != place or kind != layer:
                continue
            fronts = range(len(self._layers)) if start in self._starts else self._layers[layer]
            for number in numbers:
                first, behind = self._firsts[number], self._ends[number]
                fitting = [i for i in range(first, behind) if self.turns[i] <= longest]
                if not fitting:
                    continue
                option = self._options[min(fitting, key=lambda i: self._works[i])]
                for front in fronts:
                    rest = left - option.threads
                    if rest >= 0 and tables[start][front][rest] + option.work == wanted:
                        return option, start, front, rest
        raise AssertionError("a table entry stems from an option")


def _by_end(item: tuple[tuple[int, int, int], Any]) -> tuple[int, int, int]:
    (start, end, layer), _ = item
    return end, start, layer


# The best plan without pipelines: what replicas alone can do.
#
# Each replica is one thread, and operators side by side with one replica share theirs; else the two
# would be a pipeline (Pipelined Fission, §5).


def fission_only(problem: Problem) -> Answer:
    """The best plan in which every replica is one thread."""
    return solve(problem, Freedom(pipelines=False), "fission-only")


# The best plan without replicas: what pipelines alone can do.


def pipelining_only(problem: Problem) -> Answer:
    """The best plan in which every region has one replica."""
    return solve(problem, Freedom(replicas=False), "pipelining-only")
