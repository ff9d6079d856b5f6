"""Every plan there is, and the best of them: the referee of the other planners.

It looks at each plan within the bound of threads: every way to cut the problem's runs into regions,
regions into pipelines, and every number of replicas. Nothing is left out because it looks bad, so
nothing clever can be wrong; what regions need is computed once for each that there can be. Plans
grow in number so fast that only small problems are taken (Pipelined Fission, figure 4).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from anabranch.errors import PlanError, Subject
from anabranch.planning.answer import Answer, RegionChoice, most_replicas
from anabranch.planning.models.fission import estimate, region_times
from anabranch.planning.planners.planner import Problem

MOST_PLANS = 5_000_000
"""More than these take longer than a minute."""


@dataclass(frozen=True)
class _Option:
    """One way to run one region, and the place in the row of all operators that is behind it."""

    region: RegionChoice
    behind: int
    turn: float
    work: float
    threads: int


def exhaustive(problem: Problem) -> Answer:
    """The plan with the greatest throughput; of equals, that with the fewest threads, then regions.

    Example:
        >>> from anabranch.planning.machine import Machine
        >>> from anabranch.graph import StateKind
        >>> from anabranch.planning.profile import OperatorProfile, chain
        >>> read = OperatorProfile("read", 1.0, state=StateKind.STATEFUL)
        >>> profile = chain([read, OperatorProfile("parse", 3.0)])
        >>> found = exhaustive(Problem(profile, Machine.of_cores(4)))
        >>> [(region.operators, region.replicas) for region in found.regions], found.throughput
        ([(('read',), 1), (('parse',), 3)], 1.0)
    """
    plans = count_plans(problem)
    if plans > MOST_PLANS:
        raise PlanError(
            Subject("planner", "exhaustive"),
            f"at most {MOST_PLANS:,} plans to look at",
            f"{plans:,}",
            "use the planner 'exact', or allow fewer threads",
        )
    regions = _best(_options(problem), problem)
    found = estimate(problem.profile, regions, problem.machine.capacity)
    return Answer(regions, found.throughput, found.utilization, bound=found.throughput)


def count_plans(problem: Problem) -> int:
    """How many plans there are within the bound of threads; this itself takes no time.

    Example:
        >>> from anabranch.planning.machine import Machine
        >>> from anabranch.planning.profile import OperatorProfile, chain
        >>> profile = chain([OperatorProfile("a", 1.0), OperatorProfile("b", 1.0)])
        >>> count_plans(Problem(profile, Machine.of_cores(1)))  # a+b, a+b twice, a | b, a then b
        4
    """
    most = problem.most_threads
    shapes = _shapes(problem)
    ways = [[0] * (most + 1) for _ in range(len(shapes) + 1)]
    ways[-1] = [1] * (most + 1)
    for start in reversed(range(len(shapes))):
        for behind, pipelines, bound in shapes[start]:
            for replicas in range(1, min(most // pipelines, bound) + 1):
                threads = replicas * pipelines
                cuts = _ways_to_cut(behind - start, pipelines)
                for left in range(threads, most + 1):
                    ways[start][left] += cuts * ways[behind][left - threads]
    return ways[0][most]


def _shapes(problem: Problem) -> list[list[tuple[int, int, int]]]:
    """By first operator: where a region ends, how many pipelines it has, and its most replicas."""
    shapes: list[list[tuple[int, int, int]]] = []
    for run in problem.runs:
        offset = len(shapes)
        shapes.extend([] for _ in run)
        for start, end in problem.cuts(run):
            bound = _bound(problem, run[start:end])
            shapes[offset + start] += [
                (offset + end, pipelines, bound) for pipelines in range(1, end - start + 1)
            ]
    return shapes


def _bound(problem: Problem, names: Sequence[str]) -> int:
    """The most replicas worth a look: more than help do no good, by the model's own word."""
    bound = most_replicas([problem.profile.by_name[name] for name in names])
    return problem.most_threads if bound is None else bound


def _ways_to_cut(operators: int, pipelines: int) -> int:
    """Binomial coefficient: which of the places between operators are cuts."""
    ways = 1
    for number in range(1, pipelines):
        ways = ways * (operators - number) // number
    return ways


def _options(problem: Problem) -> list[list[_Option]]:
    """By first operator, every region that can begin there, in every way to run it."""
    options: list[list[_Option]] = []
    for run in problem.runs:
        offset = len(options)
        options.extend([] for _ in run)
        for start, end in problem.cuts(run):
            for region in _ways_to_run(problem, run[start:end]):
                times = region_times(problem.profile, region)
                options[offset + start].append(
                    _Option(region, offset + end, times.turn, times.work, region.threads)
                )
    return options


def _ways_to_run(problem: Problem, names: tuple[str, ...]) -> Iterator[RegionChoice]:
    bound = _bound(problem, names)
    for pipelines in _ways_to_pipeline(names):
        for replicas in range(1, min(problem.most_threads // len(pipelines), bound) + 1):
            yield RegionChoice(pipelines, replicas)


def _ways_to_pipeline(names: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], ...]]:
    for end in range(1, len(names)):
        for others in _ways_to_pipeline(names[end:]):
            yield (names[:end], *others)
    yield (names,)


def _best(options: Sequence[Sequence[_Option]], problem: Problem) -> tuple[RegionChoice, ...]:
    cores, most_threads = problem.machine.capacity, problem.most_threads
    last = len(options)
    chosen: list[_Option] = []
    best: tuple[float, int, int] = (0.0, 0, 0)
    best_regions: tuple[RegionChoice, ...] = ()

    def extend(start: int, turn: float, work: float, threads: int) -> None:
        nonlocal best, best_regions
        for option in options[start]:
            used = threads + option.threads
            if used > most_threads:
                continue
            slowest = option.turn if option.turn > turn else turn
            total = work + option.work
            chosen.append(option)
            if option.behind < last:
                extend(option.behind, slowest, total, used)
            else:
                found = (min(1 / slowest, cores / total), -used, -len(chosen))
                if found > best or not best_regions:
                    best, best_regions = found, tuple(one.region for one in chosen)
            chosen.pop()

    extend(0, 0.0, 0.0, 0)
    return best_regions
