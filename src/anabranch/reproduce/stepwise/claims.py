"""What the stepwise profiling paper claims, and the rules by which our runs are held to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from anabranch.reproduce.claims import Claim, cannot, judge
from anabranch.reproduce.stepwise.claims_figure_11 import LESS, ByMethod, figure_11_claims
from anabranch.reproduce.stepwise.profiling import STELA, STEPWISE, Scaling


def claims_of(
    compared: Mapping[str, ByMethod],
    lines: Mapping[int, Scaling],
    sizes: Mapping[int, Scaling],
    needed: Mapping[int, ByMethod],
    varied: Mapping[str, Mapping[float, Scaling]],
) -> list[Claim]:
    """All claims that the runs at hand can tell of."""
    found = figure_11_claims(compared)
    if len(lines) > 1:
        found += _longer_lines(lines)
    if len(sizes) > 1:
        found += _larger_platforms(sizes)
    found += _resources(needed)
    for name, claims in (("latency_ms", _latency), ("unit", _slice), ("k", _stopping)):
        if name in varied:
            found += claims(varied[name])
    effort = cannot(
        "section 6.3",
        "200 min for WC on 14 nodes: ten configurations of 20 min, and no time for the method",
        f"{len(sizes[max(sizes)].rounds)} configurations of 26 s",
        "time is virtual here",
    )
    return [*found, effort]


# Figures 12 and 13


def _longer_lines(lines: Mapping[int, Scaling]) -> list[Claim]:
    lengths = sorted(lines)
    rounds = [len(lines[n].rounds) for n in lengths]
    gains = [lines[n].final / lines[n].first - 1 for n in lengths]
    listed = ", ".join(map(str, lengths))
    return [
        judge(
            "figure 12a",
            "the effort does not grow in proportion to the operators",
            f"{', '.join(map(str, rounds))} rounds for {listed} operators",
            rounds[-1] / rounds[0] < lengths[-1] / lengths[0],
            "fewer times more rounds than operators, from the shortest line to the longest",
        ),
        judge(
            "figure 12a",
            "longer lines gain less: 33.5, 24 and 20.5 %",
            ", ".join(f"{gain:.0%}" for gain in gains) + f" for {listed} operators",
            all(b < a for a, b in pairwise(gains)),
            "each below the one before; how much depends on costs",
        ),
    ]


def _larger_platforms(sizes: Mapping[int, Scaling]) -> list[Claim]:
    nodes = sorted(sizes)
    rates = [sizes[n].final for n in nodes]
    growth, linear = rates[-1] / rates[0], nodes[-1] / nodes[0]
    return [
        judge(
            "figure 12b",
            "more nodes give more throughput, but not in proportion",
            f"{_list(rates)} tuples/s on {', '.join(map(str, nodes))} nodes: "
            f"{growth:.2f}× on {linear:.2f}× the nodes",
            all(a < LESS * b for a, b in pairwise(rates)) and growth < LESS * linear,
            f"each below {LESS:.0%} of the next, and less than {LESS:.0%} of linear growth",
        )
    ]


def _resources(needed: Mapping[int, ByMethod]) -> list[Claim]:
    savings = [saving for _, _, _, saving in nodes_for(needed)]
    most, least = max(savings, default=0.0), min(savings, default=0.0)
    return [
        judge(
            "figure 13",
            "for the same throughput never more nodes than Stela, and up to 57.1 % fewer",
            f"{most:.0%} fewer at most, {least:.0%} at least",
            least >= 0 and most > 0,
            "never more, and fewer for some target; how many depends on costs",
        )
    ]


def nodes_for(needed: Mapping[int, ByMethod]) -> list[tuple[float, int, int, float]]:
    """Targets that both methods reach, the nodes they need, and the part that is saved."""
    reach = {
        method: [(n, needed[n][method].final) for n in sorted(needed)]
        for method in (STEPWISE, STELA)
    }
    top = min(max(rate for _, rate in reach[method]) for method in reach)
    found = []
    target = 1000.0
    while target <= top:
        least = {m: min(n for n, rate in reach[m] if rate >= target) for m in reach}
        saved = 1 - least[STEPWISE] / least[STELA]
        found.append((target, least[STEPWISE], least[STELA], saved))
        target += 1000.0
    return found


# Figure 14


def _latency(runs: Mapping[float, Scaling]) -> list[Claim]:
    strict, usual, loose = (runs[value] for value in sorted(runs))
    return [
        judge(
            "figure 14a",
            "a looser bound on latency does not necessarily give more throughput",
            f"{loose.final / usual.final:.2f}× with 700 ms instead of 500 ms",
            loose.final <= usual.final * 1.05,
            "at most 5 % more",
        ),
        judge(
            "figure 14a",
            "a bound that is too strict costs throughput",
            f"{strict.final / usual.final:.2f}× with 300 ms instead of 500 ms",
            strict.final < LESS * usual.final,
            f"below {LESS:.0%}",
        ),
    ]


def _slice(runs: Mapping[float, Scaling]) -> list[Claim]:
    fine, usual, coarse = (runs[value] for value in sorted(runs))
    failed = [r for r in fine.rounds[1:] if r.rate > 1.01 * fine.first]
    return [
        judge(
            "figure 14b",
            "with 0.5 start and gain are worse: 90.9 and 79.7 % of those with 0.3",
            f"start {coarse.first / usual.first:.0%}, gain "
            f"{(coarse.final - coarse.first) / max(usual.final - usual.first, 1e-9):.0%}",
            coarse.first < LESS * usual.first and coarse.final < LESS * usual.final,
            f"start and final throughput below {LESS:.0%}",
        ),
        judge(
            "figure 14b",
            "with 0.1 the start is better, and all trials of the second step fail",
            f"start {fine.first / usual.first:.2f}×, {len(failed)} rounds above it",
            usual.first < LESS * fine.first and not failed,
            f"the other start below {LESS:.0%} of it, and no round more than 1 % above it",
        ),
    ]


def _stopping(runs: Mapping[float, Scaling]) -> list[Claim]:
    strict, usual, loose = (runs[value] for value in sorted(runs))
    tried = {k: _third(run) for k, run in zip((1.5, 2.0, 3.0), (strict, usual, loose), strict=True)}
    told = ", ".join(f"k = {k:g}: {count}" for k, count in tried.items()) + " trials"
    return [
        judge(
            "figure 14c",
            "k = 3 leaves the third step out",
            told,
            tried[3.0] == 0 and tried[2.0] > 0,
            "no trial in the third step with 3, some with 2",
        ),
        judge(
            "figure 14c",
            "k = 1.5 makes the third step longer",
            told,
            tried[1.5] > tried[2.0],
            "more trials than with 2",
        ),
    ]


def _third(run: Scaling) -> int:
    """Trials of the third step."""
    return sum(line.endswith("tried") for line in run.journal)


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{value:,.0f}" for value in values)
