"""Every way in which `files` can be refused its rows: an error that says so, or a counted skip."""

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.errors import SourceError
from anabranch.io import files
from tests.io.reading import NUMBERS, ROWS, table_of


def failure(source, *needles):
    """Read everything; the error must mention all needles."""
    with pytest.raises(SourceError) as caught:
        table_of(source, [10])
    for needle in needles:
        assert needle in str(caught.value)
    return caught.value


def test_nothing_that_matches_is_an_error(tmp_path):
    error = failure(files(tmp_path / "*.txt"), "no file that matches", "*.txt")
    assert error.subject.name == f"files {str(tmp_path / '*.txt')!r}"


def test_one_of_several_paths_that_matches_nothing_is_an_error(tmp_path):
    (tmp_path / "a.txt").write_text("a\n")
    failure(files([tmp_path / "a.txt", tmp_path / "b.txt"]), "b.txt")


def test_an_unknown_suffix_is_an_error_that_says_what_to_pass(tmp_path):
    (tmp_path / "a.dat").write_text("a\n")
    failure(files(tmp_path), "a.dat", ".parquet", "format=")


def test_an_unknown_format_is_an_error():
    with pytest.raises(SourceError, match="'xml'"):
        files("a.xml", format="xml")


def test_an_unknown_way_with_bad_files_is_an_error():
    with pytest.raises(SourceError, match="'ignore'"):
        files("a.txt", on_bad_file="ignore")


def vanished(folder):
    (folder / "a.txt").write_text("a\n")
    (folder / "b.txt").write_text("b\n")
    (folder / "c.txt").write_text("c\n")

    def damage():
        (folder / "b.txt").unlink()

    return damage, ["b.txt", "no such file"], 2


def unreadable_parquet(folder):
    for name in "abc":
        pq.write_table(NUMBERS, folder / f"{name}.parquet")
    (folder / "b.parquet").write_bytes(b"PAR1 is what Parquet looks like")
    return None, ["b.parquet", "repair, replace or remove", "on_bad_file"], 2 * ROWS


def unreadable_first_parquet(folder):
    for name in "abc":
        pq.write_table(NUMBERS, folder / f"{name}.parquet")
    (folder / "a.parquet").write_bytes(b"")
    return None, ["a.parquet", "repair, replace or remove"], 2 * ROWS


def damaged_row_group(folder):
    pq.write_table(NUMBERS, folder / "a.parquet", row_group_size=400, compression="snappy")
    metadata = pq.read_metadata(folder / "a.parquet")
    at = metadata.row_group(1).column(0).dictionary_page_offset
    content = bytearray((folder / "a.parquet").read_bytes())
    content[at : at + 200] = b"\xff" * 200
    (folder / "a.parquet").write_bytes(bytes(content))
    return None, ["a.parquet", "repair, replace or remove"], 400


def differing_parquet(folder):
    pq.write_table(pa.table({"x": [1]}), folder / "a.parquet")
    pq.write_table(pa.table({"x": ["one"]}), folder / "b.parquet")
    return None, ["b.parquet", "'x'", "int64", "string"], 1


def missing_column_in_parquet(folder):
    pq.write_table(pa.table({"x": [1], "y": [1]}), folder / "a.parquet")
    pq.write_table(pa.table({"x": [1]}), folder / "b.parquet")
    return None, ["b.parquet", "'y'", "int64", "columns ['x']"], 1


def further_column_in_parquet(folder):
    pq.write_table(pa.table({"x": [1]}), folder / "a.parquet")
    pq.write_table(pa.table({"x": [1], "y": [1.5]}), folder / "b.parquet")
    return None, ["b.parquet", "'y'", "absent", "double"], 1


def differing_csv(folder):
    (folder / "a.csv").write_text("w,x\na,1\n")
    (folder / "b.csv").write_text("x,w\none,a\n")
    return None, ["b.csv", "'x'", "int64", "string", "'one'"], 1


def missing_column_in_csv(folder):
    (folder / "a.csv").write_text("x,y\n1,1\n")
    (folder / "b.csv").write_text("x\n1\n")
    return None, ["b.csv", "'y'", "int64", "columns ['x']"], 1


def further_column_in_csv(folder):
    (folder / "a.csv").write_text("x\n1\n")
    (folder / "b.csv").write_text("x,y\n1,1\n")
    return None, ["b.csv", "'y'", "absent", "int64"], 1


def ragged_csv(folder):
    (folder / "a.csv").write_text("x,y\n1,1\n")
    (folder / "b.csv").write_text("x,y\n1,1,1\n")
    return None, ["b.csv", "Expected 2 columns, got 3"], 1


def empty_csv(folder):
    (folder / "a.csv").write_text("x,y\n1,1\n")
    (folder / "b.csv").write_text("")
    return None, ["b.csv", "Empty CSV file"], 1


def differing_json(folder):
    (folder / "a.jsonl").write_text('{"x": 1}\n')
    (folder / "b.jsonl").write_text('{"x": "one"}\n')
    return None, ["b.jsonl", "'x'", "int64", "string"], 1


def fraction_in_json(folder):
    (folder / "a.jsonl").write_text('{"x": 1}\n')
    (folder / "b.jsonl").write_text('{"x": 1.5}\n')
    return None, ["b.jsonl", "'x'", "int64", "double"], 1


def further_field_in_json(folder):
    (folder / "a.jsonl").write_text('{"x": 1}\n')
    (folder / "b.jsonl").write_text('{"x": 1, "y": true}\n')
    return None, ["b.jsonl", "'y'", "absent", "bool"], 1


def malformed_json(folder):
    (folder / "a.jsonl").write_text('{"x": 1}\n')
    (folder / "b.jsonl").write_text('{"x": 1\n')
    return None, ["b.jsonl", "JSON parse error"], 1


def text_that_says_it_is_not_utf8(folder):
    (folder / "a.txt").write_text("a\n")
    (folder / "b.txt").write_bytes("grün\n".encode("utf-16"))
    return None, ["b.txt", "UTF-8", "iconv"], 1


bad_files = pytest.mark.parametrize(
    "prepare",
    [
        vanished,
        unreadable_parquet,
        unreadable_first_parquet,
        damaged_row_group,
        differing_parquet,
        missing_column_in_parquet,
        further_column_in_parquet,
        differing_csv,
        missing_column_in_csv,
        further_column_in_csv,
        ragged_csv,
        empty_csv,
        differing_json,
        fraction_in_json,
        further_field_in_json,
        malformed_json,
        text_that_says_it_is_not_utf8,
    ],
)


@bad_files
def test_a_bad_file_is_an_error_that_names_it(tmp_path, prepare):
    damage, needles, _ = prepare(tmp_path)
    source = files(tmp_path)
    source.parts()
    if damage:
        damage()
    failure(source, *needles)


@bad_files
@pytest.mark.parametrize("size", [1, 333, 5000])
def test_a_bad_file_can_be_skipped_and_is_counted(tmp_path, prepare, size):
    damage, needles, good_rows = prepare(tmp_path)
    source = files(tmp_path, on_bad_file="skip")
    source.parts()
    if damage:
        damage()
    assert table_of(source, [size]).num_rows == good_rows
    assert source.skipped_files == 1
    assert [os.path.basename(path) for path in source.skipped] == [needles[0]]


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_file_damaged_late_ends_at_the_same_row_however_it_is_read(
    tmp_path, example_files, suffix
):
    content = (example_files / f"a.{suffix}").read_bytes()
    (tmp_path / f"a.{suffix}").write_bytes(content + b'{"\xff\xff\n' + content)
    counts = set()
    for size in (1, 50, 5000):
        source = files(tmp_path, on_bad_file="skip")
        counts.add(table_of(source, [size]).num_rows)
        assert source.skipped_files == 1
    (count,) = counts
    assert 500 < count < 613


def test_only_bad_files_leave_no_schema(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"")
    failure(files(tmp_path, on_bad_file="skip"), "pass schema=")


def test_columns_with_one_name_are_an_error(tmp_path):
    (tmp_path / "a.csv").write_text("x,x\n1,1\n")
    failure(files(tmp_path), "a.csv", "['x', 'x']")


def test_a_given_schema_is_enforced_on_the_first_file_too(tmp_path):
    (tmp_path / "a.csv").write_text("w,x\na,one\n")
    schema = pa.schema([("x", pa.int64())])
    failure(files(tmp_path, schema=schema), "a.csv", "'x'", "int64", "'one'")
