"""Joker (Kahveci and Gedik, 2019): its adaptations on the simulator, with 24 hardware threads."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from anabranch.reproduce.claims import Claim
from anabranch.reproduce.joker import curves as drawn
from anabranch.reproduce.joker import replayed
from anabranch.reproduce.joker.adapted import Step
from anabranch.reproduce.joker.curve_claims import curve_claims
from anabranch.reproduce.joker.curves import Curves
from anabranch.reproduce.joker.model_claims import model_claims
from anabranch.reproduce.joker.models import Compared, compare
from anabranch.reproduce.joker.setting import JOKERS_BUCKETS
from anabranch.reproduce.joker.trace_claims import trace_claims
from anabranch.reproduce.joker.traces import FIGURES, Traces
from anabranch.reproduce.machine import Machine


@dataclass(frozen=True)
class Effort:
    """How much is simulated.

    Attributes:
        multiplications: Costs of the operators of figures 5, 6, 8 and 12.
        costly: Costs of the first operator of figure 9.
        operators: Lengths of figure 6's regions.
    """

    multiplications: tuple[float, ...] = (8, 16, 32, 64, 128, 256, 512, 1024, 2048)
    costly: tuple[float, ...] = (32, 64, 128, 256, 512, 1024, 2048)
    operators: tuple[int, ...] = (2, 4, 8, 16)


FULL = Effort()
QUICK = Effort((8, 128, 2048), (32, 256, 2048), (2, 8))


@dataclass(frozen=True)
class Reproduction:
    """All that was simulated, and what follows from it."""

    effort: Effort
    machine: Machine
    seconds: float
    curves: list[Curves]
    speedup_271: float
    traces: list[Traces]
    replayed_10: tuple[Step, ...]
    replayed_20: tuple[Step, ...]
    compared: tuple[Compared, ...]
    claims: list[Claim]

    def as_object(self) -> dict[str, Any]:
        """For JSON."""
        return {"paper": "joker", **asdict(self)}


def reproduce(effort: Effort = FULL, tell: Callable[[str], None] = print) -> Reproduction:
    """Simulate everything, one thing after the other; `tell` hears what comes next."""
    started_s = time.monotonic()
    curves = []
    for title, draw in _curves(effort).items():
        tell(title)
        curves.append(draw())
    speedup_271 = drawn.fission_only_with(JOKERS_BUCKETS, effort.multiplications[-1])
    tell("figures 10 to 20: adaptations step by step")
    traces = [figure() for figure in FIGURES]
    steps = replayed.figure_10(), replayed.figure_20()
    tell("figures 22 to 32: against the plans of a model")
    compared = compare()
    return Reproduction(
        effort,
        Machine.here(1.0),  # virtual time: who else is at work does not show
        time.monotonic() - started_s,
        curves,
        speedup_271,
        traces,
        *steps,
        compared,
        sorted([*curve_claims(curves, speedup_271), *trace_claims(traces, *steps)], key=_number)
        + model_claims(compared),
    )


def _curves(effort: Effort) -> dict[str, Callable[[], Curves]]:
    costs = effort.multiplications
    return {
        "figure 5: actions and their order": partial(drawn.figure_5, costs),
        "figure 6: longer regions": partial(drawn.figure_6, costs, effort.operators),
        "figure 8: several regions": partial(drawn.figure_8, costs),
        "figure 9: a costly and a cheap region": partial(drawn.figure_9, effort.costly),
        "figure 12: what a change has to gain": partial(drawn.figure_12, costs),
    }


def _number(claim: Claim) -> int:
    return int(claim.where.removeprefix("figure "))
