"""Cost of a batch as state grows: 10 000 keys touched a batch, ever more keys held.

One run per size: the first batches insert every key, then the plan changes to small batches of
random keys, whose times count.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from harness import Report, Sample, main
from spark_baselines import spark

import anabranch as ab
from anabranch.engines.handle import Run
from anabranch.events import Event, Observed
from anabranch.planning.plan import Plan

TOUCHED = 10_000
LOADING = 500_000
BAR = 1.3
SIZES = {"100k": 100_000, "1m": 1_000_000, "10m": 10_000_000}


def measure(quick: bool) -> Report:
    report = Report("state_growth", "A batch costs what it touches, not what is held")
    session = spark()
    sizes = dict(list(SIZES.items())[:2]) if quick else SIZES
    try:
        small_batches(session, SIZES["100k"], 10)  # else the first size would pay for a cold JVM
        for label, keys in sizes.items():
            times = small_batches(session, keys, 10 if quick else 30)
            report.add_sample(f"batch_ms_{label}", Sample.of([t[0] * 1000 for t in times]))
            report.add_figure(f"state_ms_{label}", 1000 * statistics.median(t[1] for t in times))
    finally:
        session.stop()
    first = report.figures["batch_ms_100k"]
    for label in list(sizes)[1:]:
        growth = report.figures[f"batch_ms_{label}"] / first
        report.add_bar(f"growth_{label}", growth, BAR, at_least=False)
    return report


def small_batches(session: object, keys: int, batches: int) -> list[tuple[float, float]]:
    """Seconds of small batches while `keys` keys are held: all of it, and what state took."""

    def make(rng: np.random.Generator, index: np.ndarray) -> dict[str, np.ndarray]:
        return {"key": np.where(index < keys, index, rng.integers(0, keys, len(index)))}

    rows = keys + (batches + 2) * TOUCHED
    times: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory(prefix="growth-", ignore_cleanup_errors=True) as folder:
        flow = ab.Flow("growth")
        (
            flow.source("keys", ab.generate(make, pa.schema([("key", pa.int64())]), rows=rows))
            .aggregate("count", key="key", n=ab.count(), emit="changes")
            .sink("out", ab.parquet(Path(folder) / "out"))
        )
        loading = plan_of(flow, min(LOADING, keys // 2))
        handle: Run | None = None

        def hear(event: Event) -> None:
            if not isinstance(event, Observed) or handle is None:
                return
            seen = event.observation
            if handle.engine.rows[0] >= keys:
                handle.reconfigure(plan_of(flow, TOUCHED))
            if seen.rows_in == TOUCHED:
                times.append((seen.times.total_s, seen.times.state_s))

        handle = ab.start(
            flow, plan=loading, session=session, checkpoint=Path(folder) / "c", listener=hear
        )
        handle.await_termination()
    return times[2:]


def plan_of(flow: ab.Flow, batch_rows: int) -> Plan:
    """Two replicas, and batches of one size."""
    plan = Plan.sequential(flow).with_replicas("count", 2)
    return plan.with_source("keys", batch_rows=batch_rows)


if __name__ == "__main__":
    main(measure)
