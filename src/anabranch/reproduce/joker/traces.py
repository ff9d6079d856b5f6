"""Joker's figures 10, 11, 14 to 16 and 18 to 20: adaptations step by step."""

from __future__ import annotations

from dataclasses import dataclass, replace

from anabranch.engines.simulator.scenario import Load
from anabranch.planning.plan import Plan
from anabranch.reproduce.joker.adapted import Adapted, adapt, rate_under
from anabranch.reproduce.joker.applications import (
    finance,
    monitoring,
    one_operator,
    one_region,
    selectivities,
    two_operators,
    word_count,
)
from anabranch.reproduce.joker.setting import JOKER, SCENARIO

LOADS_PER_S = (40e3, 80e3, 160e3, 320e3, 640e3)
"""Figure 11: from 40 to 640 thousand tuples a second."""
LOAD_S = 60.0
UNBALANCED, BALANCED = (0.75, 0.10), (0.45, 0.40)
"""Costs of figure 14's and figure 15's operators, as parts of the thread's time."""
MORE_REPLICAS = 4
FIGURE_16 = (1024, 32, 32, 1024, 1024)


@dataclass(frozen=True)
class Traces:
    """Adaptations of one figure, by what differs between them."""

    figure: str
    title: str
    runs: dict[str, Adapted]

    def only(self) -> Adapted:
        """The run of a figure that has one."""
        (run,) = self.runs.values()
        return run


def figure_10() -> Traces:
    """Operators of several costs and selectivities."""
    return Traces("figure 10", "costs and selectivities", {"run": adapt(selectivities())})


def figure_11() -> Traces:
    """A load that doubles, with several thresholds of what is busy."""
    load = Load(tuple((LOAD_S * n, rate) for n, rate in enumerate(LOADS_PER_S)))
    scenario = replace(SCENARIO, loads=(load,))
    seconds = LOAD_S * (len(LOADS_PER_S) + 1)
    runs = {
        f"busy {busy:g}": adapt(one_operator(), replace(JOKER, busy=busy), scenario, seconds)
        for busy in (0.5, 0.8, 0.95)
    }
    return Traces("figure 11", "threshold of what is busy, under a growing load", runs)


def figure_14() -> Traces:
    """Two operators of unlike cost, with several thresholds of what a split has to promise.

    As in the paper, the source is saturated after four more replicas.
    """
    free = two_operators(*UNBALANCED, saturated_per_s=None)
    wide = Plan.sequential(free.flow()).with_replicas("m1", 1 + MORE_REPLICAS)
    saturated = rate_under(free, wide)
    application = two_operators(*UNBALANCED, saturated_per_s=saturated)
    runs = {
        f"utility {utility:g}": adapt(application, replace(JOKER, utility=utility))
        for utility in (0.2, 0.1)
    }
    return Traces("figure 14", "threshold of splits, unbalanced costs", runs)


def figure_15() -> Traces:
    """Two operators of like cost."""
    application = two_operators(*BALANCED, saturated_per_s=None)
    runs = {
        f"utility {utility:g}": adapt(application, replace(JOKER, utility=utility))
        for utility in (0.2, 0.9)
    }
    return Traces("figure 15", "threshold of splits, balanced costs", runs)


def figure_16() -> Traces:
    """A long adaptation, second by second."""
    run = adapt(one_region(*FIGURE_16))
    return Traces("figure 16", "throughput during an adaptation", {"run": run})


def figure_18() -> Traces:
    """Word count."""
    return Traces("figure 18", "word count", {"run": adapt(word_count())})


def figure_19() -> Traces:
    """Finance."""
    return Traces("figure 19", "finance", {"run": adapt(finance())})


def figure_20() -> Traces:
    """Network monitoring."""
    return Traces("figure 20", "network monitoring", {"run": adapt(monitoring())})


FIGURES = (
    figure_10,
    figure_11,
    figure_14,
    figure_15,
    figure_16,
    figure_18,
    figure_19,
    figure_20,
)
