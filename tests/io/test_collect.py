import pickle
import sys
import warnings

import pyarrow as pa
import pytest

from anabranch.errors import BuildError, SinkError
from anabranch.io import collect
from tests.io.going_on import GoingOn

SCHEMA = pa.schema([("x", pa.int64())])


def batch(*numbers):
    return pa.record_batch({"x": list(numbers)}, schema=SCHEMA)


class Collecting(GoingOn):
    """A sink, and the transactions that write to it."""

    def __init__(self, limit):
        self.sink = collect(limit)
        self.table = self.sink.table
        super().__init__(self.sink)

    @property
    def dropped(self):
        return self.sink.dropped


def with_versions(versions, limit=None):
    sink = Collecting(limit)
    sink.open(SCHEMA)
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
    with pytest.raises(SinkError, match="columns x: int64, got x: int64, y: int64"):
        with_versions(0).write(pa.record_batch({"x": [1], "y": [1]}))


@pytest.mark.parametrize(
    ("limit", "kept", "dropped"), [(0, [], 7), (1, [6], 6), (3, [4, 5, 6], 4), (9, [*range(7)], 0)]
)
def test_with_a_limit_the_last_rows_are_kept_and_the_others_counted(limit, kept, dropped):
    sink = with_versions(2, limit)
    sink.write(batch(2, 3, 4))
    sink.write(batch(5, 6))
    sink.commit(2)
    assert (rows(sink), sink.dropped) == (kept, dropped)


@pytest.mark.parametrize(
    ("limit", "kept"), [(0, []), (1, [6]), (3, [4, 5, 6]), (6, [*range(1, 7)])]
)
def test_a_version_that_is_delivered_again_is_counted_once(limit, kept):
    sink = collect(limit=limit)
    sink.begin(SCHEMA, -1)
    sink.deliver(0, iter([batch(0, 1)]))
    for _ in range(3):
        sink.deliver(1, iter([batch(2, 3), batch(4, 5, 6)]))
        assert (sink.table()["x"].to_pylist(), sink.dropped) == (kept, 7 - limit)


def test_what_was_dropped_of_a_version_that_is_forgotten_is_not_counted():
    sink = collect(limit=2)
    sink.begin(SCHEMA, -1)
    sink.deliver(0, iter([batch(0)]))
    sink.deliver(1, iter([batch(1, 2, 3)]))
    sink.begin(SCHEMA, 0)
    assert (sink.table().num_rows, sink.dropped) == (0, 1)


def test_without_a_limit_nothing_is_dropped():
    assert with_versions(3).dropped == 0


def test_of_a_large_commit_only_the_rows_within_the_limit_stay_in_memory():
    sink = with_versions(0, limit=10)
    before = pa.total_allocated_bytes()
    sink.write(batch(*range(100_000)))
    sink.commit(0)
    assert pa.total_allocated_bytes() - before < 10_000


def test_a_fresh_start_has_dropped_nothing():
    sink = with_versions(3, limit=1)
    sink.open(SCHEMA, 2)
    assert (rows(sink), sink.dropped) == ([2], 2)
    sink.open(SCHEMA, -1)
    assert (rows(sink), sink.dropped) == ([], 0)


@pytest.mark.parametrize("limit", [-1, "5", 2.5])
def test_a_limit_that_is_no_number_of_rows_is_refused(limit):
    with pytest.raises(BuildError, match=f"a limit of 0 rows or more, got {limit!r}"):
        collect(limit=limit)


def test_a_sink_without_a_limit_that_grows_large_warns_once(monkeypatch):
    monkeypatch.setattr(sys.modules[type(collect()).__module__], "LARGE_BYTES", 20)
    sink = with_versions(2)
    with pytest.warns(RuntimeWarning, match=r"in 3 rows, .*: collect\(limit=…\) keeps the last"):
        extended(sink, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        extended(sink, 3)
        extended(with_versions(2, limit=100), 2)


def test_a_warning_that_is_an_error_comes_after_the_commit(monkeypatch):
    monkeypatch.setattr(sys.modules[type(collect()).__module__], "LARGE_BYTES", 20)
    sink = with_versions(2)
    with pytest.raises(RuntimeWarning):
        extended(sink, 2)
    sink.commit(2)
    extended(sink, 3)
    assert rows(sink) == [0, 1, 2, 3]


def extended(sink, version):
    sink.write(batch(version))
    sink.commit(version)


def test_what_is_collected_does_not_travel_to_workers():
    sink = with_versions(100).sink
    assert len(pickle.dumps(sink)) < 1000 + len(pickle.dumps(collect()))
