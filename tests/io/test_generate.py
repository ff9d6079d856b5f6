import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import SourceError
from anabranch.io import generate
from tests.io.reading import chunk_sizes, table_of

SCHEMA = pa.schema([("index", pa.int64()), ("value", pa.float64())])


def make(rng, index):
    return {"index": index, "value": rng.random(len(index))}


def whole(rows, seed=0):
    return generate(make, SCHEMA, seed=seed).read("generated", 0, rows).batch


@given(sizes=chunk_sizes, rows=st.integers(0, 3000))
def test_any_chunking_gives_the_same_rows(sizes, rows):
    table = table_of(generate(make, SCHEMA, rows=rows), sizes)
    assert table == pa.Table.from_batches([whole(3000)]).slice(0, rows)


@given(start=st.integers(0, 5000), rows=st.integers(1, 2000))
def test_a_row_depends_on_its_index_alone(start, rows):
    batch = generate(make, SCHEMA).read("generated", start, rows).batch
    assert batch == whole(7000).slice(start, rows)
    assert batch["index"].to_pylist() == list(range(start, start + rows))


def test_blocks_and_seeds_differ():
    first, second = whole(1024)["value"], whole(2048)["value"][1024:]
    assert first != second
    assert whole(10, seed=1) != whole(10, seed=2)


def test_without_a_number_of_rows_there_is_no_end():
    source = generate(make, SCHEMA)
    assert not source.bounded
    assert source.read("generated", 10**12, 3).batch["index"].to_pylist()[0] == 10**12


def test_at_and_past_the_end_there_is_nothing():
    source = generate(make, SCHEMA, rows=10)
    assert source.bounded
    assert [source.read("generated", start, 5) for start in (10, 11)] == [None, None]


def test_a_pickled_copy_makes_the_same_rows():
    source = generate(make, SCHEMA, seed=3)
    source.read("generated", 0, 10)
    copy = pickle.loads(pickle.dumps(source))
    assert copy.read("generated", 5, 5).batch == source.read("generated", 5, 5).batch


@pytest.mark.parametrize(
    ("rows", "rate_per_s", "elapsed_s", "due"),
    [(None, None, 5.0, None), (None, 10, 0.0, 0), (None, 10, 2.55, 25), (20, 10, 9.0, 20)],
)
def test_rows_become_due_at_the_rate(rows, rate_per_s, elapsed_s, due):
    assert generate(make, SCHEMA, rows, rate_per_s).due_rows(elapsed_s) == due


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (lambda index: {"index": index}, r"columns \['index', 'value'\], got \['index'\]"),
        (lambda index: {"index": index, "value": [1.0]}, "1024 values .*'value', got 1 values"),
        (lambda index: {"index": index, "value": ["a"] * 1024}, "values of double in .*'value'"),
        (lambda index: {"index": index, "value": 1 / 0}, "ZeroDivisionError"),
    ],
)
def test_what_make_does_wrong_is_named(columns, message):
    def wrong(rng, index):
        return columns(index)

    with pytest.raises(SourceError, match=message) as caught:
        generate(wrong, SCHEMA).read("generated", 0, 1)
    assert caught.value.subject.name == "generate 'wrong'"


@pytest.mark.parametrize("wrong", [{"rows": -1}, {"rate_per_s": 0}, {"seed": -1}])
def test_impossible_numbers_are_refused(wrong):
    with pytest.raises(SourceError, match=next(iter(wrong))):
        generate(make, SCHEMA, **wrong)


def test_numpy_types_are_cast_to_the_schema():
    schema = pa.schema([("small", pa.int8())])
    source = generate(lambda rng, index: {"small": np.ones(len(index))}, schema, rows=2)
    assert source.read("generated", 0, 5).batch["small"].to_pylist() == [1, 1]
