import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.errors import SinkError, SourceError
from anabranch.io import files, jsonl
from anabranch.io.formats import jsonl as jsonl_files
from anabranch.io.formats import lines as line_files
from tests.io.reading import table_of
from tests.io.values import batches, written_and_read

MORE = {
    pa.list_(pa.int64()): st.lists(st.integers(0, 9)),
    pa.struct([("a", pa.list_(pa.string()))]): st.fixed_dictionaries(
        {"a": st.lists(st.sampled_from(["x", "ÿ"]))}
    ),
}


@given(batch=batches(MORE))
def test_what_is_written_reads_back(tmp_path_factory, batch):
    folder = tmp_path_factory.mktemp("jsonl")
    assert written_and_read(jsonl(folder), folder, batch) == pa.Table.from_batches([batch])


def test_a_row_is_a_line_whatever_is_in_it(tmp_path):
    batch = pa.record_batch({"text": ["two\nlines", "grün\u2028"]})
    written_and_read(jsonl(tmp_path), tmp_path, batch)
    content = (tmp_path / "part-00000000.jsonl").read_text(encoding="utf-8")
    assert content == '{"text": "two\\nlines"}\n{"text": "grün\u2028"}\n'


def test_not_a_number_reads_back(tmp_path):
    batch = pa.record_batch({"f": [float("nan"), float("inf"), float("-inf")]})
    values = written_and_read(jsonl(tmp_path), tmp_path, batch)["f"].to_pylist()
    assert [str(value) for value in values] == ["nan", "inf", "-inf"]


@pytest.mark.parametrize("kind", [pa.list_(pa.timestamp("us")), pa.binary(), pa.duration("s")])
def test_types_that_do_not_read_back_are_refused_by_name(tmp_path, kind):
    with pytest.raises(SinkError, match=r"columns that jsonl can hold, got 'k' of type.*parquet"):
        jsonl(tmp_path).open(pa.schema([("k", kind)]))


# Large files, which several readers share


@pytest.fixture
def large(tmp_path, monkeypatch):
    """A file that is large enough to be shared by readers, and its rows."""
    monkeypatch.setattr(line_files, "SPLIT_BYTES", 1_000)
    monkeypatch.setattr(jsonl_files, "BLOCK_BYTES", 200)
    rows = [{"n": n, "text": n % 7 * "é" + n % 40 * "x"} for n in range(300)]
    path = tmp_path / "a.jsonl"
    ends = ["\n", "\r\n", "\n\n", "\n  \n", "\r\n\r\n"]
    lines = [json.dumps(row, ensure_ascii=n % 2 == 0) + ends[n % 5] for n, row in enumerate(rows)]
    path.write_text("".join(lines), newline="")
    return path, rows


def rows_from(source, start, rows):
    [part] = source.parts()
    found = []
    while rows > 0 and (chunk := source.read(part, start, rows)) is not None:
        found += chunk.batch.to_pylist()
        start, rows = start + chunk.batch.num_rows, rows - chunk.batch.num_rows
    return found


@pytest.mark.parametrize("order", [(0, 100, 200), (200, 100, 0), (100, 250, 0, 50, 299, 300, 400)])
def test_a_large_file_is_read_from_any_row(large, order):
    path, rows = large
    source = files(path)
    assert source.extent(str(path)).seekable
    for start in order:
        assert rows_from(source, start, 70) == rows[start : start + 70]


@pytest.mark.parametrize("start", ["\n", "  \n", "\r\n", ""])
@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
def test_blank_lines_at_either_end_are_no_rows(tmp_path, monkeypatch, start, end):
    monkeypatch.setattr(line_files, "SPLIT_BYTES", 1)
    path = tmp_path / "a.jsonl"
    path.write_bytes(f'{start}{{"n": 0}}\n{{"n": 1}}{end}'.encode())
    assert rows_from(files(path), 1, 9) == [{"n": 1}]
    assert rows_from(files(path), 0, 9) == [{"n": 0}, {"n": 1}]


def test_several_readers_of_one_file_give_its_rows_in_order(large):
    path, rows = large
    flow = ab.Flow("rows")
    flow.source("rows", files(path)).sink("out", out := ab.collect())
    plan = ab.plan(flow).with_source("rows", replicas=3, batch_rows=11)
    ab.run(flow, engine="local", plan=plan, workers=0)
    assert out.table().to_pylist() == rows


def test_a_large_file_with_an_object_over_several_lines_is_refused(large):
    path, _ = large
    with path.open("a") as file:
        file.write('{"n": \n1, "text": ""}\n')
    with pytest.raises(SourceError, match=r"one JSON object in each line of .*a\.jsonl"):
        table_of(files(path), [50])


def test_where_bad_files_are_skipped_one_reader_finds_where_a_file_is_bad(large):
    path, _ = large
    with path.open("a") as file:
        file.write("no JSON\n" + '{"n": 1, "text": ""}\n' * 99)
    source = files(path, on_bad_file="skip")
    assert not source.extent(str(path)).seekable
    found = {table_of(files(path, on_bad_file="skip"), [size]).num_rows for size in (1, 50, 999)}
    assert len(found) == 1
    with pytest.raises(SourceError, match=r"a\.jsonl"):
        rows_from(files(path), 290, 20)
