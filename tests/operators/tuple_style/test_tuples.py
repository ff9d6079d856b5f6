"""Tuple style: state by key, schedules, errors, and what an invocation may do."""

from __future__ import annotations

import pytest

from anabranch.columns.schemas import schema
from anabranch.errors import BufferLimitError, BuildError, OperatorError, SchemaError
from anabranch.flow import Flow
from anabranch.graph import StateKind
from anabranch.io import collect, memory
from anabranch.operators.row_wise.map_filter_expand import flat_map
from anabranch.operators.tuple_style.invocation import Reason
from anabranch.operators.tuple_style.schedule import Schedule
from anabranch.operators.tuple_style.tuples import (
    FunctionOperator,
    TupleOperator,
    partitioned,
    stateful,
    stateless,
)
from anabranch.testing.interleaved import run_interleaved
from anabranch.testing.sequential import run_sequential
from tests.operators.small_flows import agreed, flow_of, outcome, values

LOGINS = [{"host": h, "ok": i} for i, h in enumerate(["a", "b", "a", "a", "b", "c"])]


@partitioned(key="host", out="host: string, n: int64")
def counted(ctx):
    for _ in ctx.tuples():
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        ctx.emit(n=ctx.state["n"])


def refuses(operator, words: str, rows=LOGINS) -> None:
    with pytest.raises(OperatorError, match=words) as caught:
        run_sequential(flow_of(operator, rows))
    assert caught.value.step == "step"


# --- state ---------------------------------------------------------------------------------------


def test_each_key_has_its_own_state():
    result = outcome(counted, LOGINS)
    assert [(r["host"], r["n"]) for r in result.rows("out")] == [
        ("a", 1),
        ("b", 1),
        ("a", 2),
        ("a", 3),
        ("b", 2),
        ("c", 1),
    ]


def test_global_state_sees_every_tuple_in_order():
    @stateful(out="sum: int64")
    def running(ctx):
        for row in ctx.tuples():
            ctx.state["sum"] = ctx.state.get("sum", 0) * 2 + row.ok
            ctx.emit(sum=ctx.state["sum"])

    assert values(outcome(running, LOGINS), "sum") == [0, 1, 4, 11, 26, 57]


def test_a_stateless_operator_has_no_state():
    @stateless(out="x: int64")
    def cheat(ctx):
        ctx.state["x"] = 1

    refuses(cheat, "no state, as declared, got a use of ctx.state; declare it partitioned")


def test_a_key_of_several_columns_is_a_tuple():
    @partitioned(key=["host", "ok"], out="host: string, ok: int64, key: string")
    def shown(ctx):
        ctx.emit(key=repr(ctx.key))

    assert values(outcome(shown, LOGINS[:2]), "key") == ["('a', 0)", "('b', 1)"]


def test_null_is_a_key_like_any_other():
    rows = [{"host": h, "ok": 0} for h in ("a", None, None, "a")]
    assert values(outcome(counted, rows), "n") == [1, 1, 2, 2]


NAN = float("nan")


def test_nan_is_one_key():
    count = partitioned(key="x", out="n: int64")(counted.function)
    assert values(run_sequential(flow_of(count, [{"x": NAN}] * 3)), "n") == [1, 2, 3]


def test_nan_is_the_same_key_after_a_restart():
    count = partitioned(key="x", out="n: int64")(counted.function)
    flow = flow_of(count, [{"x": NAN}] * 40)
    for seed in range(8):
        result = run_interleaved(flow, seed=seed, crashes=2, max_batch=2)
        assert values(result, "n") == list(range(1, 41))


def test_nan_is_one_key_beside_other_columns_too():
    count = partitioned(key=["x", "y"], out="n: int64")(counted.function)
    assert values(outcome(count, [{"x": NAN, "y": 1}] * 3), "n") == [1, 2, 3]


# --- emitting ------------------------------------------------------------------------------------


def emits(**emitted):
    return partitioned(key="host", out="host: string, n: int64")(lambda ctx: ctx.emit(**emitted))


EMITTED = {
    "a column left out": (emits(), r"the columns \['host', 'n'\], got \['host'\]"),
    "a column too many": (emits(n=1, m=2), r"the columns \['host', 'n'\], got \['host', 'm', 'n'"),
    "another key": (emits(n=1, host="z"), "key column 'host' = 'a' .* got 'z'; rename the output"),
    "another port": (
        partitioned(key="host", out="host: string, n: int64")(lambda ctx: ctx.emit("nowhere", n=1)),
        r"an output among \['out'\], got 'nowhere'",
    ),
    "a wrong type": (emits(n="many"), "'n' of type int64"),
    "a number too large": (emits(n=2**70), "'n' of type int64"),
}


@pytest.mark.parametrize("mistake", sorted(EMITTED))
def test_what_is_emitted_is_checked(mistake):
    refuses(*EMITTED[mistake])


def test_tuples_can_go_to_named_outputs():
    @stateless(out="x: int64", side_outs={"odd": "y: int64"})
    def dealt(ctx):
        for row in ctx.tuples():
            ctx.emit("odd", y=row.ok) if row.ok % 2 else ctx.emit(x=row.ok)

    result = outcome(dealt, LOGINS)
    assert (values(result, "x"), values(result, "y", "odd")) == ([0, 2, 4], [1, 3, 5])


# --- schedules -----------------------------------------------------------------------------------


def sizes_seen(schedule: Schedule, ports: int = 1, **properties) -> FunctionOperator:
    def operator(ctx):
        taken = [str(len(list(ctx.tuples(port)))) for port in range(ports)]
        ctx.emit(seen="+".join(taken) + ("!" if ctx.reason is Reason.CLOSED else ""))

    properties = {"state": StateKind.STATEFUL, "in_ports": ports, **properties}
    return FunctionOperator(operator, out="seen: string", schedule=schedule, **properties)


def test_exactly_two_waits_for_the_second():
    assert values(outcome(sizes_seen(Schedule.exactly(2)), LOGINS[:5]), "seen") == ["2", "2"]


def test_at_least_two_takes_all_that_wait():
    assert values(outcome(sizes_seen(Schedule.at_least(2)), LOGINS[:5]), "seen") == ["2", "2"]


def test_what_waits_is_shown_when_the_stream_ends():
    operator = sizes_seen(Schedule.exactly(2), closing=True)
    assert values(outcome(operator, LOGINS[:5]), "seen") == ["2", "2", "1!"]


def test_the_same_number_from_each_port():
    operator = sizes_seen(Schedule.same(), ports=2, closing=True)
    assert values(outcome(operator, LOGINS[:2], LOGINS[:3]), "seen") == ["1+1", "1+1", "0+1!"]


def test_any_port_may_fire_alone():
    operator = sizes_seen(Schedule.at_least(1, ports="any"), ports=2)
    assert values(outcome(operator, LOGINS[:1], LOGINS[:2]), "seen") == ["1+0", "0+1", "0+1"]


def test_buffers_are_kept_by_key():
    operator = sizes_seen(Schedule.exactly(2), state=StateKind.PARTITIONED, key="host")
    assert len(outcome(operator, LOGINS).rows("out")) == 2


def test_a_buffer_past_its_bound_is_a_named_error():
    operator = sizes_seen(
        Schedule.exactly(1), ports=2, state=StateKind.PARTITIONED, key="host", max_buffer=2
    )
    with pytest.raises(BufferLimitError, match="at most 2 waiting tuples a key, got 3 for key 'a'"):
        run_sequential(flow_of(operator, LOGINS, LOGINS[:0], schema=schema("host: str, ok: int")))


def test_a_schedule_that_a_stateless_operator_would_ignore_is_refused():
    with pytest.raises(BuildError, match="schedule"):
        stateless(out="x: int64", schedule=Schedule.exactly(2))(lambda ctx: None)


# --- tuples that raise ---------------------------------------------------------------------------


def fragile(on_error: str):
    @partitioned(key="host", out="host: string, n: int64", on_error=on_error)
    def operator(ctx):
        for row in ctx.tuples():
            ctx.state.setdefault("seen", []).append(row.ok)
            ctx.emit(n=-1)
            if row.ok == 2:
                raise ValueError("a two")
            ctx.emit(n=len(ctx.state["seen"]))

    return operator


def test_fail_names_step_key_row_and_exception():
    refuses(fragile("fail"), r"ValueError: a two on key 'a', tuples: \[\(host='a', ok=2\)\]")


def test_skip_leaves_no_trace_in_state_or_output():
    result = outcome(fragile("skip"), LOGINS)
    of_a = [r["n"] for r in result.rows("out") if r["host"] == "a"]
    assert (of_a, result.counters["step"].skipped) == ([-1, 1, -1, 2], 1)


def test_side_gives_the_row_back():
    result = outcome(fragile("side"), LOGINS)
    assert result.rows("errors") == [
        {"port": 0, "row": "(host='a', ok=2)", "error": "ValueError: a two"}
    ]


def test_tuples_of_one_event_on_the_side_have_places_of_their_own():
    def raising(ctx):
        raise ValueError([row.n for row in ctx.tuples()])

    two = flat_map(lambda row: [{"n": 10 * row["ok"] + i} for i in range(2)], out="n: int64")
    one = FunctionOperator(
        raising, state=StateKind.STATEFUL, schedule=Schedule.exactly(1), on_error="side"
    )
    again = flat_map(lambda row: [row, row], out="port: int64, row: string, error: string")
    flow = Flow("small", buckets=4)
    made = flow.source("in", memory(LOGINS[:2])).apply("two", two).apply("one", one)
    made.errors.apply("again", again).sink("out", collect())
    numbers = [f"(n={n})" for n in (0, 0, 1, 1, 10, 10, 11, 11)]
    assert values(agreed(flow), "row") == numbers


def test_a_new_key_that_raises_is_not_remembered():
    @partitioned(key="host", out="host: string, n: int64", on_error="skip", closing=True)
    def operator(ctx):
        if ctx.reason is Reason.CLOSED:
            ctx.emit(n=len(ctx.state))
        for _ in ctx.tuples():
            ctx.state["touched"] = True
            raise ValueError

    assert outcome(operator, LOGINS).rows("out") == []


# --- declarations --------------------------------------------------------------------------------


DECLARED = {
    "a key without state": ({"state": StateKind.STATELESS, "key": "k"}, "a key if and only if"),
    "partitioned without key": ({"state": StateKind.PARTITIONED}, "a key if and only if"),
    "shared": ({"state": StateKind.SHARED}, "use ab.shared"),
    "timers without state": ({"timers": True}, "state behind timers, closing and ttl"),
    "closing without state": ({"closing": True}, "state behind timers, closing and ttl"),
    "an unknown property": ({"replicas": 3}, "a property of a tuple operator, got 'replicas'"),
    "counts for other ports": (
        {"schedule": Schedule.exactly(1, 2, 3), "in_ports": 2, "state": StateKind.STATEFUL},
        "one count or 2 counts",
    ),
    "an unknown policy": ({"on_error": "ignore"}, "on_error in"),
}


@pytest.mark.parametrize("mistake", sorted(DECLARED))
def test_a_contradictory_declaration_is_refused(mistake):
    properties, words = DECLARED[mistake]
    with pytest.raises(BuildError, match=words):
        FunctionOperator(lambda ctx: None, **properties)


def test_a_doubled_key_column_is_refused():
    with pytest.raises(SchemaError, match="each key column once"):
        partitioned(key=["a", "a"], out="n: int64")(lambda ctx: None)


def test_properties_may_be_fixed_in_a_class_and_given_when_composed():
    class Count(TupleOperator):
        state = StateKind.PARTITIONED
        out = "n: int64"

        def invoke(self, ctx):
            counted.function(ctx)

    assert values(outcome(Count(key="host"), LOGINS), "n") == [1, 1, 2, 3, 2, 1]
