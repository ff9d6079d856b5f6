"""Plans of BriskStream's applications on its servers, found once and kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from anabranch.planning.answer import RegionChoice
from anabranch.planning.machine import Machine, Matrix
from anabranch.planning.models.briskstream import Rates, rates
from anabranch.planning.planners.planner import Planner, Problem
from anabranch.planning.planners.rlas import rlas
from anabranch.planning.profile import Profile
from anabranch.reproduce.briskstream.inputs import application, server

THOUSAND_PER_S = 1e6
"""A rate per nanosecond in thousand events a second, the unit of the paper's tables."""
TRAY = 4
"""Sockets of the upper tray; the others are farther away."""


@dataclass(frozen=True)
class Planned:
    """A plan and how long it took to find it.

    Attributes:
        regions: What runs where.
        rates: What the model says of it.
        seconds: Time of the search.
    """

    regions: tuple[RegionChoice, ...]
    rates: Rates
    seconds: float

    @property
    def throughput_k(self) -> float:
        """Thousand events a second that reach sinks."""
        return self.rates.bounded * THOUSAND_PER_S

    @property
    def replicas(self) -> int:
        """Over all operators."""
        return sum(region.replicas for region in self.regions)


class Plans:
    """Plans by application, server and number of sockets; each RLAS plan is searched once."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, int], Planned] = {}

    def rlas(self, app: str, on: str, sockets: int | None = None) -> Planned:
        """RLAS's plan, with all sockets or the first ones."""
        machine = first_sockets(server(on), sockets)
        key = (app, on, machine.sockets)
        if key not in self._found:
            self._found[key] = planned(rlas, application(app), machine)
        return self._found[key]


def planned(planner: Planner, profile: Profile, machine: Machine) -> Planned:
    """What a planner finds, timed."""
    begun = perf_counter()
    answer = planner(Problem(profile, machine))
    seconds = perf_counter() - begun
    return Planned(answer.regions, rates(profile, answer.regions, machine), seconds)


def first_sockets(machine: Machine, sockets: int | None) -> Machine:
    """The machine with its first sockets alone.

    Example:
        >>> first_sockets(server("server-a"), 2).latency_ns
        ((0.0, 119.3), (116.0, 0.0))
    """
    if sockets is None or sockets == machine.sockets:
        return machine
    return replace(
        machine,
        name=f"{machine.name}, {sockets} sockets",
        sockets=sockets,
        latency_ns=_corner(machine.latency_ns, sockets),
        bandwidth_mb_s=_corner(machine.bandwidth_mb_s, sockets),
    )


def _corner(matrix: Matrix, size: int) -> Matrix:
    return tuple(row[:size] for row in matrix[:size])


def between_trays_gb_s(found: Rates) -> float:
    """Data that a plan sends from one tray to the other, in GB a second."""
    return sum(
        demand.asked
        for demand in found.demands
        if demand.resource == "link" and (demand.place[0] < TRAY) != (demand.place[1] < TRAY)
    )


def greatest_share(matrix: Sequence[Sequence[float]]) -> float:
    """The part of all fetching that is from one socket, the one with most.

    Example:
        >>> greatest_share([[0, 3], [1, 0]])
        0.75
    """
    total = sum(map(sum, matrix))
    return max(map(sum, matrix)) / total if total else 0.0
