"""Plan changes under load: a million keys, replicas 1, 2 and 4 in turn, the stream never stops.

The batch right behind a change is held against the median of the other batches under the same
number of replicas. Spark's own way, on the same number of keys, stands beside it: stop the query,
repartition its state offline, start again.
"""

from __future__ import annotations

import statistics
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from harness import Report, Sample, main
from spark_baselines import spark
from spark_repartition import spark_rescale_seconds

import anabranch as ab
from anabranch.engines.handle import Run
from anabranch.events import Event, Observation, Observed, Reconfiguration
from anabranch.io.reading_back import read_back
from anabranch.planning.plan import Plan

KEYS = 1_000_000
BATCH_ROWS = 1_000_000
REPLICAS = (1, 2, 4, 1, 4, 2)
CHANGES, QUICK_CHANGES = 24, 5
CHANGE_EVERY = 4
BAR = 1.5


def measure(quick: bool) -> Report:
    report = Report("rescale", "More or fewer replicas with the next batch; the stream goes on")
    session = spark()
    try:
        changes = QUICK_CHANGES if quick else CHANGES
        batches, switches = run(session, changes)
        tell(report, batches, switches, changes)
        seconds = [spark_rescale_seconds(session, KEYS, 2, 4) for _ in range(1 if quick else 3)]
        report.add_sample("spark_stop_repartition_restart_s", Sample.of(seconds))
    finally:
        session.stop()
    return report


def run(session: Any, changes: int) -> tuple[list[Observation], list[Reconfiguration]]:
    """Every batch and every plan change of one run; nothing may be lost."""
    loading = KEYS // BATCH_ROWS + 1
    rows = (loading + (changes + 1) * CHANGE_EVERY) * BATCH_ROWS
    batches: list[Observation] = []
    with tempfile.TemporaryDirectory(prefix="rescale-", ignore_cleanup_errors=True) as folder:
        out = Path(folder) / "out"
        flow = flow_of(rows, out)
        plan = plan_of(flow, REPLICAS[0])
        handle: Run | None = None

        def hear(event: Event) -> None:
            if not isinstance(event, Observed) or handle is None:
                return
            batches.append(event.observation)
            number = event.observation.batch + 1 - loading
            if number >= 0 and number % CHANGE_EVERY == 0:
                turn = number // CHANGE_EVERY % len(REPLICAS)
                handle.reconfigure(plan_of(flow, REPLICAS[turn]))

        handle = ab.start(
            flow, plan=plan, session=session, checkpoint=Path(folder) / "c", listener=hear
        )
        handle.await_termination()
        counts = read_back(out).group_by("key").aggregate([("n", "max")])
        if counts.num_rows != KEYS or sum(counts["n_max"].to_pylist()) != rows:
            raise AssertionError("rows were lost or counted twice")
        return batches, handle.reconfigurations


def tell(
    report: Report, batches: list[Observation], switches: list[Reconfiguration], asked: int
) -> None:
    """How much longer the batch behind each change took, and what it loaded."""
    times = {each.batch: each.times.total_s for each in batches}
    replicas = {each.batch: _replicas(each) for each in batches}
    changed = {switch.batch for switch in switches}
    calm: defaultdict[int, list[float]] = defaultdict(list)
    for batch, seconds in times.items():
        if batch not in changed and batch > KEYS // BATCH_ROWS:
            calm[replicas[batch]].append(seconds)
    for count, seconds in sorted(calm.items()):
        report.add_sample(f"batch_s_with_{count}", Sample.of(seconds))
    ratios = [times[b] / statistics.median(calm[replicas[b]]) for b in sorted(changed)]
    report.add_figure("plan_changes", len(switches))
    report.add_sample("changed_batch_vs_median", Sample.of(ratios))
    report.add_sample("pause_ms", Sample.of([s.pause_ms for s in switches]))
    report.add_sample("loaded_mb", Sample.of([s.loaded_bytes / 1e6 for s in switches]))
    report.add_bar("plan_changes", len(switches), asked)
    report.add_bar("changed_batch_vs_median_worst", max(ratios), BAR, at_least=False)
    report.add_bar("loaded_bytes_least", min(s.loaded_bytes for s in switches), 1)


def flow_of(rows: int, out: Path) -> ab.Flow:
    """Counts by key; the first rows show every key once."""

    def make(rng: np.random.Generator, index: np.ndarray) -> dict[str, np.ndarray]:
        return {"key": np.where(index < KEYS, index, rng.integers(0, KEYS, len(index)))}

    flow = ab.Flow("rescale")
    (
        flow.source("keys", ab.generate(make, pa.schema([("key", pa.int64())]), rows=rows))
        .aggregate("count", key="key", n=ab.count(), emit="changes")
        .sink("out", ab.parquet(out))
    )
    return flow


def plan_of(flow: ab.Flow, replicas: int) -> Plan:
    """Some replicas of the count, always two readers."""
    plan = Plan.sequential(flow).with_source("keys", batch_rows=BATCH_ROWS, replicas=2)
    return plan.with_replicas("count", replicas)


def _replicas(seen: Observation) -> int:
    return next(region.replicas for region in seen.regions if region.region == "count")


if __name__ == "__main__":
    main(measure)
