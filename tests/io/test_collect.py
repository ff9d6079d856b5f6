import pyarrow as pa
import pytest

from anabranch.errors import SinkError
from anabranch.io import collect

SCHEMA = pa.schema([("x", pa.int64())])


def batch(*numbers):
    return pa.record_batch({"x": list(numbers)}, schema=SCHEMA)


def with_versions(versions):
    sink = collect()
    sink.open(SCHEMA, -1)
    for version in range(versions):
        sink.write(batch(version))
        sink.commit(version)
    return sink


def rows(sink):
    return sink.table()["x"].to_pylist()


def test_rows_appear_with_their_commit_in_order():
    sink = with_versions(2)
    sink.write(batch(2))
    sink.write(batch(3, 4))
    assert rows(sink) == [0, 1]
    sink.commit(2)
    assert rows(sink) == [0, 1, 2, 3, 4]


def test_committing_a_version_again_changes_nothing():
    sink = with_versions(2)
    sink.write(batch(1))
    sink.commit(1)
    sink.commit(2)
    assert rows(sink) == [0, 1]


@pytest.mark.parametrize("version", [-1, 0, 1, 2])
def test_opening_again_drops_what_came_after_the_version(version):
    sink = with_versions(3)
    sink.write(batch(99))
    sink.open(SCHEMA, version)
    sink.commit(version + 1)
    assert rows(sink) == list(range(version + 1))


def test_the_table_outlives_the_run_without_what_was_not_committed():
    sink = with_versions(1)
    sink.write(batch(99))
    sink.close()
    assert rows(sink) == [0]


def test_without_rows_the_table_has_its_columns():
    assert with_versions(0).table() == SCHEMA.empty_table()


def test_there_is_no_table_before_a_run():
    with pytest.raises(SinkError, match="run the flow first"):
        collect().table()


def test_rows_with_other_columns_are_refused():
    with pytest.raises(SinkError, match=r"columns \['x'\], got \['x', 'y'\]"):
        with_versions(0).write(pa.record_batch({"x": [1], "y": [1]}))
