"""A source takes its columns as text, too; and names the column and the value that do not fit."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import SchemaError, SourceError

TEXT = "k: string, v: int64"
SCHEMA = ab.schema(TEXT)


def test_rows_in_memory():
    source = ab.memory([{"k": "a", "v": 1}, {"v": 2}], TEXT)
    assert source.schema == SCHEMA
    assert source.read("memory", 0, 9).batch.to_pylist() == [
        {"k": "a", "v": 1},
        {"k": None, "v": 2},
    ]


def test_a_table_in_memory():
    table = pa.table({"v": pa.array([1, 2], pa.int8()), "k": ["a", "b"]})
    source = ab.memory(table, TEXT)
    assert source.schema == SCHEMA
    assert source.read("memory", 0, 9).batch.column("v").to_pylist() == [1, 2]


def test_generated_rows():
    def make(rng, index):
        return {"k": ["a"] * len(index), "v": index}

    assert ab.generate(make, TEXT, rows=3).read("generated", 0, 9).batch.schema == SCHEMA


def test_files(tmp_path):
    (tmp_path / "a.csv").write_text("v,k,more\n7,x,y\n")
    source = ab.files(tmp_path / "a.csv", schema=TEXT)
    [part] = source.parts()
    assert source.schema == SCHEMA
    assert source.read(part, 0, 9).batch.to_pylist() == [{"k": "x", "v": 7}]


@pytest.mark.parametrize(
    "source",
    [
        lambda text: ab.memory([], text),
        lambda text: ab.files("a.csv", schema=text),
        lambda text: ab.generate(lambda rng, index: {}, text),
    ],
)
def test_a_text_that_is_no_schema_is_refused(source):
    with pytest.raises(SchemaError, match="an Arrow type such as"):
        source("a: integer")


MANY = [{"a": number} for number in range(1000)]


@pytest.mark.parametrize(
    ("rows", "schema", "told"),
    [
        ([{"a": 1}, {"a": "x"}], None, "one type in column 'a', got 'x' in row 1 behind int64"),
        ([{"b": 1, "a": "x"}, {"a": 1}], None, "one type in column 'a', got 1 in row 1 behind str"),
        ([{"a": object}], None, "in column 'a', got <class 'object'> in row 0; repair"),
        ([*MANY, {"a": "x"}, *MANY], None, "column 'a', got 'x' in row 1000 behind int64"),
        ([{"a": None}, {"a": 300}], "a: int8", "values of int8 in column 'a', got 300 in row 1;"),
        ([{"a": 2**70}], "a: int64", "values of int64 in column 'a', got 1180591620717411303424"),
        ([{"a": 1}, {"a": "x" * 500}], None, "got 'x{78}… in row 1"),
        ([1], None, "rows as dicts, a table or a record batch, got 1 as row 0"),
        (pa.table({"a": [1, 300]}), "a: int8", "a column 'a' of int8, got Integer value 300"),
    ],
)
def test_what_does_not_fit_is_named_with_its_column_value_and_row(
    rows: Any, schema: str | None, told: str
):
    with pytest.raises(SourceError, match=told):
        ab.memory(rows, schema)
