"""Tuned while it runs: does `auto` find what trying every plan finds?

Word count and a chain with one dear operator, on threads and on Spark. First every plan within the
bounds of this machine is tried, one after another in one run, since a plan is changed in
milliseconds. Then a fresh run begins with one copy of everything and `auto` tunes it. At last the
best of the tried plans and the one that `auto` came to are measured again, in turn. On threads the
load is also made to rise and fall, to see replicas given back.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import combinations, pairwise, product

from harness import Report, main
from model_cases import busy, words

import anabranch as ab
from anabranch.apps.word_count import split, zipf_lines
from anabranch.engines.handle import Run
from anabranch.events import Decision, Event, Observation, Observed, Reconfiguration
from anabranch.flow import Flow
from anabranch.plan.plan import Plan
from anabranch.plan.profile import OperatorProfile, State, chain
from anabranch.plan.regions import RegionKind, regions
from anabranch.reproduce.stretch.pace import Pace, PacedSource
from anabranch.testing.busy import Counting

CHAIN = chain(
    [
        OperatorProfile("parse", 1.0),
        OperatorProfile("score", 9.0, selectivity=0.8),
        OperatorProfile("count", 2.0, state=State.PARTITIONED, key=("user",)),
        OperatorProfile("number", 1.0, state=State.STATEFUL),
    ],
    unit="us",
)
MOST_REPLICAS = 3
MOST_READERS = 2
SPARK_BATCHES = (65_536, 262_144, 1_048_576)
LONGEST_BATCH_S = 2.0
"""As long a batch as the policy allows itself: results would come later still."""
FINALISTS = 3


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
        handle.apply(plan)
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
            choices.append([_copies(region.name, n) for n in range(1, MOST_REPLICAS + 1)])
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
    for _ in range(2 if quick else 7):
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


def given_back(report: Report, quick: bool) -> None:
    """The load rises and falls; threads follow it."""
    high_s, low_s = (15.0, 20.0) if quick else (30.0, 40.0)
    pace = Pace([(0.0, 50_000.0), (10.0, 600_000.0), (10.0 + high_s, 50_000.0)])
    source = PacedSource(zipf_lines(10_000), LINE, pace, seed=0)
    flow = Flow("rush-hour")
    (
        flow.source("lines", source)
        .apply("split", split)
        .aggregate("count", key="word", n=ab.count(), emit="changes")
        .sink("out", Counting())
    )
    start = Plan.sequential(flow).with_source("lines", batch_rows=16_384)
    ear = Ear()
    handle = ab.start(flow, engine="local", plan=start, policy="auto", listener=ear.hear)
    handle.await_termination(10.0 + high_s)
    rushed = handle.plan
    handle.await_termination(low_s)
    calm, backlog = handle.plan, ear.seen[-1].sources[0].backlog_rows
    handle.stop()
    report.add_figure("rush_threads_high", _threads(rushed))
    report.add_figure("rush_threads_low", _threads(calm))
    report.add_figure("rush_changes", len(ear.changes))
    report.add_figure("rush_backlog_at_end_rows", backlog or 0)
    report.add_bar("rush_threads_given_back", _threads(rushed) - _threads(calm), 1)


def _threads(plan: Plan) -> int:
    working = sum(region.replicas * len(region.pipelines) for region in plan.regions)
    return working + sum(source.replicas for source in plan.sources)


def measure(quick: bool) -> Report:
    report = Report(
        "adaptation",
        "from one copy of everything, `auto` comes within 5 % of the best of all plans tried",
    )
    only = os.environ.get("ADAPTATION_ONLY", "")
    cases = [
        ("local_words", lambda: words(16_384, 16)[0], LOCAL, 16_384),
        ("local_chain", lambda: busy(CHAIN, 2_048, 16)[0], LOCAL, 2_048),
        ("spark_words", lambda: words(65_536, 4)[0], SPARK, 65_536),
        ("spark_chain", lambda: busy(CHAIN, 16_384, 8)[0], SPARK, 16_384),
    ]
    for name, build, bench, jumbo in cases:
        if only in name and not (quick and bench is SPARK):
            compared(report, name, build(), bench, jumbo, quick)
    if only in "rush":
        given_back(report, quick)
    return report


LINE = words(1024, 1)[1].schema

if __name__ == "__main__":
    main(measure)
