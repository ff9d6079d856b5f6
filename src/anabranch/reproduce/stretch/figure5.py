"""Figure 5, one epoch: the band join at full speed on more and more threads, and on a single one.

Each stream has r tuples a second, so that r·window of each are within reach: a second of the stream
takes 2·r²·window comparisons. From the comparisons per second that a number of threads can make
follows the greatest rate that it sustains. The stream is read as fast as it can be, with that many
tuples in the window, once this is full.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import sqrt
from statistics import fmean

from anabranch.engines.handle import Run
from anabranch.events import Observation
from anabranch.flow import Flow
from anabranch.reproduce.stretch.joining import (
    BATCH_ROWS,
    CountedJoin,
    imbalance,
    joining,
    plan_for,
)
from anabranch.reproduce.stretch.line import Line, LineRun, middle_of
from anabranch.reproduce.stretch.pace import Pace
from anabranch.reproduce.stretch.sharing import Buffered, ByReference
from anabranch.running import start

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
def running(flow: Flow, threads: int) -> Iterator[Run]:
    """A run of the local engine that is stopped at the end."""
    run = start(flow, engine="local", plan=plan_for(flow, threads))
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
