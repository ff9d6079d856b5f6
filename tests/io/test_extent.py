"""What sources can tell of their parts before they are read."""

from __future__ import annotations

import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.io import files, generate, memory, stamped
from anabranch.io.source import Extent, Source

TABLE = pa.table({"x": list(range(1000))})


def only_extent(source) -> Extent:
    [part] = source.parts()
    return source.extent(part)


def test_parquet_knows_its_rows_and_finds_any_of_them(tmp_path):
    pq.write_table(TABLE, tmp_path / "a.parquet", row_group_size=100)
    assert only_extent(files(tmp_path)) == Extent(1000, exact=True, seekable=True)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "x\n" + "".join(f"{x}\n" for x in range(1000))),
        ("a.jsonl", "".join(f'{{"x": {x}}}\n' for x in range(1000))),
        ("a.txt", "".join(f"line {x}\n" for x in range(1000))),
    ],
)
def test_a_small_file_of_lines_is_counted_up_to_one_but_not_promised(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    known = only_extent(files(tmp_path))
    assert 1000 <= known.rows <= 1002
    assert (known.exact, known.seekable) == (False, False)


def test_a_large_file_of_lines_is_guessed_from_its_beginning(tmp_path):
    (tmp_path / "a.txt").write_text("".join(f"line {x:07}\n" for x in range(100_000)))
    known = only_extent(files(tmp_path))
    assert known.rows == pytest.approx(100_000, rel=0.01)
    assert not known.exact


def test_one_endless_line_counts_as_a_row(tmp_path):
    (tmp_path / "a.txt").write_text("x" * 200_000)
    assert only_extent(files(tmp_path)).rows == 1


def test_a_compressed_file_is_looked_into(tmp_path):
    with gzip.open(tmp_path / "a.txt.gz", "wt") as file:
        file.write("".join(f"line {x}\n" for x in range(50)))
    assert only_extent(files(tmp_path)).rows in (50, 51)


def test_a_file_that_cannot_be_read_tells_nothing_yet(tmp_path):
    (tmp_path / "a.parquet").write_text("no parquet at all")
    source = files(tmp_path, schema=TABLE.schema)
    assert only_extent(source) == Extent()


def test_generated_rows_are_known_or_endless():
    def make(rng, index):
        return {"x": index}

    assert only_extent(generate(make, TABLE.schema, rows=7)) == Extent(7, True, True)
    assert only_extent(generate(make, TABLE.schema)) == Extent(None, True, True)


def test_a_source_need_not_tell_anything():
    class Silent(Source):
        schema, bounded, order = TABLE.schema, True, "row"

        def parts(self):
            return ("a",)

        def read(self, part, start, rows):
            return None

    assert only_extent(Silent()) == Extent()


def test_a_stamped_source_passes_on_only_what_is_sure(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    assert only_extent(stamped(memory(TABLE), lambda: 0)) == Extent(1000, True, True)
    assert only_extent(stamped(files(tmp_path), lambda: 0)) == Extent()
