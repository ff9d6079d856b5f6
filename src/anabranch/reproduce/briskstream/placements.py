"""BriskStream's figures that compare plans: 12, 13, 14 and 15."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from anabranch.planning.answer import Answer
from anabranch.planning.models.briskstream import Matrix, rates
from anabranch.planning.models.placed_rates import RateModel
from anabranch.planning.models.placed_units import Workload, workload_of
from anabranch.planning.planners.first_fit import first_fit
from anabranch.planning.planners.os_placement import os_placement
from anabranch.planning.planners.planner import Problem
from anabranch.planning.planners.rlas import rlas
from anabranch.planning.planners.rlas_fix_l import rlas_fix_l
from anabranch.planning.planners.rlas_fix_u import rlas_fix_u
from anabranch.planning.planners.round_robin import round_robin
from anabranch.reproduce.briskstream.inputs import APPLICATIONS, SERVERS, application, server
from anabranch.reproduce.briskstream.planning import (
    THOUSAND_PER_S,
    Plans,
    between_trays_gb_s,
    greatest_share,
    planned,
)

STRATEGIES: Mapping[str, Callable[..., Answer]] = {
    "OS": os_placement,
    "FF": first_fit,
    "RR": round_robin,
}
"""Table 6."""
JUST_ENOUGH = 1.05
"""Input that a little more than feeds server A."""


@dataclass(frozen=True)
class Fixed:
    """Figure 12: throughput when remote access is counted as it is, always, or never."""

    app: str
    rlas_k: float
    always_k: float
    never_k: float


@dataclass(frozen=True)
class Placed:
    """Figure 13: throughput by placement strategy, the replicas being RLAS's.

    Attributes:
        server: Where.
        app: What.
        throughput_k: Thousand events a second by strategy, RLAS among them.
        used_share: Part of the server's cores that RLAS's plan keeps busy.
        sockets: How many sockets RLAS's plan uses.
    """

    server: str
    app: str
    throughput_k: dict[str, float]
    used_share: float
    sockets: int


@dataclass(frozen=True)
class Random:
    """Figure 14: random plans beside RLAS's, as parts of its throughput, least first."""

    app: str
    shares: list[float]


@dataclass(frozen=True)
class Pattern:
    """Figure 15: cores that wait for tuples from socket (row) to socket (column)."""

    server: str
    fetching: Matrix

    @property
    def from_one_socket(self) -> float:
        """The part of it that is from one socket, the one with most."""
        return greatest_share(self.fetching)


def figure_12(plans: Plans) -> list[Fixed]:
    """On server A; every plan is judged by what it really gets."""
    machine = server("server-a")
    found = []
    for app in APPLICATIONS:
        profile = application(app)
        always, never = (planned(way, profile, machine) for way in (rlas_fix_l, rlas_fix_u))
        real = plans.rlas(app, "server-a")
        found.append(Fixed(app, real.throughput_k, always.throughput_k, never.throughput_k))
    return found


def figure_13(plans: Plans) -> list[Placed]:
    """On both servers, with the input that just feeds server A, as in the paper."""
    return [_placed(plans, on, app) for on in SERVERS for app in APPLICATIONS]


def _placed(plans: Plans, on: str, app: str) -> Placed:
    machine, profile = server(on), application(app)
    sinks = [o.name for o in profile.operators if not profile.out_of(o.name)]
    a_tuple = sum(profile.visits[name] for name in sinks)
    offered = JUST_ENOUGH * plans.rlas(app, "server-a").rates.bounded / a_tuple
    plan = plans.rlas(app, on)
    if plan.rates.bounded > offered * a_tuple:  # there is more room than input: plan for that
        plan = planned(partial(rlas, input_rate=offered), profile, machine)
    fed = rates(profile, plan.regions, machine, input_rate=offered)
    throughput = {"RLAS": fed.bounded * THOUSAND_PER_S}
    replicas = [region.replicas for region in plan.regions]
    for name, strategy in STRATEGIES.items():
        found = strategy(Problem(profile, machine), replicas, input_rate=offered)
        throughput[name] = found.throughput * THOUSAND_PER_S
    used = {socket for region in plan.regions for socket in region.placement}
    return Placed(on, app, throughput, fed.utilization / machine.cores, len(used))


def figure_14(plans: Plans, count: int, seed: int = 0) -> list[Random]:
    """Random plans on server A: replicas added until there is one a core, placed anywhere."""
    machine = server("server-a")
    found = []
    for app in APPLICATIONS:
        model = RateModel(workload_of(application(app), machine), machine)
        counts = random_placements(model.workload, machine.sockets, machine.cores, count, seed)
        got = model.rates(counts).bounded * THOUSAND_PER_S
        best = plans.rlas(app, "server-a").throughput_k
        found.append(Random(app, sorted(float(one / best) for one in got)))
    return found


def random_placements(
    workload: Workload, sockets: int, cores: int, count: int, seed: int = 0
) -> NDArray[np.float64]:
    """Replicas by plan, unit and socket: one of each unit, then random ones up to the cores."""
    draw = np.random.default_rng(seed)
    units = len(workload.units)
    most = [unit.most or cores for unit in workload.units]
    counts = np.zeros((count, units, sockets))
    for plan in range(count):
        added = np.bincount(draw.integers(units, size=max(0, cores - units)), minlength=units)
        for unit, number in enumerate(np.minimum(added + 1, most)):
            np.add.at(counts[plan, unit], draw.integers(sockets, size=number), 1)
    return counts


def figure_15(plans: Plans) -> list[Pattern]:
    """Word count on both servers."""
    return [Pattern(on, plans.rlas("wc", on).rates.fetching) for on in SERVERS]


def tray_traffic(plans: Plans, apps: Sequence[str]) -> dict[str, float]:
    """Data between the trays of server A under RLAS's plans, in GB a second (§6.4)."""
    return {app: between_trays_gb_s(plans.rlas(app, "server-a").rates) for app in apps}
