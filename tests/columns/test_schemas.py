from __future__ import annotations

import pyarrow as pa
import pytest

from anabranch.columns.schemas import columns_of, schema, to_batch
from anabranch.errors import SchemaError

WRITTEN = {
    "n: int64": pa.int64(),
    "n: int": pa.int64(),
    "n: float": pa.float64(),
    "n: double": pa.float64(),
    "n: str": pa.string(),
    "n: bool": pa.bool_(),
    "n: timestamp": pa.timestamp("us"),
    "n: timestamp[ms]": pa.timestamp("ms"),
    "n: list<string>": pa.list_(pa.string()),
    "n: list<list<int64>>": pa.list_(pa.list_(pa.int64())),
    " n :int64 , ": pa.int64(),
}


@pytest.mark.parametrize("text", sorted(WRITTEN))
def test_a_type_can_be_written_as_text(text):
    assert schema(text) == pa.schema([("n", WRITTEN[text])])


def test_columns_stand_in_the_order_written():
    assert schema("b: int64, tags: list<string>, a: string").names == ["b", "tags", "a"]


def test_a_schema_is_taken_as_it_is():
    given = pa.schema([("x", pa.int8())])
    assert schema(given) is given


def test_a_mapping_is_a_schema():
    assert schema({"x": pa.int8()}) == pa.schema([("x", pa.int8())])


def test_nothing_is_a_schema_without_columns():
    assert schema(None) == pa.schema([])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("word", "columns as 'name: type', got 'word'"),
        (": int64", "columns as 'name: type', got ': int64'"),
        ("n: integer", "an Arrow type such as .* got 'integer'"),
        ("n: list<thing>", "an Arrow type such as .* got 'thing'"),
        ("n: int64, n: string", "each column named once"),
    ],
)
def test_a_mistake_in_a_schema_is_told(text, words):
    with pytest.raises(SchemaError, match=f"step 'count': expected {words}"):
        schema(text, "count")


def test_missing_columns_are_all_named():
    with pytest.raises(SchemaError, match=r"columns among \['a'\], got 'b', 'c'"):
        columns_of("step", ("a", "b", "c"), pa.schema([("a", pa.int64())]))


def test_a_batch_has_the_promised_order_of_columns():
    made = to_batch("s", {"b": [1], "a": ["x"]}, schema("a: string, b: int64"), 1)
    assert made.schema == schema("a: string, b: int64")


@pytest.mark.parametrize(
    "returned",
    [
        pa.record_batch({"a": [1, 2]}),
        pa.table({"a": pa.chunked_array([[1], [2]])}),
        {"a": pa.chunked_array([[1], [2]])},
        {"a": [1, 2]},
    ],
    ids=["batch", "table", "chunked", "list"],
)
def test_columns_may_come_in_any_container(returned):
    assert to_batch("s", returned, schema("a: int64"), 2).to_pydict() == {"a": [1, 2]}
