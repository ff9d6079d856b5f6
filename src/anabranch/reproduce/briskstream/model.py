"""BriskStream's tables and figures that rest on its model: 3, 4, 7 and 8, 9, 10."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from anabranch.errors import PlanError, Subject
from anabranch.planning.answer import Answer
from anabranch.planning.models.briskstream import rates
from anabranch.planning.models.placed_rates import Fetch
from anabranch.planning.models.placed_units import fetch_ns
from anabranch.planning.planners.planner import Problem
from anabranch.planning.planners.rlas import rlas
from anabranch.planning.planners.search.placing import Placing
from anabranch.planning.planners.search.replica_scaling import scale
from anabranch.reproduce.briskstream.inputs import APPLICATIONS, application, server
from anabranch.reproduce.briskstream.planning import THOUSAND_PER_S, Plans, planned
from anabranch.reproduce.briskstream.simulated import simulated_throughput

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
