"""What Pipelined Fission claims, computed and measured, and the rules for our numbers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import mean

from papers.claims import Claim, Machine, cannot, judge, judge_on
from papers.pipelined_fission.engine import EngineCurves, EnginePoint
from papers.pipelined_fission.model import PAPER_CORES, PAPER_SPEEDUP, CoresPoint, Curves, SolveTime

OURS, BEST, ONE = "fission", "exact", "sequential"
REPLICAS_ONLY, PIPELINES_ONLY = "fission-only", "pipelining-only"
PARALLEL = (OURS, BEST, REPLICAS_ONLY, PIPELINES_ONLY)
EQUAL = 0.005
"""Differences between computed curves that count as none."""
FLAT = 0.02
FLAT_OVER_CORES = 0.05


def model_claims(found: Sequence[Curves]) -> list[Claim]:
    """Figures 4 to 11, which are computed."""
    by_figure = {curves.figure: curves for curves in found}
    claims = [
        cannot(
            "figure 4",
            "the number of plans grows exponentially with operators and threads",
            "see the table of counts",
            "the paper has a picture without figures; ours counts regions side by side with one "
            "replica as different plans",
        )
    ]
    claims += _figure_5(by_figure["figure 5"]) + _figure_6(by_figure["figure 6"])
    claims += _figure_7(by_figure["figure 7"]) + _figure_8(by_figure["figure 8"])
    claims += _figure_9(by_figure["figure 9"]) + _figure_10(by_figure["figure 10"])
    return claims + _figure_11(by_figure["figure 11"])


def _figure_5(curves: Curves) -> list[Claim]:
    lead = curves.ratios(REPLICAS_ONLY, PIPELINES_ONLY)
    return [
        _better_than_either(curves),
        _close_to_best(curves, 0.05),
        _speedup(curves, 2.7),
        judge(
            curves.figure,
            "with low selectivity, pipelines alone do worse than replicas alone",
            f"replicas alone {lead[0]:.2f}× pipelines alone at {curves.points[0].x:g}, "
            f"{lead[-1]:.2f}× at {curves.points[-1].x:g}",
            lead[0] > 1 + EQUAL and lead[0] > lead[-1],
            "above 1 at the lowest mean, and above what it is at the highest",
        ),
    ]


def _figure_6(curves: Curves) -> list[Claim]:
    lead = curves.ratios(REPLICAS_ONLY, PIPELINES_ONLY)
    return [
        _better_than_either(curves),
        _close_to_best(curves, 0.05),
        _speedup(curves, 2.5),
        judge(
            curves.figure,
            "with low cost replicas alone do worse than pipelines alone",
            f"{lead[0]:.2f}× at {curves.points[0].x:g}",
            lead[0] < 1 - EQUAL,
            "below 1 at the lowest mean",
        ),
        judge(
            curves.figure,
            "with growing cost replicas alone gain on pipelines alone and pass them",
            f"{lead[0]:.2f}× → {lead[-1]:.2f}×",
            lead[-1] > 1 > lead[0],
            "from below 1 to above 1 over the range",
        ),
    ]


def _figure_7(curves: Curves) -> list[Claim]:
    pipelines, replicas = curves.of(PIPELINES_ONLY), curves.of(REPLICAS_ONLY)
    spread = max(pipelines) / min(pipelines) - 1
    return [
        _better_than_either(curves),
        _close_to_best(curves, 0.05),
        judge(
            curves.figure,
            "stateless operators do not change what pipelines alone reach",
            f"{spread:.1%} between lowest and highest",
            spread <= FLAT,
            f"at most {FLAT:.0%}",
        ),
        judge(
            curves.figure,
            "replicas alone gain with more stateless operators",
            f"{replicas[-1] / replicas[0]:.2f}× over the range",
            _rises(replicas),
            "never lower than a point before, and higher at the end",
        ),
    ]


def _figure_8(curves: Curves) -> list[Claim]:
    over_pipelines = curves.ratios(OURS, PIPELINES_ONLY)
    over_replicas = curves.ratios(OURS, REPLICAS_ONLY)
    gaps = _gaps(curves)
    return [
        _better_than_either(curves),
        _up_to(curves, "pipelines alone", over_pipelines, 0.25),
        _up_to(curves, "replicas alone", over_replicas, 0.30),
        judge(
            curves.figure,
            "as good as replicas alone when replication is cheap, as pipelines alone when dear",
            f"{over_replicas[0]:.2f}× replicas alone, {over_pipelines[-1]:.2f}× pipelines alone",
            over_replicas[0] >= 1 - EQUAL and over_pipelines[-1] >= 1 - EQUAL,
            "not below either one at that end of the range",
        ),
        judge(
            curves.figure,
            "the optimum's lead is bigger when replication is cheap, and closes",
            f"{gaps[0]:.1%} at the low end, at most {max(gaps):.1%}, "
            f"{gaps[-1]:.1%} at the high end",
            gaps[-1] <= EQUAL and max(gaps[: len(gaps) // 2]) > gaps[-1],
            f"at most {EQUAL:.1%} at the high end, more in the lower half",
        ),
    ]


def _figure_9(curves: Curves) -> list[Claim]:
    spread = curves.ratios(BEST, ONE)
    return [
        _better_than_either(curves),
        _close_to_best(curves, 0.05),
        judge(
            curves.figure,
            "every approach but the sequential one loses as thread switches get dearer",
            ", ".join(
                f"{name} {curves.of(name)[-1] / curves.of(name)[0]:.2f}×" for name in PARALLEL
            ),
            all(_rises(curves.of(name)[::-1]) for name in PARALLEL)
            and max(curves.of(ONE)) <= min(curves.of(ONE)) * (1 + EQUAL),
            "never higher than a point before, and lower at the end; the sequential one the same",
        ),
        judge(
            curves.figure,
            "all approaches get closer",
            f"the optimum is {spread[0]:.2f}× the sequential one first, {spread[-1]:.2f}× last",
            _rises(spread[::-1]),
            "never farther than a point before, and closer at the end",
        ),
    ]


def _figure_10(curves: Curves) -> list[Claim]:
    half = [point for point in curves.points if point.x >= 8]
    grown = {name: half[-1].throughput[name] / half[0].throughput[name] for name in PARALLEL}
    return [
        _better_than_either(curves),
        _close_to_best(curves, 0.08),
        judge(
            curves.figure,
            "throughput grows to a degree and stays flat",
            ", ".join(f"{name} {ratio:.2f}×" for name, ratio in grown.items())
            + f" from {half[0].x:g} to {half[-1].x:g} cores",
            all(ratio <= 1 + FLAT_OVER_CORES for ratio in grown.values()),
            f"at most {FLAT_OVER_CORES:.0%} more from 8 cores to 12",
        ),
    ]


def _figure_11(curves: Curves) -> list[Claim]:
    lead = curves.ratios(PIPELINES_ONLY, REPLICAS_ONLY)
    nearest = [
        point.throughput[OURS]
        / max(point.throughput[REPLICAS_ONLY], point.throughput[PIPELINES_ONLY])
        for point in curves.points
    ]
    return [
        _better_than_either(curves),
        _close_to_best(curves, 0.05),
        _up_to(curves, "the better one of the two", nearest, 0.18),
        judge(
            curves.figure,
            "with more operators, pipelines alone gain on replicas alone",
            f"{lead[0]:.2f}× → {lead[-1]:.2f}×",
            lead[-1] > lead[0] and max(lead) > 1,
            "higher at the end than at the start, and above 1 somewhere",
        ),
    ]


def _better_than_either(curves: Curves) -> Claim:
    worst = {name: min(curves.ratios(OURS, name)) for name in (REPLICAS_ONLY, PIPELINES_ONLY)}
    most = {name: max(curves.ratios(OURS, name)) for name in (REPLICAS_ONLY, PIPELINES_ONLY)}
    return judge(
        curves.figure,
        "the heuristic does better than replicas alone and than pipelines alone",
        ", ".join(f"{worst[name]:.2f}× to {most[name]:.2f}× {name}" for name in worst),
        min(worst.values()) >= 1 - EQUAL and min(most.values()) > 1 + EQUAL,
        "nowhere below either, and above each somewhere",
    )


def _close_to_best(curves: Curves, within: float) -> Claim:
    gaps = _gaps(curves)
    where = curves.points[gaps.index(max(gaps))].x
    return judge(
        curves.figure,
        f"the heuristic is within {within:.0%} of the optimum",
        f"at most {max(gaps):.1%} below it, at {where:g}",
        max(gaps) <= within,
        f"at most {within:.0%} at every point",
    )


def _speedup(curves: Curves, paper: float) -> Claim:
    gained = max(curves.ratios(OURS, ONE))
    return judge(
        curves.figure,
        f"up to {paper}× the sequential throughput",
        f"up to {gained:.2f}×",
        gained >= paper,
        "at least as much somewhere, on the same four cores",
    )


def _up_to(curves: Curves, what: str, ratios: Sequence[float], paper: float) -> Claim:
    return judge(
        curves.figure,
        f"up to {paper:.0%} above {what}",
        f"up to {max(ratios) - 1:.0%}",
        round(max(ratios) - 1, 2) >= paper,
        "at least as much somewhere, in whole percent",
    )


def _gaps(curves: Curves) -> list[float]:
    return [1 - ratio for ratio in curves.ratios(OURS, BEST)]


def _rises(values: Sequence[float]) -> bool:
    """Whether no value is lower than the one before, and the last above the first."""
    return values[-1] > values[0] and all(b >= a * (1 - EQUAL) for a, b in pairwise(values))


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
