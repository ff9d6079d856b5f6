"""BriskStream (Zhang, He, Zhou and He, 2019): its model and plans on its servers.

Tables 3, 4, 7 and figures 8 to 10 and 12 to 15 are computed: by the model, the planners and the
simulator, for the two servers that the paper describes. Figure 16 is measured on this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from anabranch.pictures import plots
from papers.briskstream.claims import (
    factor_claims,
    placement_claims,
    scaling_claims,
    table_claims,
)
from papers.briskstream.factors import FactorRate, factors, measure_factors
from papers.briskstream.figures import (
    TABLE_4,
    TABLE_7,
    TRAY,
    Accuracy,
    Breakdown,
    Compressed,
    Fixed,
    Gap,
    Handling,
    Pattern,
    Placed,
    Plans,
    Random,
    Scaling,
    figure_8,
    figure_9,
    figure_10,
    figure_12,
    figure_13,
    figure_14,
    figure_15,
    table_3,
    table_4,
    table_7,
    tray_traffic,
)
from papers.claims import Claim, Machine
from papers.paper import Paper, Picture, Reproduction, Table, Tell
from papers.plots import bars, heat_map

WITHIN_TRAYS = ("fd", "lr")
"""Applications that the paper says are kept within a tray."""
QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
MILLIONS = 1000.0
STEPS = 50
"""Points of a curve of figure 14."""


@dataclass(frozen=True)
class Effort:
    """How much is computed and measured.

    Attributes:
        sockets: Numbers of sockets of figure 9; 1, 4 and 8 are among them.
        ratios: Compress ratios of Table 7; 5 is among them.
        simulated_s: Virtual seconds of each simulated run.
        random_plans: Plans of figure 14.
        factor_s: About how long each run of figure 16 takes.
        repeats: Runs of each factor.
    """

    sockets: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8)
    ratios: tuple[int, ...] = (1, 3, 5, 10, 15)
    simulated_s: float = 1.0
    random_plans: int = 1000
    factor_s: float = 2.0
    repeats: int = 5


@dataclass(frozen=True)
class Results:
    """All that was computed and measured; `tray_gb_s` is missing from files of earlier runs."""

    handling: list[Handling]
    accuracy: list[Accuracy]
    compressed: list[Compressed]
    breakdown: list[Breakdown]
    scaling: list[Scaling]
    gaps: list[Gap]
    fixed: list[Fixed]
    placed: list[Placed]
    random: list[Random]
    patterns: list[Pattern]
    factors: list[FactorRate]
    tray_gb_s: dict[str, float] = field(default_factory=dict)


def measure(effort: Effort, tell: Tell) -> Results:
    """Compute everything, then measure figure 16."""
    plans = Plans()
    tell("tables 3 and 4: times and throughputs of the model, beside the simulator")
    handling, accuracy = table_3(), table_4(plans, effort.simulated_s)
    tell("table 7: compress ratios")
    compressed = table_7(effort.ratios)
    tell("figures 8, 9 and 10: distances, sockets, gaps to ideal")
    breakdown, scaling, gaps = figure_8(), figure_9(plans, effort.sockets), figure_10(plans)
    tell("figures 12 and 13: other ways to plan")
    fixed, placed = figure_12(plans), figure_13(plans)
    tell("figures 14 and 15: random plans, who fetches from where")
    random, patterns = figure_14(plans, effort.random_plans), figure_15(plans)
    tell("figure 16: factors on the local engine")
    factor_rates = measure_factors(factors(), effort.factor_s, effort.repeats)
    return Results(
        handling,
        accuracy,
        compressed,
        breakdown,
        scaling,
        gaps,
        fixed,
        placed,
        random,
        patterns,
        factor_rates,
        tray_traffic(plans, WITHIN_TRAYS),
    )


def claims(found: Results, machine: Machine) -> list[Claim]:
    """Judge the claims in the order of the paper."""
    return [
        *table_claims(found.handling, found.accuracy, found.compressed),
        *scaling_claims(found.breakdown, found.scaling, found.gaps),
        *placement_claims(found.fixed, found.placed, found.random, found.patterns, found.tray_gb_s),
        *factor_claims(found.factors),
    ]


def differences(found: Reproduction[Effort, Results]) -> list[str]:
    """Return what differs from the paper's setting."""
    return [
        "Its servers are known here by their latencies and bandwidths alone. What it "
        "measured on them is computed by the simulator, which has queues, back-pressure and "
        "contention, but no caches, prefetchers or Java.",
        "Execution times of two operators are published, those of word count's splitter and "
        "counter. All others are times of our own Python functions times one factor, as the "
        "profiles in `papers/briskstream/data` say; sizes and memory traffic are by a rule. Ratios "
        "depend on them, so only their direction is held against the paper.",
        "The model adds up what replicas can handle, near and far ones. In the simulator, "
        "tuples are dealt out evenly and wait, so that the farthest replica slows all others.",
        "A plan that asks more of a socket than it has gets everything slowed down by the "
        "worst overload; the paper had real threads in each other's way.",
        "Fetching costs whole cache lines (eq. 2), except in Table 3, which was printed "
        "without the ceiling.",
        "RLAS is improved where the print falls short; `planning/planners/rlas.py` says how.",
        "Figure 16 is our own local engine on this machine, one socket.",
    ]


def tables(found: Reproduction[Effort, Results]) -> list[Table]:
    """Return the tables in the order of the paper."""
    results = found.results
    return [
        *(make(results) for make in TABLES[:-1]),
        *(_figure_15(pattern) for pattern in results.patterns),
        TABLES[-1](results),
    ]


def _picture(figure: str, svg: Callable[[], str]) -> Picture:
    return Picture(f"briskstream-figure-{figure}.svg", svg)


def _table_3(found: Results) -> Table:
    rows = [
        (
            one.operator,
            f"S0 → S{one.socket}",
            f"{one.paper_measured_ns:.2f}",
            f"{one.paper_estimated_ns:.2f}",
            f"{one.estimated_ns:.2f}",
        )
        for one in found.handling
    ]
    return Table(
        "Table 3: time per tuple by distance",
        "Nanoseconds, server A.",
        ("operator", "from, to", "paper measured", "paper estimated", "ours estimated"),
        rows,
    )


def _table_4(found: Results) -> Table:
    rows = [
        (
            one.app.upper(),
            *_thousands(TABLE_4[one.app]),
            *_thousands((one.simulated_k, one.estimated_k)),
            f"{one.error:.1%}",
        )
        for one in found.accuracy
    ]
    return Table(
        "Table 4: the model against the simulator",
        "Thousand events a second at the sinks under RLAS's plan, eight sockets of server A.",
        (
            "application",
            "paper measured",
            "paper estimated",
            "ours simulated",
            "ours estimated",
            "our relative error",
        ),
        rows,
    )


def _table_7(found: Results) -> Table:
    rows = [
        (
            str(one.ratio),
            f"{TABLE_7[one.ratio][0]:,.1f}",
            f"{TABLE_7[one.ratio][1]:.1f}",
            f"{one.throughput_k:,.0f}",
            f"{one.seconds:.2f}",
            f"{one.improved_k:,.0f}",
            f"{one.improved_s:.2f}",
        )
        for one in found.compressed
    ]
    return Table(
        "Table 7: compress ratio",
        "Word count on server A. Throughput in thousand events a second, time in seconds; as "
        "printed, and with what our RLAS does beyond the print.",
        (
            "r",
            "paper throughput",
            "paper time",
            "as printed",
            "its time",
            "our RLAS",
            "its time",
        ),
        rows,
    )


def _figure_8(found: Results) -> Table:
    rows = [
        (
            one.operator,
            f"{one.execute_ns:.0f}",
            f"{one.fetch_ns:.0f}",
            f"{one.execute_ns + one.fetch_ns:.0f}",
            f"{one.times_longer:.1f}×",
        )
        for one in found.breakdown
    ]
    return Table(
        "Figure 8: time per tuple, near and far",
        "Nanoseconds. Near: executing alone. Far: the longest way on server A. The model has no "
        "other overheads; those of our own engine are in figure 16.",
        ("operator", "execute (near)", "remote access", "far", "far over near"),
        rows,
        _picture("8", partial(_svg_8, found)),
    )


def _svg_8(found: Results) -> str:
    groups = {
        one.operator: {"execute": one.execute_ns, "remote access": one.fetch_ns}
        for one in found.breakdown
    }
    return bars("Figure 8: time per tuple", "ns", groups)


def _figure_9(found: Results) -> Table:
    counts = list(found.scaling[0].throughput_k)
    rows = [
        (one.app.upper(), *(f"{one.throughput_k[n]:,.0f} ({one.speedup(n):.2f}×)" for n in counts))
        for one in found.scaling
    ]
    return Table(
        "Figure 9b: sockets",
        "Thousand events a second under RLAS's plan for so many sockets of server A.",
        ("application", *(str(n) for n in counts)),
        rows,
        _picture("9b", partial(_svg_9, found)),
    )


def _svg_9(found: Results) -> str:
    series = {
        one.app.upper(): [(float(n), one.speedup(n)) for n in one.throughput_k]
        for one in found.scaling
    }
    counts = list(found.scaling[0].throughput_k)
    series["linear"] = [(float(n), float(n)) for n in counts]
    title = f"Figure 9b: throughput over that of one socket (a tray has {TRAY})"
    return plots.lines(title, "sockets", "times", series)


def _figure_10(found: Results) -> Table:
    rows = [
        (
            one.app.upper(),
            *_thousands((one.real_k, one.without_remote_k, one.ideal_k)),
            f"{one.without_remote_k / one.ideal_k:.0%}",
        )
        for one in found.gaps
    ]
    return Table(
        "Figure 10: gaps to ideal",
        "Thousand events a second. Ideal is eight times one socket; without remote access is the "
        "same plan with fetching for nothing.",
        ("application", "RLAS", "without remote access", "ideal", "share of ideal"),
        rows,
        _picture("10", partial(_svg_10, found)),
    )


def _svg_10(found: Results) -> str:
    groups = {
        one.app.upper(): {
            "RLAS": one.real_k / one.ideal_k,
            "without remote access": one.without_remote_k / one.ideal_k,
            "ideal": 1.0,
        }
        for one in found.gaps
    }
    return bars("Figure 10: gaps to ideal", "part of ideal", groups)


def _figure_12(found: Results) -> Table:
    rows = [
        (
            one.app.upper(),
            *_thousands((one.rlas_k, one.always_k, one.never_k)),
            f"{one.rlas_k / one.always_k - 1:+.0%}",
            f"{one.rlas_k / one.never_k - 1:+.0%}",
        )
        for one in found.fixed
    ]
    return Table(
        "Figure 12: what a planner believes of remote access",
        "Thousand events a second on server A, whatever the planner believed.",
        ("application", "RLAS", "fix(L)", "fix(U)", "over fix(L)", "over fix(U)"),
        rows,
        _picture("12", partial(_svg_12, found)),
    )


def _svg_12(found: Results) -> str:
    groups = {
        one.app.upper(): {
            "RLAS": one.rlas_k / MILLIONS,
            "fix(L)": one.always_k / MILLIONS,
            "fix(U)": one.never_k / MILLIONS,
        }
        for one in found.fixed
    }
    return bars("Figure 12: beliefs about remote access", "M events/s", groups)


def _figure_13(found: Results) -> Table:
    strategies = list(found.placed[0].throughput_k)
    rows = [
        (
            one.server,
            one.app.upper(),
            *_thousands([one.throughput_k[name] for name in strategies]),
            f"{one.used_share:.0%}",
            str(one.sockets),
        )
        for one in found.placed
    ]
    return Table(
        "Figure 13: placement strategies",
        "Thousand events a second, with the replicas of RLAS's plan and the input that just "
        "feeds server A.",
        ("server", "application", *strategies, "cores RLAS uses", "sockets"),
        rows,
        _picture("13", partial(_svg_13, found)),
    )


def _svg_13(found: Results) -> str:
    groups = {
        f"{one.app.upper()} {one.server[-1].upper()}": {
            name: k / one.throughput_k["RLAS"] for name, k in one.throughput_k.items()
        }
        for one in found.placed
    }
    return bars("Figure 13: placement, by server", "part of RLAS's throughput", groups)


def _figure_14(found: Results) -> Table:
    rows = [
        (one.app.upper(), *(f"{_quantile(one.shares, share):.0%}" for share in QUANTILES))
        for one in found.random
    ]
    return Table(
        "Figure 14: random plans",
        f"{len(found.random[0].shares)} random plans on server A, as parts of RLAS's throughput.",
        ("application", *(f"{share:.0%} below" for share in QUANTILES)),
        rows,
        _picture("14", partial(_svg_14, found)),
    )


def _svg_14(found: Results) -> str:
    series = {}
    for one in found.random:
        every = max(1, len(one.shares) // STEPS)
        points = list(enumerate(one.shares, 1))[::every]
        series[one.app.upper()] = [(share, rank / len(one.shares)) for rank, share in points]
    title = f"Figure 14: {len(found.random[0].shares)} random plans"
    return plots.lines(title, "part of RLAS's throughput", "share of plans below", series)


def _figure_15(one: Pattern) -> Table:
    rows = [
        (f"S{number}", *(f"{cores:.2f}" for cores in row))
        for number, row in enumerate(one.fetching)
    ]
    return Table(
        f"Figure 15: who fetches from where, {one.server}",
        "Word count. Cores that wait for tuples from a socket (row) to a socket (column).",
        ("from", *(f"to S{number}" for number in range(len(one.fetching)))),
        rows,
        _picture(f"15-{one.server}", partial(_svg_15, one)),
    )


def _svg_15(one: Pattern) -> str:
    title = f"Figure 15: cores that wait for tuples, {one.server}"
    sockets = [f"S{number}" for number in range(len(one.fetching))]
    return heat_map(title, "to", "from", sockets, sockets, one.fetching, "{:.1f}")


def _figure_16(found: Results) -> Table:
    first = found.factors[0].words_per_s
    rows = [
        (
            one.factor.name,
            f"{one.factor.jumbo_rows:,}",
            f"{one.words_per_s:,.0f}",
            f"{one.words_per_s / first:.1f}×",
        )
        for one in found.factors
    ]
    return Table(
        "Figure 16: factors",
        "Word count on our local engine, on this machine; changes are cumulative. The counts of "
        "all words are told.",
        ("factor", "lines a jumbo tuple", "words/s", "over the first"),
        rows,
        _picture("16", partial(_svg_16, found)),
    )


def _svg_16(found: Results) -> str:
    # One word a line, so that names stand beside each other.
    groups = {
        one.factor.name.replace(" ", "\n"): {"words": one.words_per_s / 1e6}
        for one in found.factors
    }
    return bars("Figure 16: factors on our engine", "M words/s", groups)


def _thousands(values: Sequence[float]) -> list[str]:
    return [f"{value:,.0f}" for value in values]


def _quantile(ascending: Sequence[float], share: float) -> float:
    return ascending[min(int(share * len(ascending)), len(ascending) - 1)]


TABLES: Sequence[Callable[[Results], Table]] = (
    _table_3,
    _table_4,
    _table_7,
    _figure_8,
    _figure_9,
    _figure_10,
    _figure_12,
    _figure_13,
    _figure_14,
    _figure_16,
)
"""One table each; figure 15 has one for each server."""

PAPER = Paper(
    name="briskstream",
    title="BriskStream",
    citation="BriskStream: Scaling Data Stream Processing on Shared-Memory Multicore "
    "Architectures, by Zhang, He, Zhou and He, SIGMOD 2019.",
    beside="what this library computes for the paper's servers and measures on one machine",
    full=Effort(),
    quick=Effort(
        sockets=(1, 4, 8),
        ratios=(5, 15),
        simulated_s=0.2,
        random_plans=200,
        factor_s=0.2,
        repeats=1,
    ),
    measure=measure,
    results=Results,
    claims=claims,
    tables=tables,
    differences=differences,
)
