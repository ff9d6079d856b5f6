"""Users' files as rows: what a bad row costs, and what a bad file."""

from __future__ import annotations

import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.apps.kit.inputs import paths_of, read_rows
from anabranch.errors import SchemaError, SourceError, UnknownNameError
from anabranch.flow import Flow
from anabranch.io import collect
from anabranch.io.files_source import FilesSource
from anabranch.io.formats import text
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


@pytest.mark.parametrize("second", ["at,x,name", "at,name", "at,name,x,y", "at"])
def test_files_with_other_columns_are_refused(tmp_path, second):
    (tmp_path / "a.csv").write_text("at,name,x\n1,a,1\n")
    (tmp_path / "b.csv").write_text(f"{second}\n2,2,2\n")
    with pytest.raises(
        SchemaError, match=rf"in this order, got .*{second.split(',')[-1]}.* in .*b\.csv"
    ):
        read(tmp_path / "*.csv")


def test_a_line_of_names_may_be_written_in_other_ways_or_be_left_out(tmp_path):
    (tmp_path / "a.csv").write_text("at,name,x\n1,a,1\n")
    (tmp_path / "b.csv").write_text('at, "name", x\n2,b,1\n')
    (tmp_path / "c.csv").write_text("3,c,1\n")
    good, bad = read(tmp_path / "*.csv")
    assert ([row[1] for row in good], bad) == (["a", "b", "c"], [])


def test_a_column_may_not_be_named_twice(tmp_path):
    (tmp_path / "a.csv").write_text("at,name,x,at\n1,a,1,2\n")
    with pytest.raises(SchemaError, match=r"with \['at'\] more than once"):
        read(tmp_path / "a.csv")


def test_columns_that_nobody_wants_may_have_any_names(tmp_path):
    (tmp_path / "a.csv").write_text("at,,name,,x,0\n1,p,a,q,1,r\n")
    assert read(tmp_path / "a.csv") == ([(1, "a", 1.0)], [])


def test_a_file_may_lack_columns_that_may_be_null(tmp_path):
    (tmp_path / "a.csv").write_text("name,at\na,1\n")
    assert read(tmp_path / "a.csv") == ([(1, "a", None)], [])


def test_a_string_that_is_needed_may_not_be_empty(tmp_path):
    columns = pa.schema([pa.field("key", pa.string(), nullable=False), ("n", pa.int64())])
    (tmp_path / "a.csv").write_text('key,n\na,1\n,2\n"",3\n')
    flow = Flow("reading")
    read_rows(flow, "rows", tmp_path / "a.csv", columns).sink("out", collect())
    result = run_sequential(flow)
    assert [row["n"] for row in result.rows("out")] == [1]
    assert [row["error"] for row in result.rows("rows.bad")] == ["no value for 'key'"] * 2


def test_a_line_with_bytes_that_are_no_utf_8_is_bad(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"at,name,x\n1,\xffA,1\n2,B,1\n3,\xfeA,1\nx,C,1\n4,D,1\n")
    assert [row[1] for row in read(tmp_path / "a.csv")[0]] == ["B", "D"]
    assert read(tmp_path / "a.csv")[1] == ["1,\ufffdA,1", "3,\ufffdA,1", "x,C,1"]
    (tmp_path / "b.jsonl").write_bytes(b'{"at":1,"name":"\xff"}\n{"at":2,"name":"\\ufffd"}\n')
    good, bad = read(tmp_path / "b.jsonl")
    assert (good, len(bad)) == ([(2, "\ufffd", None)], 1)


def test_times_of_csv_may_tell_their_zone(tmp_path):
    columns = pa.schema([pa.field("ts", pa.timestamp("us"), nullable=False)])
    (tmp_path / "a.csv").write_text("ts\n2024-01-02T09:30:00Z\n2024-01-02 09:30:00\nnever\n")
    flow = Flow("reading")
    read_rows(flow, "rows", tmp_path / "a.csv", columns).sink("out", collect())
    result = run_sequential(flow)
    assert [str(row["ts"]) for row in result.rows("out")] == ["2024-01-02 09:30:00"] * 2
    assert [row["line"] for row in result.rows("rows.bad")] == ["never"]


def test_json_lines(tmp_path):
    lines = ['{"at": 1, "name": "a", "x": 1, "y": 2}', '{"name": "b"}', "", "[1]", '{"at": 2}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    assert read(tmp_path / "a.jsonl") == ([(1, "a", 1.0), (2, None, None)], [lines[1], lines[3]])


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
    assert (bad["name"], bad["error"]) == ("b", "no value for 'at'")
    assert result.counters["rows.parse"].skipped == 1


OTHER_TYPES = [
    pa.table({"at": pa.array([1, None], pa.int32()), "name": ["a", "b"], "x": [1, 2]}),
    pa.table({"at": [3.0, 3.5], "name": pa.array(["c", "d"]).dictionary_encode()}),
    pa.table({"more": [True, False], "at": pa.array([5, 2**63], pa.uint64())}),
    pa.table({"x": [0.5], "at": [7], "name": ["g"]}),
]


def test_parquet_files_may_have_other_types_and_lack_columns_that_may_be_null(tmp_path):
    for number, table in enumerate(OTHER_TYPES):
        pq.write_table(table, tmp_path / f"{number}.parquet")
    flow = Flow("reading")
    read_rows(flow, "rows", tmp_path, COLUMNS).sink("out", collect())
    result = run_sequential(flow)
    assert [tuple(row.values()) for row in result.rows("out")] == [
        (1, "a", 1.0),
        (3, "c", None),
        (5, None, None),
        (7, "g", 0.5),
    ]
    assert [(row["name"], row["error"]) for row in result.rows("rows.bad")] == [
        ("b", "no value for 'at'"),
        ("d", "no int64 in 'at': 3.5"),
        (None, f"no int64 in 'at': {2**63}"),
    ]
    assert result.counters["rows.parse"].skipped == 3
    assert ab.check(flow, cases=8, rows=20, seed=1, processes=0).ok


def test_what_pandas_writes_can_be_read(tmp_path):
    pandas = pytest.importorskip("pandas")
    times = pandas.to_datetime(["2024-01-02 09:30:00.123456789", None])
    frame = pandas.DataFrame({"ts": times, "n": [1, None], "kind": ["a", "b"]})
    frame.astype({"kind": "category"}).to_parquet(tmp_path / "a.parquet")
    columns = pa.schema([("ts", pa.timestamp("us")), ("n", pa.int32()), ("kind", pa.string())])
    flow = Flow("reading")
    read_rows(flow, "rows", tmp_path / "a.parquet", columns).sink("out", collect())
    assert [tuple(map(str, row.values())) for row in run_sequential(flow).rows("out")] == [
        ("2024-01-02 09:30:00.123456", "1", "a"),
        ("None", "None", "b"),
    ]


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (pa.table({"name": ["a"]}), r"\['name'\], without \['at'\]"),
        (
            pa.table({"at": [True]}),
            r"column 'at' to hold values of int64 in .*0\.parquet, got bool",
        ),
        (pa.table([[1], [2]], names=["at", "at"]), r"with \['at'\] more than once"),
    ],
)
def test_parquet_files_that_cannot_have_such_rows_are_refused_at_once(tmp_path, table, says):
    pq.write_table(table, tmp_path / "0.parquet")
    with pytest.raises(SchemaError, match=says):
        read_rows(Flow("reading"), "rows", tmp_path, COLUMNS)


def test_building_on_csv_reads_little_of_each_file(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("at,name,x\n" + "1,a,1\n" * 100_000)
    monkeypatch.setattr(FilesSource, "read", lambda *_: pytest.fail("rows were read"))
    monkeypatch.setattr(text, "BLOCK_BYTES", -1)
    read_rows(Flow("reading"), "rows", tmp_path / "a.csv", COLUMNS)


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_an_empty_file_has_no_rows(tmp_path, ending):
    (tmp_path / f"a.{ending}").write_text("")
    assert read(tmp_path / f"a.{ending}") == ([], [])


def test_a_file_without_the_columns_is_refused_with_what_it_has(tmp_path):
    (tmp_path / "a.csv").write_text("time,name\n1,a\n")
    with pytest.raises(SchemaError, match=r"\['time', 'name'\], without \['at'\]"):
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


@pytest.mark.parametrize(
    ("others", "told"),
    [
        ("b.parquet", "CSV in .*a.csv and Parquet in .*b.parquet"),
        ("b.jsonl", "CSV in .*a.csv and JSON in .*b.jsonl"),
        ("0.ndjson.gz", "JSON in .*0.ndjson.gz and CSV in .*a.csv"),
    ],
)
def test_files_of_two_formats_are_refused_before_any_is_read(tmp_path, others, told):
    (tmp_path / "a.csv").write_text("at,name,x\n1,a,0.5\n")
    (tmp_path / others).write_bytes(b"not read")
    with pytest.raises(SourceError, match=told):
        read(tmp_path)


def test_a_parquet_file_with_the_name_of_another_format_is_refused(tmp_path):
    for suffix in ("csv", "jsonl", "txt"):
        folder = tmp_path / suffix
        folder.mkdir()
        (folder / f"a.{suffix}").write_text("at,name,x\n")
        pq.write_table(pa.table({"at": [1]}), folder / f"b.{suffix}")
        with pytest.raises(
            SourceError, match=rf"expected text in .*b\.{suffix}, got a Parquet file"
        ):
            read(folder)


def test_lines_that_end_with_a_carriage_return_alone_are_refused(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"at,name,x\r1,a,0.5\r")
    with pytest.raises(SchemaError, match=r"a.csv.*got a carriage return within the first line"):
        read(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_bytes(b"at,name,x\r\n1,a,0.5\r\n")
    assert read(tmp_path / "a.csv") == ([(1, "a", 0.5)], [])


def test_a_first_line_with_a_field_too_long_for_a_name_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("x" * (1 << 18) + ",name,x\n1,a,0.5\n")
    with pytest.raises(SchemaError, match=r"a first line with the columns .*a.csv.*field limit"):
        read(tmp_path / "a.csv")


def test_a_later_file_may_begin_with_a_row_that_has_a_long_field(tmp_path):
    (tmp_path / "a.csv").write_text("at,name,x\n1,a,0.5\n")
    long = "y" * (1 << 18)
    (tmp_path / "b.csv").write_text(f"2,{long},1\n")
    assert read(tmp_path) == ([(1, "a", 0.5), (2, long, 1.0)], [])
