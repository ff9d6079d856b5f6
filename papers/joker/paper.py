"""Joker (Kahveci and Gedik, 2019): its adaptations on the simulator, with 24 hardware threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import log2

from anabranch.pictures import plots
from papers.claims import Claim, Machine
from papers.joker import replayed, runs
from papers.joker.applications import (
    CALL_US,
    HARDWARE_THREADS,
    JOKERS_BUCKETS,
    MULTIPLICATION_US,
    OVERHEADS,
    SOURCE_US,
)
from papers.joker.claims import curve_claims, shape, trace_claims
from papers.joker.models import MISTAKEN, Compared, compare, model_claims, sizes
from papers.joker.runs import (
    FIGURES,
    LOAD_S,
    LOADS_PER_S,
    Adapted,
    Curves,
    Shapes,
    Step,
    Traces,
)
from papers.paper import Paper, Picture, Reproduction, Table, Tell
from papers.plots import bars

RATE = "thousand tuples/s"
MOST_POINTS = 120
"""Points of a curve over time."""


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


@dataclass(frozen=True)
class Results:
    """All that was simulated; `replayed_*` are the policy's steps under the paper's throughputs."""

    curves: list[Curves]
    speedup_271: float
    traces: list[Traces]
    replayed_10: tuple[Step, ...]
    replayed_20: tuple[Step, ...]
    compared: tuple[Compared, ...]


def measure(effort: Effort, tell: Tell) -> Results:
    """Simulate everything, one figure after the other."""
    curves = []
    for title, draw in _curves_of(effort).items():
        tell(title)
        curves.append(draw())
    speedup_271 = runs.fission_only_with(JOKERS_BUCKETS, effort.multiplications[-1])
    tell("figures 10 to 20: adaptations step by step")
    traces = [figure() for figure in FIGURES]
    steps = replayed.figure_10(), replayed.figure_20()
    tell("figures 22 to 32: against the plans of a model")
    return Results(curves, speedup_271, traces, *steps, compare())


def _curves_of(effort: Effort) -> dict[str, Callable[[], Curves]]:
    costs = effort.multiplications
    return {
        "figure 5: actions and their order": partial(runs.figure_5, costs),
        "figure 6: longer regions": partial(runs.figure_6, costs, effort.operators),
        "figure 8: several regions": partial(runs.figure_8, costs),
        "figure 9: a costly and a cheap region": partial(runs.figure_9, effort.costly),
        "figure 12: what a change has to gain": partial(runs.figure_12, costs),
    }


def claims(found: Results, machine: Machine) -> list[Claim]:
    """Judge the claims in the order of the figures."""
    curves = curve_claims(found.curves, found.speedup_271)
    traces = trace_claims(found.traces, found.replayed_10, found.replayed_20)
    in_order = sorted([*curves, *traces], key=lambda claim: _number(claim.where))
    return in_order + model_claims(found.compared)


def _number(figure: str) -> int:
    return int(figure.removeprefix("figure "))


def tables(found: Reproduction[Effort, Results]) -> list[Table]:
    """Return the tables figure by figure."""
    shown = {each.figure: _curves(each) for each in found.results.curves}
    shown |= {each.figure: _steps(each) for each in found.results.traces}
    in_order = sorted(shown, key=_number)
    return [*(shown[figure] for figure in in_order), _plans(found.results.compared)]


def differences(found: Reproduction[Effort, Results]) -> list[str]:
    """Return what differs from the paper's setting."""
    with_271 = found.results.speedup_271
    return [
        f"{HARDWARE_THREADS} hardware threads, each as fast as if it were alone; there two "
        "share a core. Runs have no noise, so one run stands for the paper's three, and two "
        "seconds show what it averages thirty for. A change of plan costs what the paper "
        "reports: a region lacks 30 % of its speed for 3 s.",
        f"A multiplication takes {1e3 * MULTIPLICATION_US:g} ns, the call of an operator "
        f"{CALL_US:g} µs: 4096 multiplications make the 80 thousand tuples a second of figure "
        f"10a. A source takes {SOURCE_US:g} µs a tuple where the paper tells no rate that "
        "saturates it.",
        f"Handing a tuple to another thread takes {1e3 * OVERHEADS.thread_switch:g} ns, "
        f"ordering what replicas made {1e3 * OVERHEADS.replication:g} ns for each doubling: "
        "chosen, since the paper does not tell: of three sets the one that agrees best with "
        "figure 5, so that figures 5, 6, 8, 9 and 12 agree partly by choice. Replicas take "
        "turns for both, and a thread that waits for its turn is not busy.",
        "Costs of the applications and of figures 14 and 21 are ours, too. Those of word "
        "count, of finance, of network monitoring and of figure 14 were chosen such that the "
        "policy gets to the paper's plans and speedups: only the way there says anything.",
        f"State has 2520 parts, so that up to ten replicas have equal shares; Joker has "
        f"{JOKERS_BUCKETS}, with which replicas alone would end at {with_271:.1f}×.",
        "Figures 10 and 20 run on the simulator, and the policy is also shown the "
        "throughputs that the paper measured, plan by plan.",
        "Joker's policy as published: no replicas of stateless regions, one thread for each "
        "source, one more replica or pipeline at a time.",
    ]


def _picture(figure: str, svg: Callable[[], str]) -> Picture:
    return Picture(f"joker-{figure.lower().replace(' ', '-').replace('–', '-to-')}.svg", svg)


def _curves(curves: Curves) -> Table:
    names = list(curves.series)
    rows = []
    for number, x in enumerate(curves.xs):
        points = [curves.series[name][number] for name in names]
        cells = (f"{p.speedup:.1f}× ({sizes(p.shapes)}, {p.threads} threads)" for p in points)
        rows.append((f"{x:g}", *cells))
    return Table(
        f"{curves.figure.capitalize()}: speedup by {curves.varied}",
        "Throughput over that of one thread a region; pipelines × replicas of each region, and "
        "all threads with those of sources.",
        (curves.varied, *names),
        rows,
        _picture(curves.figure, partial(_curves_svg, curves)),
    )


def _curves_svg(curves: Curves) -> str:
    series = {
        name: [(log2(point.x), point.speedup) for point in points]
        for name, points in curves.series.items()
    }
    title = f"{curves.figure.capitalize()}: speedup"
    return plots.lines(title, f"{curves.varied}, as a power of 2", "speedup", series)


def _steps(traces: Traces) -> Table:
    rows: list[tuple[str, ...]] = []
    for name, run in traces.runs.items():
        rows.append((name, "0", "", f"{run.before_per_s / 1e3:,.0f}", "", "beginning"))
        rows += [
            (
                name,
                f"{step.at_s:.0f}",
                _lengths(step.shapes),
                f"{step.rate_per_s * (1 + step.gain) / 1e3:,.0f}",
                f"{step.gain:+.0%}",
                "kept" if step.kept else "reverted",
            )
            for step in run.steps
        ]
        rows.append(_end(name, run))
    return Table(
        f"{traces.figure.capitalize()}: {traces.title}",
        "What was tried, second by second; lengths of the pipelines × replicas of each region.",
        ("run", "second", "plan", "thousand tuples/s", "gain", "verdict"),
        rows,
        _picture(traces.figure, partial(_steps_svg, traces)),
    )


def _end(name: str, run: Adapted) -> tuple[str, ...]:
    rate = f"{run.after_per_s / 1e3:,.0f}"
    return (name, "end", _lengths(run.shapes), rate, f"{run.speedup:.2f}×", "stays")


def _lengths(shapes: Shapes) -> str:
    return ", ".join(f"{name} {shape(*each)}" for name, each in shapes.items())


def _steps_svg(traces: Traces) -> str:
    series = {name: _points(run) for name, run in traces.runs.items()}
    if traces.figure == "figure 11":
        offered = []
        for number, rate in enumerate(LOADS_PER_S):
            offered += [(LOAD_S * number, rate / 1e3), (LOAD_S * (number + 1) - 1, rate / 1e3)]
        series = {"offered": offered, **series}
    title = f"{traces.figure.capitalize()}: {traces.title}"
    return plots.lines(title, "second", RATE, series)


def _points(run: Adapted) -> list[tuple[float, float]]:
    step = -(-len(run.rates) // MOST_POINTS)
    seconds = range(0, len(run.rates), step)
    return [(float(second + 1), run.rates[second] / 1e3) for second in seconds]


def _plans(found: tuple[Compared, ...]) -> Table:
    rows = []
    for each in found:
        for name, planned in (
            ("Joker", each.joker),
            ("model", each.model),
            (f"model told {MISTAKEN:g}× the overheads", each.mistaken),
        ):
            rate = f"{planned.rate_per_s / 1e3:,.0f}"
            plan = _lengths(planned.shapes)
            rows.append((f"{each.factor:g}", name, plan, str(planned.threads), rate))
    return Table(
        "Figures 22–32: Joker and the plans of Pipelined Fission's heuristic",
        "A chain as in figure 21, with costs chosen here; all selectivities are multiplied by the "
        "factor.",
        ("factor", "who", "plan", "threads", "thousand tuples/s"),
        rows,
        _picture("Figures 22–32", partial(_plans_svg, found)),
    )


def _plans_svg(found: tuple[Compared, ...]) -> str:
    groups = {
        f"{each.factor:g}": {
            "Joker": each.joker.rate_per_s / 1e3,
            "model": each.model.rate_per_s / 1e3,
            "model, mistaken": each.mistaken.rate_per_s / 1e3,
        }
        for each in found
    }
    return bars("Figure 32: throughput by factor of selectivities", RATE, groups)


PAPER = Paper(
    name="joker",
    title="Joker",
    citation="Joker: Elastic stream processing with organic adaptation, by Kahveci and Gedik, "
    "Journal of Parallel and Distributed Computing, 2019.",
    beside="what the policy `organic` does on the simulator",
    full=Effort(),
    quick=Effort((8, 128, 2048), (32, 256, 2048), (2, 8)),
    measure=measure,
    results=Results,
    claims=claims,
    tables=tables,
    differences=differences,
    virtual=True,
)
