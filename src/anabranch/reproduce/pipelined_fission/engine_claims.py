"""What Pipelined Fission claims to have measured, and the rules by which we judge ours."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from anabranch.reproduce.claims import Claim, cannot, judge, judge_on
from anabranch.reproduce.machine import Machine
from anabranch.reproduce.pipelined_fission.claims import BEST, ONE, OURS
from anabranch.reproduce.pipelined_fission.engine import EngineCurves, EnginePoint
from anabranch.reproduce.pipelined_fission.logwatch import PAPER_CORES, PAPER_SPEEDUP, CoresPoint
from anabranch.reproduce.pipelined_fission.model import SolveTime

PAPER_HEURISTIC_MS = 5.0
NOISE = 0.05
"""Differences between measurements that say nothing."""
ALIKE = 0.10
"""What the paper calls close on its own runtime."""
GAIN = 1.1
"""What a plan for all cores gains on one core, if there is anything to compare."""
GROWTH = 5.0
WITHIN = {"figure 13": 0.15, "figure 14": 0.10, "figure 15": 0.10, "figure 16": 0.10}
"""How close measured throughputs of the heuristic's plans are to those of the optimal ones."""
LESS_WITH = {"figure 13": "selectivity", "figure 14": "cost", "figure 15": "number"}


def time_claims(found: Sequence[SolveTime]) -> list[Claim]:
    """Figure 12."""
    largest = found[-1]
    size = f"{largest.operators} operators and {largest.cores} cores"
    return [
        judge(
            "figure 12",
            f"the heuristic takes less than {PAPER_HEURISTIC_MS:.0f} ms",
            f"at most {max(one.fission_ms for one in found):.2f} ms, at the median of each size",
            max(one.fission_ms for one in found) < PAPER_HEURISTIC_MS,
            f"below it at every size up to {size}",
        ),
        _search_claim(found),
    ]


def _search_claim(found: Sequence[SolveTime]) -> Claim:
    largest = found[-1]
    searched = [one for one in found if one.exhaustive_ms is not None]
    first, last = searched[0], searched[-1]
    growth = (last.exhaustive_ms or 0.0) / (first.exhaustive_ms or 1.0)
    return judge(
        "figure 12",
        "enumerating all plans takes dramatically longer with size: two minutes at 9 operators and "
        "9 cores, too long while a program runs",
        f"{growth:,.0f}× from {first.operators} to {last.operators}, where it takes "
        f"{(last.exhaustive_ms or 0.0) / 1e3:.1f} s; `exact` needs no enumeration: "
        f"{largest.exact_ms:.1f} ms at {largest.operators}",
        growth >= GROWTH ** ((last.operators - first.operators) / 2),
        f"{GROWTH:.0f}× or more for every two operators and cores; the seconds are not compared: "
        "another machine and language",
    )


def engine_claims(found: Sequence[EngineCurves], machine: Machine) -> list[Claim]:
    """Figures 13 to 16, which are measured."""
    claims = []
    for curves in found:
        within = WITHIN[curves.figure]
        reached = [point.of_optimal for point in curves.points]
        gained = mean(point.speedup for point in curves.points)
        claims.append(
            judge_on(
                machine,
                curves.figure,
                f"the heuristic's plans are within {within:.0%} of the optimal ones",
                f"{min(reached):.2f} to {max(reached):.2f} of them; {gained:.2f}× one core",
                min(reached) >= 1 - within and gained >= GAIN,
                f"at least {1 - within:.0%} at every point, and {GAIN}× one core on average, "
                f"on {machine.cores} cores",
            )
        )
    by_figure = {curves.figure: curves for curves in found}
    claims += [_falls(by_figure[figure], what, machine) for figure, what in LESS_WITH.items()]
    return [*claims, *_kind_claims(by_figure["figure 16"], machine)]


def _falls(curves: EngineCurves, what: str, machine: Machine) -> Claim:
    ends = {
        name: curves.points[-1].rows_per_s[name] / curves.points[0].rows_per_s[name]
        for name in (ONE, OURS, BEST)
    }
    return judge_on(
        machine,
        curves.figure,
        f"all approaches lose throughput with the operators' {what}",
        ", ".join(f"{name} {ratio:.2f}×" for name, ratio in ends.items()) + " over the range",
        all(ratio < 1 for ratio in ends.values()),
        "less at the end of the range than at its start",
    )


def _kind_claims(curves: EngineCurves, machine: Machine) -> list[Claim]:
    alone = [point.rows_per_s[ONE] for point in curves.points]
    gained = [point.speedup for point in curves.points]
    return [
        judge_on(
            machine,
            curves.figure,
            "the kinds of operators do not change the sequential throughput",
            f"{max(alone) / min(alone) - 1:.0%} between lowest and highest",
            max(alone) / min(alone) - 1 <= 2 * NOISE,
            f"at most {2 * NOISE:.0%}",
        ),
        judge_on(
            machine,
            curves.figure,
            "throughput grows with the fraction of stateless operators",
            f"{gained[0]:.2f}× one core → {gained[-1]:.2f}×",
            gained[-1] > gained[0] * (1 + NOISE),
            f"more than {NOISE:.0%} more over one core at the end of the range than at its start",
        ),
    ]


def log_watch_claims(
    model: Sequence[CoresPoint], replication_us: float, here: EnginePoint, machine: Machine
) -> list[Claim]:
    """Figures 17 and 18."""
    most = model[-1]
    apart = max(abs(one.speedup(OURS) / one.speedup(BEST) - 1) for one in model)
    paper = f"{PAPER_SPEEDUP}× the sequential throughput on {most.cores} cores"
    claims = [
        judge(
            "figure 18",
            "the heuristic and the optimum are alike",
            f"at most {apart:.1%} apart, by the model with Table 1's overheads",
            apart <= ALIKE,
            f"within {ALIKE:.0%} on every number of cores",
        ),
        cannot(
            "figure 18",
            paper,
            f"{most.speedup(OURS):.1f}× by the model with Table 1's overheads; {PAPER_SPEEDUP}× if "
            f"ordering replicas takes {replication_us:.2f} µs instead of 4.75 µs",
            "the overheads of the paper's runtime are not published, and they decide this",
        ),
    ]
    if machine.cores < most.cores:
        reason = f"{machine.cores} cores here, {most.cores} there"
        ours = f"{here.speedup:.2f}× on {machine.cores} cores of this machine"
        claims.append(cannot("figure 18", f"measured: {paper}", ours, reason))
    claims.append(
        judge_on(
            machine,
            "figure 18",
            "LogWatch scales well",
            f"{here.speedup:.2f}× on {machine.cores} cores, measured",
            machine.cores > 1 and here.speedup >= PAPER_SPEEDUP / PAPER_CORES * machine.cores,
            f"at least the paper's {PAPER_SPEEDUP / PAPER_CORES:.0%} of the cores",
        )
    )
    return claims
