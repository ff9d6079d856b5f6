"""The quick replay gives what the general one gives: batches, positions, state, changes."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.operators.base import Kernel
from anabranch.operators.tuple_style.invocation import Reason
from anabranch.operators.tuple_style.schedule import Schedule
from anabranch.operators.tuple_style.tuples import (
    FunctionOperator,
    partitioned,
    stateful,
    stateless,
)
from anabranch.state.positions import Jumbo, Root, after, end
from tests.operators.driving import cuts
from tests.operators.tuple_style.two_replays import BUCKETS, kernel, stream, told
from tests.sampling import some

NAN = float("nan")
OUT = "k: string, i: int32, f: double, v: int64, told: string"


def telling(ctx: Any) -> None:
    """All that an author can see goes out, in changing numbers and to both outputs."""
    if ctx.reason is not Reason.TUPLES:
        emit(ctx, None, f"{ctx.reason.value} {ctx.tag} {ctx.time} {ctx.state}")
    for row in ctx.tuples():
        seen = ctx.state["seen"] = ctx.state.get("seen", 0) * 7 % 1009 + row.v
        for number in range(row.v % 3):
            emit(ctx, row, f"{ctx.key!r} {ctx.time} {row!r} {seen} {number}")
        if row.v % 5 == 0:
            ctx.emit("side", v=seen)
        if row.v % 7 == 0:
            ctx.state.clear()


def timed(ctx: Any) -> None:
    telling(ctx)
    for row in ctx.tuples():
        if row.v % 4 == 0:
            ctx.set_timer(ctx.time + row.v % 9, "a")
        if row.v % 11 == 0:
            ctx.cancel_timer(ctx.time + 2, "a")


def looking_back(ctx: Any) -> None:
    """Emits before, while and after it looks at its tuples, and looks twice."""
    emit(ctx, None, "before")
    rows = list(ctx.tuples())
    emit(ctx, None, f"behind {len(rows)}")
    for row, other in zip(ctx.tuples(), rows, strict=True):
        emit(ctx, row, f"again {other.v}")
        ctx.state["v"] = other.v
    for row in ctx.tuples(0):
        emit(ctx, row, "a part")
        break


def emit(ctx: Any, row: Any, told: str) -> None:
    """Key columns are left out, given as the key, or given as an equal value, by turns."""
    values = {"i": None, "k": None, "f": None, "v": 1, "told": told}
    if row is not None:
        values.update(i=row.i, k=row.k, f=row.f, v=row.v)
        way = row.v % 4
        if way == 1 and row.i is not None:
            values["i"] = float(row.i)  # equals the key, and is another thing
        if way == 2 and row.k is not None:
            values["k"] = "".join(list(row.k))
    for name in KEYS.get():
        if row is None or row.v % 4 == 3:
            values.pop(name, None)
    ctx.emit(**values)


class Keys:
    """Key of the operator that runs; bodies are shared by operators of several keys."""

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()

    def get(self) -> tuple[str, ...]:
        return self.names


KEYS = Keys()
BODIES = {"telling": telling, "timed": timed, "looking back": looking_back}
SCHEDULES = [Schedule.at_least(1), Schedule.exactly(1), Schedule.same()]
KEY_CHOICES = [("k",), ("i",), ("f",), ("k", "i"), ("f", "k"), ("t", "k"), ()]


@st.composite
def operators(draw: Any) -> FunctionOperator:
    key, name = draw(st.sampled_from(KEY_CHOICES)), draw(st.sampled_from(sorted(BODIES)))
    properties: dict[str, Any] = {"out": OUT, "side_outs": {"side": "v: int64"}}
    properties["schedule"] = draw(st.sampled_from(SCHEDULES))
    properties["timers"] = name == "timed"
    properties["closing"] = draw(st.booleans())
    properties["ttl"] = draw(st.sampled_from([None, 3]))
    made = partitioned(key=key, **properties) if key else stateful(**properties)
    return made(BODIES[name])


MOST = 60


def some_rows(rng: Random) -> list[tuple[Any, ...]]:
    """Few keys of each kind, so that they come again, at once and after a while."""
    keys = rng.sample(["a", "b", "", None, "é" * 9], 3)
    return [
        (
            rng.choice(keys),
            rng.choice([0, 1, -5, None]),
            rng.choice([0.0, -0.0, 1.5, NAN, None]),
            rng.randrange(60),
            rng.random() < 0.5,
        )
        for _ in range(rng.randrange(MOST + 1))
    ]


ROWS = st.integers(0, 1 << 32).map(lambda seed: some_rows(Random(seed)))
ROOTS = st.lists(st.integers(0, 2), min_size=MOST, max_size=MOST)


@settings(max_examples=some(200))
@given(
    operators(),
    ROWS,
    ROOTS,
    st.integers(0, 1),
    cuts(MOST),
)
def test_both_replays_give_the_same_step_by_step(operator, rows, roots, depth, where):
    KEYS.names = operator.key
    jumbo = stream(rows, roots, depth)
    sides = [kernel(operator, depth, quick) for quick in (True, False)]
    start = 0
    for cut in where:
        stop = min(max(cut.row, start), len(rows))
        seq = jumbo.positions.columns[2]
        while 0 < stop < len(rows) and seq[stop] == seq[stop - 1]:
            stop += 1
        if stop > start:
            last = Root(*(int(c[stop - 1]) for c in jumbo.positions.columns[:4]))
            part = jumbo.slice(start, stop)
            quick, general = (told(side, part, after(last)) for side in sides)
            assert quick == general
        sides = [_moved(side, operator, depth, cut.restart, cut.snapshot) for side in sides]
        start = stop
    rest = jumbo.slice(start, len(rows)) if len(rows) > start else None
    quick, general = (told(side, rest, end(len(rows))) for side in sides)
    assert quick == general


def _moved(old: Any, operator: Any, depth: int, hand_over: bool, snapshot: bool) -> Kernel:
    """The same state in another kernel: given up and taken over, or saved and restored."""
    new = kernel(operator, depth, old._quick is not None)
    for source, target in zip(old.stores, new.stores, strict=True):
        if snapshot:
            target.restore(source.snapshot(), range(BUCKETS))
        elif hand_over:
            source.changes()
            source.saved()
            target.absorb(source.release(range(BUCKETS)))
        else:
            return old
    return new


@settings(max_examples=some(100))
@given(ROWS, ROOTS, st.integers(0, 1))
def test_both_replays_give_the_same_without_state(rows, roots, depth):
    @stateless(out=OUT, side_outs={"side": "v: int64"})
    def spread(ctx):
        for row in ctx.tuples():
            for number in range(row.v % 3):
                ctx.emit(k=row.k, i=row.i, f=row.f, v=number, told=f"{ctx.key} {ctx.time}")
                ctx.emit("side", v=row.v)

    jumbo = stream(rows, roots, depth)
    quick, general = (told(kernel(spread, depth, q), jumbo, end(99)) for q in (True, False))
    assert quick == general


@settings(max_examples=some(100))
@given(ROWS, ROOTS, st.integers(0, 1), st.sampled_from(SCHEDULES), st.sampled_from([1, 2]))
def test_both_replays_give_the_same_where_rows_hold_nothing_but_the_key(
    rows, roots, depth, schedule, columns
):
    key = ("k", "i")[:columns]

    @partitioned(key=key, out="k: string, told: string", schedule=schedule)
    def numbered(ctx):
        ctx.emit(told="before")
        for row in ctx.tuples():
            ctx.state["n"] = ctx.state.get("n", 0) + 1
            ctx.emit(told=f"{ctx.state['n']} {row} {ctx.time}")

    wide = stream(rows, roots, depth)
    jumbo = Jumbo(wide.batch.select(list(key)), wide.positions)
    given_schema = jumbo.batch.schema
    quick, general = (
        told(kernel(numbered, depth, q, given_schema), jumbo, Root(99, 0, 0, 0))
        for q in (True, False)
    )
    assert quick == general
