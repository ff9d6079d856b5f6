"""Pipelined Fission (Gedik, Özsema, Öztürk, 2016): its figures by the model and on this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from anabranch.pictures import plots
from anabranch.planning.profile import Overheads
from papers.claims import Claim, Machine
from papers.paper import Paper, Picture, Reproduction, Table, Tell
from papers.pipelined_fission.claims import (
    engine_claims,
    log_watch_claims,
    model_claims,
    time_claims,
)
from papers.pipelined_fission.engine import (
    ROWS_A_BATCH,
    EngineCurves,
    EnginePoint,
    bench,
    engine_sweeps,
    run_log_watch,
    run_sweep,
)
from papers.pipelined_fission.model import (
    APPROACHES,
    FIGURE_17,
    MEASURED,
    PAPER_CORES,
    PAPER_SPEEDUP,
    CoresPoint,
    Curves,
    SolveTime,
    compute,
    figure_4,
    figure_12,
    figure_18,
    replication_for,
    sweeps,
)
from papers.plots import heat_map

FIGURE_4_OPERATORS, FIGURE_4_THREADS = (2, 4, 6, 8, 10), (2, 4, 8, 12, 16)
THROUGHPUT = "tuples per 1000 units of time"


@dataclass(frozen=True)
class Effort:
    """How much is computed and measured.

    Attributes:
        chains: Chains of each point of figures 5 to 11; 1000 in the paper.
        sizes: Operators and cores of figure 12.
        solves: Problems of each size.
        engine_points: Values of each of figures 13 to 16.
        engine_chains: Chains of each; 50 in the paper.
        seconds: How long one core would need for a run.
        repeats: Runs of each plan; medians count.
    """

    chains: int = 150
    sizes: tuple[int, ...] = (2, 3, 4, 5, 6, 7, 8, 9)
    solves: int = 15
    engine_points: int = 4
    engine_chains: int = 3
    seconds: float = 0.6
    repeats: int = 3


@dataclass(frozen=True)
class Results:
    """All that was computed and measured."""

    figure_4: dict[int, list[int]]
    curves: list[Curves]
    figure_12: list[SolveTime]
    overheads_us: Overheads
    engine: list[EngineCurves]
    figure_18: list[CoresPoint]
    log_watch_replication_us: float
    log_watch_here: EnginePoint


def measure(effort: Effort, tell: Tell) -> Results:
    """Compute and measure everything, one thing after the other."""
    curves = []
    for sweep in sweeps():
        tell(f"{sweep.figure}: {sweep.varied}, by the model")
        curves.append(compute(sweep, effort.chains))
    tell("figure 12: how long planners take")
    times = figure_12(effort.sizes, effort.solves)
    tell("figure 18: LogWatch by the model")
    log_watch = figure_18(range(1, PAPER_CORES + 1))
    replication = replication_for(PAPER_SPEEDUP, PAPER_CORES)
    tell("sections 5.3.1 and 5.3.2: overheads of the local engine")
    with bench(effort.seconds) as runs:
        overheads = runs.overheads_us(effort.repeats)
        engine = []
        for figure in engine_sweeps(effort.engine_points):
            tell(f"{figure.figure}: {figure.varied}, on the local engine")
            chains, repeats = effort.engine_chains, effort.repeats
            engine.append(run_sweep(figure, runs, overheads, chains, repeats))
        tell("figure 18: LogWatch on the local engine")
        here = run_log_watch(runs, overheads, effort.repeats)
    return Results(
        figure_4(FIGURE_4_OPERATORS, FIGURE_4_THREADS),
        curves,
        times,
        overheads,
        engine,
        log_watch,
        replication,
        here,
    )


def claims(found: Results, machine: Machine) -> list[Claim]:
    """Judge the claims in the order of the figures."""
    replication, here = found.log_watch_replication_us, found.log_watch_here
    return [
        *model_claims(found.curves),
        *time_claims(found.figure_12),
        *engine_claims(found.engine, machine),
        *log_watch_claims(found.figure_18, replication, here, machine),
    ]


def tables(found: Reproduction[Effort, Results]) -> list[Table]:
    """Return the tables figure by figure."""
    effort, results = found.effort, found.results
    return [
        _figure_4(results),
        *(_curves(curves, effort.chains) for curves in results.curves),
        _figure_12(results),
        *(_engine(curves, effort.engine_chains) for curves in results.engine),
        _figure_17(),
        _figure_18(results),
    ]


def differences(found: Reproduction[Effort, Results]) -> list[str]:
    """Return what differs from the paper's setting."""
    overheads, effort = found.results.overheads_us, found.effort
    return [
        f"Figures 5 to 11 are means over {effort.chains} chains a point, there 1000; "
        "geometric means, since the paper does not say which. Costs and selectivities are "
        "normal and cut at sensible bounds, partitioned operators share one key: the paper "
        "does not say. `exact` is the optimum, found without enumeration.",
        f"Figures 13 to 16 run on {found.machine.cores} cores of this machine, there on 12, "
        f"with {effort.engine_chains} chains a point, there 50. Tuples travel as jumbo "
        f"tuples of {ROWS_A_BATCH}. Regions are those of the flow and cannot be cut "
        "elsewhere; each has a thread at least, so the sequential plan is kept to one core.",
        f"Overheads of the local engine as measured: δ = {overheads.thread_switch:.3f} µs, "
        f"c_p = {overheads.replication:.3f} µs a tuple. Those of the paper's runtime are not "
        "published; Table 1's are 0.095 and 4.75 µs, if a cost of 200 is 19 µs.",
    ]


def _picture(figure: str, svg: Callable[[], str]) -> Picture:
    return Picture(f"pipelined-fission-{figure.lower().replace(' ', '-')}.svg", svg)


def _figure_4(found: Results) -> Table:
    return Table(
        "Figure 4: how many plans there are",
        "Chains of stateless operators, by the most threads that a plan may have.",
        ("operators", *(f"{n} threads" for n in FIGURE_4_THREADS)),
        [(str(n), *(f"{plans:,}" for plans in row)) for n, row in found.figure_4.items()],
        _picture("Figure 4", partial(_svg_4, found)),
    )


def _svg_4(found: Results) -> str:
    return heat_map(
        "Figure 4: digits of the number of plans",
        "most threads",
        "operators",
        [str(n) for n in FIGURE_4_THREADS],
        [str(n) for n in found.figure_4],
        [[float(len(str(plans))) for plans in row] for row in found.figure_4.values()],
    )


def _curves(curves: Curves, chains: int) -> Table:
    rows = [
        (
            f"{point.x:g}",
            *(f"{1e3 * point.throughput[name]:.3f}" for name in APPROACHES),
            f"{point.over('fission', 'exact'):.3f}",
            f"{point.over('fission', 'sequential'):.2f}×",
        )
        for point in curves.points
    ]
    return Table(
        f"{curves.figure.capitalize()}: {curves.varied}",
        f"By the model: {THROUGHPUT}, geometric means over {chains} chains.",
        (curves.varied, *APPROACHES, "of the optimum", "speedup"),
        rows,
        _picture(curves.figure, partial(_curves_svg, curves)),
    )


def _curves_svg(curves: Curves) -> str:
    series = {
        name: [(point.x, 1e3 * point.throughput[name]) for point in curves.points]
        for name in APPROACHES
    }
    title = f"{curves.figure.capitalize()}: {curves.varied}"
    return plots.lines(title, curves.varied, THROUGHPUT, series)


def _figure_12(found: Results) -> Table:
    return Table(
        "Figure 12: how long planners take",
        "Milliseconds of processor time, at the median; n operators on n cores. The paper needs "
        "two minutes for the optimum at n = 9, on another machine.",
        ("n", "plans", "fission", "exact", "exhaustive"),
        [
            (
                str(one.operators),
                f"{one.plans:,}",
                f"{one.fission_ms:.2f}",
                f"{one.exact_ms:.1f}",
                "–" if one.exhaustive_ms is None else f"{one.exhaustive_ms:,.1f}",
            )
            for one in found.figure_12
        ],
        _picture("Figure 12", partial(_svg_12, found)),
    )


def _svg_12(found: Results) -> str:
    series = {
        "fission": [(float(one.operators), one.fission_ms) for one in found.figure_12],
        "exact": [(float(one.operators), one.exact_ms) for one in found.figure_12],
        "exhaustive": [
            (float(one.operators), one.exhaustive_ms)
            for one in found.figure_12
            if one.exhaustive_ms is not None
        ],
    }
    title = "Figure 12: how long planners take"
    return plots.lines(title, "operators, and cores", "milliseconds", series, log_y=True)


def _engine(curves: EngineCurves, chains: int) -> Table:
    rows = [
        (
            f"{point.x:g}",
            *(f"{point.rows_per_s[name]:,.0f}" for name in MEASURED),
            f"{point.of_optimal:.2f}",
            f"{point.speedup:.2f}×",
            f"{point.same_plans:.0%}",
        )
        for point in curves.points
    ]
    return Table(
        f"{curves.figure.capitalize()}: {curves.varied}, on the local engine",
        f"Measured tuples a second, geometric means over {chains} chains; sequential on one core.",
        (curves.varied, *MEASURED, "of the optimum", "speedup", "same plan"),
        rows,
        _picture(curves.figure, partial(_engine_svg, curves)),
    )


def _engine_svg(curves: EngineCurves) -> str:
    series = {
        name: [(point.x, point.rows_per_s[name]) for point in curves.points] for name in MEASURED
    }
    title = f"{curves.figure.capitalize()}: {curves.varied}, on the local engine"
    return plots.lines(title, curves.varied, "tuples/s", series)


def _figure_17() -> Table:
    return Table(
        "Figure 17: the operators of LogWatch",
        "As the paper gives them; microseconds a tuple.",
        ("operator", "kind", "key", "selectivity", "cost"),
        [
            (name, state.value, ", ".join(key), f"{selectivity:g}", f"{cost:g}")
            for name, state, key, selectivity, cost in FIGURE_17
        ],
    )


def _figure_18(found: Results) -> Table:
    here = found.log_watch_here
    rows = [
        (
            str(one.cores),
            *(f"{one.lines_per_s[name]:,.0f}" for name in MEASURED),
            f"{one.speedup('fission'):.2f}×",
        )
        for one in found.figure_18
    ]
    measured = (
        f"{here.x:g}, measured here",
        *(f"{here.rows_per_s[name]:,.0f}" for name in MEASURED),
        f"{here.speedup:.2f}×",
    )
    return Table(
        "Figure 18: LogWatch",
        "Lines a second by the model with Table 1's overheads. With a replication cost of "
        f"{found.log_watch_replication_us:.2f} µs it would give the paper's {PAPER_SPEEDUP}× on 12 "
        "cores.",
        ("cores", *MEASURED, "speedup"),
        [*rows, measured],
        _picture("Figure 18", partial(_svg_18, found)),
    )


def _svg_18(found: Results) -> str:
    series = {
        name: [(float(one.cores), one.lines_per_s[name]) for one in found.figure_18]
        for name in MEASURED
    }
    return plots.lines("Figure 18: LogWatch by the model", "cores", "lines/s", series)


PAPER = Paper(
    name="pipelined-fission",
    title="Pipelined Fission",
    citation="Pipelined fission for stream programs with dynamic selectivity and partitioned "
    "state, by Gedik, Özsema and Öztürk, Journal of Parallel and Distributed Computing, 2016.",
    beside="what this library computes and measures",
    full=Effort(),
    quick=Effort(
        chains=8,
        sizes=(3, 6, 9),
        solves=3,
        engine_points=2,
        engine_chains=1,
        seconds=0.25,
        repeats=1,
    ),
    measure=measure,
    results=Results,
    claims=claims,
    tables=tables,
    differences=differences,
)
