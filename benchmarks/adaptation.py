"""Tuned while it runs: does `auto` find what trying every plan finds?

Word count and a chain with one dear operator, on threads and on Spark. First every plan within the
bounds of this machine is tried, one after another in one run, since a plan is changed in
milliseconds. Then a fresh run begins with one copy of everything and `auto` tunes it. At last the
best of the tried plans and the one that `auto` came to are measured again, in turn. The load is
also made to rise and fall, to see threads given back, and counts of tuned runs are compared.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise, product
from typing import Any

from harness import Report, main
from model_cases import busy, words

import anabranch as ab
from anabranch.adapt.guards import threads
from anabranch.apps.word_count import split, zipf_lines
from anabranch.engines.handle import Run
from anabranch.engines.measuring.busy_flows import CountingSink
from anabranch.events import Decision, Event, Observation, Observed, Reconfiguration
from anabranch.flow import Flow
from anabranch.graph import StateKind
from anabranch.planning.plan import Plan
from anabranch.planning.profile import OperatorProfile, chain
from anabranch.planning.regions import RegionKind, regions
from papers.stretch.pace import Pace, PacedSource

CHAIN = chain(
    [
        OperatorProfile("parse", 1.0),
        OperatorProfile("score", 9.0, selectivity=0.8),
        OperatorProfile("count", 2.0, state=StateKind.PARTITIONED, key=("user",)),
        OperatorProfile("number", 1.0, state=StateKind.STATEFUL),
    ],
    unit="us",
)
MOST_REPLICAS = {"local": 3, "spark": 2}
"""More tasks than slots only wait for each other."""
MOST_READERS = 2
SPARK_BATCHES = (262_144, 1_048_576)
LONGEST_BATCH_S = 2.0
"""As long a batch as the policy allows itself: results would come later still."""
FINALISTS = 3
LOW_S, HIGH_S = 10.0, 40.0


@dataclass(frozen=True)
class Bench:
    """An engine, and how long it is looked at.

    Attributes:
        engine: Its name.
        settle: Periods that do not count after a change.
        look: Periods that do.
        tune_s: How long `auto` has at most.
        quiet: Periods without a decision that end the tuning.
        batches: Rows of a batch to try.
    """

    engine: str
    settle: int
    look: int
    tune_s: float
    quiet: int
    batches: tuple[int, ...] = ()


LOCAL = Bench("local", 1, 2, 60.0, 15)
SPARK = Bench("spark", 1, 2, 90.0, 15, SPARK_BATCHES)
SPARK_CHAIN = replace(SPARK, batches=(32_768, 131_072))
"""Its tuples cost ten times as much, and its batches shall not take longer."""


@dataclass
class Ear:
    """Hears a run, and lets somebody wait for what it tells."""

    seen: deque[Observation] = field(default_factory=deque)
    changes: list[Reconfiguration] = field(default_factory=list)
    decided: list[Decision] = field(default_factory=list)

    def hear(self, event: Event) -> None:
        match event:
            case Observed():
                self.seen.append(event.observation)
            case Reconfiguration():
                self.changes.append(event)
                self.seen.clear()
            case Decision():
                self.decided.append(event)
                print(f"  {event}", file=sys.stderr)


def measured(handle: Run, ear: Ear, plan: Plan, bench: Bench) -> float:
    """Rows a second under a plan, which is put in force first."""
    if handle.plan != plan:
        handle.reconfigure(plan)
        while handle.plan != plan:
            handle.await_termination(0.02)
    ear.seen.clear()
    while len(ear.seen) < bench.settle + bench.look:
        handle.await_termination(0.02)
    looked = list(ear.seen)[bench.settle :]
    if bench.batches and looked[-1].times.total_s > LONGEST_BATCH_S:
        return 0.0
    before = list(ear.seen)[bench.settle - 1].at_s
    return sum(each.rows_in for each in looked) / (looked[-1].at_s - before)


def all_plans(flow: Flow, bench: Bench) -> list[Plan]:
    """Every plan within small bounds: replicas, readers, pipelines, and on Spark batches."""
    choices: list[list[Callable[[Plan], Plan]]] = []
    for region in regions(flow):
        if region.kind is RegionKind.SINK:
            continue
        if region.kind is RegionKind.SOURCE:
            choices.append([_reading(region.name, n) for n in range(1, MOST_READERS + 1)])
            continue
        if region.replicable:
            choices.append(
                [_copies(region.name, n) for n in range(1, MOST_REPLICAS[bench.engine] + 1)]
            )
        if len(region.steps) > 1:
            choices.append([_cut(region.name, cut) for cut in _cuttings(len(region.steps))])
    if bench.batches:
        choices.append([_batch(rows) for rows in bench.batches])
    plans = []
    for choice in product(*choices):
        plan = Plan.sequential(flow)
        for change in choice:
            plan = change(plan)
        plans.append(plan)
    return plans


def _reading(source: str, readers: int) -> Callable[[Plan], Plan]:
    return lambda plan: plan.with_source(source, replicas=readers)


def _copies(region: str, replicas: int) -> Callable[[Plan], Plan]:
    return lambda plan: plan.with_replicas(region, replicas)


def _cut(region: str, lengths: tuple[int, ...]) -> Callable[[Plan], Plan]:
    return lambda plan: plan.with_pipelines(region, *lengths)


def _batch(rows: int) -> Callable[[Plan], Plan]:
    def change(plan: Plan) -> Plan:
        for source in plan.sources:
            plan = plan.with_source(source.source, batch_rows=rows)
        return plan

    return change


def _cuttings(steps: int) -> Iterator[tuple[int, ...]]:
    for cuts in range(steps):
        for places in combinations(range(1, steps), cuts):
            ends = (0, *places, steps)
            yield tuple(b - a for a, b in pairwise(ends))


def tuned(flow: Flow, bench: Bench, start: Plan) -> tuple[Plan, Ear]:
    """The plan that `auto` comes to from one copy of everything."""
    ear = Ear()
    handle = ab.start(flow, engine=bench.engine, plan=start, policy="auto", listener=ear.hear)
    waited = 0.0
    while waited < bench.tune_s and len(ear.seen) < bench.quiet:
        handle.await_termination(0.1)
        waited += 0.1
    plan = handle.plan
    handle.stop()
    return plan, ear


def compared(report: Report, name: str, flow: Flow, bench: Bench, jumbo: int, quick: bool) -> None:
    """All plans, then `auto`, then the best of both in turn."""
    start = _batch(bench.batches[0] if bench.batches else jumbo)(Plan.sequential(flow))
    plans = all_plans(flow, bench)
    plans = [plan if bench.batches else _batch(jumbo)(plan) for plan in plans]
    ear = Ear()
    handle = ab.start(flow, engine=bench.engine, plan=start, policy="none", listener=ear.hear)
    measured(handle, ear, start, bench)  # the first batches warm up
    tried = plans[:: max(1, len(plans) // 4)] if quick else plans
    rates = {plan: measured(handle, ear, plan, bench) for plan in tried}
    handle.stop()
    best = sorted(rates, key=lambda plan: -rates[plan])[:FINALISTS]
    found, heard = tuned(flow, bench, start)

    ear = Ear()
    handle = ab.start(flow, engine=bench.engine, plan=start, policy="none", listener=ear.hear)
    finalists = list(dict.fromkeys([*best, found, start]))
    again: dict[Plan, list[float]] = {plan: [] for plan in finalists}
    for _ in range(2 if quick else 5):
        for plan in finalists:
            again[plan].append(measured(handle, ear, plan, bench))
    handle.stop()
    medians = {plan: statistics.median(values) for plan, values in again.items()}
    top = max(medians, key=lambda plan: medians[plan])
    print(f"{name}: best tried {medians[top]:,.0f} rows/s\n{top}", file=sys.stderr)
    print(f"{name}: auto {medians[found]:,.0f} rows/s\n{found}", file=sys.stderr)
    report.add_figure(f"{name}_plans_tried", len(tried))
    report.add_figure(f"{name}_start_rows_per_s", medians[start])
    report.add_figure(f"{name}_best_rows_per_s", medians[top])
    report.add_figure(f"{name}_auto_rows_per_s", medians[found])
    report.add_figure(f"{name}_auto_changes", len(heard.changes))
    report.add_bar(f"{name}_auto_by_best", medians[found] / medians[top], 0.95)


def given_back(report: Report, name: str, bench: Bench, pace: Pace, quick: bool) -> None:
    """The load rises and falls; threads follow it."""
    flow = counting(PacedSource(zipf_lines(10_000), LINE, pace, seed=0), CountingSink())
    start = Plan.sequential(flow).with_source("lines", batch_rows=16_384)
    ear = Ear()
    handle = ab.start(flow, engine=bench.engine, plan=start, policy="auto", listener=ear.hear)
    handle.await_termination(LOW_S + (HIGH_S / 2 if quick else HIGH_S))
    rushed = handle.plan
    handle.await_termination(HIGH_S)
    calm, last = handle.plan, handle.last_progress
    handle.stop()
    assert last is not None
    report.add_figure(f"{name}_threads_high", threads(rushed))
    report.add_figure(f"{name}_threads_low", threads(calm))
    report.add_figure(f"{name}_changes", len(ear.changes))
    report.add_figure(f"{name}_backlog_at_end_rows", last.sources[0].backlog_rows or 0)
    report.add_bar(f"{name}_threads_given_back", threads(rushed) - threads(calm), 1)


def same_results(report: Report, name: str, bench: Bench, rows: int) -> None:
    """Counts of a run that is tuned, and of one that is not."""
    found = []
    for policy in ("auto", "none"):
        counts = ab.collect()
        flow = counting(ab.generate(zipf_lines(200), LINE, rows=rows, seed=1), counts)
        start = _batch(65_536 if bench.batches else 16_384)(Plan.sequential(flow))
        result = ab.run(flow, engine=bench.engine, plan=start, policy=policy)
        if policy == "auto":
            report.add_figure(f"{name}_changes", len(result.reconfigurations))
        last = counts.table().group_by("word").aggregate([("n", "max")]).sort_by("word")
        found.append(last)
    report.add_bar(f"{name}_equal", float(found[0] == found[1]), 1.0)


def rush(low: float, high: float) -> Pace:
    """A load that rises and falls again."""
    return Pace([(0.0, low), (LOW_S, high), (LOW_S + HIGH_S, low)])


def counting(source: Any, sink: Any) -> Flow:
    flow = Flow("words")
    (
        flow.source("lines", source)
        .apply("split", split)
        .aggregate("count", key="word", n=ab.count(), emit="changes")
        .sink("out", sink)
    )
    return flow


def measure(quick: bool) -> Report:
    report = Report(
        "adaptation",
        "from one copy of everything, `auto` comes within 5 % of the best of all plans tried",
    )
    only = os.environ.get("ADAPTATION_ONLY", "")
    cases = [
        ("local_words", lambda: words(16_384, 16), LOCAL, 16_384),
        ("local_chain", lambda: busy(CHAIN, 2_048, 16), LOCAL, 2_048),
        ("spark_words", lambda: words(65_536, 4), SPARK, 65_536),
        ("spark_chain", lambda: busy(CHAIN, 16_384, 8), SPARK_CHAIN, 16_384),
    ]
    for name, build, bench, jumbo in cases:
        if only in name and not (quick and bench.batches):
            compared(report, name, build(), bench, jumbo, quick)
    if only in "results_local":
        same_results(report, "results_local", LOCAL, 2_000_000 if quick else 12_000_000)
    if only in "results_spark" and not quick:
        same_results(report, "results_spark", SPARK, 12_000_000)
    if only in "rush_local":
        given_back(report, "rush_local", LOCAL, rush(50_000, 600_000), quick)
    if only in "rush_spark" and not quick:
        given_back(report, "rush_spark", SPARK, rush(20_000, 350_000), quick)
    return report


LINE = words(1024, 1).sources()["lines"].schema

if __name__ == "__main__":
    main(measure)
