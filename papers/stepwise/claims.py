"""What the stepwise profiling paper claims, and the rules by which our runs are judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from papers.claims import Claim, cannot, judge
from papers.stepwise.profiling import STELA, STEPWISE, THRESHOLD, Round, Scaling

APPLICATIONS = ("WC", "SWC", "TSA")
UNPUBLISHED = "what operators cost is not published; ours are chosen"
LESS = 0.98
"""Part of a throughput below which another one counts as lower: readings have noise."""
MORE_ROUNDS = 2
"""Rounds that one run has to take more: whether a last trial is one more is up to the noise."""
SEED = "with one seed"

ByMethod = Mapping[str, Scaling]


def figure_11_claims(compared: Mapping[str, ByMethod]) -> list[Claim]:
    """By topology and method."""
    return [*_scaling_up(compared), *_applications(compared)]


def _scaling_up(compared: Mapping[str, ByMethod]) -> list[Claim]:
    gains = {name: runs[STEPWISE].final / runs[STELA].first for name, runs in compared.items()}
    claims = [
        judge(
            "figure 11",
            "the profiler scales all topologies up",
            _all(gains, "{:.1f}×"),
            all(gain >= 1.2 for gain in gains.values()),
            "at least 1.2× the throughput of one task each, in each topology",
        )
    ]
    if "Linear" in compared:
        claims += _linear(compared["Linear"][STEPWISE])
    if "Star" in compared:
        star = compared["Star"][STEPWISE]
        claims.append(
            cannot(
                "figure 11b",
                "(3, 3, 48, 24, 24) tasks after six rounds, 64 % above the first",
                f"{_tasks(star)} after {len(star.rounds)} rounds, "
                f"{star.final / star.first - 1:.0%} above",
                UNPUBLISHED + ", and so is what the network carries",
            )
        )
    if "Diamond" in compared:
        diamond = compared["Diamond"][STEPWISE]
        kept = [line for line in diamond.journal if "op3" in line and line.endswith("kept")]
        claims.append(
            judge(
                "figure 11c",
                "the third step adds tasks to the I/O-bound operator, which the ratios left short",
                f"{len(kept)} kept; {_tasks(diamond)}",
                bool(kept),
                "at least one task of op3 added in the third step and kept",
            )
        )
    return claims


def _linear(run: Scaling) -> list[Claim]:
    best = max(r.rate for r in run.rounds)
    worse = [r for a, r in pairwise(run.rounds) if sum(r.tasks) > sum(a.tasks) and _less(r, a)]
    return [
        cannot(
            "figure 11a",
            "Linear: 1,876 tuples/s with (1, 2, 2, 2) tasks, 95.7 % above one task each",
            f"{run.final:,.0f} tuples/s with {_tasks(run)}, {run.final / run.first - 1:.1%} above",
            UNPUBLISHED + "; the operators of the paper also wait for each other inside Java's "
            "random numbers, which no model here knows",
        ),
        judge(
            "figure 11a",
            "a configuration that harms is tried and rejected",
            f"{len(worse)} with more tasks were slower; {run.final / best:.0%} of the best remains",
            bool(worse) and run.final >= 0.9 * best,
            "one or more, and the final throughput is at least 90 % of the best",
        ),
    ]


def _applications(compared: Mapping[str, ByMethod]) -> list[Claim]:
    runs = {name: compared[name] for name in APPLICATIONS if name in compared}
    starts = {n: each[STEPWISE].first / each[STELA].first - 1 for n, each in runs.items()}
    finals = {
        n: each[STEPWISE].final / max(each[STELA].final, each[THRESHOLD].final) - 1
        for n, each in runs.items()
    }
    claims = [
        judge(
            "figure 11d–f",
            "feature profiling gives a better start: 45, 21.1 and 25 % (WC, SWC, TSA)",
            _all(starts, "{:+.0%}"),
            all(_leads(start) for start in starts.values()),
            f"one task each below {LESS:.0%} of it in each application, {SEED}; how much depends "
            "on costs",
        ),
        *_first_rounds(runs),
        judge(
            "figure 11d–f",
            "in the end better than the best alternative",
            _all(finals, "{:+.1%}"),
            all(_leads(lead) for lead in finals.values()),
            f"both below {LESS:.0%} of it in each application, {SEED}",
        ),
        cannot(
            "figure 11d–f",
            "34.1, 40.1 and 31.9 % better than the best alternative (WC, SWC, TSA)",
            _all(finals, "{:+.1%}"),
            UNPUBLISHED,
        ),
        _wrong_moves(runs),
        *_endings(runs),
    ]
    if {"WC", "SWC"} <= runs.keys():
        claims += _two_topologies(runs["WC"][STEPWISE], runs["SWC"][STEPWISE])
    return claims


def _first_rounds(runs: Mapping[str, ByMethod]) -> list[Claim]:
    """What four rounds gain over one task each, on average over the applications."""
    gained = {
        method: fmean(
            max(r.rate for r in each[method].rounds[:4]) / each[STELA].first - 1
            for each in runs.values()
        )
        for method in (STEPWISE, STELA, THRESHOLD)
    }
    told = _all(gained, "{:.2f}")
    claims = []
    for method, paper in ((STELA, 2.48), (THRESHOLD, 11.63)):
        ratio = gained[STEPWISE] / max(gained[method], 1e-9)
        claims.append(
            judge(
                "figure 11d–f",
                f"the first four rounds gain more than those of {method} ({paper} times)",
                f"{ratio:.2f} times ({told} times the throughput of one task each)",
                _leads(ratio - 1),
                f"the other below {LESS:.0%} of it, {SEED}; how much depends on costs",
            )
        )
    return claims


def _wrong_moves(runs: Mapping[str, ByMethod]) -> Claim:
    drops = {
        name: sum(_less(b, a) for a, b in pairwise(each[STELA].rounds))
        for name, each in runs.items()
    }
    return judge(
        "figure 11f",
        "Stela makes moves that lose throughput, and does not take them back",
        _all({n: float(count) for n, count in drops.items()}, "{:.0f}") + " of them",
        sum(drops.values()) > 0,
        f"some round of Stela below {LESS:.0%} of the one before",
    )


def _endings(runs: Mapping[str, ByMethod]) -> list[Claim]:
    ends = {
        name: each[STEPWISE].journal[-1].partition("profiled: ")[2].removesuffix(", noted")
        for name, each in runs.items()
    }
    claims = []
    if "TSA" in ends:
        claims.append(
            judge(
                "figure 11f",
                "TSA ends by revocations in a row",
                ends["TSA"] or "not ended",
                "revocations" in ends["TSA"],
                "that is the reason in the journal",
            )
        )
    near = {name: ends[name] for name in ("WC", "SWC") if name in ends}
    if near:
        claims.append(
            judge(
                "figure 11d, e",
                "WC and SWC end when all operators are within twice their least latency",
                "; ".join(f"{name}: {end or 'not ended'}" for name, end in near.items()),
                all("least latency" in end for end in near.values()),
                "that is the reason in both journals",
            )
        )
    return claims


def _two_topologies(wc: Scaling, swc: Scaling) -> list[Claim]:
    return [
        judge(
            "figure 11d, e",
            "SWC is worse than WC: it reaches 86.8 % of its throughput",
            f"{swc.final / wc.final:.1%}",
            swc.final < LESS * wc.final,
            f"below {LESS:.0%}; a task that sleeps takes a thread in Storm, none of a core here",
        ),
        judge(
            "figure 11d, e",
            "SWC takes more rounds than WC: 9 against 5",
            f"{len(swc.rounds)} against {len(wc.rounds)}",
            len(swc.rounds) >= len(wc.rounds) + MORE_ROUNDS,
            f"{MORE_ROUNDS} rounds more at least, {SEED}",
        ),
    ]


def _leads(lead: float) -> bool:
    """Whether a throughput that is ahead of another by some part of it counts as higher."""
    return LESS * (1 + lead) > 1


def _less(one: Round, other: Round) -> bool:
    return one.rate < LESS * other.rate


def _tasks(run: Scaling) -> str:
    return f"({', '.join(map(str, run.rounds[-1].tasks))})"


def _all(values: Mapping[str, float], form: str) -> str:
    return ", ".join(f"{name} {form.format(value)}" for name, value in values.items())


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
