"""How the reproduction of BriskStream looks: its tables, as text and as a page."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.reproduce.briskstream.model import TABLE_4, TABLE_7
from anabranch.reproduce.briskstream.pictures import DRAWN, file_of
from anabranch.reproduce.briskstream.reproduction import Reproduction
from anabranch.reproduce.pages import Table, claims_table, summary

COMMAND = "anabranch reproduce briskstream"
QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)


def tables(found: Reproduction) -> list[Table]:
    """The claims first, then what they rest on."""
    return [
        claims_table(found.claims),
        _table_3(found),
        _table_4(found),
        _table_7(found),
        _figure_8(found),
        _figure_9(found),
        _figure_10(found),
        _figure_12(found),
        _figure_13(found),
        _figure_14(found),
        *_figure_15(found),
        _figure_16(found),
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
    """All tables as a Markdown page."""
    about = (
        "BriskStream: Scaling Data Stream Processing on Shared-Memory Multicore Architectures, by "
        "Zhang, He, Zhou and He, SIGMOD 2019.\nThe paper's claims beside what this library "
        "computes for the paper's servers and measures on one machine. "
        f"Written by `{COMMAND} --out DIR`; every verdict follows from the rule beside it."
    )
    parts = [
        "# BriskStream, reproduced",
        about,
        summary(found.claims, found.machine, found.seconds),
        _differences(),
    ]
    return "\n\n".join([*parts, *(_with_picture(table) for table in tables(found))]) + "\n"


def _with_picture(table: Table) -> str:
    """A table and, of a figure, the picture beside it."""
    figure = table.title.split(":")[0].removeprefix("Figure ")
    if figure == "15":
        figure = f"15-{table.title.rsplit(' ', 1)[1]}"
    elif figure not in DRAWN:
        return table.markdown()
    return f"{table.markdown()}\n\n![{table.title}]({file_of(figure)})"


def _differences() -> str:
    return "\n".join(
        [
            "What differs from the paper's setting:",
            "",
            "- Its servers are known here by their latencies and bandwidths alone. What it "
            "measured on them is computed by the simulator, which has queues, back-pressure and "
            "contention, but no caches, prefetchers or Java.",
            "- Execution times of two operators are published, those of word count's splitter and "
            "counter. All others are times of our own Python functions times one factor, as the "
            "profiles in `reproduce/data` say; sizes and memory traffic are by a rule. Ratios "
            "depend on them, so only their direction is held against the paper.",
            "- The model adds up what replicas can handle, near and far ones. In the simulator, "
            "tuples are dealt out evenly and wait, so that the farthest replica slows all others.",
            "- A plan that asks more of a socket than it has gets everything slowed down by the "
            "worst overload; the paper had real threads in each other's way.",
            "- Fetching costs whole cache lines (eq. 2), except in Table 3, which was printed "
            "without the ceiling.",
            "- RLAS is improved where the print falls short; `planning/planners/rlas.py` says how.",
            "- Figure 16 is our own local engine on this machine, one socket.",
        ]
    )


def _table_3(found: Reproduction) -> Table:
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


def _table_4(found: Reproduction) -> Table:
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


def _table_7(found: Reproduction) -> Table:
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


def _figure_8(found: Reproduction) -> Table:
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
    )


def _figure_9(found: Reproduction) -> Table:
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
    )


def _figure_10(found: Reproduction) -> Table:
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
    )


def _figure_12(found: Reproduction) -> Table:
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
    )


def _figure_13(found: Reproduction) -> Table:
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
    )


def _figure_14(found: Reproduction) -> Table:
    rows = [
        (one.app.upper(), *(f"{_quantile(one.shares, share):.0%}" for share in QUANTILES))
        for one in found.random
    ]
    return Table(
        "Figure 14: random plans",
        f"{len(found.random[0].shares)} random plans on server A, as parts of RLAS's throughput.",
        ("application", *(f"{share:.0%} below" for share in QUANTILES)),
        rows,
    )


def _figure_15(found: Reproduction) -> list[Table]:
    found_tables = []
    for one in found.patterns:
        sockets = range(len(one.fetching))
        rows = [
            (f"S{number}", *(f"{cores:.2f}" for cores in row))
            for number, row in enumerate(one.fetching)
        ]
        found_tables.append(
            Table(
                f"Figure 15: who fetches from where, {one.server}",
                "Word count. Cores that wait for tuples from a socket (row) to a socket (column).",
                ("from", *(f"to S{number}" for number in sockets)),
                rows,
            )
        )
    return found_tables


def _figure_16(found: Reproduction) -> Table:
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
    )


def _thousands(values: Sequence[float]) -> list[str]:
    return [f"{value:,.0f}" for value in values]


def _quantile(ascending: Sequence[float], share: float) -> float:
    return ascending[min(int(share * len(ascending)), len(ascending) - 1)]
