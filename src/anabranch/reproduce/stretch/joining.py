"""Figure 5's band join, with every comparison counted by the thread that made it.

The conditions are those of `apps/band_join.py`. They are given as a function, so that every pair
within the window is looked at, as in the paper; `indexed=True` gives them as bands, which are
looked up in sorted columns.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from statistics import fmean, pstdev
from typing import Any

import numpy as np

from anabranch.apps.band_join import NEAR, R, S, r_rows, s_rows
from anabranch.flow import Flow
from anabranch.io import collect, generate
from anabranch.operators.base import Kernel, KernelContext, Outputs
from anabranch.operators.scale_join import ScaleJoin, ScaleJoinKernel
from anabranch.operators.scale_join_bands import band
from anabranch.operators.scale_join_pairs import Candidates, Condition
from anabranch.planning.plan import Plan
from anabranch.reproduce.stretch.pace import Pace, PacedSource
from anabranch.state.positions import Jumbo, Root

BUCKETS = 112
"""Divided evenly by 1, 2, 4, 7, 8, 14 and 16 threads."""
BATCH_ROWS = 64

_MICROSECONDS = 1_000_000


class CountedKernel(ScaleJoinKernel):
    """Notes after every step how far it has come in event time, and how many pairs it decided."""

    def __init__(self, context: KernelContext, operator: ScaleJoin) -> None:
        """A running copy without state."""
        super().__init__(context, operator)
        self.log: list[tuple[int, int]] = []

    def step(self, inputs: Sequence[Jumbo | None], frontier: Root) -> Outputs:
        """Join, and note."""
        outputs = super().step(inputs, frontier)
        self.log.append((frontier.time, self.finder.comparisons))
        return outputs


class CountedJoin(ScaleJoin):
    """A join that knows the kernels that run it."""

    def __init__(self, window_s: float, where: Any, buckets: int) -> None:
        """See `ScaleJoin`."""
        super().__init__(timedelta(seconds=window_s), where, buckets)
        self.kernels: list[CountedKernel] = []

    def kernel(self, context: KernelContext) -> Kernel:
        """A running copy, noted: one for each thread, those of later epochs behind."""
        kernel = CountedKernel(context, self)
        self.kernels.append(kernel)
        return kernel

    def comparisons(self) -> int:
        """How many pairs were decided so far."""
        return sum(kernel.finder.comparisons for kernel in self.kernels)

    def reached(self) -> int:
        """How far the furthest thread has come in event time."""
        return max((kernel.log[-1][0] for kernel in self.kernels if kernel.log), default=0)

    def shares(self, since: int, threads: int) -> list[int]:
        """What each of so many threads has decided of the same part of the stream.

        Threads are never at the same place, so counts are taken where all of them have been: from
        `since`, or from where the youngest thread began, to where the slowest is.
        """
        logs = sorted((list(k.log) for k in self.kernels if k.log), key=lambda log: log[-1][0])
        return shares(logs[-threads:], since)  # others are gone


def shares(logs: Sequence[Sequence[tuple[int, int]]], since: int) -> list[int]:
    """What logs of (place, count so far) say of the longest part that all of them cover.

    Example:
        >>> shares([[(1, 10), (2, 20), (3, 30)], [(2, 5), (3, 15), (4, 25)]], since=0)
        [10, 10]
    """
    if not logs:
        return []
    start = max(since, *(log[0][0] for log in logs))
    stop = min(log[-1][0] for log in logs)
    return [_count_at(log, stop) - _count_at(log, start) for log in logs]


def _count_at(log: Sequence[tuple[int, int]], place: int) -> int:
    before = bisect_right(log, place, key=lambda entry: entry[0])
    return log[before - 1][1] if before else 0


def joining(
    pace: Pace,
    window_s: float,
    *,
    paced: bool,
    rows: int | None = None,
    indexed: bool = False,
    buckets: int = BUCKETS,
) -> tuple[Flow, CountedJoin]:
    """The flow, and its join to be asked.

    Args:
        pace: How many tuples of each stream fall into a second of event time, and when.
        window_s: How far apart in event time a pair may be.
        paced: Whether tuples become due as event time goes, instead of all at once.
        rows: How many tuples each stream has; None for no end, as it is for paced streams.
        indexed: Whether conditions are bands.
        buckets: How many buckets hold tuples.

    Example:
        >>> joining(Pace([(0, 100)]), 5.0, paced=False)[0]
        Flow 'figure-5': r → r.time → s → s.time → join → out
    """
    near: Sequence[Condition] = (
        (band("x", "a", NEAR), band("y", "b", NEAR)) if indexed else (every_pair,)
    )
    join = CountedJoin(window_s, near, buckets)
    flow = Flow("figure-5")
    times = partial(_times, pace)
    left, right = (
        PacedSource(make, schema, pace, seed) if paced else generate(make, schema, rows, seed=seed)
        for seed, (make, schema) in enumerate(((r_rows(times), R), (s_rows(times), S)))
    )
    stream = flow.source("r", left, time="ts")
    stream.apply("join", join, flow.source("s", right, time="ts")).sink("out", collect())
    return flow, join


def plan_for(flow: Flow, threads: int) -> Plan:
    """One thread for everything but the join."""
    plan = Plan.sequential(flow).with_replicas("join", threads)
    for source in ("r", "s"):
        plan = plan.with_source(source, batch_rows=BATCH_ROWS)
    return plan


def every_pair(left: Candidates, right: Candidates) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """The paper's predicate, of whole columns of candidate pairs."""
    x, a = left["x"].to_numpy(), right["a"].to_numpy()
    y, b = left["y"].to_numpy(), right["b"].to_numpy()
    near: np.ndarray[Any, np.dtype[np.bool_]] = (np.abs(x - a) <= NEAR) & (np.abs(y - b) <= NEAR)
    return near


def imbalance(done: Sequence[int]) -> float:
    """The coefficient of variation of what threads have done, in percent.

    Example:
        >>> imbalance([100, 100]), imbalance([90, 110]), imbalance([5]), imbalance([])
        (0.0, 10.0, 0.0, 0.0)
    """
    mean = fmean(done) if done else 0.0
    return 100 * pstdev(done) / mean if mean else 0.0


def _times(pace: Pace, index: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.rint(pace.times_of(index) * _MICROSECONDS).astype("datetime64[us]")
