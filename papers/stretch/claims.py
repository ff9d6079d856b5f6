"""What STRETCH claims, and the rules by which our numbers are held against it."""

from __future__ import annotations

from collections.abc import Sequence

from papers.claims import Claim, Machine, cannot, judge, judge_on, listed
from papers.stretch.figure4 import Contest, Point
from papers.stretch.figure5 import Elastic, Intra, Single, Switched
from papers.stretch.model import PURE, VIRTUAL, scales_to, threads_for

NOISE = 0.05
"""Differences that say nothing."""
MODEL_WITHIN = 0.25
LINEAR = 0.8
"""Part of a proportional growth that still counts as linear."""
SIMILAR = 0.2
SUSTAINED = 0.95
LATENCY_KEPT = 1.5
MOST_LATENCY_MS = 20.0
PURE_LATENCY_MS = 200.0
MOST_SWITCH_MS = 40.0
MOST_IMBALANCE_PCT = 2.0

TABLE_2 = {5: (9, 2), 9: (16, 3), 18: (31, 7), 30: (52, 12), 40: (69, 17)}
"""By threads at the start, those after provisioning and after decommissioning."""


def model_claims() -> list[Claim]:
    """Figure 3 and Table 2, which are computed."""
    pure, virtual = scales_to(PURE), scales_to(VIRTUAL)
    ours = {n: (threads_for(n, 1.2), threads_for(n, 0.3)) for n in TABLE_2}
    wrong = [n for n in TABLE_2 if ours[n] != TABLE_2[n]]
    return [
        judge(
            "figure 3",
            "V_SN scales to more threads than P_SN",
            f"V_SN to {virtual}, P_SN to {pure}",
            virtual > pure,
            "the greatest n at which T^P is the bottleneck, with Table 1's costs",
        ),
        judge(
            "table 2",
            "threads after 120 % and 30 % load, for five starting numbers",
            f"{2 * len(TABLE_2) - 2 * len(wrong)} of {2 * len(TABLE_2)} equal",
            not wrong,
            "all ten numbers equal",
        ),
    ]


def figure_4a_claims(found: Contest, machine: Machine) -> list[Claim]:
    """With work."""
    cores = machine.cores
    virtual, pure = found.of("V_SN"), found.of("P_SN")
    counts = _counts(virtual)
    within = [p for p in found.points if p.threads <= cores]
    off = [p.rate_per_s / p.model_per_s - 1 for p in within]
    claims = [
        _faster(machine, "figure 4a", virtual, pure),
        _prompter(machine, "figure 4a", virtual, pure),
        judge_on(
            machine,
            "figure 4a",
            "throughput follows the model",
            f"{listed(off, '{:+.0%}'.format)} off the model",
            all(abs(one) <= MODEL_WITHIN for one in off),
            f"both ways within {MODEL_WITHIN:.0%} of the model with our costs, up to as many T^P "
            f"threads as cores ({cores}), which the model then bounds as well",
        ),
    ]
    stop = scales_to(VIRTUAL)
    paper = "T^O stops both ways in the end, P_SN first"
    best = [max(way, key=lambda point: point.rate_per_s).threads for way in (virtual, pure)]
    ours = f"V_SN fastest with {best[0]}, P_SN with {best[1]} of {counts}"
    if cores < stop + 2 or max(p.threads for p in virtual) <= stop:
        reason = f"it takes {stop} T^P threads, T^I and T^O with a core each; here are {cores}"
        claims.append(cannot("figure 4a", paper, ours, reason))
    else:
        claims.append(judge("figure 4a", paper, ours, best[0] > best[1], "V_SN's best n is higher"))
    return claims


def figure_4b_claims(found: Contest, machine: Machine) -> list[Claim]:
    """Without work."""
    virtual, pure = found.of("V_SN"), found.of("P_SN")
    lost = [1 - way[-1].rate_per_s / way[0].rate_per_s for way in (virtual, pure)]
    latencies = [[point.latency_ms for point in way] for way in (virtual, pure)]
    shown = [listed(way, "{:.0f} ms".format) for way in latencies]
    claims = [
        _faster(machine, "figure 4b", virtual, pure),
        judge_on(
            machine,
            "figure 4b",
            "V_SN loses a little with more threads, P_SN more",
            f"V_SN loses {lost[0]:.0%}, P_SN {lost[1]:.0%} from 1 to {virtual[-1].threads}",
            lost[1] > lost[0],
            "P_SN loses a greater part of its throughput",
        ),
        judge_on(
            machine,
            "figure 4b",
            f"V_SN's latency is always below {MOST_LATENCY_MS:.0f} ms",
            f"{shown[0]} ({_counts(virtual)})",
            max(latencies[0]) < MOST_LATENCY_MS,
            f"below {MOST_LATENCY_MS:.0f} ms with every number of threads",
        ),
    ]
    paper = f"P_SN's latency is always above {PURE_LATENCY_MS:.0f} ms"
    ours = f"{shown[1]} ({_counts(pure)})"
    if min(latencies[1]) > PURE_LATENCY_MS:
        claims.append(judge("figure 4b", paper, ours, True, "above it with every number"))
    else:
        reason = "Flink's buffers decide this; our copies wait in queues of four jumbo tuples"
        claims.append(cannot("figure 4b", paper, ours, reason))
    return claims


def intra_claims(found: Sequence[Intra], single: Single, machine: Machine) -> list[Claim]:
    """Figure 5, one epoch."""
    cores = machine.cores
    gated, plain = single.gated, single.buffered
    within = [one for one in found if one.threads <= cores]
    growth = within[-1].comparisons_per_s / within[0].comparisons_per_s
    paper = "comparisons per second grow linearly with the threads"
    ours = f"{growth:.2f}× from {within[0].threads} to {within[-1].threads} threads"
    if len(within) < 2:
        linear = cannot("figure 5", paper, ours, f"there is {cores} core")
    else:
        wanted = LINEAR * within[-1].threads / within[0].threads
        rule = f"at least {LINEAR:.0%} of proportional growth, up to as many threads as cores"
        linear = judge_on(machine, "figure 5", paper, ours, growth >= wanted, rule)
    return [
        judge_on(
            machine,
            "figure 5",
            "one T^P thread behind gates is as fast as a single thread behind buffers",
            f"{gated.rate_per_s:,.0f} against {plain.rate_per_s:,.0f} tuples/s",
            abs(gated.rate_per_s / plain.rate_per_s - 1) <= SIMILAR,
            f"within {SIMILAR:.0%} of each other",
        ),
        judge_on(
            machine,
            "figure 5",
            "the single thread's latency is the lower one",
            f"{plain.latency_ms:.0f} ms against {gated.latency_ms:.0f} ms behind gates",
            plain.latency_ms < gated.latency_ms,
            "lower, at full speed",
        ),
        linear,
    ]


def elastic_claims(
    up: Elastic, down: Elastic, switches: Sequence[Switched], machine: Machine
) -> list[Claim]:
    """Figure 5, between epochs."""
    every = [up.switch, down.switch, *switches]
    slowest = max(every, key=lambda one: one.command_ms)
    uneven = max(every, key=lambda one: one.imbalance_pct)
    return [
        *_load_claims("provisioning", up, machine),
        *_load_claims("decommissioning", down, machine),
        judge_on(
            machine,
            "figure 5",
            f"a reconfiguration always takes less than {MOST_SWITCH_MS:.0f} ms",
            f"at most {slowest.command_ms:.0f} ms ({slowest.before} → {slowest.after}), "
            f"tuples stood still for {max(one.pause_ms for one in every):.0f} ms at most",
            slowest.command_ms < MOST_SWITCH_MS,
            f"from the command to its end, each of {len(every)}, more threads than cores included",
        ),
        judge(
            "figure 5",
            f"load imbalance is at most {MOST_IMBALANCE_PCT:.0f} %",
            f"at most {uneven.imbalance_pct:.2f} % ({uneven.after} threads)",
            uneven.imbalance_pct <= MOST_IMBALANCE_PCT,
            "coefficient of variation of comparisons over threads, after each reconfiguration",
        ),
    ]


def _load_claims(name: str, found: Elastic, machine: Machine) -> list[Claim]:
    cores = machine.cores
    before, after = found.before, found.after
    threads = f"{before.threads} → {after.threads} threads"
    rate = f"{after.load:.0%} of the greatest rate is taken in after {name}"
    latency = f"{name} does not raise the latency"
    taken = f"{after.sustained:.0%} of the offered tuples, {threads}"
    waited = f"{before.seen.latency_ms:.0f} → {after.seen.latency_ms:.0f} ms, {threads}"
    if after.sustained < SUSTAINED:
        waited += "; it goes on growing, since not all that comes is taken in"
    if after.threads > cores:
        reason = f"{after.threads} threads on {cores} cores cannot do more than {cores}"
        return [
            cannot("figure 5", paper, ours, reason)
            for paper, ours in ((rate, taken), (latency, waited))
        ]
    return [
        judge_on(
            machine,
            "figure 5",
            rate,
            taken,
            after.sustained >= SUSTAINED,
            f"{SUSTAINED:.0%} or more",
        ),
        judge_on(
            machine,
            "figure 5",
            latency,
            waited,
            after.seen.latency_ms <= LATENCY_KEPT * before.seen.latency_ms,
            f"at most {LATENCY_KEPT}× what it was before",
        ),
    ]


def _faster(machine: Machine, where: str, virtual: Sequence[Point], pure: Sequence[Point]) -> Claim:
    ratios = [v.rate_per_s / p.rate_per_s for v, p in zip(virtual, pure, strict=True)]
    paper = "V_SN has the higher throughput"
    return _better(machine, where, paper, virtual, ratios, "the throughput")


def _prompter(
    machine: Machine, where: str, virtual: Sequence[Point], pure: Sequence[Point]
) -> Claim:
    ratios = [p.latency_ms / v.latency_ms for v, p in zip(virtual, pure, strict=True)]
    paper = "V_SN has the lower latency"
    return _better(machine, where, paper, virtual, ratios, "lower latency")


def _better(
    machine: Machine,
    where: str,
    paper: str,
    points: Sequence[Point],
    ratios: Sequence[float],
    what: str,
) -> Claim:
    holds = min(ratios) >= 1 - NOISE and ratios[-1] > 1 + NOISE
    return judge_on(
        machine,
        where,
        paper,
        f"{listed(ratios, '{:.2f}×'.format)} ({_counts(points)})",
        holds,
        f"{what}: nowhere worse, {NOISE:.0%} being noise, and better with the most threads",
    )


def _counts(points: Sequence[Point]) -> str:
    return ", ".join(str(point.threads) for point in points) + " threads"
