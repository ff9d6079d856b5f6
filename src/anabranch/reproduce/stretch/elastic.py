"""Figure 5, between epochs: another load, another number of threads, and what the switch costs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from anabranch.engines.handle import Run
from anabranch.errors import EngineError, Subject
from anabranch.planning.models.stretch import threads_for
from anabranch.reproduce.stretch.figure5 import POLL_S, Seen, Watch, running
from anabranch.reproduce.stretch.joining import joining
from anabranch.reproduce.stretch.pace import Pace

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
    with running(flow, threads) as run:
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
    with running(flow, numbers[0]) as run:
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
