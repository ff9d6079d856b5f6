"""How the reproduction of Pipelined Fission looks: tables, pictures, text and page."""

from __future__ import annotations

from anabranch.pictures import plots
from anabranch.reproduce.pages import Table, claims_table, summary
from anabranch.reproduce.pipelined_fission.bench import APPROACHES as MEASURED
from anabranch.reproduce.pipelined_fission.bench import ROWS_A_BATCH
from anabranch.reproduce.pipelined_fission.engine import EngineCurves
from anabranch.reproduce.pipelined_fission.logwatch import FIGURE_17, PAPER_SPEEDUP
from anabranch.reproduce.pipelined_fission.model import APPROACHES, Curves
from anabranch.reproduce.pipelined_fission.reproduction import (
    FIGURE_4_THREADS,
    Reproduction,
)

COMMAND = "anabranch reproduce pipelined-fission"
FILES = "pipelined-fission-"
"""What names of pictures begin with."""
THROUGHPUT = "tuples per 1000 units of time"


def tables(found: Reproduction) -> list[Table]:
    """The claims first, then what they rest on, figure by figure."""
    return [
        claims_table(found.claims),
        _figure_4(found),
        *(_curves(curves, found.effort.chains) for curves in found.curves),
        _figure_12(found),
        *(_engine(curves, found.effort.engine_chains) for curves in found.engine),
        _figure_17(),
        _figure_18(found),
    ]


def text(found: Reproduction) -> str:
    """All tables for a terminal."""
    return "\n\n".join(
        [
            summary(found.claims, found.machine, found.seconds),
            *(table.text() for table in tables(found)),
        ]
    )


def page(found: Reproduction) -> str:
    """All tables as a Markdown page, with a picture behind each that has one."""
    about = (
        "Pipelined fission for stream programs with dynamic selectivity and partitioned state, by "
        "Gedik, Özsema and Öztürk, Journal of Parallel and Distributed Computing, 2016.\nThe "
        "paper's claims beside what this library computes and measures. Written by "
        f"`{COMMAND} --out DIR`; every verdict follows from the rule beside it."
    )
    parts = [
        "# Pipelined Fission, reproduced",
        about,
        summary(found.claims, found.machine, found.seconds),
        _differences(found),
    ]
    for table in tables(found):
        parts.append(table.markdown())
        name = table.title.partition(":")[0]
        if name.lower().startswith("figure") and name != "Figure 17":
            parts.append(f"![{table.title}]({_file(name)})")
    return "\n\n".join(parts) + "\n"


def pictures(found: Reproduction) -> dict[str, str]:
    """An SVG text for each figure, by file name."""
    drawn = {_file("Figure 4"): _heat_map(found)}
    for curves in found.curves:
        series = {name: _scaled(curves, name) for name in APPROACHES}
        title = f"{curves.figure.capitalize()}: {curves.varied}"
        drawn[_file(curves.figure)] = plots.lines(title, curves.varied, THROUGHPUT, series)
    drawn[_file("Figure 12")] = _times(found)
    for measured in found.engine:
        lines = {
            name: [(point.x, point.rows_per_s[name]) for point in measured.points]
            for name in MEASURED
        }
        title = f"{measured.figure.capitalize()}: {measured.varied}, on the local engine"
        drawn[_file(measured.figure)] = plots.lines(title, measured.varied, "tuples/s", lines)
    log_watch = {
        name: [(float(one.cores), one.lines_per_s[name]) for one in found.figure_18]
        for name in MEASURED
    }
    drawn[_file("Figure 18")] = plots.lines(
        "Figure 18: LogWatch by the model", "cores", "lines/s", log_watch
    )
    return drawn


def _file(figure: str) -> str:
    return f"{FILES}{figure.lower().replace(' ', '-')}.svg"


def _differences(found: Reproduction) -> str:
    overheads, effort = found.overheads_us, found.effort
    return "\n".join(
        [
            "What differs from the paper's setting:",
            "",
            f"- Figures 5 to 11 are means over {effort.chains} chains a point, there 1000; "
            "geometric means, since the paper does not say which. Costs and selectivities are "
            "normal and cut at sensible bounds, partitioned operators share one key: the paper "
            "does not say. `exact` is the optimum, found without enumeration.",
            f"- Figures 13 to 16 run on {found.machine.cores} cores of this machine, there on 12, "
            f"with {effort.engine_chains} chains a point, there 50. Tuples travel as jumbo "
            f"tuples of {ROWS_A_BATCH}. Regions are those of the flow and cannot be cut "
            "elsewhere; each has a thread at least, so the sequential plan is kept to one core.",
            f"- Overheads of the local engine as measured: δ = {overheads.thread_switch:.3f} µs, "
            f"c_p = {overheads.replication:.3f} µs a tuple. Those of the paper's runtime are not "
            "published; Table 1's are 0.095 and 4.75 µs, if a cost of 200 is 19 µs.",
        ]
    )


def _figure_4(found: Reproduction) -> Table:
    return Table(
        "Figure 4: how many plans there are",
        "Chains of stateless operators, by the most threads that a plan may have.",
        ("operators", *(f"{n} threads" for n in FIGURE_4_THREADS)),
        [(str(n), *(f"{plans:,}" for plans in row)) for n, row in found.figure_4.items()],
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
    )


def _figure_12(found: Reproduction) -> Table:
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
    )


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
    )


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


def _figure_18(found: Reproduction) -> Table:
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
    )


def _scaled(curves: Curves, approach: str) -> list[tuple[float, float]]:
    return [(point.x, 1e3 * point.throughput[approach]) for point in curves.points]


def _heat_map(found: Reproduction) -> str:
    return plots.heat_map(
        "Figure 4: digits of the number of plans",
        "most threads",
        "operators",
        [str(n) for n in FIGURE_4_THREADS],
        [str(n) for n in found.figure_4],
        [[float(len(str(plans))) for plans in row] for row in found.figure_4.values()],
    )


def _times(found: Reproduction) -> str:
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
