"""How the reproduction of STRETCH looks: its tables, as text and as a page."""

from __future__ import annotations

from anabranch.reproduce.pages import Table, claims_table, summary
from anabranch.reproduce.stretch.elastic import Elastic, Phase
from anabranch.reproduce.stretch.figure4 import FORWARD_ROWS, WORK_ROWS, Contest
from anabranch.reproduce.stretch.reproduction import Reproduction

COMMAND = "anabranch reproduce stretch"


def tables(found: Reproduction) -> list[Table]:
    """The claims first, then what they rest on."""
    return [
        claims_table(found.claims),
        _figure_3(found),
        _contest(
            "Figure 4a: with work",
            f"One stream; each tuple is worked on by one T^P thread. {WORK_ROWS:,} a batch.",
            found.figure_4a,
        ),
        _contest(
            "Figure 4b: without work",
            f"Two streams, tuples like tweets, merged and passed on. {FORWARD_ROWS:,} a batch.",
            found.figure_4b,
        ),
        _intra(found),
        _single(found),
        _elastic(found),
        _switches(found),
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
        "STRETCH: Scalable and Elastic Deterministic Streaming Analysis with Virtual "
        "Shared-Nothing Parallelism, by Najdataei, Nikolakopoulos, Papatriantafilou, Tsigas and "
        "Gulisano, DEBS 2019.\nThe paper's claims beside what this library does on one machine. "
        f"Written by `{COMMAND} --out DIR`; every verdict follows from the rule beside it."
    )
    parts = [
        "# STRETCH, reproduced",
        about,
        summary(found.claims, found.machine, found.seconds),
        _differences(found),
    ]
    return "\n\n".join([*parts, *(table.markdown() for table in tables(found))]) + "\n"


def _differences(found: Reproduction) -> str:
    window = found.effort.window_s
    return "\n".join(
        [
            "What differs from the paper's setting:",
            "",
            f"- {found.machine.cores} cores here, 36 with 72 hardware threads there; threads of "
            "one Python process, which share its interpreter lock outside of array code.",
            "- Tuples travel as jumbo tuples of thousands, there one by one. Latency counts from "
            "the oldest tuple of a jumbo tuple, there from the newest one that a result needs.",
            "- P_SN is a copying router and a sorting merger made for this comparison; there it "
            "is Flink 1.6. The tweets are generated.",
            f"- The join's window is {window:g} s, there 5 min, filled before anything is "
            "measured. Loads change after the window is full, as there.",
            "- ScaleJoin without STRETCH is not rebuilt: what compares those two is left out.",
        ]
    )


def _figure_3(found: Reproduction) -> Table:
    rows = [
        (
            str(n),
            *(f"{rate:.3f}" for rate in found.figure_3["V_SN"][n]),
            *(f"{rate:.3f}" for rate in found.figure_3["P_SN"][n]),
        )
        for n in found.figure_3["V_SN"]
    ]
    return Table(
        "Figure 3: the model",
        "Greatest rates in tuples per d^I, with Table 1's costs.",
        ("threads", *(f"{way} {who}" for way in ("V_SN", "P_SN") for who in ("T^I", "T^P", "T^O"))),
        rows,
    )


def _contest(title: str, note: str, found: Contest) -> Table:
    rows = [
        (
            str(p.threads),
            p.way,
            f"{p.rate_per_s:,.0f}",
            f"{p.model_per_s:,.0f}",
            f"{p.latency_ms:.1f}",
            *(f"{cost:.3f}" for cost in p.cpu_us),
        )
        for p in found.points
    ]
    header = ("threads", "way", "tuples/s", "model", "latency ms", "T^I µs", "T^P µs", "T^O µs")
    return Table(title, f"{note} Processor time is per tuple; medians.", header, rows)


def _intra(found: Reproduction) -> Table:
    named = [*((one, "every pair") for one in found.intra), (found.indexed, "sorted index")]
    rows = [
        (
            str(one.threads),
            how,
            f"{one.rate_per_s:,.0f}",
            f"{one.comparisons_per_s / 1e6:,.0f}",
            f"{one.latency_ms:.0f}",
            f"{one.imbalance_pct:.2f}",
        )
        for one, how in named
    ]
    return Table(
        "Figure 5: the band join in one epoch",
        "At full speed. The rate is the greatest that both streams together can have; with the "
        "index, pairs are decided without being visited, which the paper does not do.",
        ("threads", "pairs", "tuples/s", "M comparisons/s", "latency ms", "imbalance %"),
        rows,
    )


def _single(found: Reproduction) -> Table:
    named = (("gates", found.single.gated), ("buffers", found.single.buffered))
    return Table(
        "Figure 5: what gates cost",
        "One T^P thread, the same tuples.",
        ("behind", "tuples/s", "latency ms"),
        [(name, f"{run.rate_per_s:,.0f}", f"{run.latency_ms:.0f}") for name, run in named],
    )


def _elastic(found: Reproduction) -> Table:
    rows = [
        row
        for name, change in (
            ("provisioning", found.provisioning),
            ("decommissioning", found.decommissioning),
        )
        for row in _phases(name, change)
    ]
    return Table(
        "Figure 5: another load, another number of threads",
        "Loads are parts of the greatest rate of the threads at the start; threads after it "
        "follow Table 2.",
        (
            "change",
            "threads",
            "load",
            "offered/s",
            "taken in/s",
            "M comparisons/s",
            "latency ms",
            "imbalance %",
        ),
        rows,
    )


def _phases(name: str, change: Elastic) -> list[tuple[str, ...]]:
    return [_phase(name, "before", change.before), _phase(name, "after", change.after)]


def _phase(name: str, when: str, phase: Phase) -> tuple[str, ...]:
    return (
        f"{name}, {when}",
        str(phase.threads),
        f"{phase.load:.0%}",
        f"{phase.offered_per_s:,.0f}",
        f"{phase.seen.rate_per_s:,.0f}",
        f"{phase.seen.comparisons_per_s / 1e6:,.0f}",
        f"{phase.seen.latency_ms:.0f}",
        f"{phase.seen.imbalance_pct:.2f}",
    )


def _switches(found: Reproduction) -> Table:
    every = [found.provisioning.switch, found.decommissioning.switch, *found.switches]
    return Table(
        "Figure 5: reconfigurations",
        "From the command to the end of the change, and how long tuples stood still meanwhile.",
        ("threads", "command to end ms", "pause ms", "imbalance % after"),
        [
            (
                f"{one.before} → {one.after}",
                f"{one.command_ms:.1f}",
                f"{one.pause_ms:.1f}",
                f"{one.imbalance_pct:.2f}",
            )
            for one in every
        ],
    )
