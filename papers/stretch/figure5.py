"""STRETCH's figure 5: the band join in one epoch, and between epochs under changing load.

The join runs on the local engine: where the paper has T^P threads, there are replicas on worker
processes. Each comparison is counted by the replica that made it, in a file that the measurement
reads. The conditions are those of `apps/band_join.py`. They are given as a function, so that every
pair within the window is looked at, as in the paper; `indexed=True` gives them as bands, which are
looked up in sorted columns.

Each stream has r tuples a second, so that r·window of each are within reach: a second of the stream
takes 2·r²·window comparisons. From the comparisons per second that a number of threads can make
follows the greatest rate that it sustains. The stream is read as fast as it can be, with that many
tuples in the window, once this is full.
"""

from __future__ import annotations

import time
import weakref
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import pairwise
from math import sqrt
from pathlib import Path
from shutil import rmtree
from statistics import fmean, pstdev
from struct import Struct
from tempfile import mkdtemp
from typing import Any
from uuid import uuid4

import numpy as np

from anabranch.apps.band_join import NEAR, R, S, r_rows, s_rows
from anabranch.engines.handle import Run
from anabranch.errors import EngineError, Subject
from anabranch.events import Observation
from anabranch.flow import Flow
from anabranch.io import collect, generate
from anabranch.operators.base import Kernel, KernelContext, Outputs
from anabranch.operators.joins.conditions import Candidates, Condition, band
from anabranch.operators.joins.scale_join import ScaleJoin, ScaleJoinKernel
from anabranch.planning.plan import Plan
from anabranch.running import start
from anabranch.state.positions import Jumbo, Root
from papers.stretch.figure4 import Buffered, ByReference, Line, LineRun, middle_of
from papers.stretch.model import threads_for
from papers.stretch.pace import Pace, PacedSource

BUCKETS = 112
"""Divided evenly by 1, 2, 4, 7, 8, 14 and 16 threads."""
BATCH_ROWS = 64

_MICROSECONDS = 1_000_000


Log = list[tuple[int, int]]
"""After every step of a kernel, its place in event time and how many pairs it has decided."""
_ENTRY = Struct("<qq")


class CountedKernel(ScaleJoinKernel):
    """Appends an entry to its log after every step."""

    def __init__(self, context: KernelContext, operator: CountedJoin) -> None:
        super().__init__(context, operator)
        self._operator = operator  # whose directory is there as long as the operator is
        self._log = operator.folder / uuid4().hex

    def step(self, inputs: Sequence[Jumbo | None], frontier: Root) -> Outputs:
        """Join, and append."""
        outputs = super().step(inputs, frontier)
        with self._log.open("ab", buffering=0) as log:
            log.write(_ENTRY.pack(frontier.time, self.finder.comparisons))
        return outputs


class CountedJoin(ScaleJoin):
    """A join whose kernels, wherever they run, write logs to a directory that it can read."""

    def __init__(self, window_s: float, where: Any, buckets: int) -> None:
        """See `ScaleJoin`; the directory is removed together with this object."""
        super().__init__(timedelta(seconds=window_s), where, buckets)
        self.folder = Path(mkdtemp(prefix="figure-5-"))
        weakref.finalize(self, rmtree, self.folder, ignore_errors=True)

    def kernel(self, context: KernelContext) -> Kernel:
        """Return a running copy with a log of its own."""
        return CountedKernel(context, self)

    def logs(self) -> list[Log]:
        """Return the logs of all kernels that have run, the furthest last."""
        found = [list(_ENTRY.iter_unpack(path.read_bytes())) for path in self.folder.iterdir()]
        return sorted((log for log in found if log), key=lambda log: log[-1])

    def comparisons(self) -> int:
        """How many pairs were decided so far."""
        return sum(log[-1][1] for log in self.logs())

    def reached(self) -> int:
        """How far the furthest replica has come in event time."""
        return max((log[-1][0] for log in self.logs()), default=0)

    def shares(self, since: int, threads: int) -> list[int]:
        """What each of so many replicas has decided of the same part of the stream.

        Replicas are never at the same place, so counts are taken where all of them have been: from
        `since`, or from where the youngest replica began, to where the slowest is.
        """
        return shares(self.logs()[-threads:], since)  # others are gone


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
    """So many replicas of the join, each on a worker process; one of everything else."""
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


POLL_S = 0.01
FIRST_GUESS_PER_S = 5e7
"""Comparisons per second of one thread, before anything was measured."""


@dataclass(frozen=True)
class Intra:
    """The join with one number of threads.

    Attributes:
        threads: T^P threads.
        comparisons_per_s: Pairs decided per second.
        rate_per_s: The greatest rate of both streams together that this sustains.
        latency_ms: From reading a tuple to its pairs being visible, half of the pairs.
        imbalance_pct: How unevenly comparisons were shared out.
    """

    threads: int
    comparisons_per_s: float
    rate_per_s: float
    latency_ms: float
    imbalance_pct: float


@dataclass(frozen=True)
class Single:
    """One T^P thread behind gates, and behind plain buffers: the same line otherwise."""

    gated: LineRun
    buffered: LineRun


def rate_for(comparisons_per_s: float, window_s: float) -> float:
    """The rate of each stream at which so many comparisons a second are to be made.

    Example:
        >>> rate_for(2e8, window_s=10)
        3162.2776601683795
    """
    return sqrt(comparisons_per_s / (2 * window_s))


def intra(
    threads: Sequence[int], window_s: float, seconds: float, cores: int, *, indexed: bool = False
) -> list[Intra]:
    """Figure 5's left column."""
    guess = FIRST_GUESS_PER_S
    found: list[Intra] = []
    for n in threads:
        # A window as full as the rate that is to be found makes it; the first guess may be far off.
        for _ in range(1 if found else 2):
            rate = rate_for(guess * min(n, cores), window_s)
            one = full_speed(n, rate, window_s, seconds, indexed=indexed)
            guess = one.comparisons_per_s / min(n, cores)
        found.append(one)
    return found


def full_speed(
    threads: int, rate_per_s: float, window_s: float, seconds: float, *, indexed: bool = False
) -> Intra:
    """One run: fill the window, then count for some seconds."""
    flow, join = joining(Pace([(0.0, rate_per_s)]), window_s, paced=False, indexed=indexed)
    with running(flow, threads) as run:
        wait_for_rows(run, int(2 * rate_per_s * window_s))
        watch = Watch(run, join)
        time.sleep(seconds)
        seen = watch.look(threads)
    return Intra(
        threads,
        seen.comparisons_per_s,
        2 * rate_for(seen.comparisons_per_s, window_s),
        seen.latency_ms,
        seen.imbalance_pct,
    )


def single(rate_per_s: float, window_s: float, repeats: int) -> Single:
    """What a gate costs: both ways in turn through the same tuples, a window and a half of them."""
    rows = int(1.5 * rate_per_s * window_s)
    gated: list[LineRun] = []
    buffered: list[LineRun] = []
    for _ in range(repeats):
        for way, runs in ((ByReference, gated), (Buffered, buffered)):
            flow, _join = joining(Pace([(0.0, rate_per_s)]), window_s, paced=False, rows=rows)
            runs.append(Line(flow, way, 1, BATCH_ROWS, time="ts").run())
    return Single(middle_of(gated), middle_of(buffered))


@contextmanager
def running(flow: Flow, threads: int, pool: int = 0) -> Iterator[Run]:
    """A run of the local engine that is stopped at the end.

    Args:
        flow: What runs.
        threads: How many there are at first.
        pool: How many there will be at most: STRETCH has a pool of threads (§4), so no change of
            plan has to start a worker process.
    """
    plan = plan_for(flow, threads)
    run = start(flow, engine="local", plan=plan, workers=max(threads, pool))
    try:
        yield run
    finally:
        run.stop()


def wait_for_rows(run: Run, rows: int) -> None:
    """Wait until so many tuples were read, or the run has ended by an error."""
    while run.engine.rows[0] < rows and not run.await_termination(POLL_S):
        pass


@dataclass(frozen=True)
class Seen:
    """What happened between two looks; see `Intra`."""

    seconds: float
    rate_per_s: float
    comparisons_per_s: float
    latency_ms: float
    imbalance_pct: float


class Watch:
    """Looks at a run from outside: what was read, compared and delivered since the last look."""

    def __init__(self, run: Run, join: CountedJoin) -> None:
        """Begin to watch."""
        self._run, self._join = run, join
        self._mark()

    def look(self, threads: int) -> Seen:
        """What happened since the last look, on so many threads."""
        since_s, rows, done = self._since_s, self._rows, self._done
        news = [o for o in self._run.recent_progress if o.batch > self._batch and o.rows_out]
        shared_out = self._join.shares(self._reached, threads)
        self._mark()
        seconds = self._since_s - since_s
        return Seen(
            seconds,
            (self._rows - rows) / seconds,
            (self._done - done) / seconds,
            mean_latency(news or self._run.recent_progress[-1:]),
            imbalance(shared_out),
        )

    def _mark(self) -> None:
        self._since_s = time.monotonic()
        self._rows = self._run.engine.rows[0]
        self._done, self._reached = self._join.comparisons(), self._join.reached()
        newest = self._run.last_progress
        self._batch = -1 if newest is None else newest.batch


def mean_latency(seen: Sequence[Observation]) -> float:
    """The mean of the observed medians, each by its number of results.

    The engine counts from the oldest tuple in a jumbo tuple, the paper from the newest one that
    a result needs: ours is never the smaller one.
    """
    rows = sum(one.rows_out for one in seen)
    if not rows:
        return fmean(one.latency_p50_ms for one in seen) if seen else 0.0
    return sum(one.latency_p50_ms * one.rows_out for one in seen) / rows


START_LOAD = 0.7
"""Part of the greatest rate that each run begins with, as in the paper."""

PATIENCE_S = 30.0


@dataclass(frozen=True)
class Switched:
    """One change of the number of threads.

    Attributes:
        before: Threads before.
        after: Threads after.
        command_ms: From the command to the end of the change.
        pause_ms: How long tuples stood still for it.
        imbalance_pct: How unevenly comparisons were shared out among the new threads.
    """

    before: int
    after: int
    command_ms: float
    pause_ms: float
    imbalance_pct: float


@dataclass(frozen=True)
class Phase:
    """A stretch of time under one load: what was offered, and what happened."""

    threads: int
    load: float
    offered_per_s: float
    seen: Seen

    @property
    def sustained(self) -> float:
        """The part of the offered tuples that was taken in."""
        return self.seen.rate_per_s / self.offered_per_s


@dataclass(frozen=True)
class Elastic:
    """Before and after a change of load, answered by a change of threads."""

    before: Phase
    after: Phase
    switch: Switched


def change_load(
    threads: int, load: float, greatest_per_s: float, window_s: float, seconds: float
) -> Elastic:
    """Start at 70 % of the greatest rate, go on with another part of it and Table 2's threads.

    Args:
        threads: How many to begin with.
        load: The part of the greatest rate that comes then.
        greatest_per_s: The greatest rate of both streams that these threads sustain.
        window_s: The join's window; it is full before anything is measured.
        seconds: How long to measure before and after.
    """
    target = threads_for(threads, load)
    turn_s = window_s + seconds
    each = greatest_per_s / 2
    pace = Pace([(0.0, START_LOAD * each), (turn_s, load * each)])
    flow, join = joining(pace, window_s, paced=True)
    with running(flow, threads, target) as run:
        watch = Watch(run, join)
        sleep_until(run, window_s)
        watch.look(threads)
        sleep_until(run, turn_s)
        before = watch.look(threads)
        switched = switch(run, threads, target)
        sleep_until(run, turn_s + window_s)
        watch.look(target)
        time.sleep(seconds)
        after = watch.look(target)
    return Elastic(
        Phase(threads, START_LOAD, START_LOAD * greatest_per_s, before),
        Phase(target, load, load * greatest_per_s, after),
        Switched(threads, target, *switched, after.imbalance_pct),
    )


def switch_often(
    numbers: Sequence[int], greatest_per_s: float, window_s: float, hold_s: float
) -> list[Switched]:
    """One number of threads after the other, each held for a while, under a load of 40 %."""
    pace = Pace([(0.0, 0.4 * greatest_per_s / 2)])
    flow, join = joining(pace, window_s, paced=True)
    found = []
    with running(flow, numbers[0], max(numbers)) as run:
        sleep_until(run, window_s)
        for before, after in pairwise(numbers):
            took = switch(run, before, after)
            watch = Watch(run, join)
            time.sleep(hold_s)
            found.append(Switched(before, after, *took, watch.look(after).imbalance_pct))
    return found


def switch(run: Run, before: int, after: int) -> tuple[float, float]:
    """Change the number of threads; milliseconds from the command on, and of standing still."""
    if before == after:
        return 0.0, 0.0
    known = len(run.reconfigurations)
    commanded_s = time.monotonic()
    run.reconfigure(run.plan.with_replicas("join", after))
    while len(run.reconfigurations) == known and time.monotonic() < commanded_s + PATIENCE_S:
        time.sleep(0.0005)
    took_ms = (time.monotonic() - commanded_s) * 1000
    if len(run.reconfigurations) == known:
        raise EngineError(
            Subject("run", "join"),
            f"{after} threads within {PATIENCE_S:.0f} s",
            f"still {before}",
            "measure on a machine that is less busy",
        )
    return took_ms, run.reconfigurations[known].pause_ms


def sleep_until(run: Run, second: float) -> None:
    """Wait until a run is so old, or has ended by an error."""
    while run.engine.seconds < second and not run.await_termination(POLL_S):
        pass
