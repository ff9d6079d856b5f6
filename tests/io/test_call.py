import pyarrow as pa
import pytest

from anabranch.errors import SinkError
from anabranch.io import call
from tests.io.going_on import GoingOn

SCHEMA = pa.schema([("x", pa.int64())])


def batch(*numbers):
    return pa.record_batch({"x": list(numbers)}, schema=SCHEMA)


class Calls(list):
    def take(self, batch, version):
        self.append((version, batch["x"].to_pylist()))


@pytest.fixture
def calls():
    return Calls()


def opened(function, version=-1):
    sink = GoingOn(call(function))
    sink.open(SCHEMA, version)
    return sink


def test_a_commit_is_one_call_with_all_its_rows(calls):
    sink = opened(calls.take)
    sink.write(batch(1))
    sink.write(batch(2, 3))
    assert calls == []
    sink.commit(5)
    assert calls == [(5, [1, 2, 3])]


def test_a_commit_without_rows_is_no_call(calls):
    opened(calls.take).commit(0)
    assert calls == []


def test_committing_a_version_again_calls_nobody(calls):
    sink = opened(calls.take, version=3)
    sink.write(batch(1))
    sink.commit(3)
    sink.commit(4)
    assert calls == []


def test_what_was_not_committed_is_not_passed_on(calls):
    sink = opened(calls.take)
    sink.write(batch(1))
    sink.open(SCHEMA, -1)
    sink.write(batch(2))
    sink.commit(0)
    assert calls == [(0, [2])]


def test_after_an_error_the_commit_can_be_repeated(calls):
    def unreliable(batch, version):
        calls.take(batch, version)
        if len(calls) == 1:
            raise ConnectionError("gone")

    sink = opened(unreliable)
    sink.write(batch(1))
    with pytest.raises(SinkError, match="version 0, got ConnectionError: gone") as caught:
        sink.commit(0)
    assert caught.value.subject.name == "call 'unreliable'"
    sink.commit(0)
    assert calls == [(0, [1]), (0, [1])]
