"""The band join of STRETCH on the local engine beside a plain NumPy loop; part of `local.py`."""

from __future__ import annotations

import time
from datetime import timedelta

import numpy as np
from harness import Report, interleave
from local_streams import Drop, processor_s, start

from anabranch.apps import band_join
from anabranch.planning.plan import Plan

RATE_PER_S = 1_000.0
WINDOW_S = 100
ROWS, QUICK_ROWS = 300_000, 120_000
BATCH_ROWS = 8_192
LOOP_TUPLES = 2_000


def add_band_join(report: Report, quick: bool) -> None:
    """Comparisons a second and core: pairs within the window, each decided."""
    rows = QUICK_ROWS if quick else ROWS
    cases = {"ours": lambda: run_band_join(rows), "loop": run_loop}
    samples = interleave(cases, 2 if quick else 5)
    report.add_sample("band_join_comparisons_per_core_s", samples["ours"])
    report.add_sample("numpy_loop_comparisons_per_core_s", samples["loop"])
    report.add_figure("band_join_over_loop", samples["ours"].median / samples["loop"].median)


def run_band_join(rows: int) -> float:
    """Two replicas; all that the processes do counts, reading and merging included."""
    window = timedelta(seconds=WINDOW_S)
    flow = band_join.build(rows=rows, rate_per_s=RATE_PER_S, window=window)
    flow = flow.writing({"out": Drop()})
    plan = Plan.sequential(flow).with_replicas("join", 2)
    for source in ("r", "s"):
        plan = plan.with_source(source, batch_rows=BATCH_ROWS)
    before = processor_s()
    start(flow, plan).wait()
    return pairs_within(rows, int(RATE_PER_S * WINDOW_S)) / (processor_s() - before)


def pairs_within(rows: int, reach: int) -> int:
    """Pairs of two streams of so many rows that are at most so many rows apart.

    Example:
        >>> pairs_within(3, 1), pairs_within(3, 5)
        (7, 9)
    """
    reach = min(reach, rows - 1)
    return rows + reach * (2 * rows - reach - 1)


def run_loop() -> float:
    """Each tuple of one side against the whole window of the other."""
    rng = np.random.default_rng(0)
    window = int(RATE_PER_S * WINDOW_S)
    a, x = (rng.integers(1, 10_001, n, dtype=np.int32) for n in (window, LOOP_TUPLES))
    b, y = (rng.uniform(1, 10_000, n).astype(np.float32) for n in (window, LOOP_TUPLES))
    before = time.process_time()
    found = 0
    for row in range(LOOP_TUPLES):
        found += np.count_nonzero((np.abs(a - x[row]) <= 10) & (np.abs(b - y[row]) <= 10))
    spent = time.process_time() - before
    if not found:
        raise AssertionError("the loop found no pair at all")
    return LOOP_TUPLES * window / spent
