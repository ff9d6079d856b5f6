"""Plan changes on the local engine, under load, with a million keys.

Replicas come and go and buckets move, while jumbo tuples flow. The report has how long tuples stood
still at each switch, what the second after a switch loses against other seconds, and how evenly
replicas are loaded. A million keys are about 50 MB of columns. State in tuple style is pickled when
it moves; what a megabyte of it costs is measured by moving half of it to and fro.
"""

from __future__ import annotations

import bisect
import pickle
import statistics
import threading
import time
from collections import deque
from random import Random

import numpy as np
import pyarrow as pa
from harness import Report, Sample, main
from local_streams import Drop, Endless, start

import anabranch as ab
from anabranch.engines.local.engine import LocalEngine
from anabranch.events import Event, Observation, Observed
from anabranch.flow import Flow
from anabranch.planning.plan import Plan

KEYS = 1_000_000
BATCH_ROWS = 2_048
RAPID, RAPID_EVERY_S = 280, 0.25
SPACED, SPACED_EVERY_S = 40, 3.0
QUICK_RAPID, QUICK_SPACED = 40, 3
SAMPLE_S = 0.02
PAUSE_BAR_MS = 10.0
TUPLE_KEYS = 100_000
TUPLE_BATCH_ROWS = 512
TUPLE_SWITCHES, QUICK_TUPLE_SWITCHES = 20, 4
IMBALANCE_BAR = 0.02
PAPER_PAUSE_MS = 40.0
JOKER_KEPT = 0.7


class Observations:
    """What the engine has observed of the counting region, every second."""

    def __init__(self) -> None:
        self._seen: list[Observation] = []

    def note(self, event: Event) -> None:
        if isinstance(event, Observed) and event.observation.rows_in:
            self._seen.append(event.observation)

    def clear(self) -> None:
        self._seen.clear()

    def service_s(self) -> float:
        """How long a replica works on its part of a jumbo tuple, on average."""
        return statistics.mean(
            step.busy_s * BATCH_ROWS / seen.rows_in / region.replicas
            for seen in self._seen
            for step in seen.steps
            for region in seen.regions
            if step.step == region.region == "count"
        )

    def bucket_rows(self) -> list[int]:
        """Tuples that came to each bucket."""
        found = [r.bucket_rows for s in self._seen for r in s.regions if r.region == "count"]
        return [sum(rows) for rows in zip(*filter(None, found), strict=True)]


class Rate:
    """Rows read, looked at every 20 ms by a thread of its own."""

    def __init__(self, engine: LocalEngine) -> None:
        self._engine, self._over = engine, threading.Event()
        self._times: list[float] = []
        self._rows: list[int] = []
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Rate:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def in_second_from(self, at: float) -> float:
        first = bisect.bisect_left(self._times, at)
        last = min(bisect.bisect_left(self._times, at + 1), len(self._times) - 1)
        elapsed = self._times[last] - self._times[first]
        return (self._rows[last] - self._rows[first]) / elapsed if elapsed else 0.0

    def _watch(self) -> None:
        while not self._over.wait(SAMPLE_S):
            self._times.append(time.monotonic())
            self._rows.append(self._engine.rows[0])


def flow_of() -> Flow:
    """Counts of a million keys, as changes."""
    keys = np.random.default_rng(0).integers(0, KEYS, 4 * KEYS)
    flow = Flow("reconfigure")
    (
        flow.source("keys", Endless(pa.record_batch({"key": keys})))
        .aggregate("count", key="key", n=ab.count(), emit="changes")
        .sink("out", Drop())
    )
    return flow


def next_plan(plan: Plan, rng: Random) -> Plan:
    """Other replicas or, now and then, other owners of a tenth of the buckets."""
    now = plan.region("count")
    if now.replicas > 1 and rng.random() < 0.25:
        owners = list(now.bucket_map)
        for bucket in rng.sample(range(len(owners)), len(owners) // 10):
            owners[bucket] = rng.randrange(now.replicas)
        return plan.with_bucket_map("count", tuple(owners))
    return plan.with_replicas("count", rng.choice([n for n in (1, 2, 3) if n != now.replicas]))


def switch(engine: LocalEngine, rng: Random, timeout_s: float = 10.0) -> tuple[float, float]:
    """One switch: when it was asked for, and how long until all was done."""
    before = len(engine.reconfigurations())
    asked = time.monotonic()
    engine.reconfigure(next_plan(engine.plan, rng))
    while len(engine.reconfigurations()) == before:
        if time.monotonic() - asked > timeout_s:
            raise AssertionError("a switch did not happen")
        time.sleep(0.0005)
    return asked, time.monotonic() - asked


def measure(quick: bool) -> Report:
    report = Report("reconfigure", "A plan change holds tuples up for milliseconds")
    rng = Random(0)
    flow = flow_of()
    plan = Plan.sequential(flow).with_replicas("count", 2)
    seen = Observations()
    engine = start(flow, plan.with_source("keys", batch_rows=BATCH_ROWS), listener=seen.note)
    try:
        warm_up(engine)
        seen.clear()
        took: list[float] = []
        with Rate(engine) as rate:
            for _ in range(QUICK_RAPID if quick else RAPID):
                took.append(switch(engine, rng)[1])
                time.sleep(RAPID_EVERY_S)
            asked = []
            for _ in range(QUICK_SPACED if quick else SPACED):
                asked.append(switch(engine, rng)[0])
                took.append(time.monotonic() - asked[-1])
                time.sleep(SPACED_EVERY_S)
        pauses = [change.pause_ms for change in engine.reconfigurations()]
        service_ms = seen.service_s() * 1000
        report.add_figure("imbalance_of_keys", imbalance(engine, flow, seen))
    finally:
        engine.stop()
    tell(report, pauses, took, service_ms, rate, asked)
    add_tuple_style(report, QUICK_TUPLE_SWITCHES if quick else TUPLE_SWITCHES)
    return report


def warm_up(engine: LocalEngine, rows: int = 12 * KEYS) -> None:
    """Until every key has come."""
    until = time.monotonic() + 120
    while engine.rows[0] < rows and time.monotonic() < until:
        time.sleep(0.1)


def add_tuple_style(report: Report, switches: int) -> None:
    """Half of the keys move between two replicas; their state is Python objects."""
    flow = Flow("reconfigure-tuples")
    keys = Endless(pa.record_batch({"key": np.arange(TUPLE_KEYS)}))
    flow.source("keys", keys).apply("recent", recent).sink("out", Drop())
    one = Plan.sequential(flow).with_source("keys", batch_rows=TUPLE_BATCH_ROWS)
    engine = start(flow, one.with_replicas("recent", 2))
    try:
        warm_up(engine, 6 * TUPLE_KEYS)
        for number in range(switches):
            before = len(engine.reconfigurations())
            engine.reconfigure(one.with_replicas("recent", 1 + number % 2))
            until = time.monotonic() + 30
            while len(engine.reconfigurations()) == before and time.monotonic() < until:
                time.sleep(0.001)
            time.sleep(0.2)
        pauses = [change.pause_ms for change in engine.reconfigurations()]
    finally:
        engine.stop()
    if len(pauses) != switches:
        raise AssertionError(f"{len(pauses)} of {switches} switches happened")
    state = {key: {"recent": deque(range(5), maxlen=5)} for key in range(TUPLE_KEYS // 2)}
    moved_mb = len(pickle.dumps(state, protocol=5)) / 1e6
    report.add_figure("tuple_style_moved_mb", moved_mb)
    report.add_sample("tuple_style_pause_ms", Sample.of(pauses))
    report.add_figure("tuple_style_ms_per_mb", statistics.median(pauses) / moved_mb)


@ab.partitioned(key="key", out="key: int64, seen: int64")
def recent(ctx: ab.Invocation) -> None:
    """Remembers a few tuples of each key."""
    kept = ctx.state.setdefault("recent", deque(maxlen=5))
    for number, _ in enumerate(ctx.tuples()):
        kept.append(number)
    ctx.emit(seen=len(kept))


def imbalance(engine: LocalEngine, flow: Flow, seen: Observations) -> float:
    """Coefficient of variation of the tuples that each of four replicas gets in some seconds."""
    before = len(engine.reconfigurations())
    even = Plan.sequential(flow).with_replicas("count", 4)
    engine.reconfigure(even.with_source("keys", batch_rows=BATCH_ROWS))
    while len(engine.reconfigurations()) == before:
        time.sleep(0.01)
    seen.clear()
    time.sleep(3.5)
    counts = [0] * 4
    for rows, owner in zip(seen.bucket_rows(), engine.plan.region("count").bucket_map, strict=True):
        counts[owner] += rows
    return statistics.pstdev(counts) / statistics.mean(counts)


def tell(
    report: Report,
    pauses: list[float],
    took: list[float],
    service_ms: float,
    rate: Rate,
    asked: list[float],
) -> None:
    p99 = statistics.quantiles(pauses, n=100, method="inclusive")[98]
    report.add_figure("switches", len(pauses))
    report.add_sample("pause_ms", Sample.of(pauses))
    report.add_figure("pause_p99_ms", p99)
    report.add_figure("pause_worst_ms", max(pauses))
    report.add_figure("jumbo_service_ms", service_ms)
    report.add_figure("paper_pause_ms", PAPER_PAUSE_MS)
    report.add_sample("asked_to_done_ms", Sample.of([each * 1000 for each in took]))
    after = [rate.in_second_from(at) for at in asked]
    rng = Random(1)
    others = [rate.in_second_from(at + 1.2 + rng.random() * 0.6) for at in asked]
    report.add_sample("rows_per_s_after_switch", Sample.of(after))
    report.add_sample("rows_per_s_other_seconds", Sample.of(others))
    kept = statistics.median(after) / statistics.median(others)
    report.add_bar("rate_after_switch_over_other", kept, JOKER_KEPT)
    report.add_bar("pause_p99_ms", p99, PAUSE_BAR_MS, at_least=False)
    report.add_bar("switches", len(pauses), 300)
    report.add_bar(
        "imbalance_of_keys", report.figures["imbalance_of_keys"], IMBALANCE_BAR, at_least=False
    )


if __name__ == "__main__":
    main(measure)
