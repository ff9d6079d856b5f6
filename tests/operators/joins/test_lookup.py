import pickle

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.errors import BuildError, SchemaError
from anabranch.graph import StreamType
from anabranch.io.memory_source import memory
from anabranch.operators.base import StepResources
from anabranch.operators.joins import lookup as module
from anabranch.operators.joins.lookup import lookup
from anabranch.planning.plan import Plan
from tests.operators.driving_ports import drive, simple, ways

STREAM = pa.schema([("k", pa.string()), ("n", pa.int64())])
TABLE = pa.schema([("x", pa.int64()), ("k", pa.string()), ("y", pa.string())])
KEYS = st.sampled_from(["a", "b", "c", "a longer key", None])
CODES = pa.table({"k": ["a", "b", "a"], "x": [1, 2, 3]})


@given(st.lists(KEYS, max_size=30), st.lists(KEYS, max_size=8), st.booleans(), ways())
def test_matches_are_those_of_a_nested_loop_however_it_is_run(keys, table_keys, left, way):
    entries = [(i, k, f"y{i}") for i, k in enumerate(table_keys)]
    table = pa.Table.from_pylist([dict(zip(TABLE.names, e, strict=True)) for e in entries], TABLE)
    operator = lookup(table, "k", "left" if left else "inner")
    ran = drive(operator, [simple(STREAM, [(k, n) for n, k in enumerate(keys)])], way)
    wanted = []
    for n, key in enumerate(keys):
        found = [(x, y) for x, k, y in entries if k == key and key is not None]
        found = found or ([(None, None)] if left else [])
        for index, (x, y) in enumerate(found):
            wanted.append(((n, 0, n, 0, 0, index), {"k": key, "n": n, "x": x, "y": y}))
    assert ran.ports[0] == wanted


def test_keys_of_one_hash_are_told_apart(monkeypatch):
    monkeypatch.setattr(
        module, "key_hashes", lambda batch, key: np.zeros(batch.num_rows, np.uint64)
    )
    ran = drive(lookup(CODES, "k"), [simple(STREAM, [("b", 0), ("c", 1), ("a", 2)])])
    assert [(r["k"], r["x"]) for r in ran.rows()] == [("b", 2), ("a", 1), ("a", 3)]


@pytest.mark.parametrize(
    "table",
    [CODES, memory(CODES), ds.dataset(CODES), CODES.to_batches()[0], CODES.slice(0, 3)],
    ids=["table", "source", "dataset", "batch", "slice"],
)
def test_a_table_may_be_anything_that_can_be_read_whole(table):
    operator = lookup(table, "k")
    if not isinstance(table, ds.Dataset):
        operator = pickle.loads(pickle.dumps(operator))
    ran = drive(operator, [simple(STREAM, [("a", 0)])])
    assert [r["x"] for r in ran.rows()] == [1, 3]


def test_only_the_chosen_columns_are_added():
    table = pa.table({"k": ["a"], "n": [7], "x": [8]})
    ran = drive(lookup(table, "k", columns="x"), [simple(STREAM, [("a", 0)])])
    assert ran.rows() == [{"k": "a", "n": 0, "x": 8}]


def test_a_key_of_two_columns_matches_in_both():
    table = pa.table({"k": ["a", "a"], "n": [1, 2], "x": [10, 20]})
    ran = drive(lookup(table, ["k", "n"]), [simple(STREAM, [("a", 2), ("b", 1)])])
    assert [r["x"] for r in ran.rows()] == [20]


class Counted:
    """A table that tells how often it was read."""

    schema, bounded = CODES.schema, True

    def __init__(self):
        self.times = 0

    def to_table(self):
        self.times += 1
        return CODES


def coded(table, rows, batch_rows):
    """A flow that looks up each of some rows, what it collects, and a plan."""
    found, flow = ab.collect(), ab.Flow("codes")
    words = ab.memory([{"k": "a", "n": n} for n in range(rows)])
    flow.source("words", words).lookup("code", table, key="k").sink("out", found)
    return flow, found, Plan.sequential(flow).with_source("words", batch_rows=batch_rows)


def test_replicas_share_a_table_that_every_run_reads_once():
    table = Counted()
    flow, found, plan = coded(table, rows=90, batch_rows=10)
    for times in (1, 2):  # a file may have changed since the run before
        ab.run(flow, engine="local", plan=plan.with_replicas("code", 3))
        assert (found.table().num_rows, table.times) == (180, times)


def test_a_plan_change_reads_no_table():
    table = Counted()
    flow, found, plan = coded(table, rows=4_000, batch_rows=2)
    with ab.start(flow, engine="local", plan=plan) as run:
        for replicas in (2, 3, 1, 2):
            before = len(run.reconfigurations)
            run.reconfigure(plan.with_replicas("code", replicas))
            while run.is_active and len(run.reconfigurations) == before:
                run.await_termination(0.005)
        run.await_termination(60)
    assert found.table().num_rows == 8_000
    assert len(run.reconfigurations) >= 2
    assert table.times == 1


def test_a_table_that_cannot_be_read_is_asked_for_again():
    shared, answers = StepResources(), iter([OSError("gone"), 7])

    def read():
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    with pytest.raises(OSError, match="gone"):
        shared.once(read)
    assert [shared.once(read), shared.once(read)] == [7, 7]


class Endless:
    schema = CODES.schema
    bounded = False
    parts = read = None


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: lookup(CODES, "k", "outer"), BuildError, "left"),
        (lambda: lookup(7, "k"), BuildError, "to_table"),
        (lambda: lookup(Endless(), "k"), BuildError, "never ends"),
        (lambda: lookup(CODES, "z"), SchemaError, "'z'"),
        (lambda: lookup(CODES, "k", columns=["z"]), SchemaError, "'z'"),
        (lambda: _typed(lookup(pa.table({"k": ["a"], "n": [1]}), "k")), SchemaError, "rename"),
        (lambda: _typed(lookup(pa.table({"k": [1], "x": [1]}), "k")), SchemaError, "cast"),
        (lambda: _typed(lookup(pa.table({"q": [1], "x": [1]}), "q")), SchemaError, "'q'"),
    ],
)
def test_what_cannot_be_looked_up_is_said_when_the_graph_is_built(make, error, says):
    with pytest.raises(error, match=says):
        make()


def _typed(operator):
    return operator.types("l", (StreamType(STREAM),))
