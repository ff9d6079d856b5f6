import bz2
import gzip
import os
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch.io.formats as formats
from anabranch.errors import SourceError
from anabranch.io import files
from tests.io.reading import LINES, NUMBERS, chunk_sizes, table_of


def expected(suffix):
    return pa.table({"line": LINES}) if suffix == "txt" else NUMBERS


every_suffix = pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl", "txt"])


@every_suffix
@given(sizes=chunk_sizes)
def test_any_chunking_gives_the_same_rows(example_files, suffix, sizes):
    assert table_of(files(example_files / f"*.{suffix}"), sizes) == expected(suffix)


@every_suffix
@given(data=st.data())
def test_any_row_can_be_read_at_any_time(example_files, suffix, data):
    source = files(example_files / f"*.{suffix}")
    part = source.parts()[0]
    for start in data.draw(st.lists(st.integers(0, 612), min_size=1, max_size=5)):
        rows = data.draw(st.integers(1, 200))
        batch = source.read(part, start, rows).batch
        whole = expected(suffix).slice(start, min(rows, 613 - start))
        assert pa.Table.from_batches([batch]) == whole


@every_suffix
def test_at_and_past_the_end_there_is_nothing(example_files, suffix):
    source = files(example_files / f"*.{suffix}")
    first, second = source.parts()
    assert [source.read(first, 613, 5), source.read(second, 9999, 5)] == [None, None]


@every_suffix
def test_a_pickled_copy_reads_on(example_files, suffix):
    source = files(example_files / f"*.{suffix}")
    part = source.parts()[0]
    source.read(part, 0, 100)
    copy = pickle.loads(pickle.dumps(source))
    assert copy.read(part, 100, 50).batch == source.read(part, 100, 50).batch


@every_suffix
def test_threads_may_share_a_source(example_files, suffix):
    source = files(example_files / f"*.{suffix}")
    with ThreadPoolExecutor(4) as pool:
        tables = list(pool.map(lambda size: table_of(source, [size]), [7, 20, 33, 400]))
    assert all(table == expected(suffix) for table in tables)


def test_a_file_is_a_part_where_it_is_first_named_and_those_of_a_pattern_are_sorted(example_files):
    source = files([example_files / "b.txt", example_files / "a.*", example_files / "a.csv"])
    names = [os.path.basename(part) for part in source.parts()]
    assert names == ["b.txt", "a.csv", "a.jsonl", "a.parquet", "a.txt"]
    assert source.bounded
    assert source.order == "file and row"
    assert source.due_rows(1.0) is None


def test_files_are_read_in_the_order_in_which_they_are_named(tmp_path):
    for name in ("auth.log", "auth.log.1", "auth.log.2"):
        (tmp_path / name).write_text(f"{name}\n")
    named = [tmp_path / f"auth.log{ending}" for ending in (".2", ".1", "")]
    lines = table_of(files(named, format="text"), [1])["line"].to_pylist()
    assert lines == ["auth.log.2", "auth.log.1", "auth.log"]
    assert table_of(files(tmp_path, format="text"), [1])["line"].to_pylist() == sorted(lines)


def test_the_first_lines_of_a_file_are_those_that_are_read_and_little_more(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["anabranch.io.formats.text"], "SAMPLE_BYTES", 64)
    content = b"\xef\xbb\xbfa\r\n\xffb\n" + b"c" * 100 + b"\n" + b"d\n" * 500
    (tmp_path / "a.txt").write_bytes(content)
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(content))
    (tmp_path / "c.txt").write_bytes(b"e" * 1000 + b"\nf")
    (tmp_path / "d.txt").write_bytes(b"")
    source = files(tmp_path)
    *same, long, empty = [source.first_lines(part).to_pylist() for part in source.parts()]
    assert same == [["a", "\ufffdb"]] * 2
    assert long[0] == "e" * 1000
    assert empty == []


def test_first_lines_of_a_file_that_cannot_be_read_are_an_error_or_none(tmp_path):
    (tmp_path / "a.txt").write_bytes("ab".encode("utf-16"))
    [part] = files(tmp_path).parts()
    with pytest.raises(SourceError, match="UTF-16"):
        files(tmp_path).first_lines(part)
    skipping = files(tmp_path, on_bad_file="skip")
    assert (len(skipping.first_lines(part)), skipping.skipped_files) == (0, 1)


def test_a_directory_means_its_visible_files(tmp_path):
    (tmp_path / "a.txt").write_text("a\n")
    (tmp_path / ".pending.txt").write_text("no\n")
    (tmp_path / "deeper").mkdir()
    assert table_of(files(tmp_path), [9])["line"].to_pylist() == ["a"]


def test_a_name_that_looks_like_a_pattern_is_found(tmp_path):
    (tmp_path / "a[1].txt").write_text("a\n")
    assert table_of(files(tmp_path / "a[1].txt"), [9])["line"].to_pylist() == ["a"]


def test_relative_paths_survive_a_change_of_directory(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("a\n")
    monkeypatch.chdir(tmp_path)
    source = files("*.txt")
    monkeypatch.chdir("/")
    assert source.parts() == (str(tmp_path / "a.txt"),)


def test_compressed_text_is_read(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"a\nb\n"))
    (tmp_path / "b.txt.bz2").write_bytes(bz2.compress(b"c"))
    assert table_of(files(tmp_path), [1])["line"].to_pylist() == ["a", "b", "c"]


def test_lines_may_be_empty_end_with_a_carriage_return_or_begin_with_a_mark(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfa\r\n\r\n\n b\rc \n\n")
    assert table_of(files(tmp_path), [2])["line"].to_pylist() == ["a", "", "", " b\rc ", ""]


@pytest.mark.parametrize("suffix", ["txt", "jsonl"])
def test_an_empty_file_has_no_rows(tmp_path, suffix):
    (tmp_path / f"a.{suffix}").write_text("")
    (tmp_path / f"b.{suffix}").write_text('{"x": 1}\n')
    assert table_of(files(tmp_path), [5]).num_rows == 1


def test_newlines_inside_quotes_are_part_of_the_value(tmp_path, small_blocks):
    rows = pa.table({"x": list(range(300)), "text": [f'"{i}"\n,next' for i in range(300)]})
    pa_csv.write_csv(rows, tmp_path / "a.csv")
    assert table_of(files(tmp_path), [11]) == rows


def test_a_given_schema_chooses_columns_and_types(tmp_path, example_files):
    schema = pa.schema([("word", pa.string()), ("x", pa.float64())])
    assert table_of(files(example_files / "*.csv", schema=schema), [99]).schema == schema
    only = pa.schema([("word", pa.string())])
    for suffix in ("parquet", "csv", "jsonl"):
        source = files(example_files / f"*.{suffix}", schema=only)
        assert table_of(source, [99]) == NUMBERS.select(["word"])


def test_dates_are_read_from_json(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"d": "1970-01-02", "t": "00:00:01"}\n{"d": null}\n')
    schema = pa.schema([("d", pa.date32()), ("t", pa.time32("s"))])
    table = table_of(files(tmp_path, schema=schema), [5])
    assert table == pa.table({"d": [1, None], "t": [1, None]}, schema=schema)


def test_parquet_is_never_held_whole(tmp_path):
    big = pa.table({"x": pa.array(range(1_000_000), pa.int64())})
    pq.write_table(big, tmp_path / "a.parquet", row_group_size=50_000)
    source = files(tmp_path)
    before = pa.total_allocated_bytes()
    batch = source.read(source.parts()[0], 500_000, 10).batch
    assert batch["x"].to_pylist() == list(range(500_000, 500_010))
    assert pa.total_allocated_bytes() - before < big.nbytes / 4


def test_a_format_overrules_the_suffix(tmp_path):
    (tmp_path / "a.dat").write_text("a\n")
    assert table_of(files(tmp_path / "a.dat", format="text"), [5]).num_rows == 1


def test_every_format_has_a_suffix_of_its_own():
    suffixes = [suffix for format in formats.FORMATS.values() for suffix in format.suffixes]
    assert len(set(suffixes)) == len(suffixes)


def test_many_files_keep_few_readers_open(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["anabranch.io.files_source"], "OPEN_READERS", 2)
    for index in range(5):
        (tmp_path / f"{index}.txt").write_text("a\nb\n")
    source = files(tmp_path)
    for part in source.parts():
        source.read(part, 0, 1)
    assert len(source._readers) == 2
    assert table_of(source, [1]).num_rows == 10
