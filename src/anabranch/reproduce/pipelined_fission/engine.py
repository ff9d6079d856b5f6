"""Pipelined Fission's figures 13 to 16 and 18 on the local engine, with busy operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, log
from statistics import mean

import numpy as np

from anabranch.planning.profile import Overheads, Profile, chain
from anabranch.reproduce.pipelined_fission.bench import APPROACHES, Bench, Ran
from anabranch.reproduce.pipelined_fission.logwatch import US_PER_UNIT, log_watch
from anabranch.reproduce.pipelined_fission.model import SEED
from anabranch.testing.random_profiles import TABLE_1, ChainSettings, random_chain


@dataclass(frozen=True)
class EngineSweep:
    """A figure: what is varied, and the chains' settings at each value."""

    figure: str
    varied: str
    settings: dict[float, ChainSettings]


@dataclass(frozen=True)
class EnginePoint:
    """What the engine did at one value.

    Attributes:
        x: The value.
        rows_per_s: Tuples a second by approach, geometric means over chains.
        same_plans: Part of the chains for which the heuristic finds the very plan of `exact`.
    """

    x: float
    rows_per_s: dict[str, float]
    same_plans: float

    @property
    def of_optimal(self) -> float:
        """What the heuristic's plans reach of the optimal ones."""
        return self.rows_per_s["fission"] / self.rows_per_s["exact"]

    @property
    def speedup(self) -> float:
        """What the heuristic's plans gain over one core."""
        return self.rows_per_s["fission"] / self.rows_per_s["sequential"]


@dataclass(frozen=True)
class EngineCurves:
    """A figure as it came out."""

    figure: str
    varied: str
    points: tuple[EnginePoint, ...]


def engine_sweeps(points: int) -> tuple[EngineSweep, ...]:
    """Figures 13 to 16, each with so many values over its range.

    Example:
        >>> [(one.figure, list(one.settings)) for one in engine_sweeps(2)][:2]
        [('figure 13', [0.3, 1.0]), ('figure 14', [50.0, 250.0])]
    """

    def values(first: float, last: float) -> list[float]:
        return [round(float(x), 2) for x in np.linspace(first, last, points)]

    return (
        EngineSweep(
            "figure 13",
            "mean selectivity",
            {x: replace(TABLE_1, selectivity_mean=x) for x in values(0.3, 1.0)},
        ),
        EngineSweep(
            "figure 14",
            "mean operator cost",
            {x: replace(TABLE_1, cost_mean=x) for x in values(50, 250)},
        ),
        EngineSweep(
            "figure 15",
            "operators",
            {round(x): replace(TABLE_1, operators=round(x)) for x in values(2, 8)},
        ),
        EngineSweep(
            "figure 16",
            "fraction of stateless operators",
            {x: replace(TABLE_1, stateless=x) for x in values(0, 0.8)},
        ),
    )


def run_sweep(
    sweep: EngineSweep, runs: Bench, overheads: Overheads, chains: int, repeats: int
) -> EngineCurves:
    """All points of a figure: so many chains each, so many runs of each plan."""
    return EngineCurves(
        sweep.figure,
        sweep.varied,
        tuple(
            _point(x, _drawn(settings, overheads, chains), runs, repeats)
            for x, settings in sweep.settings.items()
        ),
    )


def run_log_watch(runs: Bench, overheads: Overheads, repeats: int) -> EnginePoint:
    """LogWatch on one core and on all there are."""
    return _point(runs.machine.cores, [log_watch(overheads)], runs, repeats)


def in_microseconds(profile: Profile, overheads: Overheads) -> Profile:
    """A chain of Table 1 in the paper's time, with the overheads of the engine here.

    Example:
        >>> from anabranch.planning.profile import OperatorProfile
        >>> scaled = in_microseconds(chain([OperatorProfile("a", 200.0)]), Overheads())
        >>> round(scaled.work, 9), scaled.unit
        (19.0, 'us')
    """
    operators = [replace(one, cost=one.cost * US_PER_UNIT) for one in profile.operators]
    return chain(operators, overheads, unit="us")


def _drawn(settings: ChainSettings, overheads: Overheads, chains: int) -> list[Profile]:
    rng = np.random.default_rng(SEED)
    return [in_microseconds(random_chain(rng, settings), overheads) for _ in range(chains)]


def _point(x: float, profiles: Sequence[Profile], runs: Bench, repeats: int) -> EnginePoint:
    ran = [once_if_equal(runs.compared(profile, repeats)) for profile in profiles]
    return EnginePoint(
        x,
        {name: exp(mean(log(one[name].rows_per_s) for one in ran)) for name in APPROACHES},
        mean(one["fission"].plan == one["exact"].plan for one in ran),
    )


def once_if_equal(ran: dict[str, Ran]) -> dict[str, Ran]:
    """Where both planners find the same plan, what differs between its runs is noise."""
    first, second = ran["fission"], ran["exact"]
    if first.plan != second.plan:
        return ran
    both = Ran(mean((first.rows_per_s, second.rows_per_s)), first.plan)
    return ran | {"fission": both, "exact": both}
