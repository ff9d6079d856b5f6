import pickle

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import SourceError
from anabranch.io import memory
from tests.io.reading import chunk_sizes, chunks_of, table_of

ROWS = 500
TABLE = pa.table({"t": list(range(ROWS))})


@st.composite
def heartbeats(draw):
    at = sorted(draw(st.sets(st.integers(0, ROWS), max_size=10)))
    return dict(zip(at, sorted(draw(st.integers(0, 99)) for _ in at), strict=True))


@given(sizes=chunk_sizes, beats=heartbeats())
def test_any_chunking_gives_the_same_rows(sizes, beats):
    assert table_of(memory(TABLE, heartbeats=beats), sizes) == TABLE


@given(sizes=chunk_sizes, beats=heartbeats())
def test_each_heartbeat_stands_at_its_row_however_the_source_is_read(sizes, beats):
    found, row = {}, 0
    for chunk in chunks_of(memory(TABLE, heartbeats=beats), "memory", sizes):
        row += chunk.batch.num_rows
        if chunk.passed is not None:
            found[row] = chunk.passed
    if 0 in beats:
        beats.setdefault(1, beats.pop(0))
    assert found == beats


def test_a_heartbeat_before_the_first_row_comes_with_that_row_alone():
    chunk = memory(TABLE, heartbeats={0: 7}).read("memory", 0, 100)
    assert (chunk.batch.num_rows, chunk.passed) == (1, 7)


@given(start=st.integers(0, ROWS - 1), rows=st.integers(1, ROWS), beats=heartbeats())
def test_what_is_read_depends_on_nothing_read_before(start, rows, beats):
    used = memory(TABLE, heartbeats=beats)
    for _ in chunks_of(used, "memory", [37]):
        pass
    fresh = memory(TABLE, heartbeats=beats)
    assert used.read("memory", start, rows) == fresh.read("memory", start, rows)


def test_a_heartbeat_after_the_last_row_comes_with_it():
    source = memory([{"t": 1}, {"t": 2}], heartbeats={2: 9})
    assert source.read("memory", 0, 10).passed == 9
    assert source.read("memory", 2, 10) is None


@pytest.mark.parametrize("rows", [TABLE, TABLE.to_batches()[0], TABLE.to_pylist()])
def test_rows_may_be_dicts_a_table_or_a_batch(rows):
    assert table_of(memory(rows), [ROWS]) == TABLE


def test_a_table_of_many_chunks_is_one_sequence():
    assert table_of(memory(pa.concat_tables([TABLE, TABLE])), [70]).num_rows == 2 * ROWS


def test_a_schema_decides_the_types():
    schema = pa.schema([("t", pa.float32())])
    assert memory([{"t": 1}], schema).schema == schema
    assert memory(TABLE, schema).schema == schema
    assert table_of(memory([], schema), [1]).num_rows == 0
    assert memory(TABLE.slice(0, 0)).read("memory", 0, 1) is None


def test_a_column_that_only_a_later_row_has_is_kept():
    rows = table_of(memory([{"a": 1}, {"a": 2, "b": 3}]), [9]).to_pylist()
    assert rows == [{"a": 1, "b": None}, {"a": 2, "b": 3}]


def test_a_pickled_copy_reads_the_same():
    source = memory(TABLE, heartbeats={3: 1})
    assert pickle.loads(pickle.dumps(source)).read("memory", 0, 9) == source.read("memory", 0, 9)


def test_it_is_bounded_ordered_and_unpaced():
    source = memory(TABLE)
    assert (source.bounded, source.order, source.due_rows(1.0)) == (True, "index", None)


@pytest.mark.parametrize(
    ("rows", "schema", "beats", "message"),
    [
        ([], None, None, "pass schema="),
        ([{"x": "a"}], "x: int64", None, "values of int64 in column 'x', got 'a' in row 0"),
        ([{"y": 1}], pa.schema([("x", pa.int64())]), None, r"columns \['x'\], got 'y'"),
        (TABLE, pa.schema([("x", pa.int64())]), None, "a column 'x', got .*leave it out"),
        ([{"t": 1}], None, {2: 1}, "heartbeats at 0 to 1, got one at 2"),
        ([{"t": 1}], None, {0: 5, 1: 4}, "4 at 1 after 5"),
    ],
)
def test_what_does_not_fit_is_refused(rows, schema, beats, message):
    with pytest.raises(SourceError, match=message):
        memory(rows, schema, beats)
