"""Jumbo rows: what is packed for Spark's shuffle comes out as it went in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.engines.jumbo_ipc import pack, unpack
from anabranch.engines.spark import shuffle_rows as wire
from anabranch.state.positions import FIRST, LAST, Ints, Jumbo, Mark, Positions, Root

INT64 = st.integers(-(2**63), 2**63 - 1)
COLUMNS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): INT64,
    pa.float64(): st.floats(allow_nan=False),
    pa.string(): st.text(max_size=5),
    pa.bool_(): st.booleans(),
    pa.timestamp("us", "UTC"): st.integers(-(2**45), 2**50),
    pa.list_(pa.string()): st.lists(st.none() | st.text(max_size=3), max_size=3),
    pa.struct([("a", pa.int8()), ("b", pa.list_(pa.int64()))]): st.fixed_dictionaries(
        {"a": st.integers(-128, 127), "b": st.lists(INT64, max_size=2)}
    ),
    pa.dictionary(pa.int32(), pa.string()): st.sampled_from(["x", "y", "z"]),
    pa.null(): st.none(),
}


@st.composite
def position_columns(draw: st.DrawFn, rows: int, earlier: list[Ints]) -> Ints:
    """A column of one of the shapes that engines make, or of none."""
    shapes = ["constant", "broadcast", "count", "near", "far", "plain", "steps"]
    shape = draw(st.sampled_from(shapes + ["same"] * bool(earlier)))
    first = draw(st.sampled_from([0, -5, FIRST, LAST, 2**62 - 3, -(2**63)]) | INT64)
    if shape == "same":
        return draw(st.sampled_from(earlier))
    if shape == "constant":
        return np.full(rows, first, np.int64)
    if shape == "broadcast":
        return np.broadcast_to(np.int64(first), rows)
    if shape == "count":
        start = min(first, 2**63 - 1 - rows)
        return np.arange(start, start + rows, dtype=np.int64)
    if shape == "steps":
        return np.repeat(np.arange(rows, dtype=np.int64), 2)[:rows] * 3
    bound = {"near": 255, "far": 2**32, "plain": 2**63 - 1}[shape]
    offsets = draw(st.lists(st.integers(0, bound), min_size=rows, max_size=rows))
    base = min(max(first, -(2**63)), 2**63 - 1 - bound)
    return np.array([base + offset for offset in offsets], np.int64)


@st.composite
def jumbos(draw: st.DrawFn) -> Jumbo:
    rows = draw(st.integers(0, 6))
    kinds = draw(st.lists(st.sampled_from(list(COLUMNS)), max_size=3))
    arrays = [
        pa.array(draw(st.lists(st.none() | COLUMNS[k], min_size=rows, max_size=rows)), type=k)
        for k in kinds
    ]
    if not arrays:  # a batch without columns would not know its length
        arrays, kinds = [pa.array(range(rows), pa.int64())], [pa.int64()]
    schema = pa.schema([(f"c{number}", kind) for number, kind in enumerate(kinds)])
    columns: list[Ints] = []
    for _ in range(draw(st.integers(4, 7))):
        columns.append(draw(position_columns(rows, columns)))
    marks = st.builds(Mark, st.builds(Root, INT64, INT64, INT64, INT64), INT64)
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    return Jumbo(batch, Positions(tuple(columns)), tuple(draw(st.lists(marks, max_size=2))))


def through(jumbo: Jumbo) -> Jumbo:
    """What arrives: packed, made a row, read from the row, unpacked."""
    header, payload = pack(jumbo)
    sent = wire.to_arrow([(wire.WireRow(wire.JUMBO, 2, 5, header, payload), 1)])
    [row] = wire.rows_of(sent)
    assert (row.kind, row.stage, row.target) == (wire.JUMBO, 2, 5)
    assert sent.column(0).to_pylist() == [1]
    return unpack(row.header, row.payload, jumbo.batch.schema)


@given(jumbos())
def test_whatever_the_columns_and_positions_they_arrive_as_they_left(jumbo):
    got = through(jumbo)
    assert got.batch.equals(jumbo.batch)
    assert got.batch.schema == jumbo.batch.schema
    assert got.positions.rows() == jumbo.positions.rows()
    assert got.marks == jumbo.marks
    assert all(column.dtype == np.int64 for column in got.positions.columns)


@given(jumbos(), st.integers(0, 6), st.integers(0, 6))
def test_a_run_of_a_larger_batch_arrives_without_the_rest(jumbo, start, length):
    piece = jumbo.slice(start, min(start + length, len(jumbo)) if start < len(jumbo) else start)
    got = through(piece)
    assert got.batch.equals(piece.batch)
    assert got.positions.rows() == piece.positions.rows()


@given(st.lists(st.tuples(st.integers(0, 9), st.binary(max_size=5)), min_size=1, max_size=5))
def test_small_rows_that_share_a_batch_keep_their_targets_and_payloads(sent):
    rows = [
        (wire.WireRow(wire.JUMBO, 1, 7, {"number": number}, pa.py_buffer(payload)), target)
        for number, (target, payload) in enumerate(sent)
    ]
    batch = wire.to_arrow(rows)
    assert batch.column(0).to_pylist() == [target for target, _ in sent]
    got = [(row.header["number"], row.payload.to_pybytes()) for row in wire.rows_of(batch)]
    assert got == [(number, payload) for number, (_, payload) in enumerate(sent)]


def test_a_slice_does_not_carry_the_bytes_of_its_batch():
    numbers = pa.record_batch({"x": pa.array(range(100_000))})
    jumbo = Jumbo(numbers, Positions.of_source(0, np.arange(100_000)))
    _, payload = pack(jumbo.slice(50_000, 50_010))
    assert payload.size < 2000


@pytest.mark.parametrize(
    ("column", "shape", "bytes_a_row"),
    [
        (np.broadcast_to(np.int64(7), 1000), ["constant", 7], 0),
        (np.full(1000, 7), ["constant", 7], 0),
        (np.arange(40, 1040), ["count", 40], 0),
        (np.arange(1000)[::-1] % 200 - 3, ["from", -3], 1),
        (np.arange(1000) * 7, ["from", 0], 2),
        (np.arange(1000) * 70_000, ["from", 0], 4),
        (np.arange(1000) * 2**40, ["plain", 0], 8),
    ],
)
def test_a_position_column_is_written_as_what_it_is(column, shape, bytes_a_row):
    zeros = np.zeros(1000, np.int64)
    batch = pa.record_batch({"x": pa.nulls(1000)})
    bare = pack(Jumbo(batch, Positions((zeros,) * 4)))[1].size
    header, payload = pack(Jumbo(batch, Positions((column, zeros, zeros, zeros))))
    assert header["positions"][0] == shape
    assert payload.size - bare == pytest.approx(bytes_a_row * 1000, abs=400)


@pytest.mark.parametrize("column", [[5, 7, 6, 8], [5, 5, 5, 8], [8, 7, 6, 5]])
def test_a_column_that_only_looks_like_counting_arrives_as_it_is(column):
    positions = Positions((np.array(column), *(np.zeros(4, np.int64),) * 3))
    got = through(Jumbo(pa.record_batch({"x": [1, 2, 3, 4]}), positions))
    assert got.positions.columns[0].tolist() == column


def test_the_sequence_number_that_also_is_the_time_is_written_once():
    seq = np.array([5, 9, 2**50])
    header, _ = pack(Jumbo(pa.record_batch({"x": [1, 2, 3]}), Positions.of_source(0, seq)))
    assert header["positions"][2] == ["same", 0]


def test_marks_travel_without_tuples():
    mark = Mark(Root(LAST, 0, 3, -1), LAST)
    got = through(Jumbo.empty(pa.schema([("x", pa.int64())]), 2, (mark,)))
    assert (len(got), got.marks, got.positions.depth) == (0, (mark,), 2)
