"""`anabranch replay`: files into a real stream, and what it refuses."""

from __future__ import annotations

import json
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.io import redis_stream
from tests.io.redis_server import redis_server, stream

__all__ = ["redis_server", "stream"]


@pytest.fixture
def replay(command_line):
    return partial(command_line, "replay")


@pytest.mark.parametrize("format", ["fields", "json"])
def test_a_file_is_read_back_from_the_stream_to_its_end(
    replay, redis_server, stream, tmp_path, format
):
    table = pa.table({"word": ["to", None, "be"] * 50, "n": list(range(150))})
    pq.write_table(table, tmp_path / "rows.parquet")
    where = ["--to", redis_server.url, "--stream", stream, "--format", format]
    ran = replay(tmp_path / "rows.parquet", *where, "--rate", 5000, "--end")
    assert (ran.code, ran.err) == (0, "")
    assert f"150 rows into stream {stream!r} in " in ran.out
    assert "from 0 s: 5,000 rows/s asked for" in ran.out
    source = redis_stream(redis_server.url, stream, table.schema, format)
    assert pa.Table.from_batches([source.read(stream, 0, 1000).batch]) == table
    assert source.read(stream, 150, 1) is None


def test_what_was_reached_is_told_step_by_step(replay, redis_server, stream, tmp_path):
    (tmp_path / "lines.txt").write_text("to be\nor not\n")
    ran = replay(
        tmp_path / "lines.txt",
        *("--to", redis_server.url, "--stream", stream, "--repeat", "--json"),
        *("--steps", "0:100, 0.2:1000", "--rows", 120, "--keep", 10),
    )
    told = json.loads(ran.out)
    assert told["rows"] == sum(step["rows"] for step in told["steps"]) == 120
    assert [step["asked_per_s"] for step in told["steps"]] == [100, 1000]
    assert redis_server.client.xinfo_stream(stream)["entries-added"] == 120


REFUSED = {
    (): "--rate or --steps",
    ("--rate", "5", "--steps", "0:5"): "--rate or --steps",
    ("--steps", "5:1"): "from second 0 on",
    ("--rate", "5", "--format", "xml"): "fields, json",
    ("--rate", "5"): "no file that matches",
}


@pytest.mark.parametrize("arguments", REFUSED, ids=" ".join)
def test_what_cannot_be_replayed_is_refused(replay, arguments, tmp_path):
    ran = replay(tmp_path / "none.txt", "--to", "redis://nowhere", "--stream", "s", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert REFUSED[arguments] in " ".join(ran.err.split())
