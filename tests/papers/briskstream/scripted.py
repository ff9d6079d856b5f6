"""Numbers made up by hand, as the paper would have them, so that every rule can be broken."""

from __future__ import annotations

from anabranch.planning.answer import Answer, RegionChoice
from anabranch.planning.planners.planner import Problem
from papers.briskstream.factors import FactorRate, factors
from papers.briskstream.figures import (
    Accuracy,
    Breakdown,
    Compressed,
    Fixed,
    Gap,
    Handling,
    Pattern,
    Placed,
    Random,
    Scaling,
)
from papers.briskstream.model import rates
from papers.briskstream.paper import Results


def handling(ours: float = 1991.14) -> list[Handling]:
    return [Handling("splitter", 1, 1666.53, 1991.14, ours)]


def accuracy(simulated: float = 110.0) -> list[Accuracy]:
    return [Accuracy("wc", 100.0, 105.0), Accuracy("fd", 100.0, simulated)]


def compressed(*found: tuple[int, float, float]) -> list[Compressed]:
    usual = ((1, 100.0, 9.0), (5, 100.0, 2.0), (15, 80.0, 4.0))
    return [Compressed(*one, 110.0, 3.0) for one in found or usual]


def breakdown(parser: float = 2000.0) -> list[Breakdown]:
    return [Breakdown("parser", 200.0, parser), Breakdown("splitter", 1600.0, 2000.0)]


def scaling(four: float = 3.6, eight: float = 5.0) -> list[Scaling]:
    grown = {1: 2.0, 4: 2 * four, 8: 2 * eight}
    return [Scaling("wc", {1: 1.0, 4: 3.8, 8: 5.5}), Scaling("lr", grown)]


def gaps(real: float = 60.0, free: float = 92.0) -> list[Gap]:
    return [Gap("wc", 50.0, 95.0, 100.0), Gap("lr", real, free, 100.0)]


def fixed(always: float = 80.0, never: float = 30.0) -> list[Fixed]:
    return [Fixed("wc", 100.0, 75.0, 40.0), Fixed("lr", 100.0, always, never)]


def placed(best: float = 90.0, used: float = 0.6) -> list[Placed]:
    rates = {"RLAS": 100.0, "OS": 50.0, "FF": 60.0, "RR": best}
    return [Placed("server-a", "wc", rates, 0.99, 8), Placed("server-b", "wc", rates, used, 5)]


def random_plans(best: float = 0.8) -> list[Random]:
    return [Random("wc", [0.1, 0.4, best])]


def patterns(second: float = 5.0) -> list[Pattern]:
    return [Pattern("server-a", ((0.0, 9.0), (1.0, 0.0))), Pattern("server-b", spread(second))]


def spread(first: float) -> tuple[tuple[float, ...], ...]:
    return ((0.0, first, 0.0), (6.0, 0.0, 0.0), (0.0, 6.0, 0.0))


def factor_rates(jumbo: float = 30.0) -> list[FactorRate]:
    rates = {"one tuple a call": 1.0, "columns": 2.0, "jumbo 16": jumbo}
    return [FactorRate(way, rates.get(way.name, 50.0)) for way in factors((16,))]


def dealt_out(problem: Problem, compress: int = 5, input_rate: float | None = None) -> Answer:
    """A planner that deals out most of the cores by work, and replicas socket by socket."""
    profile, machine = problem.profile, problem.machine
    regions = []
    for operator in profile.operators:
        share = profile.visits[operator.name] * operator.cost / profile.work
        replicas = max(1, int(0.8 * machine.cores * share))
        places = tuple(number % machine.sockets for number in range(replicas))
        regions.append(RegionChoice(((operator.name,),), replicas, places))
    found = rates(profile, regions, machine, input_rate=input_rate)
    return Answer(tuple(regions), found.bounded, found.utilization)


def results() -> Results:
    return Results(
        handling(),
        accuracy(),
        compressed(),
        breakdown(),
        scaling(),
        gaps(),
        fixed(),
        placed(),
        random_plans(),
        patterns(),
        factor_rates(),
        {"fd": 0.0},
    )
