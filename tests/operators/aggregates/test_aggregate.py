"""Keyed aggregates against plain Python, whatever the batching and whoever owns the keys."""

import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.columns.grouped_rows import Runs
from anabranch.columns.hashing import hash_columns, order_prefix
from anabranch.errors import BuildError, SchemaError
from anabranch.graph import StateKind, StreamType
from anabranch.operators.aggregates import functions as ab
from anabranch.operators.aggregates.aggregate import aggregate
from anabranch.operators.aggregates.base import stand_apart
from anabranch.operators.aggregates.windows import tumbling
from anabranch.operators.base import CLOSING
from anabranch.state.positions import LAST
from tests.operators.driving import RANK, Cut, Drive, cuts, same, stream

SCHEMA = pa.schema([("k", pa.string()), ("i", pa.int32()), ("f", pa.float64()), ("s", pa.string())])
STREAM = StreamType(SCHEMA)
FUNCTIONS = {
    "n": ab.count(),
    "present": ab.count("f"),
    "isum": ab.sum("i"),
    "fsum": ab.sum("f"),
    "imin": ab.min("i"),
    "fmin": ab.min("f"),
    "fmax": ab.max("f"),
    "smin": ab.min("s"),
    "smax": ab.max("s"),
    "imean": ab.mean("i"),
    "fmean": ab.mean("f"),
    "ffirst": ab.first("f"),
    "flast": ab.last("f"),
    "sfirst": ab.first("s"),
    "slast": ab.last("s"),
}

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.sampled_from(["a", "b", "", "a long key of several words", None]),
            "i": st.none() | st.integers(-(2**31), 2**31 - 1),
            "f": st.none() | st.floats(width=64) | st.sampled_from([0.1, 0.2, 1e16, -0.0]),
            "s": st.none() | st.text(max_size=3),
        }
    ),
    max_size=24,
)


def reference(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What a loop over the rows of one key gives."""
    some = {c: [r[c] for r in rows if r[c] is not None] for c in ("i", "f", "s")}
    total = 0.0
    for value in some["f"]:
        total += value
    numbers = [v + 0.0 for v in some["f"] if not math.isnan(v)]
    has_nan = len(numbers) < len(some["f"])
    nan = math.nan if has_nan else None
    i_total = sum(some["i"])
    return {
        "n": len(rows),
        "present": len(some["f"]),
        "isum": i_total if some["i"] else None,
        "fsum": total if some["f"] else None,
        "imin": min(some["i"], default=None),
        "fmin": min(numbers, default=nan),
        "fmax": math.nan if has_nan else max(numbers, default=None),
        "smin": min(some["s"], default=None),
        "smax": max(some["s"], default=None),
        "imean": float(i_total) / len(some["i"]) if some["i"] else None,
        "fmean": total / len(some["f"]) if some["f"] else None,
        "ffirst": some["f"][0] if some["f"] else None,
        "flast": some["f"][-1] if some["f"] else None,
        "sfirst": some["s"][0] if some["s"] else None,
        "slast": some["s"][-1] if some["s"] else None,
    }


def of_key(rows: list[dict[str, Any]], key: str | None) -> list[dict[str, Any]]:
    return [row for row in rows if row["k"] == key]


@given(ROWS, st.data())
def test_every_tuple_carries_the_running_value_where_it_stands(rows, data):
    drive = Drive(aggregate("k", **FUNCTIONS), STREAM, depth=1)
    made = drive.run(stream(SCHEMA, rows, depth=1), data.draw(cuts(len(rows))))
    expected = [
        ((i, 0, i, 0, 0), {"k": row["k"], **reference(of_key(rows[: i + 1], row["k"]))})
        for i, row in enumerate(rows)
    ]
    assert same(made, expected)


@given(ROWS, st.data())
def test_final_values_come_once_at_the_end_in_the_order_of_keys(rows, data):
    drive = Drive(aggregate("k", emit="final", **FUNCTIONS), STREAM)
    made = drive.run(stream(SCHEMA, rows), data.draw(cuts(len(rows))))
    expected = []
    for key in {row["k"] for row in rows}:
        column = pa.array([key], pa.string())
        hashed = int(hash_columns([column]).view(np.int64)[0])
        place = (LAST, CLOSING + RANK, int(order_prefix(column)[0]), hashed, 0)
        expected.append((place, {"k": key, **reference(of_key(rows, key))}))
    assert same(made, sorted(expected, key=lambda one: one[0]))


@given(ROWS, st.data())
def test_changes_end_at_the_final_value_of_every_key(rows, data):
    drive = Drive(aggregate("k", emit="changes", **FUNCTIONS), STREAM)
    made = drive.run(stream(SCHEMA, rows), data.draw(cuts(len(rows))))
    for place, row in made:
        seen = of_key(rows[: place[0] + 1], row["k"])
        assert same([(place, row)], [(place, {"k": row["k"], **reference(seen)})])
    last = {row["k"]: place[0] for place, row in made}
    assert last == {row["k"]: i for i, row in enumerate(rows)}


def test_changes_are_one_row_per_key_and_batch():
    rows = [{"k": k, "i": 1, "f": None, "s": None} for k in "abaab"]
    drive = Drive(aggregate("k", emit="changes", n=ab.count()), STREAM)
    made = drive.run(stream(SCHEMA, rows), (Cut(3),))
    assert [(p[0], r["k"], r["n"]) for p, r in made] == [
        (1, "b", 1), (2, "a", 2), (3, "a", 3), (4, "b", 2),
    ]  # fmt: skip


@given(ROWS, st.data())
def test_without_a_key_everything_is_one_group(rows, data):
    drive = Drive(aggregate(emit="final", **FUNCTIONS), STREAM)
    assert drive.operator.state is StateKind.STATEFUL
    made = drive.run(stream(SCHEMA, rows), data.draw(cuts(len(rows))))
    assert same(made, [((LAST, CLOSING + RANK, 0, 0, 0), reference(rows))] if rows else [])


@given(ROWS, st.data())
def test_a_key_wider_than_the_routing_stays_with_its_bucket(rows, data):
    drive = Drive(aggregate(["k", "s"], n=ab.count()), STREAM, routing=("k",))
    made = drive.run(stream(SCHEMA, rows), data.draw(cuts(len(rows))))
    keys = [(r["k"], r["s"]) for r in rows]
    assert [r["n"] for _, r in made] == [keys[: i + 1].count(k) for i, k in enumerate(keys)]


def test_float_sums_are_bitwise_those_of_a_loop():
    values = np.random.default_rng(7).normal(size=20_000) * 10.0 ** np.arange(20_000).__mod__(17)
    codes = np.random.default_rng(8).zipf(1.3, 20_000) % 500
    schema = pa.schema([("k", pa.int64()), ("x", pa.float64())])
    rows = [{"k": int(k), "x": float(x)} for k, x in zip(codes, values, strict=True)]
    totals: dict[int, float] = {}
    expected = []
    for row in rows:
        totals[row["k"]] = totals.get(row["k"], 0.0) + row["x"]
        expected.append(totals[row["k"]])
    whole = Drive(aggregate("k", t=ab.sum("x")), StreamType(schema)).run(stream(schema, rows))
    assert [r["t"] for _, r in whole] == expected
    final = Drive(aggregate("k", emit="final", t=ab.sum("x")), StreamType(schema))
    made = final.run(stream(schema, rows), (Cut(777), Cut(15_000)))
    assert {r["k"]: r["t"] for _, r in made} == totals


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.bool_(), [True, None, False]),
        (pa.uint64(), [2**64 - 1, None, 0]),
        (pa.int8(), [127, None, -128]),
        (pa.float16(), [0.5, None, -1.5]),
        (pa.float32(), [0.1, None, -1.5]),
        (pa.date32(), [datetime(2020, 1, 2).date(), None, datetime(1960, 1, 1).date()]),
        (pa.timestamp("us", "UTC"), [datetime(2020, 1, 2, tzinfo=UTC), None,
                                     datetime(1960, 1, 1, tzinfo=UTC)]),
        (pa.decimal128(5, 2), [Decimal("1.25"), None, Decimal("-3.50")]),
        (pa.binary(), [b"\xff", None, b"a"]),
        (pa.dictionary(pa.int32(), pa.string()), ["y", None, "x"]),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("emit", ["every", "final"])
def test_extremes_and_ends_keep_the_type_of_their_column(kind, values, emit):
    schema = pa.schema([("k", pa.int8()), ("x", kind)])
    functions = {f: getattr(ab, f)("x") for f in ("min", "max", "first", "last")}
    drive = Drive(aggregate("k", emit=emit, **functions), StreamType(schema))
    rows = [{"k": 1, "x": v} for v in values]
    _, row = drive.run(stream(schema, rows), (Cut(1, restart=True), Cut(2)))[-1]
    given_values = pa.array([values[2], values[0]], kind).to_pylist()
    assert list(row.values()) == [1, *given_values, *reversed(given_values)]
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    assert drive.out[0].schema.field("min").type == plain


def test_first_takes_nested_values():
    schema = pa.schema([("x", pa.list_(pa.int64()))])
    drive = Drive(aggregate(emit="final", a=ab.first("x"), b=ab.last("x")), StreamType(schema))
    made = drive.run(stream(schema, [{"x": [1]}, {"x": None}, {"x": [2, 3]}]), (Cut(1),))
    assert made[0][1] == {"a": [1], "b": [2, 3]}


def test_a_dictionary_encoded_key_comes_out_plain():
    schema = pa.schema([("k", pa.dictionary(pa.int8(), pa.string())), ("x", pa.int64())])
    rows = [{"k": "b", "x": 1}, {"k": "a", "x": 2}, {"k": "b", "x": 3}]
    for emit, expected in (("every", [1, 2, 4]), ("final", [2, 4]), ("changes", [2, 4])):
        drive = Drive(aggregate("k", emit=emit, t=ab.sum("x")), StreamType(schema))
        assert [r["t"] for _, r in drive.run(stream(schema, rows))] == expected


def test_a_batch_without_tuples_leaves_nothing():
    for emit in ("every", "final", "changes"):
        drive = Drive(aggregate("k", emit=emit, n=ab.count()), STREAM)
        assert drive.run(stream(SCHEMA, []), (Cut(0), Cut(0, restart=True))) == []


def test_keys_that_look_alike_are_numbered_by_their_text(monkeypatch):
    from anabranch.operators.aggregates import base as aggregation

    monkeypatch.setattr(
        aggregation, "hash_columns", lambda columns: np.zeros(len(columns[0]), np.uint64)
    )
    keys = pa.array(["same start z", "other", "same start a"])
    times = np.array([5, 5, 5])
    places = stand_apart(times, -2, [keys], depth=1)
    assert places.columns[-1].tolist() == [1, 0, 0]
    assert stand_apart(times[::-1], -2, [keys[::-1]], 1).columns[-1].tolist() == [0, 0, 1]


@given(st.lists(st.integers(0, 5), max_size=40))
def test_ranks_count_within_groups(codes):
    ranks = Runs(np.array(codes, dtype=np.int64), 6).ranks().tolist()
    assert ranks == [codes[:i].count(code) for i, code in enumerate(codes)]


def test_types_say_what_leaves():
    every = aggregate("k", t=ab.sum("i"), m=ab.mean("i"), f=ab.sum("f"))
    timed = StreamType(SCHEMA, pa.int64())
    (out,) = every.types("step", (timed,))
    assert out.schema == pa.schema(
        [("k", pa.string()), ("t", pa.int64()), ("m", pa.float64()), ("f", pa.float64())]
    )
    assert (out.time, out.changelog, every.levels(2)) == (pa.int64(), None, 2)
    (changes,) = aggregate("k", emit="changes", n=ab.count()).types("step", (timed,))
    assert (changes.time, changes.changelog) == (pa.int64(), ("k",))
    final = aggregate("k", emit="final", n=ab.count())
    assert final.types("step", (timed,))[0].time is None
    assert final.keeps(SCHEMA) == {"k"}


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: aggregate("wrd", n=ab.count()), SchemaError, "'wrd'"),
        (lambda: aggregate("k"), BuildError, "at least one function"),
        (lambda: aggregate("k", n=len), BuildError, "n="),
        (lambda: aggregate("k", emit="often", n=ab.count()), BuildError, "'often'"),
        (lambda: aggregate("k", t=ab.sum("s")), SchemaError, "t = sum('s')"),
        (lambda: aggregate("k", t=ab.mean("s")), SchemaError, "string"),
        (lambda: aggregate("k", t=ab.max("x")), SchemaError, "'x'"),
        (lambda: aggregate("k", k=ab.count()), SchemaError, "'k'"),
        (lambda: aggregate(["k", "k"], n=ab.count()), SchemaError, "once"),
        (lambda: aggregate("k", combine=True, n=ab.count()), BuildError, "emit='every'"),
        (lambda: aggregate("k", window=5, n=ab.count()), BuildError, "tumbling"),
        (lambda: aggregate("k", window=tumbling(5), n=ab.count()), BuildError, "event time"),
        (lambda: aggregate("k", emit="every", window=tumbling(5), n=ab.count()), BuildError,
         "when it is over"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_when_the_graph_is_built(make, error, text):
    with pytest.raises(error, match=r".") as caught:
        make().types("totals", (STREAM,))
    assert text in str(caught.value)


def test_min_of_a_list_is_refused():
    schema = pa.schema([("x", pa.list_(pa.int64()))])
    with pytest.raises(SchemaError, match="list"):
        aggregate(m=ab.min("x")).types("step", (StreamType(schema),))
    with pytest.raises(SchemaError, match="key 'x' of a type"):
        aggregate("x", n=ab.count()).types("step", (StreamType(schema),))
