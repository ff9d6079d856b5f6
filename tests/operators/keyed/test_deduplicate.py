import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import BuildError, SchemaError
from anabranch.graph import StreamType
from anabranch.operators.keyed.deduplicate import deduplicate
from anabranch.state.positions import LAST
from tests.operators.driving_ports import Way, drive, simple, ways

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64())])
LISTS = pa.schema([("k", pa.list_(pa.int8()))])
KEYS = st.sampled_from(["a", "b", "c", "a longer key", "", None])


def first_of_each(keys, times, within):
    last, passed = {}, []
    for number, (key, time) in enumerate(zip(keys, times, strict=True)):
        if key not in last or (within is not None and time - last[key] >= within):
            last[key] = time
            passed.append(number)
    return passed


@given(st.lists(KEYS, max_size=40), ways())
def test_the_first_of_each_key_passes_however_it_is_run(keys, way):
    rows = simple(SCHEMA, [(k, n) for n, k in enumerate(keys)])
    ran = drive(deduplicate("k"), [rows], way)
    wanted = first_of_each(keys, range(len(keys)), None)
    assert ran.ports[0] == [((n, 0, n, 0, 0), {"k": keys[n], "n": n}) for n in wanted]


@given(
    st.lists(st.tuples(st.integers(-3, 30), KEYS), max_size=40),
    st.sampled_from([0, 1, 2, 5, 12]),
    ways(),
)
def test_a_key_passes_again_when_enough_time_has_gone_however_it_is_run(pairs, within, way):
    times = sorted(time for time, _ in pairs)
    keys = [key for _, key in pairs]
    rows = simple(SCHEMA, [(k, n) for n, k in enumerate(keys)], times)
    ran = drive(deduplicate("k", within), [rows], way, time=pa.int64())
    assert [r["n"] for r in ran.rows()] == first_of_each(keys, times, within)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=30), ways())
def test_a_key_of_two_columns_may_be_routed_by_one(keys, way):
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("n", pa.int64())])
    rows = simple(schema, [(a, b, n) for n, (a, b) in enumerate(keys)])
    ran = drive(deduplicate(["a", "b"]), [rows], way, routing=("b",))
    assert [r["n"] for r in ran.rows()] == first_of_each(keys, range(len(keys)), None)


def test_a_hot_key_passes_every_within():
    rows = simple(SCHEMA, [("hot", n) for n in range(1000)])
    ran = drive(deduplicate("k", 7), [rows], time=pa.int64())
    assert [r["n"] for r in ran.rows()] == list(range(0, 1000, 7))


def test_the_end_of_time_is_no_time_later():
    rows = simple(SCHEMA, [("k", n) for n in range(3)], [0, LAST, LAST])
    ran = drive(deduplicate("k", 5), [rows], time=pa.int64())
    assert [r["n"] for r in ran.rows()] == [0, 1]


def test_a_key_is_not_forgotten_a_moment_too_soon():
    rows = simple(SCHEMA, [("k", 0), ("k", 1), ("k", 2)], [0, 9, 10])
    ran = drive(deduplicate("k", 10), [rows], Way((34, 67)), time=pa.int64())
    assert [r["n"] for r in ran.rows()] == [0, 2]


def test_keys_whose_time_is_over_are_forgotten():
    sizes = []
    for length in (500, 4000):
        rows = simple(SCHEMA, [(f"key {n}", n) for n in range(length)])
        cuts = Way(tuple(percent / 10 for percent in range(1000)))
        ran = drive(deduplicate("k", 20), [rows], cuts, time=pa.int64())
        table = max((kernel.stores[0].table for kernel in ran.kernels), key=len)
        assert len(table) <= 40
        sizes.append(table.nbytes)
    assert sizes[1] <= 2 * sizes[0]


def test_nothing_is_remembered_where_every_tuple_may_pass():
    rows = simple(SCHEMA, [(f"key {n}", n) for n in range(500)])
    ran = drive(deduplicate("k", 0), [rows], Way((30, 60)), time=pa.int64())
    assert [r["n"] for r in ran.rows()] == list(range(500))
    assert not any(len(kernel.stores[0].table) for kernel in ran.kernels)


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: deduplicate(None), BuildError, "key column"),
        (lambda: deduplicate("x").types("d", (StreamType(SCHEMA),)), SchemaError, "'x'"),
        (lambda: deduplicate("k", 5).types("d", (StreamType(SCHEMA),)), BuildError, "event time"),
        (
            lambda: deduplicate("k", -5).types("d", (StreamType(SCHEMA, pa.int64()),)),
            BuildError,
            "non-negative",
        ),
        (
            lambda: deduplicate("k").types("d", (StreamType(LISTS),)),
            SchemaError,
            "cast the column",
        ),
    ],
)
def test_what_cannot_be_deduplicated_is_said_when_the_graph_is_built(make, error, says):
    with pytest.raises(error, match=says):
        make()
