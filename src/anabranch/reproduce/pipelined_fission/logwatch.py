"""LogWatch: the application of figure 17, and its throughput by the model (figure 18)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.graph import StateKind
from anabranch.planning.machine import Machine
from anabranch.planning.planners.planner import Problem
from anabranch.planning.planners.registry import PLANNERS
from anabranch.planning.profile import OperatorProfile, Overheads, Profile, chain

US_PER_UNIT = 0.095
"""Table 1's unit: a cost of 200 is 19 µs in the paper's runtime."""
TABLE_1_OVERHEADS_US = Overheads(1 * US_PER_UNIT, 50 * US_PER_UNIT)
PAPER_CORES, PAPER_SPEEDUP = 12, 9.7
"""LogWatch on the paper's machine."""
APPROACHES = ("sequential", "fission", "exact")

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
    return {name: 1e6 * PLANNERS[name](problem).throughput for name in APPROACHES}
