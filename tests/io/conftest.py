import json

import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from tests.io.reading import LINES, NUMBERS


@pytest.fixture(scope="module")
def small_blocks():
    """Blocks of about 30 rows, so that a thousand rows have many borders."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("csv", "jsonl", "text"):
            patch.setattr(f"anabranch.io.formats.{module}.BLOCK_BYTES", 1000)
        patch.setattr("anabranch.io.formats.parquet.BLOCK_ROWS", 30)
        yield


def write_jsonl(table, path):
    path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))


@pytest.fixture(scope="module")
def example_files(tmp_path_factory, small_blocks):
    """For each format a folder with the same thousand rows in two files, and what they hold."""
    folder = tmp_path_factory.mktemp("formats")
    halves = {"a": NUMBERS.slice(0, 613), "b": NUMBERS.slice(613)}
    for name, half in halves.items():
        pq.write_table(half, folder / f"{name}.parquet", row_group_size=100)
        pa_csv.write_csv(half, folder / f"{name}.csv")
        write_jsonl(half, folder / f"{name}.jsonl")
    (folder / "a.txt").write_text("\n".join(LINES[:613]) + "\n")
    (folder / "b.txt").write_text("\n".join(LINES[613:]))
    return folder
