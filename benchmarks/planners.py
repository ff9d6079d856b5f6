"""How long planners take, and how far the heuristic stays behind the best plan of the model."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from statistics import fmean, median

import numpy as np
from harness import Report, main, seconds
from planners_rlas import add_rlas

from anabranch.planning.machine import Machine
from anabranch.planning.planners.exact import exact
from anabranch.planning.planners.fission import fission
from anabranch.planning.planners.planner import Planner, Problem
from papers.pipelined_fission.random_profiles import DEFAULT_CORES, TABLE_1, random_chain

STATELESS = replace(TABLE_1, stateless=1.0, partitioned=0.0)
"""Chains without anything stateful leave the most to choose from."""


def problems(operators: int, cores: int, count: int) -> list[Problem]:
    """Chains of Table 1, every second one without state."""
    found = []
    for seed in range(count):
        settings = replace(STATELESS if seed % 2 else TABLE_1, operators=operators)
        profile = random_chain(np.random.default_rng(seed), settings)
        found.append(Problem(profile, Machine.of_cores(cores)))
    return found


def times_ms(planner: Planner, asked: list[Problem]) -> list[float]:
    """Each problem's shortest time of three: what other programs take is not the planner's."""
    return [1e3 * min(seconds(partial(planner, each)) for _ in range(3)) for each in asked]


def measure(quick: bool) -> Report:
    report = Report(
        "planners",
        "the best plan of the model in milliseconds, where enumeration takes minutes",
    )
    count = 6 if quick else 30
    for planner, operators, cores, limit in (
        (exact, 9, 9, 100.0),
        (exact, 20, 64, 2000.0),
        (fission, 9, 9, 5.0),
    ):
        name = f"{planner.__name__}_{operators}_operators_{cores}_cores"
        taken = times_ms(planner, problems(operators, cores, count))
        report.add_figure(f"{name}_median_ms", median(taken))
        report.add_bar(f"{name}_longest_ms", max(taken), limit, at_least=False)
    ratios = []
    for seed in range(100 if quick else 1000):
        profile = random_chain(np.random.default_rng(seed))
        asked = Problem(profile, Machine.of_cores(DEFAULT_CORES))
        ratios.append(fission(asked).throughput / exact(asked).throughput)
    report.add_bar("fission_share_of_best_mean", fmean(ratios), 0.95)
    report.add_figure("fission_share_of_best_least", min(ratios))
    report.add_bar("fission_share_of_best_most", max(ratios), 1 + 1e-12, at_least=False)
    add_rlas(report, quick)
    return report


if __name__ == "__main__":
    main(measure)
