"""Pipelined Fission's heuristic (Gedik, Özsema, Öztürk), §4, algorithms 1 to 4.

Form regions of what can be replicated together; cut the bottleneck into pipelines until a share of
the cores is in use; give replicas to the bottleneck until all are; try eleven shares from 0 to 1.

Readings: the second half of algorithm 2 gathers the operators that the first left over, those at
the end included. Cuts do not depend on the share, only where they end does, so they are found once.

Deviations:
- Keys are compatible if they have columns in common, not only if one contains the other.
- The fusion threshold α, which the paper does not tell, never changes which region an operator is
  in: a region that is not costlier keeps one replica. By default it is 0.
- There is a bound of threads, and pipelines and replicas grow within it. A replica more than help
  is not tried.
- Neighbouring regions are merged, the cheapest pair first, down to one for each chain, and the
  phases start from each step of this that the bound allows. It gains most where thread switches
  are dear or cores are few, so that many small regions do not pay.
- Every plan on the way is a candidate, since the last one may have more work than cores.
- In the last phase, too, a bottleneck that replicas do not help is cut into pipelines. As printed,
  cuts end at the first bottleneck of one operator, though its replicas make another the bottleneck.
- In a graph, chains are cut into regions one by one; the bottleneck is that of all regions. Regions
  that are fixed stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from math import log2
from typing import NamedTuple

from anabranch.planning.answer import Answer, RegionChoice, most_speedup, replicable
from anabranch.planning.models.fission import crossings, estimate, replicas_cost
from anabranch.planning.planners.planner import Problem
from anabranch.planning.profile import Profile

SHARES = tuple(tenth / 10 for tenth in range(11))
"""Utilization scalers: the share of the cores that pipelines may use before replicas begin."""

Run = tuple[str, ...]


def fission(problem: Problem, alpha: float = 0.0) -> Answer:
    """A plan close to the best, in milliseconds; α is the cost that a region has to exceed.

    Example:
        >>> from anabranch.planning.machine import Machine
        >>> from anabranch.graph import StateKind
        >>> from anabranch.planning.profile import OperatorProfile, chain
        >>> read = OperatorProfile("read", 1.0, state=StateKind.STATEFUL)
        >>> profile = chain([read, OperatorProfile("parse", 3.0)])
        >>> found = fission(Problem(profile, Machine.of_cores(4)))
        >>> [(region.operators, region.replicas) for region in found.regions], found.throughput
        ([(('read',), 1), (('parse',), 3)], 1.0)
    """
    cores = problem.machine.capacity
    best: Sequence[_Region] = ()
    throughput = 0.0
    for start in _starts(problem):
        regions = [_Region.whole(_Figures.of(problem.profile, run, alpha)) for run in start]
        for pipelined in _pipelined(regions, cores, problem.most_threads):
            for candidate in _replicated(pipelined, cores, problem.most_threads):
                promised = _bounded(candidate, cores)
                if promised > throughput:
                    best, throughput = candidate, promised
    choices = tuple(region.choice() for region in best)
    found = estimate(problem.profile, choices, cores)
    return Answer(choices, found.throughput, found.utilization)


def _starts(problem: Problem) -> Iterator[list[Run]]:
    """What the phases begin with: the fewest regions last."""
    if problem.regions is not None:
        yield list(problem.regions)
        return
    runs = [_form_regions(problem.profile, run) for run in problem.runs]
    while True:
        regions = [region for run in runs for region in run]
        if len(regions) <= problem.most_threads:
            yield regions
        if len(regions) == len(runs):
            return
        _merge_cheapest(problem.profile, runs)


def _form_regions(profile: Profile, run: Run) -> list[Run]:
    """Algorithm 2: the longest runs that can be replicated, and those of what is left over."""
    regions: list[Run] = []
    for name in run:
        longer = (*regions[-1], name) if regions else (name,)
        fits = _can_be_replicated(profile, longer) or not any(
            _can_be_replicated(profile, (member,)) for member in longer
        )
        if regions and fits:
            regions[-1] = longer
        else:
            regions.append((name,))
    return regions


def _can_be_replicated(profile: Profile, names: Run) -> bool:
    return replicable([profile.by_name[name] for name in names])


def _merge_cheapest(profile: Profile, runs: list[list[Run]]) -> None:
    """Make one of the two neighbours in a run that cost the least together."""

    def cost(pair: tuple[int, int]) -> float:
        names = runs[pair[0]][pair[1]] + runs[pair[0]][pair[1] + 1]
        return sum(profile.visits[name] * profile.by_name[name].cost for name in names)

    pairs = [(r, first) for r, regions in enumerate(runs) for first in range(len(regions) - 1)]
    number, first = min(pairs, key=cost)
    runs[number][first : first + 2] = [runs[number][first] + runs[number][first + 1]]


def _pipelined(regions: list[_Region], cores: float, most: int) -> Iterator[list[_Region]]:
    """Algorithm 3 for each share: the bottleneck is cut until the share is used, or cuts end."""
    shares = list(SHARES)
    while True:
        used = _utilization(regions)
        reached = [share for share in shares if used > share * cores]
        shares = shares[len(reached) :]
        following = _cut_bottleneck(regions) if shares and _threads(regions) < most else None
        if reached or following is None:
            yield regions
        if following is None:
            return
        regions = following


def _cut_bottleneck(regions: list[_Region]) -> list[_Region] | None:
    number = _bottleneck(regions)
    cut = regions[number].cut_slowest()
    return None if cut is None else _with(regions, number, cut)


def _replicated(regions: list[_Region], cores: float, most: int) -> Iterator[list[_Region]]:
    """Algorithm 4, and all that it comes by."""
    yield regions
    while _utilization(regions) <= cores:
        number = _bottleneck(regions)
        region = regions[number]
        better = region.with_another_replica() or region.cut_slowest()
        if better is None or _threads(regions) - region.threads + better.threads > most:
            return
        regions = _with(regions, number, better)
        yield regions


def _with(regions: list[_Region], number: int, region: _Region) -> list[_Region]:
    return [*regions[:number], region, *regions[number + 1 :]]


def _bottleneck(regions: Sequence[_Region]) -> int:
    """Number of the slowest region; of equals the last."""
    turns = [region.turn for region in regions]
    return len(turns) - 1 - turns[::-1].index(max(turns))


def _utilization(regions: Sequence[_Region]) -> float:
    """Cores in use if there were enough of them (eq. 14)."""
    return sum(region.work for region in regions) / max(region.turn for region in regions)


def _bounded(regions: Sequence[_Region], cores: float) -> float:
    """Throughput on the cores that there are (eq. 13)."""
    turn = max(region.turn for region in regions)
    return min(1 / turn, cores / sum(region.work for region in regions))


def _threads(regions: Sequence[_Region]) -> int:
    return sum(region.threads for region in regions)


class _Figures(NamedTuple):
    """What does not change about a run of operators, per tuple of the application."""

    names: Run
    works: tuple[float, ...]
    """Work of all operators before each, and of all."""
    handing: tuple[float, ...]
    """What it costs to hand tuples to each operator from another thread."""
    switching: float
    ordering: float
    replicas_cost: float
    most_speedup: float

    @staticmethod
    def of(profile: Profile, names: Run, alpha: float) -> _Figures:
        visits, overheads = profile.visits, profile.switching
        members = [profile.by_name[name] for name in names]
        works = list(accumulate((visits[o.name] * o.cost for o in members), initial=0.0))
        entering = visits[names[0]]
        bound = most_speedup(members)
        return _Figures(
            names,
            tuple(works),
            tuple(overheads.thread_switch * visits[name] for name in names),
            overheads.thread_switch * entering * crossings(profile, RegionChoice((names,))),
            overheads.replication * entering,
            replicas_cost(profile, names) * entering,
            1.0 if works[-1] <= alpha * entering else bound,
        )

    def pipeline(self, start: int, end: int) -> float:
        """Time of the pipeline of the operators from one up to another (eq. 2, 4, 5)."""
        time = self.works[end] - self.works[start]
        if start > 0:
            time += self.handing[start]
        if end < len(self.names):
            time += self.handing[end]
        return time


class _Region(NamedTuple):
    """A region cut into pipelines, with what follows from that (eq. 8 to 10)."""

    figures: _Figures
    cuts: tuple[int, ...]
    replicas: int
    turn: float
    work: float
    slowest: int

    @staticmethod
    def whole(figures: _Figures) -> _Region:
        """One pipeline, one replica."""
        return _lay_out(figures, (0, len(figures.names)), 1)

    @property
    def threads(self) -> int:
        """How many run it."""
        return self.replicas * (len(self.cuts) - 1)

    def with_another_replica(self) -> _Region | None:
        """One more, unless it may not have it or slows down."""
        if self.replicas >= self.figures.most_speedup:
            return None
        grown = _lay_out(self.figures, self.cuts, self.replicas + 1)
        return None if grown.turn > self.turn else grown

    def cut_slowest(self) -> _Region | None:
        """Its slowest pipeline cut in two as well as can be; None if that does not help."""
        start, end = self.cuts[self.slowest], self.cuts[self.slowest + 1]
        pipeline = self.figures.pipeline
        halves = [
            (max(pipeline(start, cut), pipeline(cut, end)), cut) for cut in range(start + 1, end)
        ]
        if not halves or min(halves)[0] >= pipeline(start, end):
            return None
        cuts = (*self.cuts[: self.slowest + 1], min(halves)[1], *self.cuts[self.slowest + 1 :])
        return _lay_out(self.figures, cuts, self.replicas)

    def choice(self) -> RegionChoice:
        """As an answer has it."""
        names = self.figures.names
        pipelines = tuple(names[start:end] for start, end in pairwise(self.cuts))
        return RegionChoice(pipelines, self.replicas)


def _lay_out(figures: _Figures, cuts: tuple[int, ...], replicas: int) -> _Region:
    times = [figures.pipeline(start, end) for start, end in pairwise(cuts)]
    slowest = len(times) - 1 - times[::-1].index(max(times))
    extra = figures.switching + figures.ordering * log2(replicas)
    further = figures.replicas_cost if replicas > 1 else 0.0
    turn = extra + (times[slowest] + further) / min(replicas, figures.most_speedup)
    return _Region(figures, cuts, replicas, turn, extra + sum(times) + further, slowest)
