from __future__ import annotations

from datetime import datetime, timedelta
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from anabranch.columns.times import to_times
from anabranch.errors import BuildError, OperatorError, SchemaError
from anabranch.flow import Flow
from anabranch.graph import StreamType
from anabranch.io import collect, memory
from anabranch.operators.base import Counters, KernelContext
from anabranch.operators.timed import Timed
from anabranch.operators.tuple_style.invocation import Reason
from anabranch.operators.tuple_style.tuples import stateful
from anabranch.state.positions import FIRST, LAST, Jumbo, Mark, Positions, Root, end, is_end
from anabranch.testing.compare import difference
from anabranch.testing.interleaved import run_interleaved
from anabranch.testing.random_plans import random_plan
from anabranch.testing.sequential import run_sequential
from tests.operators.small_flows import agreed, values


def timed_flow(*sources: list[int], lateness: int = 0, heartbeats: dict | None = None) -> Flow:
    """Sources of times, merged, then put in the order of time by one clock."""
    flow = Flow("timed", buckets=4)
    rows = [
        [{"ts": t, "name": f"{number}:{i}"} for i, t in enumerate(times)]
        for number, times in enumerate(sources)
    ]
    first, *others = (
        flow.source(f"s{number}", memory(each, heartbeats=heartbeats))
        for number, each in enumerate(rows)
    )
    stream = first.union("all", *others) if others else first
    clock = stream.timed("clock", "ts", lateness=lateness)
    clock.sink("out", collect())
    clock.late.sink("late", collect())
    return flow


@stateful(out="fired: int64", timers=True)
def every_ten(ctx):
    """Each timer sets the next one, which fires if that was before the end of the stream."""
    if ctx.reason is Reason.TIMER:
        ctx.emit(fired=ctx.time)
    ctx.set_timer(ctx.time + 10)


def test_a_stream_of_late_tuples_ends_with_a_last_time_of_its_own():
    flow = Flow("late", buckets=4)
    rows = memory([{"ts": time} for time in [1, 90, 5, 30]])
    late = flow.source("s", rows, time="ts").late
    late.timed("again", "ts").apply("every-ten", every_ten).sink("out", collect())
    assert values(agreed(flow), "fired") == [15, 25, 40]


# --- lateness ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lateness", "on_time", "late"),
    [
        (0, [1, 5, 7, 9], [4, 3, 6]),
        (1, [1, 4, 5, 6, 7, 9], [3]),
        (2, [1, 3, 4, 5, 6, 7, 9], []),
    ],
)
def test_a_tuple_is_late_when_further_behind_than_allowed(lateness, on_time, late):
    result = agreed(timed_flow([1, 5, 4, 3, 7, 6, 9], lateness=lateness))
    assert (values(result, "ts"), values(result, "ts", "late")) == (on_time, late)


@pytest.mark.parametrize(
    ("lateness", "counted"),
    [
        (0, Counters(late=4, behind=4, most_behind=18)),
        (7, Counters(late=3, behind=3, most_behind=18)),
        (18, Counters()),
    ],
)
def test_late_tuples_are_counted_with_how_far_the_furthest_was_behind(lateness, counted):
    result = agreed(timed_flow([5, 1, 20, 2, 6, 12, 25], lateness=lateness))
    assert result.counters["clock"] == counted


def test_what_a_step_emits_at_the_end_is_behind_the_greatest_time():
    @stateful(out="ts: int64", closing=True)
    def last_words(ctx):
        for row in ctx.tuples():
            ctx.state["last"] = row.ts
            ctx.emit(ts=row.ts)
        if ctx.reason is Reason.CLOSED:
            ctx.emit(ts=3)

    flow = Flow("f")
    rows = memory([{"ts": 1}, {"ts": 9}])
    clock = flow.source("s", rows).apply("last", last_words).timed("clock", "ts", lateness=4)
    clock.sink("out", collect())
    clock.late.sink("late", collect())
    result = agreed(flow)
    assert values(result, "ts", "late") == [3]
    assert result.counters["clock"] == Counters(late=1), "lateness does not decide"


def test_late_tuples_keep_the_order_of_arrival():
    assert values(agreed(timed_flow([9, 5, 7, 2])), "ts", "late") == [5, 7, 2]


def test_lateness_is_judged_against_the_tuples_own_source():
    result = agreed(timed_flow([100, 101], [1, 2]))
    assert (values(result, "ts"), values(result, "ts", "late")) == ([1, 2, 100, 101], [])


def test_a_late_tuple_does_not_move_the_clock():
    result = agreed(timed_flow([10, 2, 9, 10], lateness=1))
    assert (values(result, "ts"), values(result, "ts", "late")) == ([9, 10, 10], [2])


def test_tuples_of_one_time_stand_by_source_then_number():
    result = agreed(timed_flow([5, 5], [5, 5]))
    assert values(result, "name") == ["0:0", "0:1", "1:0", "1:1"]


# --- heartbeats and the end ----------------------------------------------------------------------


def test_a_tuple_older_than_a_heartbeat_is_late():
    result = agreed(timed_flow([1, 4, 9], heartbeats={1: 6}))
    assert (values(result, "ts"), values(result, "ts", "late")) == ([1, 9], [4])


NOWHERE = Root(0, 0, 0, 0)


def clock(sources: int = 2, lateness: int = 0):
    """A kernel alone, behind several sources."""
    given = StreamType(pa.schema([("ts", pa.int64())]))
    operator = Timed("ts", lateness)
    outputs = operator.types("clock", (given,))
    context = KernelContext(
        "clock", 1, (given,), outputs, depth=0, buckets=4, sources=tuple(range(sources))
    )
    return operator.kernel(context)


def arriving(source: int, *times: int, passed: int | None = None, first: int = 0) -> Jumbo:
    batch = pa.record_batch({"ts": pa.array(times, pa.int64())})
    seq = np.arange(first, first + len(times))
    behind = first + len(times)
    marks = () if passed is None else (Mark(Root(behind, source, behind, -1), passed),)
    return Jumbo(batch, Positions.of_source(source, seq), marks)


def released(kernel, jumbo: Jumbo, frontier: Root = NOWHERE) -> list[int]:
    out, _ = kernel.step([jumbo], frontier)
    return [] if out is None else out.batch.column("ts").to_pylist()


def test_a_source_that_has_said_nothing_holds_the_merge():
    kernel = clock()
    assert released(kernel, arriving(0, 1, 5)) == []


def test_what_every_source_has_passed_is_released_in_order():
    kernel = clock()
    kernel.step([arriving(0, 1, 5, 8)], NOWHERE)
    assert released(kernel, arriving(1, 2, 6)) == [1, 2, 5]


def test_tuples_of_the_ready_time_wait_for_others_of_that_time():
    kernel = clock(sources=1)
    assert released(kernel, arriving(0, 1, 5)) == [1]


def test_a_heartbeat_releases_what_an_idle_source_holds():
    kernel = clock()
    kernel.step([arriving(0, 1, 5, 8)], NOWHERE)
    assert released(kernel, arriving(1, passed=7)) == [1, 5]


def test_a_source_that_has_ended_does_not_hold_the_merge():
    kernel = clock()
    kernel.step([arriving(0, 1, 5, 8)], NOWHERE)
    assert released(kernel, arriving(1, passed=LAST)) == [1, 5]


def test_the_frontier_is_the_time_that_all_have_passed():
    kernel = clock(lateness=2)
    kernel.step([arriving(0, 9)], Root(0, 0, 0, 0))
    silent = kernel.frontier(Root(0, 0, 0, 0)).time
    kernel.step([arriving(1, 20)], Root(0, 0, 0, 0))
    assert (silent, kernel.frontier(Root(0, 0, 0, 0)).time) == (FIRST, 7)


def test_the_end_releases_everything_and_tells_the_last_time():
    kernel = clock()
    out = released(kernel, arriving(0, 1, 5), end(FIRST))
    frontier = kernel.frontier(end(FIRST))
    assert (out, is_end(frontier), frontier.sub) == ([1, 5], True, 5)


# --- behind the late port ------------------------------------------------------------------------


LATE = [t - 50 if number % 3 else t for number, t in enumerate(range(1000, 1090, 3))]


def late_flow() -> tuple[Flow, list]:
    flow = Flow("late", buckets=4)
    return flow, [
        flow.source(name, memory([{"ts": t, "n": i} for i, t in enumerate(LATE)]), time="ts").late
        for name in "ab"
    ]


def test_late_tuples_keep_their_order_behind_replicas():
    flow, (late, _) = late_flow()
    late.map("m", lambda b: {}, keeps="*").sink("out", collect())
    agreed_often(flow)


def test_late_tuples_of_two_sources_are_merged_by_number():
    flow, (a, b) = late_flow()
    a.union("u", b).sink("out", collect())
    agreed_often(flow)


def agreed_often(flow: Flow) -> None:
    expected = run_sequential(flow)
    for seed in range(40):
        got = run_interleaved(flow, random_plan(flow, Random(seed)), seed)
        assert difference(flow, expected, got) is None


# --- time columns --------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_of_every_unit_order_a_stream(unit):
    schema = pa.schema([("ts", pa.timestamp(unit))])
    stream = Flow("f").source("s", memory([{"ts": datetime(2024, 1, 1)}], schema), time="ts")
    assert stream.type.time == pa.timestamp("us")


def test_lateness_of_timestamps_is_a_length_of_time():
    start = datetime(2024, 1, 1)
    rows = [{"ts": start + timedelta(seconds=s)} for s in (10, 8, 7)]
    flow = Flow("f")
    stream = flow.source("s", memory(rows), time="ts", lateness=timedelta(seconds=2))
    stream.late.sink("late", collect())
    assert agreed(flow).rows("late") == rows[2:]


def test_a_column_that_is_no_time_is_refused():
    with pytest.raises(SchemaError, match="a time column of integers or timestamps, got string"):
        Flow("f").source("s", memory([{"ts": "now"}]), time="ts")


@pytest.mark.parametrize("lateness", [-1, 1.5, True, timedelta(seconds=1)])
def test_a_lateness_that_does_not_fit_is_refused(lateness):
    with pytest.raises(BuildError, match=r"step 's\.time'"):
        Flow("f").source("s", memory([{"ts": 1}]), time="ts", lateness=lateness)


def test_a_tuple_without_a_time_is_an_error():
    flow = Flow("f")
    flow.source("s", memory([{"ts": 1}, {"ts": None}]), time="ts").sink("out", collect())
    with pytest.raises(OperatorError, match=r"a time in every tuple, got 1 null\(s\)"):
        run_sequential(flow)


def test_a_heartbeat_passes_steps_with_and_without_state():
    rows = memory([{"ts": 1}, {"ts": 2}, {"ts": 9}], heartbeats={1: 5})
    flow = Flow("f")
    early = (
        flow.source("s", rows)
        .deduplicate("once", key="ts")
        .filter("all", lambda b: pc.greater(b["ts"], 0))
    )
    clock = early.timed("clock", "ts", lateness=10)
    clock.sink("out", collect())
    clock.late.sink("late", collect())
    result = run_sequential(flow)
    # The heartbeat before the second row says that time 5 has passed, so that row is late.
    assert [r["ts"] for r in result.rows("late")] == [2]


def test_each_source_of_a_clock_is_judged_by_its_own_times():
    flow = Flow("f")
    fast = flow.source("fast", memory([{"ts": t} for t in (10, 20, 30)]))
    slow = flow.source("slow", memory([{"ts": t} for t in (1, 2, 3)]))
    clock = fast.union("both", slow).timed("clock", "ts")
    clock.sink("out", collect())
    result = run_sequential(flow)
    assert [r["ts"] for r in result.rows("out")] == [1, 2, 3, 10, 20, 30]
    assert result.counters["clock"].late == 0


def test_a_stream_is_timed_once():
    timed = Flow("f").source("s", memory([{"ts": 1, "other": 2}]), time="ts")
    with pytest.raises(BuildError, match="ordered by int64 already"):
        timed.timed("again", "other")


def test_a_step_with_state_may_follow_a_clock_whose_late_tuples_nobody_reads():
    @stateful(out="n: int64")
    def numbered(ctx):
        for _ in ctx.tuples():
            ctx.state["n"] = ctx.state.get("n", 0) + 1
            ctx.emit(n=ctx.state["n"])

    flow = Flow("f")
    rows = memory([{"ts": t} for t in (5, 1, 7)])
    flow.source("s", rows, time="ts").apply("numbered", numbered).sink("out", collect())
    assert run_interleaved(flow).rows("out") == run_sequential(flow).rows("out")


# --- times that no clock can take ----------------------------------------------------------------

LAST_OF_9998, LAST_BEFORE_2 = 253_370_764_799, -62_104_060_801


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
@pytest.mark.parametrize("ahead", [None, timedelta(days=365 * 20_000)])
def test_timestamps_outside_of_the_years_2_to_9998_are_set_aside(unit, ahead):
    seconds = [LAST_BEFORE_2, LAST_BEFORE_2 + 1, 0, LAST_OF_9998 + 1, 1, LAST_OF_9998]
    # So far ahead that as microseconds it has more than 64 bits, and would come out as 1970.
    wraps = {"s": 18_446_744_073_710, "ms": 18_446_744_073_709_552, "us": LAST - 1}[unit]
    per_second = {"s": 1, "ms": 1_000, "us": 1_000_000}[unit]
    ticks = [wraps, *(each * per_second for each in seconds), wraps]
    flow = Flow("timed", buckets=4)
    rows = pa.table({"n": list(range(8)), "ts": pa.array(ticks, pa.timestamp(unit))})
    clock = flow.source("s", memory(rows), time="ts", ahead=ahead)
    clock.sink("out", collect())
    clock.late.map("which", lambda b: {"n": b["n"]}, out="n: int64").sink("late", collect())
    result = agreed(flow)
    assert (values(result, "n"), values(result, "n", "late")) == ([2, 3, 5, 6], [0, 1, 4, 7])
    assert result.counters["s.time"].late == 4


def test_a_time_of_more_bits_than_there_are_is_no_other_time():
    with pytest.raises(OperatorError, match="18446744073710") as caught:
        to_times("clock", pa.array([18_446_744_073_710], pa.timestamp("s")))
    assert caught.value.step == "clock"


def test_nanoseconds_are_rounded_down_on_both_sides_of_1970():
    nanoseconds = [-2001, -2000, -1, 0, 1, 1999, -(2**62)]
    times = to_times("clock", pa.array(nanoseconds, pa.timestamp("ns")))
    assert times.tolist() == [each // 1000 for each in nanoseconds]
    zoned = to_times("clock", pa.array(nanoseconds, pa.timestamp("ns", "Europe/Berlin")))
    assert zoned.tolist() == times.tolist()


def test_integers_may_be_any_times():
    result = agreed(timed_flow([FIRST + 1, 0, LAST - 1]))
    assert values(result, "ts") == [FIRST + 1, 0, LAST - 1]
