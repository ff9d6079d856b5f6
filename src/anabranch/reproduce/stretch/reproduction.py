"""STRETCH (Najdataei and others, 2019) on this machine: models, figures 4 and 5, and its claims."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from anabranch.planning.models.stretch import PURE, VIRTUAL, Rates, series
from anabranch.reproduce.claims import Claim
from anabranch.reproduce.machine import Machine, cores_here, free_share
from anabranch.reproduce.stretch.claims import (
    elastic_claims,
    figure_4a_claims,
    figure_4b_claims,
    intra_claims,
    model_claims,
)
from anabranch.reproduce.stretch.elastic import Elastic, Switched, change_load, switch_often
from anabranch.reproduce.stretch.figure4 import Contest, figure_4a, figure_4b
from anabranch.reproduce.stretch.figure5 import Intra, Single, intra, single

PROVISIONED, DECOMMISSIONED = 1.2, 0.3
"""Loads that threads are added and taken away for."""
FIGURE_3 = (1, 2, 4, 6, 7, 8, 9, 11, 12, 16, 20)


@dataclass(frozen=True)
class Effort:
    """How much is measured.

    Attributes:
        rows: Tuples of each run of figure 4.
        repeats: Runs of each point of figure 4, and of the single thread of figure 5.
        threads_4: Numbers of T^P threads in figure 4.
        threads_5: The same in figure 5; one of them is 1.
        switches: Numbers of threads that a run goes through.
        window_s: The join's window; 5 minutes in the paper.
        seconds: How long each rate is measured.
        hold_s: How long each number of threads is held.
    """

    rows: int = 1_000_000
    repeats: int = 5
    threads_4: tuple[int, ...] = (1, 2, 4, 8)
    threads_5: tuple[int, ...] = (1, 2, 4)
    switches: tuple[int, ...] = (1, 2, 4, 7, 4, 2, 1)
    window_s: float = 12.0
    seconds: float = 5.0
    hold_s: float = 1.5


FULL = Effort()
QUICK = Effort(
    rows=200_000,
    repeats=3,
    threads_4=(1, 2, 4),
    threads_5=(1, 2),
    switches=(1, 2, 4, 2, 1),
    window_s=1.5,
    seconds=2.0,
    hold_s=0.7,
)


@dataclass(frozen=True)
class Reproduction:
    """All that was computed and measured, and what follows from it."""

    effort: Effort
    machine: Machine
    seconds: float
    figure_3: dict[str, dict[int, Rates]]
    figure_4a: Contest
    figure_4b: Contest
    intra: list[Intra]
    indexed: Intra
    single: Single
    provisioning: Elastic
    decommissioning: Elastic
    switches: list[Switched]
    claims: list[Claim]

    def as_object(self) -> dict[str, Any]:
        """For JSON."""
        return {"paper": "stretch", **asdict(self)}


def reproduce(effort: Effort = FULL, tell: Callable[[str], None] = print) -> Reproduction:
    """Measure everything, one thing after the other; `tell` hears what comes next."""
    started_s = time.monotonic()
    cores, free = cores_here(), free_share()
    tell("figure 4a: sharing against copying, with work")
    four_a = figure_4a(effort.rows, effort.threads_4, effort.repeats)
    tell("figure 4b: sharing against copying, two merged streams")
    four_b = figure_4b(effort.rows, effort.threads_4, effort.repeats)
    tell("figure 5: the band join at full speed")
    speeds = intra(effort.threads_5, effort.window_s, effort.seconds, cores)
    greatest = {one.threads: one.rate_per_s for one in speeds}
    (indexed,) = intra((1,), effort.window_s, effort.seconds, cores, indexed=True)
    tell("figure 5: one thread behind gates and behind buffers")
    alone = single(greatest[1] / 2, effort.window_s, effort.repeats)
    tell("figure 5: provisioning")
    few, many = starting_threads(cores, effort.threads_5)
    window_s, seconds = effort.window_s, effort.seconds
    up = change_load(few, PROVISIONED, greatest[few], window_s, seconds)
    tell("figure 5: decommissioning")
    down = change_load(many, DECOMMISSIONED, greatest[many], window_s, seconds)
    tell("figure 5: reconfigurations")
    switches = switch_often(effort.switches, greatest[1], window_s, effort.hold_s)
    machine = Machine.here(min(free, free_share()))
    return Reproduction(
        effort,
        machine,
        time.monotonic() - started_s,
        {
            name: dict(zip(FIGURE_3, series(costs, FIGURE_3), strict=True))
            for name, costs in (("V_SN", VIRTUAL), ("P_SN", PURE))
        },
        four_a,
        four_b,
        speeds,
        indexed,
        alone,
        up,
        down,
        switches,
        [
            *model_claims(),
            *figure_4a_claims(four_a, machine),
            *figure_4b_claims(four_b, machine),
            *intra_claims(speeds, alone, machine),
            *elastic_claims(up, down, switches, machine),
        ],
    )


def starting_threads(cores: int, measured: tuple[int, ...]) -> tuple[int, int]:
    """Threads to begin with: half of the cores, so that some can be added, and all of them.

    Only numbers whose greatest rate was measured.

    Example:
        >>> [starting_threads(cores, (1, 2, 4)) for cores in (1, 2, 16)]
        [(1, 2), (1, 2), (4, 4)]
    """
    few = max((n for n in measured if 2 * n <= cores), default=min(measured))
    many = max((n for n in measured if n <= max(cores, 2)), default=max(measured))
    return few, many
