"""Tuple style and time: timers, chains of them, ttl, and the end of the stream."""

from __future__ import annotations

import pytest

from anabranch.errors import OperatorError
from anabranch.flow import Flow
from anabranch.io import collect, memory
from anabranch.operators.row_wise.map_filter_expand import expand
from anabranch.operators.tuple_style.invocation import Reason
from anabranch.operators.tuple_style.tuples import partitioned
from anabranch.testing.sequential import run_sequential
from tests.operators.small_flows import agreed, flow_of, outcome, values


def at(*times: int, key: str = "a") -> list[dict]:
    return [{"ts": t, "k": key, "v": t} for t in times]


def told(result) -> list[tuple]:
    return [(r["k"], r["what"]) for r in result.rows("out")]


def logged(on_tuple, **properties):
    """Tells of each tuple and of each timer, and calls `on_tuple(ctx, row)`."""

    @partitioned(key="k", out="k: string, what: string", timers=True, **properties)
    def operator(ctx):
        if ctx.reason is Reason.TIMER:
            ctx.emit(what=f"timer {ctx.tag}@{ctx.time}")
        for row in ctx.tuples():
            ctx.emit(what=f"tuple@{ctx.time}")
            on_tuple(ctx, row)

    return operator


def test_a_timer_fires_at_its_time_between_the_tuples():
    operator = logged(lambda ctx, row: ctx.set_timer(ctx.time + 3, "x") if row.v == 1 else None)
    assert told(outcome(operator, at(1, 2, 9), time="ts")) == [
        ("a", "tuple@1"),
        ("a", "tuple@2"),
        ("a", "timer x@4"),
        ("a", "tuple@9"),
    ]


def test_a_timer_fires_before_the_tuples_of_its_time():
    operator = logged(lambda ctx, row: ctx.set_timer(5) if row.v == 1 else None)
    rows = at(1) + at(5, key="b") + at(5)
    assert told(outcome(operator, rows, time="ts")) == [
        ("a", "tuple@1"),
        ("a", "timer @5"),
        ("b", "tuple@5"),
        ("a", "tuple@5"),
    ]


def test_timers_of_one_time_fire_in_the_order_of_their_keys():
    operator = logged(lambda ctx, row: ctx.set_timer(50))
    rows = [{"ts": t, "k": k, "v": 0} for t, k in enumerate(["c", "é", "a", "0", "b"])]
    fired = [key for key, what in told(outcome(operator, rows, time="ts")) if "timer" in what]
    assert fired == ["0", "a", "b", "c", "é"]


def test_timers_whose_keys_begin_alike_fire_in_one_order_on_every_plan():
    operator = logged(lambda ctx, row: ctx.set_timer(50))
    rows = [{"ts": t, "k": f"a long enough name {t}", "v": 0} for t in range(12)]
    assert len(told(outcome(operator, rows, time="ts"))) == 24


def test_timers_of_one_time_and_key_fire_by_tag_each_with_places_of_their_own():
    @expand(out="copy: int64", keeps="*")
    def twice(batch):
        parents = [row for row in range(batch.num_rows) for _ in range(2)]
        return {"copy": [0, 1] * batch.num_rows}, parents

    def both(ctx, row):
        ctx.set_timer(5, "y")
        ctx.set_timer(5, "x")

    flow = Flow("small", buckets=4)
    timed = flow.source("in", memory(at(1)), time="ts")
    timed.apply("step", logged(both)).apply("twice", twice).sink("out", collect())
    result = agreed(flow)
    assert [(r["what"], r["copy"]) for r in result.rows("out")][2:] == [
        ("timer x@5", 0),
        ("timer x@5", 1),
        ("timer y@5", 0),
        ("timer y@5", 1),
    ]


def test_setting_a_timer_again_fires_it_once():
    operator = logged(lambda ctx, row: ctx.set_timer(9))
    assert told(outcome(operator, at(1, 2), time="ts"))[2:] == [("a", "timer @9")]


def test_a_cancelled_timer_does_not_fire():
    def set_or_cancel(ctx, row):
        ctx.set_timer(9) if row.v == 1 else ctx.cancel_timer(9)

    assert told(outcome(logged(set_or_cancel), at(1, 2, 20), time="ts")) == [
        ("a", "tuple@1"),
        ("a", "tuple@2"),
        ("a", "tuple@20"),
    ]


def test_a_timer_in_the_past_fires_at_the_next_time():
    operator = logged(lambda ctx, row: ctx.set_timer(0) if row.v == 5 else None)
    assert told(outcome(operator, at(5, 8), time="ts"))[1] == ("a", "timer @6")


def test_a_timer_that_a_tuple_set_fires_though_the_stream_ends_before_it():
    operator = logged(lambda ctx, row: ctx.set_timer(100))
    assert told(outcome(operator, at(1), time="ts"))[-1] == ("a", "timer @100")


def chained(key: str = "k"):
    @partitioned(key=key, out="at: int64", timers=True)
    def operator(ctx):
        if ctx.reason is Reason.TIMER:
            ctx.emit(at=ctx.time)
        ctx.set_timer(ctx.time + 2)

    return operator


def test_timers_that_set_each_other_end_with_the_stream():
    rows = at(0) + at(7, key="b")
    result = outcome(chained(), rows, time="ts")
    assert values(result, "at") == [2, 4, 6, 9]


def test_timers_need_a_declaration():
    @partitioned(key="k", out="n: int64", ttl=5)
    def undeclared(ctx):
        ctx.set_timer(9)

    with pytest.raises(OperatorError, match="an operator declared with timers=True"):
        run_sequential(flow_of(undeclared, at(1), time="ts"))


# --- ttl -----------------------------------------------------------------------------------------


@partitioned(key="k", out="k: string, n: int64", ttl=5)
def remembering(ctx):
    for _ in ctx.tuples():
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        ctx.emit(n=ctx.state["n"])


@pytest.mark.parametrize(
    ("times", "counts"),
    [((0, 4, 8), [1, 2, 3]), ((0, 5), [1, 1]), ((0, 4, 9, 10), [1, 2, 1, 2])],
)
def test_a_key_is_forgotten_when_no_tuple_came_for_its_time_to_live(times, counts):
    assert values(outcome(remembering, at(*times), time="ts"), "n") == counts


def test_tuples_of_other_keys_do_not_keep_a_key_alive():
    rows = sorted(at(0, 6) + at(3, 5, key="b"), key=lambda row: row["ts"])
    result = outcome(remembering, rows, time="ts")
    assert [(r["k"], r["n"]) for r in result.rows("out")] == [
        ("a", 1),
        ("b", 1),
        ("b", 2),
        ("a", 1),
    ]


# --- the end -------------------------------------------------------------------------------------


def closing(**properties):
    @partitioned(key="k", out="k: string, what: string", closing=True, **properties)
    def operator(ctx):
        if ctx.reason is Reason.CLOSED:
            ctx.emit(what=f"{ctx.state['n']}")
        for _ in ctx.tuples():
            ctx.state["n"] = ctx.state.get("n", 0) + 1

    return operator


def test_the_end_is_told_to_every_key_in_their_order():
    rows = at(1, key="b") + at(2, 3) + at(4, key="c")
    assert told(outcome(closing(), rows)) == [("a", "2"), ("b", "1"), ("c", "1")]


def test_the_end_is_not_told_to_a_key_that_has_outlived_its_time():
    rows = at(0) + at(100, key="b")
    assert told(outcome(closing(ttl=5), rows, time="ts")) == [("b", "1")]


def test_timers_fire_before_the_end_is_told():
    @partitioned(key="k", out="k: string, what: string", closing=True, timers=True)
    def operator(ctx):
        ctx.emit(what=ctx.reason.value)
        ctx.state["seen"] = True
        if ctx.reason is Reason.TUPLES:
            ctx.set_timer(50)

    assert [what for _, what in told(outcome(operator, at(1), time="ts"))] == [
        "tuples",
        "timer",
        "closed",
    ]


def test_a_timer_that_raises_leaves_by_the_error_port():
    @partitioned(key="k", out="k: int64", timers=True, on_error="side")
    def late_failure(ctx):
        if ctx.reason is Reason.TIMER:
            raise ValueError("too late")
        for row in ctx.tuples():
            ctx.set_timer(row.ts + 1)

    flow = Flow("f")
    made = flow.source("s", memory([{"k": 7, "ts": 1}]), time="ts").apply("step", late_failure)
    made.errors.sink("errors", collect())
    result = run_sequential(flow)
    assert result.rows("errors") == [
        {"port": None, "row": "timer of key 7", "error": "ValueError: too late"}
    ]
    assert result.counters["step"].skipped == 1


def test_timers_outlive_the_state_that_has_expired():
    @partitioned(key="k", out="k: int64, n: int64", timers=True, ttl=5)
    def patient(ctx):
        if ctx.reason is Reason.TIMER:
            ctx.emit(n=ctx.state.get("n", 0))
        for row in ctx.tuples():
            ctx.state["n"] = 1
            ctx.set_timer(row.ts + 2)
            ctx.set_timer(row.ts + 20)
            ctx.set_timer(row.ts + 30)

    flow = Flow("f")
    flow.source("s", memory([{"k": 7, "ts": 1}]), time="ts").apply("step", patient).sink(
        "out", collect()
    )
    assert [row["n"] for row in run_sequential(flow).rows("out")] == [1, 0, 0]
