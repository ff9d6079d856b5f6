"""STRETCH (Najdataei and others, 2019) on this machine: models, figures 4 and 5, and its claims."""

from __future__ import annotations

from dataclasses import dataclass

from papers.claims import Claim, Machine, cores_here
from papers.paper import Paper, Reproduction, Table, Tell
from papers.stretch.between_threads import QUOTA
from papers.stretch.claims import (
    elastic_claims,
    figure_4a_claims,
    figure_4b_claims,
    intra_claims,
    model_claims,
)
from papers.stretch.figure4 import FORWARD_ROWS, WORK_ROWS, Contest, figure_4a, figure_4b
from papers.stretch.figure5 import (
    BATCH_ROWS,
    Elastic,
    Intra,
    Phase,
    Single,
    Switched,
    change_load,
    intra,
    single,
    switch_often,
)
from papers.stretch.model import PURE, VIRTUAL, Rates, series

PROVISIONED, DECOMMISSIONED = 1.2, 0.3
"""Loads that threads are added and taken away for."""
FIGURE_3 = (1, 2, 4, 6, 7, 8, 9, 11, 12, 16, 20)


@dataclass(frozen=True)
class Effort:
    """How much is measured.

    Attributes:
        rows: Tuples of each run of figure 4.
        repeats: Runs of each point of figure 4, and of the single thread of figure 5.
        threads_4: Numbers of T^P threads in figure 4.
        threads_5: The same in figure 5; one of them is 1.
        switches: Numbers of threads that a run goes through.
        window_s: The join's window; 5 minutes in the paper.
        seconds: How long each rate is measured.
        hold_s: How long each number of threads is held.
    """

    rows: int = 1_000_000
    repeats: int = 5
    threads_4: tuple[int, ...] = (1, 2, 4, 8)
    threads_5: tuple[int, ...] = (1, 2, 4)
    switches: tuple[int, ...] = (1, 2, 4, 7, 4, 2, 1)
    window_s: float = 12.0
    seconds: float = 5.0
    hold_s: float = 1.5


@dataclass(frozen=True)
class Results:
    """All that was computed and measured."""

    figure_3: dict[str, dict[int, Rates]]
    figure_4a: Contest
    figure_4b: Contest
    intra: list[Intra]
    indexed: Intra
    single: Single
    provisioning: Elastic
    decommissioning: Elastic
    switches: list[Switched]


def measure(effort: Effort, tell: Tell) -> Results:
    """Measure everything, one thing after the other."""
    cores = cores_here()
    tell("figure 4a: sharing against copying, with work")
    four_a = figure_4a(effort.rows, effort.threads_4, effort.repeats)
    tell("figure 4b: sharing against copying, two merged streams")
    four_b = figure_4b(effort.rows, effort.threads_4, effort.repeats)
    tell("figure 5: the band join at full speed")
    speeds = intra(effort.threads_5, effort.window_s, effort.seconds, cores)
    greatest = {one.threads: one.rate_per_s for one in speeds}
    (indexed,) = intra((1,), effort.window_s, effort.seconds, cores, indexed=True)
    tell("figure 5: one thread behind gates and behind buffers")
    alone = single(greatest[1] / 2, effort.window_s, effort.repeats)
    tell("figure 5: provisioning")
    few, many = starting_threads(cores, effort.threads_5)
    window_s, seconds = effort.window_s, effort.seconds
    up = change_load(few, PROVISIONED, greatest[few], window_s, seconds)
    tell("figure 5: decommissioning")
    down = change_load(many, DECOMMISSIONED, greatest[many], window_s, seconds)
    tell("figure 5: reconfigurations")
    switches = switch_often(effort.switches, greatest[1], window_s, effort.hold_s)
    return Results(
        {
            name: dict(zip(FIGURE_3, series(costs, FIGURE_3), strict=True))
            for name, costs in (("V_SN", VIRTUAL), ("P_SN", PURE))
        },
        four_a,
        four_b,
        speeds,
        indexed,
        alone,
        up,
        down,
        switches,
    )


def starting_threads(cores: int, measured: tuple[int, ...]) -> tuple[int, int]:
    """Threads to begin with: half of the cores, so that some can be added, and all of them.

    Only numbers whose greatest rate was measured.

    Example:
        >>> [starting_threads(cores, (1, 2, 4)) for cores in (1, 2, 16)]
        [(1, 2), (1, 2), (4, 4)]
    """
    few = max((n for n in measured if 2 * n <= cores), default=min(measured))
    many = max((n for n in measured if n <= max(cores, 2)), default=max(measured))
    return few, many


def claims(found: Results, machine: Machine) -> list[Claim]:
    """Judge the claims in the order of the figures."""
    return [
        *model_claims(),
        *figure_4a_claims(found.figure_4a, machine),
        *figure_4b_claims(found.figure_4b, machine),
        *intra_claims(found.intra, found.single, machine),
        *elastic_claims(found.provisioning, found.decommissioning, found.switches, machine),
    ]


def tables(found: Reproduction[Effort, Results]) -> list[Table]:
    """Return the tables figure by figure."""
    results = found.results
    return [
        _figure_3(results),
        _contest(
            "Figure 4a: with work",
            f"One stream; each tuple is worked on by one T^P thread. {WORK_ROWS:,} a jumbo tuple.",
            results.figure_4a,
        ),
        _contest(
            "Figure 4b: without work",
            "Two streams, tuples like tweets, merged and passed on. "
            f"{FORWARD_ROWS:,} a jumbo tuple.",
            results.figure_4b,
        ),
        _intra(results),
        _single(results),
        _elastic(results),
        _switches(results),
    ]


def differences(found: Reproduction[Effort, Results]) -> list[str]:
    """Return what differs from the paper's setting."""
    window = found.effort.window_s
    return [
        f"{found.machine.cores} cores here, 36 with 72 hardware threads there. The threads of "
        "figure 4, and those behind gates and buffers in figure 5, belong to one Python process: "
        "outside of array code one of them runs at a time. Otherwise a thread of figure 5 is a "
        "worker process of the local engine; all that a run will need are there from its start, "
        "as the paper's pool of threads.",
        "Tuples travel as jumbo tuples of thousands, there one by one. Latency counts from "
        "the oldest tuple of a jumbo tuple, there from the newest one that a result needs.",
        "P_SN is a copying router and a sorting merger made for this comparison; there it "
        "is Flink 1.6. The tweets are generated.",
        f"The join's window is {window:g} s, there 5 min, filled before anything is "
        "measured. Loads change after the window is full, as there.",
        "ScaleJoin without STRETCH is not rebuilt: what compares those two is left out.",
    ]


def _figure_3(found: Results) -> Table:
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
    full_speed = f"At full speed; at most {QUOTA} jumbo tuples of each sender wait."
    how = f"{note} {full_speed} Processor time is per tuple; medians."
    return Table(title, how, header, rows)


def _intra(found: Results) -> Table:
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
        f"At full speed, in jumbo tuples of {BATCH_ROWS}, of which the engine bounds how many are "
        "under way. The rate is the greatest that both streams together can have; with the index, "
        "pairs are decided without being visited, which the paper does not do.",
        ("threads", "pairs", "tuples/s", "M comparisons/s", "latency ms", "imbalance %"),
        rows,
    )


def _single(found: Results) -> Table:
    named = (("gates", found.single.gated), ("buffers", found.single.buffered))
    return Table(
        "Figure 5: what gates cost",
        f"One T^P thread, the same tuples, at full speed; at most {QUOTA} jumbo tuples of each "
        "sender wait.",
        ("behind", "tuples/s", "latency ms"),
        [(name, f"{run.rate_per_s:,.0f}", f"{run.latency_ms:.0f}") for name, run in named],
    )


def _elastic(found: Results) -> Table:
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
        "follow Table 2. Tuples become due by the load, and wait where they are not taken in.",
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


def _switches(found: Results) -> Table:
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


PAPER = Paper(
    name="stretch",
    title="STRETCH",
    citation="STRETCH: Scalable and Elastic Deterministic Streaming Analysis with Virtual "
    "Shared-Nothing Parallelism, by Najdataei, Nikolakopoulos, Papatriantafilou, Tsigas and "
    "Gulisano, DEBS 2019.",
    beside="what this library does on one machine",
    full=Effort(),
    quick=Effort(
        rows=200_000,
        repeats=3,
        threads_4=(1, 2, 4),
        threads_5=(1, 2),
        switches=(1, 2, 4, 2, 1),
        window_s=1.5,
        seconds=2.0,
        hold_s=0.7,
    ),
    measure=measure,
    results=Results,
    claims=claims,
    tables=tables,
    differences=differences,
    draws=False,
)
