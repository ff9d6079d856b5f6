"""Users' files as rows: what a bad row costs, and what a bad file."""

from __future__ import annotations

import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.apps.inputs import paths_of, read_rows
from anabranch.errors import SchemaError, SourceError, UnknownNameError
from anabranch.flow import Flow
from anabranch.io import collect
from anabranch.testing.sequential import run_sequential

COLUMNS = pa.schema(
    [pa.field("at", pa.int64(), nullable=False), ("name", pa.string()), ("x", pa.float64())]
)


def read(*paths):
    flow = Flow("reading")
    stream = read_rows(flow, "rows", list(map(str, paths)), COLUMNS)
    assert stream.schema.names == COLUMNS.names
    stream.sink("out", collect())
    result = run_sequential(flow)
    bad = [row["line"] for row in result.rows("rows.bad")]
    return [tuple(row.values()) for row in result.rows("out")], bad


def test_a_bad_row_harms_no_other(tmp_path):
    (tmp_path / "a.csv").write_text("at,name,x\n1,a,0.5\none,a,1\n2,b\n,c,1\n3,,\n4,d,1,2\n")
    good, bad = read(tmp_path / "a.csv")
    assert good == [(1, "a", 0.5), (3, "", None)]
    assert bad == ["one,a,1", "2,b", ",c,1", "4,d,1,2"]


def test_columns_are_found_by_name_and_others_left_out(tmp_path):
    (tmp_path / "a.csv").write_text('x,"more, or less",name,at\n0.5,y,"a ""b""",1\n')
    assert read(tmp_path / "a.csv") == ([(1, 'a "b"', 0.5)], [])


def test_every_file_may_have_a_line_of_names(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text(f"at,name,x\n1,{name},1\n")
    (tmp_path / "c.csv").write_text("")
    good, bad = read(tmp_path / "*.csv")
    assert ([row[1] for row in good], bad) == (["a", "b"], [])


def test_json_lines(tmp_path):
    lines = ['{"at": 1, "name": "a", "x": 1, "y": 2}', '{"name": "b"}', "", "[1]", '{"at": 2}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    assert read(tmp_path / "a.jsonl") == ([(1, "a", 1.0), (2, None, None)], lines[1:4])


def test_compressed_files_and_parquet(tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"at,name,x\n1,a,0.5\n"))
    pq.write_table(pa.table({"x": [0.5], "at": [1], "name": ["a"]}), tmp_path / "b.parquet")
    assert read(tmp_path / "a.csv.gz") == read(tmp_path / "b.parquet") == ([(1, "a", 0.5)], [])


def test_a_row_of_a_parquet_file_may_be_bad_too(tmp_path):
    rows = {"at": [1, None, 3], "name": ["a", "b", None], "x": [0.5, 1.0, None]}
    pq.write_table(pa.table(rows), tmp_path / "a.parquet")
    flow = Flow("reading")
    read_rows(flow, "rows", tmp_path / "a.parquet", COLUMNS).sink("out", collect())
    result = run_sequential(flow)
    assert [row["at"] for row in result.rows("out")] == [1, 3]
    [bad] = result.rows("rows.bad")
    assert (bad["name"], bad["error"]) == ("b", "ValueError: no value for 'at'")
    assert result.counters["rows.parse"].skipped == 1


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_an_empty_file_has_no_rows(tmp_path, ending):
    (tmp_path / f"a.{ending}").write_text("")
    assert read(tmp_path / f"a.{ending}") == ([], [])


def test_a_file_without_the_columns_is_refused_with_what_it_has(tmp_path):
    (tmp_path / "a.csv").write_text("time,name\n1,a\n")
    with pytest.raises(SchemaError, match=r"\['time', 'name'\], without \['at', 'x'\]"):
        read(tmp_path / "a.csv")


def test_no_file_at_all_is_said(tmp_path):
    with pytest.raises(SourceError, match="no file that matches"):
        read(tmp_path / "*.csv")


def test_several_sources_need_files_by_name():
    assert paths_of({"a": "x", "b": "y"}, "b", ["a", "b"]) == "y"
    assert paths_of("x", "a", ["a"]) == "x"
    for given in ("x", {"a": "x"}, {"a": "x", "c": "y"}):
        with pytest.raises(UnknownNameError, match="give --input a=FILES --input b=FILES"):
            paths_of(given, "a", ["a", "b"])
