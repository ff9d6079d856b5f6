import math
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.columns.hashing import bucket_of, hash_columns
from anabranch.columns.times import TIMESTAMP
from anabranch.errors import BuildError, SchemaError
from anabranch.graph import StreamType
from anabranch.operators.joins.join import join
from anabranch.state.positions import LAST
from anabranch.state.tables import row_store
from tests.operators.driving_ports import ONE_THREAD, Way, drive, jumbo, ways

LEFT = pa.schema([("k", pa.string()), ("v", pa.int64())])
RIGHT = pa.schema([("v", pa.int64()), ("k", pa.string()), ("w", pa.float64())])
KEYS = st.sampled_from(["a", "b", "c", "dd", "a longer key", None])


@st.composite
def streams(draw, max_events=40):
    """Events of two sources; each may put tuples on either port, so that ports tie at one root."""
    times = sorted(draw(st.lists(st.integers(-5, 20), max_size=max_events)))
    left, right, value = [], [], 0
    for seq, time in enumerate(times):
        root = (time, draw(st.integers(0, 1)), seq, 0)
        for level in range(draw(st.integers(1, 2))):
            key, port = draw(KEYS), draw(st.integers(0, 2))
            value += 1
            if port != 1:
                left.append(((*root, level), (key, value)))
            if port != 0:
                right.append(((*root, level), (-value, key, value / 2)))
    return left, right


def expected(left, right, within):
    """Every tuple of both ports one by one, in merged order."""
    merged = [((*p[:4], 0, *p[4:]), 0, row) for p, row in left]
    merged += [((*p[:4], 1, *p[4:]), 1, row) for p, row in right]
    merged.sort(key=lambda m: m[0])
    out = []
    for number, (position, port, row) in enumerate(merged):
        key = row[port]
        index = 0
        for earlier, other, past in merged[:number]:
            if other == port or key is None or past[other] != key:
                continue
            if position[0] - earlier[0] <= within:
                one, two = (row, past) if port == 0 else (past, row)
                made = {"k": key, "v": one[1], "v_right": two[0], "w": two[2]}
                out.append(((*position, index), made))
                index += 1
    return out


@given(streams(), st.integers(0, 6), ways())
def test_pairs_are_those_of_a_nested_loop_however_it_is_run(rows, within, way):
    left, right = rows
    inputs = [jumbo(LEFT, left), jumbo(RIGHT, right)]
    ran = drive(join("k", within), inputs, way, time=pa.int64())
    assert ran.ports[0] == expected(left, right, within)


@given(streams(max_events=25), ways())
def test_keys_of_one_hash_are_told_apart(rows, way):
    left, right = rows
    inputs = [jumbo(LEFT, left), jumbo(RIGHT, right)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            row_store, "key_hashes", lambda batch, key: np.zeros(batch.num_rows, np.uint64)
        )
        patch.setattr(row_store.RowStore, "_bucket", true_buckets)
        ran = drive(join("k", 3), inputs, way, time=pa.int64())
    assert ran.ports[0] == expected(left, right, 3)


def true_buckets(store, segment, places):
    hashes = hash_columns([segment.batch.column(n) for n in store.routing])
    return bucket_of(hashes, store.buckets).take(segment.rows.take(places))


TWO = pa.schema([("a", pa.int64()), ("b", pa.float64()), ("n", pa.int64())])


@given(
    st.lists(
        st.tuples(
            st.integers(0, 1), st.integers(0, 2), st.sampled_from([0.0, -0.0, math.nan, 1.5])
        ),
        max_size=30,
    ),
    ways(),
)
def test_keys_of_two_columns_routed_by_one_match_in_both(rows, way):
    sides = [[], []]
    for seq, (port, a, b) in enumerate(rows):
        sides[port].append(((seq // 3, 0, seq, 0, 0), (a, b, seq)))
    inputs = [jumbo(TWO, side) for side in sides]
    ran = drive(join(["a", "b"], 4), inputs, way, time=pa.int64(), routing=("a",))
    one = drive(join(["a", "b"], 4), inputs, ONE_THREAD, time=pa.int64())
    assert ran.shown() == one.shown()
    pairs = {
        (left[1][2], right[1][2])
        for left in sides[0]
        for right in sides[1]
        if left[1][0] == right[1][0]
        and repr(left[1][1] + 0.0) == repr(right[1][1] + 0.0)
        and abs(left[0][0] - right[0][0]) <= 4
    }
    assert {(r["n"], r["n_right"]) for r in ran.rows()} == pairs


def test_rows_out_of_reach_are_forgotten():
    rows = [((t, 0, t, 0, 0), ("k", t)) for t in range(400)]
    empty = jumbo(RIGHT, [])
    way = Way(cuts=tuple(range(0, 100, 2)))
    ran = drive(join("k", 20), [jumbo(LEFT, rows), empty], way, time=pa.int64())
    sizes = [len(s) for kernel in ran.kernels for s in kernel.stores]
    assert max(sizes) <= 100


def test_tuples_of_the_last_moment_match():
    left = [((LAST, 3, 0, 0, 0), ("k", 1))]
    right = [((LAST, 4, 0, 0, 0), (2, "k", 0.5))]
    ran = drive(join("k", 5), [jumbo(LEFT, left), jumbo(RIGHT, right)], time=pa.int64())
    assert [(r["v"], r["v_right"]) for r in ran.rows()] == [(1, 2)]


def test_a_timedelta_counts_in_microseconds():
    left = [((0, 0, 0, 0, 0), ("k", 1))]
    right = [((t, 1, t, 0, 0), (t, "k", 0.5)) for t in (2_000_000, 2_000_001)]
    inputs = [jumbo(LEFT, left), jumbo(RIGHT, right)]
    ran = drive(join("k", timedelta(seconds=2)), inputs, time=TIMESTAMP)
    assert [r["v_right"] for r in ran.rows()] == [2_000_000]


def test_suffixes_part_the_columns_that_both_sides_have():
    types = (StreamType(LEFT, pa.int64()), StreamType(RIGHT, pa.int64()))
    (out,) = join("k", 1, suffixes=("_l", "_r")).types("j", types)
    assert out.schema.names == ["k", "v_l", "v_r", "w"]


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: join((), 1), BuildError, "key column"),
        (lambda: join("k", 1, how="outer"), BuildError, "outer"),
        (lambda: join("k", None), BuildError, "within"),
        (lambda: join("k", 1, suffixes=("_x",)), BuildError, "two texts in suffixes="),
        (lambda: _typed(join("v", -1)), BuildError, "non-negative"),
        (lambda: _typed(join("k", timedelta(1))), BuildError, "whole number"),
        (lambda: _typed(join("w", 1)), SchemaError, "rename the column of the left side"),
        (lambda: _typed(join("k", 1, suffixes=("", ""))), SchemaError, "'v'"),
        (lambda: _typed(join("k", 1), time=None), BuildError, "event time"),
        (lambda: _typed(join("k", 1), right=pa.schema([("k", pa.int64())])), SchemaError, "cast"),
    ],
)
def test_what_cannot_be_joined_is_said_when_the_graph_is_built(make, error, says):
    with pytest.raises(error, match=says):
        make()


def _typed(operator, time=pa.int64(), right=RIGHT):  # noqa: B008 - types are values
    return operator.types("j", (StreamType(LEFT, time), StreamType(right, time)))
