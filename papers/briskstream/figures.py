"""BriskStream's tables and figures that are computed: 3, 4, 7, and 8 to 10 and 12 to 15.

Each plan of an application on a server is searched once and kept. The simulator stands in for the
servers, which are not here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from anabranch.engines.simulator.simulation import Simulation
from anabranch.errors import PlanError, Subject
from anabranch.planning.answer import Answer, RegionChoice
from anabranch.planning.machine import Machine, Matrix
from anabranch.planning.models.placed_rates import Fetch, RateModel
from anabranch.planning.models.placed_units import Workload, workload_of
from anabranch.planning.planners.placement_baselines import first_fit, os_placement, round_robin
from anabranch.planning.planners.planner import Planner, Problem
from anabranch.planning.planners.rlas import rlas, rlas_fix_l, rlas_fix_u
from anabranch.planning.planners.search.placing import Placing
from anabranch.planning.planners.search.rlas_search import scale
from anabranch.planning.profile import NANOSECONDS, Profile
from papers.briskstream.inputs import APPLICATIONS, SERVERS, application, server
from papers.briskstream.model import Rates, fetch_ns, rates

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


WARM_UP_SHARE = 0.25
"""Virtual time before counting, as a part of the time counted: queues fill meanwhile."""


def simulated_throughput(
    profile: Profile, regions: Sequence[RegionChoice], machine: Machine, seconds: float
) -> float:
    """Tuples that sinks handle in virtual time, in the inverse of the profile's unit.

    Example:
        >>> from anabranch.planning.profile import OperatorProfile, chain
        >>> profile = chain([OperatorProfile("read", 2.0), OperatorProfile("out", 1.0)], unit="us")
        >>> plan = [RegionChoice((("read",),)), RegionChoice((("out",),))]
        >>> round(simulated_throughput(profile, plan, Machine.of_cores(2), 1.0), 3)
        0.5
    """
    run = Simulation(profile, regions, machine)
    run.advance(WARM_UP_SHARE * seconds)
    before = _handled(run)
    run.advance(seconds)
    units = seconds * 1e9 / NANOSECONDS[profile.unit or "ns"]
    return (_handled(run) - before) / units


def _handled(run: Simulation) -> float:
    sinks = [o.name for o in run.profile.operators if not run.profile.out_of(o.name)]
    return sum(run.totals.operators[name].rows_in for name in sinks)


TABLE_3 = {
    ("splitter", 1): (1666.53, 1991.14),
    ("splitter", 3): (1708.2, 1994.85),
    ("splitter", 4): (2050.63, 2923.65),
    ("splitter", 7): (2371.31, 3196.35),
    ("counter", 1): (611.4, 665.23),
    ("counter", 3): (623.07, 665.92),
    ("counter", 4): (889.92, 837.92),
    ("counter", 7): (870.23, 888.42),
}
"""By operator and the socket it is fed to from socket 0: measured and estimated, in ns a tuple."""
TABLE_4 = {
    "wc": (96_390.8, 104_843.3),
    "fd": (7_172.5, 8_193.9),
    "sd": (12_767.6, 12_530.2),
    "lr": (8_738.3, 9_298.7),
}
"""Measured and estimated, in thousand events a second."""
TABLE_7 = {
    1: (10_140.2, 93.4),
    3: (10_079.5, 48.3),
    5: (96_390.8, 23.0),
    10: (84_955.9, 46.5),
    15: (77_773.6, 45.3),
}
"""By compress ratio: throughput and seconds of the search, as printed."""


@dataclass(frozen=True)
class Handling:
    """Table 3: time per tuple of an operator that is fed from socket 0, in nanoseconds."""

    operator: str
    socket: int
    paper_measured_ns: float
    paper_estimated_ns: float
    estimated_ns: float


@dataclass(frozen=True)
class Accuracy:
    """Table 4: the model's throughput beside the simulator's, in thousand events a second."""

    app: str
    estimated_k: float
    simulated_k: float

    @property
    def error(self) -> float:
        """As the paper defines it: relative to what was measured, here by the simulator."""
        return abs(self.simulated_k - self.estimated_k) / self.simulated_k


@dataclass(frozen=True)
class Compressed:
    """Table 7: what a compress ratio comes to.

    Attributes:
        ratio: Replicas that are placed together.
        throughput_k: Thousand events a second of the plan that the printed algorithms find.
        seconds: How long they take.
        improved_k: Thousand events a second of our RLAS, which improves that plan.
        improved_s: How long it takes.
    """

    ratio: int
    throughput_k: float
    seconds: float
    improved_k: float
    improved_s: float


@dataclass(frozen=True)
class Breakdown:
    """Figure 8: parts of an operator's time per tuple, next to its producer and far from it."""

    operator: str
    execute_ns: float
    fetch_ns: float

    @property
    def times_longer(self) -> float:
        """The time far from the producer as a multiple of the time next to it."""
        return 1 + self.fetch_ns / self.execute_ns


@dataclass(frozen=True)
class Scaling:
    """Figure 9b: throughput by number of sockets, in thousand events a second."""

    app: str
    throughput_k: dict[int, float]

    def speedup(self, sockets: int) -> float:
        """As a multiple of one socket's."""
        return self.throughput_k[sockets] / self.throughput_k[1]


@dataclass(frozen=True)
class Gap:
    """Figure 10: all sockets as they are, without remote access, and as if growth were linear."""

    app: str
    real_k: float
    without_remote_k: float
    ideal_k: float


def table_3() -> list[Handling]:
    """Splitter and counter of word count on server A."""
    machine, profile = server("server-a"), application("wc")
    found = []
    for (name, socket), (measured, estimated) in TABLE_3.items():
        operator = profile.by_name[name]
        fetching = fetch_ns(operator.tuple_bytes, machine, 0, socket, whole=False)
        found.append(Handling(name, socket, measured, estimated, operator.cost + fetching))
    return found


def table_4(plans: Plans, seconds: float) -> list[Accuracy]:
    """The plans of all applications on server A, by the model and by the simulator."""
    machine = server("server-a")
    found = []
    for app in APPLICATIONS:
        plan = plans.rlas(app, "server-a")
        seen = simulated_throughput(application(app), plan.regions, machine, seconds)
        found.append(Accuracy(app, plan.throughput_k, seen * THOUSAND_PER_S))
    return found


def table_7(ratios: Sequence[int]) -> list[Compressed]:
    """Word count on server A with several compress ratios."""
    found = []
    profile, machine = application("wc"), server("server-a")
    for ratio in ratios:
        printed = planned(partial(as_printed, compress=ratio), profile, machine)
        ours = planned(partial(rlas, compress=ratio), profile, machine)
        times = (printed.throughput_k, printed.seconds, ours.throughput_k, ours.seconds)
        found.append(Compressed(ratio, *times))
    return found


def as_printed(problem: Problem, compress: int) -> Answer:
    """RLAS by the printed algorithms alone, without what ours does beyond them."""
    placing = Placing.of(problem)
    counts = scale(placing.model(), placing.room, compress)
    if counts is None:
        raise PlanError(
            Subject("planner", "rlas"),
            "a placement that fits",
            "none",
            "use another compress ratio",
        )
    return placing.answer(counts)


def figure_8() -> list[Breakdown]:
    """Operators of word count behind its source, on server A, at the longest way."""
    machine = server("server-a")
    pairs = [(a, b) for a in range(machine.sockets) for b in range(machine.sockets)]
    farthest = max(pairs, key=lambda pair: machine.latency(*pair))
    return [
        Breakdown(one.name, one.cost, fetch_ns(one.tuple_bytes, machine, *farthest))
        for one in application("wc").operators[1:]
    ]


def figure_9(plans: Plans, sockets: Sequence[int]) -> list[Scaling]:
    """RLAS's plan for every number of sockets of server A."""
    return [
        Scaling(app, {n: plans.rlas(app, "server-a", n).throughput_k for n in sockets})
        for app in APPLICATIONS
    ]


def figure_10(plans: Plans) -> list[Gap]:
    """The plan on all sockets with its remote access for nothing, beside linear growth."""
    machine = server("server-a")
    found = []
    for app in APPLICATIONS:
        plan = plans.rlas(app, "server-a")
        free = rates(application(app), plan.regions, machine, fetch=Fetch.NEVER)
        one = plans.rlas(app, "server-a", 1)
        found.append(
            Gap(
                app,
                plan.throughput_k,
                free.bounded * THOUSAND_PER_S,
                one.throughput_k * machine.sockets,
            )
        )
    return found


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
