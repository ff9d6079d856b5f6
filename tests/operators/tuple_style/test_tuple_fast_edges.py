"""What the quick replay must not take for granted: mistakes, odd names, key types, disorder."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from anabranch.graph import StreamType
from anabranch.operators.base import KernelContext
from anabranch.operators.tuple_style.schedule import Schedule
from anabranch.operators.tuple_style.tuples import partitioned, stateless
from anabranch.state.positions import Jumbo, Positions, Root, end
from tests.operators.tuple_style.two_replays import BUCKETS, GIVEN, kernel, stream, told

SCHEDULES = [Schedule.at_least(1), Schedule.exactly(1), Schedule.same()]

# --- mistakes ------------------------------------------------------------------------------------


def raising(ctx: Any) -> None:
    for row in ctx.tuples():
        ctx.state["n"] = row.v
        ctx.emit(n=row.v)
        if row.v > 3:
            raise ValueError(f"no {row.v}")


def unknown_column(ctx: Any) -> None:
    ctx.emit(n=1, m=2)


def left_out(ctx: Any) -> None:
    ctx.emit()


def other_key(ctx: Any) -> None:
    ctx.emit(k="z", n=1)


def other_port(ctx: Any) -> None:
    ctx.emit("nowhere", n=1)


def wrong_type(ctx: Any) -> None:
    for row in ctx.tuples():
        ctx.emit(n=row.v if row.v < 2 else f"the {row.v}")


def assigned_state(ctx: Any) -> None:
    ctx.state = {}


def other_attribute(ctx: Any) -> None:
    ctx.memory = 1


def undeclared_timer(ctx: Any) -> None:
    ctx.set_timer(9)


def other_input(ctx: Any) -> None:
    list(ctx.tuples(1))


MISTAKES = [
    raising,
    unknown_column,
    left_out,
    other_key,
    other_port,
    wrong_type,
    assigned_state,
    other_attribute,
    undeclared_timer,
    other_input,
]


@pytest.mark.parametrize("body", MISTAKES)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_mistake_is_named_in_the_same_words(body, schedule):
    operator = partitioned(key="k", out="k: string, n: int64", schedule=schedule)(body)
    rows = [(k, 0, 0.0, v, True) for v, k in enumerate("abcabcbb")]
    for depth in (0, 1):
        jumbo = stream(rows, [1, 0, 0, 0, 0, 1, 1, 0], depth)
        sides = [kernel(operator, depth, quick) for quick in (True, False)]
        quick, general = (told(side, jumbo, end(99)) for side in sides)
        assert quick == general
        assert quick.startswith("step"), "a step that fails has its name in front"


# --- names and types -----------------------------------------------------------------------------


ODD_NAMES = ["self", "to", "others", "class", "a b", "ªx", "_MISSING", "__x", "key", "_row", "n"]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_any_name_can_be_a_column(name):
    def body(ctx):
        for row in ctx.tuples():
            ctx.emit(**{name: row["v"] + row[name]})

    given = pa.schema([(name, pa.int64()), ("v", pa.int64())])
    out = pa.schema([(name, pa.int64())])
    batch = pa.record_batch([[1, 2, 3], [4, 5, 6]], schema=given)
    jumbo = Jumbo(batch, Positions.of_source(0, np.arange(3)))
    operator = stateless(out=out)(body)
    quick, general = (told(kernel(operator, 0, q, given), jumbo, end(9)) for q in (True, False))
    assert quick == general
    assert "[5, 7, 9]" in quick


DAY = datetime(2024, 2, 29)
KEY_VALUES = {
    "large text": (pa.large_string(), ["a", None, "a"]),
    "bytes": (pa.binary(), [b"a", None, b"a"]),
    "unsigned": (pa.uint64(), [2**64 - 1, None, 2**64 - 1]),
    "boolean": (pa.bool_(), [True, None, False]),
    "date": (pa.date32(), [DAY.date(), None, DAY.date()]),
    "time of day and date": (pa.timestamp("us"), [DAY, None, DAY + timedelta(microseconds=1)]),
    "half float": (pa.float16(), [np.float16(1.5), None, np.float16(1.5)]),
}


@pytest.mark.parametrize("kind", sorted(KEY_VALUES))
def test_key_columns_of_any_type_come_out_as_they_went_in(kind):
    key_type, values = KEY_VALUES[kind]
    quick, general = (counted(key_type, key_type, values, q) for q in (True, False))
    assert quick == general


def test_a_key_column_may_come_out_as_another_type():
    quick, general = (counted(pa.int32(), pa.float64(), [3, None, 3], q) for q in (True, False))
    assert quick == general
    assert "[3.0, None, 3.0], [1, 1, 2]" in quick


def counted(key_type: pa.DataType, out_type: pa.DataType, values: list[Any], quick: bool) -> str:
    def count(ctx):
        for _ in ctx.tuples():
            ctx.state["n"] = ctx.state.get("n", 0) + 1
            ctx.emit(n=ctx.state["n"])

    given = pa.schema([("x", key_type)])
    operator = partitioned(key="x", out=pa.schema([("x", out_type), ("n", pa.int64())]))(count)
    batch = pa.record_batch([pa.array(values, key_type)], schema=given)
    jumbo = Jumbo(batch, Positions.of_source(0, np.arange(len(values))))
    return told(kernel(operator, 0, quick, given), jumbo, Root(9, 0, 9, 0))


@pytest.mark.parametrize("given_as", [True, 1.0, Decimal(1), complex(1)])
def test_a_key_may_be_given_as_what_equals_it_if_that_fits_the_column(given_as):
    def body(ctx):
        ctx.emit(i=given_as if ctx.key == 1 else ctx.key, v=0)

    operator = partitioned(key="i", out="i: int32, v: int64")(body)
    jumbo = stream([("a", i, 0.0, 0, True) for i in (0, 1, 1, 2)], [1] * 4, 0)
    quick, general = (told(kernel(operator, 0, q), jumbo, end(9)) for q in (True, False))
    assert quick == general


def test_rows_that_do_not_stand_in_order_are_left_to_the_general_replay():
    def chained(ctx):
        for row in ctx.tuples():
            ctx.state["seen"] = ctx.state.get("seen", 0) * 10 + row.v
            ctx.emit(v=ctx.state["seen"])

    operator = partitioned(key="k", out="k: string, v: int64")(chained)
    jumbo = stream([("a", 0, 0.0, v, True) for v in range(4)], [1] * 4, 0)
    backwards = jumbo.take(np.array([3, 1, 2, 0]))
    (made,) = kernel(operator, 0, quick=True).run([backwards], end(9))
    assert made is not None
    assert made.batch["v"].to_pylist() == [0, 1, 12, 123]


def test_what_waited_under_another_schedule_is_not_forgotten():
    def sizes(ctx):
        ctx.emit(v=sum(row.v for row in ctx.tuples()))

    def declared(schedule):
        return partitioned(key="k", out="k: string, v: int64", schedule=schedule)(sizes)

    jumbo = stream([("a", 0, 0.0, v, True) for v in (1, 2, 4)], [1] * 3, 0)
    stream_type = StreamType(GIVEN, "t")
    waiting = declared(Schedule.exactly(2))
    types = waiting.types("step", (stream_type,))
    old = waiting.kernel(KernelContext("step", 3, (stream_type,), types, 0, BUCKETS))
    old.run([jumbo.slice(0, 1)], Root(0, 0, 1, 0))
    new = kernel(declared(Schedule.at_least(1)), 0, quick=True)
    new.stores[0].restore(old.stores[0].snapshot(), range(BUCKETS))
    (made,) = new.run([jumbo.slice(1, 3)], end(9))
    assert made is not None
    assert made.batch["v"].to_pylist() == [3, 4]
