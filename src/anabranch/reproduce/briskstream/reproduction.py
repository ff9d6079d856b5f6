"""BriskStream (Zhang, He, Zhou and He, 2019): its model and plans on its servers, and its claims.

Tables 3, 4, 7 and figures 8 to 10 and 12 to 15 are computed: by the model, the planners and the
simulator, for the two servers that the paper describes. Figure 16 is measured on this machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from anabranch.reproduce.briskstream.claims import (
    factor_claims,
    placement_claims,
    scaling_claims,
    table_claims,
)
from anabranch.reproduce.briskstream.factors import FactorRate, factors, measure_factors
from anabranch.reproduce.briskstream.model import (
    Accuracy,
    Breakdown,
    Compressed,
    Gap,
    Handling,
    Scaling,
    figure_8,
    figure_9,
    figure_10,
    table_3,
    table_4,
    table_7,
)
from anabranch.reproduce.briskstream.placements import (
    Fixed,
    Pattern,
    Placed,
    Random,
    figure_12,
    figure_13,
    figure_14,
    figure_15,
    tray_traffic,
)
from anabranch.reproduce.briskstream.planning import Plans
from anabranch.reproduce.claims import Claim
from anabranch.reproduce.machine import Machine, free_share

WITHIN_TRAYS = ("fd", "lr")
"""Applications that the paper says are kept within a tray."""


@dataclass(frozen=True)
class Effort:
    """How much is computed and measured.

    Attributes:
        sockets: Numbers of sockets of figure 9; 1, 4 and 8 are among them.
        ratios: Compress ratios of Table 7; 5 is among them.
        simulated_s: Virtual seconds of each simulated run.
        random_plans: Plans of figure 14.
        factor_s: About how long each run of figure 16 takes.
        repeats: Runs of each factor.
    """

    sockets: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8)
    ratios: tuple[int, ...] = (1, 3, 5, 10, 15)
    simulated_s: float = 1.0
    random_plans: int = 1000
    factor_s: float = 2.0
    repeats: int = 5


FULL = Effort()
QUICK = Effort(
    sockets=(1, 4, 8), ratios=(5, 15), simulated_s=0.2, random_plans=200, factor_s=0.2, repeats=1
)


@dataclass(frozen=True)
class Reproduction:
    """All that was computed and measured, and what follows from it."""

    effort: Effort
    machine: Machine
    seconds: float
    handling: list[Handling]
    accuracy: list[Accuracy]
    compressed: list[Compressed]
    breakdown: list[Breakdown]
    scaling: list[Scaling]
    gaps: list[Gap]
    fixed: list[Fixed]
    placed: list[Placed]
    random: list[Random]
    patterns: list[Pattern]
    factors: list[FactorRate]
    claims: list[Claim]

    def as_object(self) -> dict[str, Any]:
        """For JSON."""
        return {"paper": "briskstream", **asdict(self)}


def reproduce(effort: Effort = FULL, tell: Callable[[str], None] = print) -> Reproduction:
    """Compute everything, then measure figure 16; `tell` hears what comes next."""
    started_s = time.monotonic()
    free = free_share()
    plans = Plans()
    tell("tables 3 and 4: times and throughputs of the model, beside the simulator")
    handling, accuracy = table_3(), table_4(plans, effort.simulated_s)
    tell("table 7: compress ratios")
    compressed = table_7(effort.ratios)
    tell("figures 8, 9 and 10: distances, sockets, gaps to ideal")
    breakdown, scaling, gaps = figure_8(), figure_9(plans, effort.sockets), figure_10(plans)
    tell("figures 12 and 13: other ways to plan")
    fixed, placed = figure_12(plans), figure_13(plans)
    tell("figures 14 and 15: random plans, who fetches from where")
    random, patterns = figure_14(plans, effort.random_plans), figure_15(plans)
    tell("figure 16: factors on the local engine")
    factor_rates = measure_factors(factors(), effort.factor_s, effort.repeats)
    return Reproduction(
        effort,
        Machine.here(min(free, free_share())),
        time.monotonic() - started_s,
        handling,
        accuracy,
        compressed,
        breakdown,
        scaling,
        gaps,
        fixed,
        placed,
        random,
        patterns,
        factor_rates,
        [
            *table_claims(handling, accuracy, compressed),
            *scaling_claims(breakdown, scaling, gaps),
            *placement_claims(fixed, placed, random, patterns, tray_traffic(plans, WITHIN_TRAYS)),
            *factor_claims(factor_rates),
        ],
    )
