"""Pipelined Fission's figures 4 to 12 by the model: chains as in Table 1, five approaches.

Throughputs are geometric means over the chains of a point: the paper does not say which mean it
takes, and in an arithmetic one of rates a few cheap chains outweigh all others. Every point of a
figure is drawn from the same seed, so that neighbours differ by the setting and not by luck.

LogWatch is the application of figure 17; figure 18 shows its throughput.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from anabranch.graph import StateKind
from anabranch.planning.machine import Machine
from anabranch.planning.planners.exhaustive import count_plans
from anabranch.planning.planners.planner import Planner, Problem
from anabranch.planning.planners.registry import PLANNERS
from anabranch.planning.profile import OperatorProfile, Overheads, Profile, chain
from papers.pipelined_fission.random_profiles import (
    DEFAULT_CORES,
    TABLE_1,
    ChainSettings,
    random_chain,
)

APPROACHES = ("sequential", "fission", "exact", "fission-only", "pipelining-only")
MEASURED = ("sequential", "fission", "exact")
"""Approaches that LogWatch and the local engine run with."""
SEED = 2016
ENUMERATED = 2_000_000
"""Figure 12 enumerates plans up to these: about two seconds."""


@dataclass(frozen=True)
class Setting:
    """One point to compute: the chains' settings and the cores."""

    x: float
    chains: ChainSettings
    cores: int = DEFAULT_CORES


@dataclass(frozen=True)
class Sweep:
    """A figure: what is varied, and its points."""

    figure: str
    varied: str
    settings: tuple[Setting, ...]


@dataclass(frozen=True)
class Point:
    """Mean throughput of each approach at one setting."""

    x: float
    throughput: dict[str, float]

    def over(self, approach: str, other: str) -> float:
        """How many times the throughput of another one."""
        return self.throughput[approach] / self.throughput[other]


@dataclass(frozen=True)
class Curves:
    """A figure as it came out."""

    figure: str
    varied: str
    points: tuple[Point, ...]

    def of(self, approach: str) -> list[float]:
        """One curve."""
        return [point.throughput[approach] for point in self.points]

    def ratios(self, approach: str, other: str) -> list[float]:
        """One curve over another."""
        return [point.over(approach, other) for point in self.points]


@dataclass(frozen=True)
class SolveTime:
    """Figure 12: milliseconds of processor time at the median, and how many plans there are."""

    operators: int
    cores: int
    plans: int
    fission_ms: float
    exact_ms: float
    exhaustive_ms: float | None


def sweeps() -> tuple[Sweep, ...]:
    """Figures 5 to 11 with the ranges of Table 1.

    Example:
        >>> [(one.figure, len(one.settings)) for one in sweeps()][:2]
        [('figure 5', 10), ('figure 6', 9)]
    """
    return (
        _sweep("figure 5", "mean selectivity", _steps(0.1, 1.0, 10), "selectivity_mean"),
        _sweep("figure 6", "mean operator cost", _steps(50, 250, 9), "cost_mean"),
        _sweep("figure 7", "fraction of stateless operators", _steps(0, 0.8, 9), "stateless"),
        _sweep("figure 8", "replication cost factor", _steps(10, 190, 10), "replication"),
        _sweep("figure 9", "thread switching overhead", _steps(10, 210, 11), "thread_switch"),
        Sweep("figure 10", "cores", tuple(Setting(n, TABLE_1, n) for n in range(1, 13))),
        Sweep(
            "figure 11",
            "operators",
            tuple(Setting(n, replace(TABLE_1, operators=n)) for n in range(1, 9)),
        ),
    )


def compute(sweep: Sweep, chains: int) -> Curves:
    """All points of a figure, each over so many chains."""
    return Curves(
        sweep.figure, sweep.varied, tuple(_point(setting, chains) for setting in sweep.settings)
    )


def figure_4(operators: Sequence[int], threads: Sequence[int]) -> dict[int, list[int]]:
    """How many plans chains of stateless operators have, by operators, for numbers of threads.

    Example:
        >>> figure_4((1, 2), (1, 2, 4))
        {1: [1, 2, 4], 2: [1, 4, 12]}
    """
    return {n: [_plans(n, most) for most in threads] for n in operators}


def figure_12(sizes: Sequence[int], repeats: int) -> list[SolveTime]:
    """How long planners take at n operators and n cores; the enumeration where it is allowed."""
    return [_solve_time(size, repeats) for size in sizes]


def _plans(operators: int, threads: int) -> int:
    settings = replace(TABLE_1, operators=operators, stateless=1.0, partitioned=0.0)
    profile = random_chain(np.random.default_rng(SEED), settings)
    return count_plans(Problem(profile, Machine.of_cores(threads), threads))


def _steps(first: float, last: float, count: int) -> list[float]:
    return [round(float(x), 6) for x in np.linspace(first, last, count)]


def _sweep(figure: str, varied: str, values: Sequence[float], field: str) -> Sweep:
    settings = (Setting(x, _changed(field, x)) for x in values)
    return Sweep(figure, varied, tuple(settings))


def _changed(field: str, x: float) -> ChainSettings:
    changes: dict[str, float] = {field: x}
    return replace(TABLE_1, **changes)  # type: ignore[arg-type]  # fields that are numbers


def _point(setting: Setting, chains: int) -> Point:
    rng = np.random.default_rng(SEED)
    machine = Machine.of_cores(setting.cores)
    problems = [Problem(random_chain(rng, setting.chains), machine) for _ in range(chains)]
    means = {
        name: float(np.exp(np.mean([np.log(PLANNERS[name](one).throughput) for one in problems])))
        for name in APPROACHES
    }
    return Point(setting.x, means)


def _solve_time(size: int, repeats: int) -> SolveTime:
    rng = np.random.default_rng(SEED)
    settings = replace(TABLE_1, operators=size)
    machine = Machine.of_cores(size)
    problems = [Problem(random_chain(rng, settings), machine) for _ in range(repeats)]
    plans = [count_plans(problem) for problem in problems]
    few = [one for one, count in zip(problems, plans, strict=True) if count <= ENUMERATED]
    return SolveTime(
        size,
        size,
        int(median(plans)),
        median(_times(PLANNERS["fission"], problems)),
        median(_times(PLANNERS["exact"], problems)),
        median(_times(PLANNERS["exhaustive"], few)) if len(few) > len(problems) / 2 else None,
    )


def _times(planner: Planner, problems: Sequence[Problem]) -> list[float]:
    return [_time_ms(planner, problem) for problem in problems]


def _time_ms(planner: Planner, problem: Problem) -> float:
    started_s = time.thread_time()  # of the processor: others may be at work, too
    planner(problem)
    return 1e3 * (time.thread_time() - started_s)


US_PER_UNIT = 0.095
"""Table 1's unit: a cost of 200 is 19 µs in the paper's runtime."""
TABLE_1_OVERHEADS_US = Overheads(1 * US_PER_UNIT, 50 * US_PER_UNIT)
PAPER_CORES, PAPER_SPEEDUP = 12, 9.7
"""LogWatch on the paper's machine."""

FIGURE_17 = (
    ("RawLines", StateKind.STATEFUL, (), 1.0, 1.52),
    ("Lines", StateKind.STATELESS, (), 1.0, 3.87),
    ("ParsedLines", StateKind.STATELESS, (), 1.0, 15.15),
    ("RawEvents", StateKind.STATELESS, (), 0.87, 9.39),
    ("Events", StateKind.STATELESS, (), 1.0, 13.81),
    ("Range", StateKind.PARTITIONED, ("host",), 0.20, 9.04),
    ("Cutoff", StateKind.STATELESS, (), 0.99, 24.82),
    ("RealTime", StateKind.STATELESS, (), 1.0, 27.04),
    ("Breakins", StateKind.PARTITIONED, ("user",), 0.00027, 17.33),
    ("Results", StateKind.STATEFUL, (), 1.0, 493.17),
)
"""Operators with state, key, selectivity (1 where the paper has none) and microseconds a tuple."""


@dataclass(frozen=True)
class CoresPoint:
    """Lines a second by approach, on so many cores."""

    cores: int
    lines_per_s: dict[str, float]

    def speedup(self, approach: str) -> float:
        """Over the sequential plan."""
        return self.lines_per_s[approach] / self.lines_per_s["sequential"]


def log_watch(overheads: Overheads = TABLE_1_OVERHEADS_US) -> Profile:
    """The profile of figure 17.

    Example:
        >>> round(log_watch().work, 1)
        61.8
    """
    operators = [
        OperatorProfile(name, cost, selectivity, state, key)
        for name, state, key, selectivity, cost in FIGURE_17
    ]
    return chain(operators, overheads, unit="us")


def figure_18(
    cores: Sequence[int], overheads: Overheads = TABLE_1_OVERHEADS_US
) -> list[CoresPoint]:
    """What the model says of LogWatch on so many cores.

    Example:
        >>> one, two = figure_18((1, 2))
        >>> one.speedup("exact"), round(two.speedup("exact"), 2)
        (1.0, 1.99)
    """
    return [CoresPoint(n, _on(n, overheads)) for n in cores]


def replication_for(speedup: float, cores: int, most_us: float = 10.0) -> float:
    """The replication cost in microseconds with which `fission` reaches a speedup in the model.

    More of it never helps, so the interval from 0 to the most is halved until it is small.

    Example:
        >>> 0.5 < replication_for(9.7, 12) < 1.5
        True
    """
    low, high = 0.0, most_us
    for _ in range(30):
        middle = (low + high) / 2
        overheads = Overheads(TABLE_1_OVERHEADS_US.thread_switch, middle)
        (found,) = figure_18((cores,), overheads)
        low, high = (middle, high) if found.speedup("fission") >= speedup else (low, middle)
    return low


def _on(cores: int, overheads: Overheads) -> dict[str, float]:
    problem = Problem(log_watch(overheads), Machine.of_cores(cores))
    return {name: 1e6 * PLANNERS[name](problem).throughput for name in MEASURED}
