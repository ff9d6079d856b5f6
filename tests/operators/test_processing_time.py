"""Processing time is a recorded input: timers run on arrival times, and a replay agrees."""

from __future__ import annotations

from datetime import timedelta

import pytest

import anabranch as ab
from anabranch.testing import run_interleaved, run_sequential

SECOND = 1_000_000


def script(*arrivals: int):
    """A clock that tells scripted times, in seconds."""
    times = iter(arrivals)
    return lambda: next(times) * SECOND


@ab.partitioned(key="k", out="k: string, silent_at: int64", timers=True)
def watchdog(ctx):
    """Tells when a key was silent for ten seconds."""
    if ctx.reason is ab.Reason.TIMER:
        if ctx.state["due"] == ctx.time:
            ctx.emit(silent_at=ctx.time // SECOND)
        return
    for _ in ctx.tuples():
        ctx.state["due"] = ctx.time + 10 * SECOND
        ctx.set_timer(ctx.state["due"])


def watched(*arrivals: int) -> ab.Flow:
    rows = ab.memory([{"k": "ab"[i % 2]} for i in range(len(arrivals))])
    flow = ab.Flow("watch")
    stamped = flow.source("s", ab.stamped(rows, script(*arrivals)), time="arrival")
    stamped.apply("watchdog", watchdog).sink("out", ab.collect())
    return flow


def test_timers_fire_by_arrival_time():
    # a arrives at 0 and 8, b at 1 and 30: b is silent from 11 on, a from 18 on
    result = run_sequential(watched(0, 1, 8, 30))
    assert result.rows("out") == [
        {"k": "b", "silent_at": 11},
        {"k": "a", "silent_at": 18},
        {"k": "b", "silent_at": 40},
    ]


@pytest.mark.parametrize("seed", range(5))
def test_a_replay_goes_by_the_recorded_times(seed):
    flow = watched(0, 1, 8, 30, 31, 55, 56, 90)
    first = run_sequential(flow)  # reads one row at a time, so each row has its own stamp
    again = run_interleaved(flow, seed=seed, crashes=2)
    assert again.rows("out") == first.rows("out")


def test_windows_of_arrival_time_take_timedeltas():
    rows = ab.memory([{"k": "a"} for _ in range(4)])
    flow = ab.Flow("rate")
    flow.source("s", ab.stamped(rows, script(0, 59, 60, 61)), time="arrival").aggregate(
        "per-minute", key="k", window=ab.tumbling(timedelta(minutes=1)), n=ab.count()
    ).sink("out", ab.collect())
    assert [row["n"] for row in run_sequential(flow).rows("out")] == [2, 2]
