"""`anabranch run --out`: results and rows that were set aside lie where nobody mixes them up."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow.dataset as ds
import pytest

import anabranch as ab
from anabranch.cli.results import result_folders
from anabranch.io.reading_back import read_back
from tests.engines.spark.conftest import spark

__all__ = ["spark"]  # a fixture: one session for all tests of a worker

HEADER = "auction,bidder,price,dateTime\n"
BIDS = (
    "1,1,100,2020-01-01 00:00:01\n"
    "1,2,200,2020-01-01 00:00:09\n"
    "not a bid\n"
    "1,3,300,2020-01-01 00:00:30\n"
    "1,4,400,2020-01-01 00:00:02\n"  # late
)
COLUMNS = {"auction", "price", "bidder", "dateTime", "extra"}


@pytest.fixture
def bids(command_line, tmp_path):
    """Runs a query of NEXMark with a result, late rows and bad ones; gives the folder."""

    def called(rows=BIDS, *options):
        (tmp_path / "bids.csv").write_text(HEADER + rows)
        files = ("--input", tmp_path / "bids.csv", "--out", tmp_path / "out")
        ran = command_line(
            "run", "nexmark-q7", "--engine", "local", "--policy", "none", *files, *options
        )
        assert ran.code == 0, ran.err
        return tmp_path / "out"

    return called


def test_the_folder_is_the_result_and_nothing_else(bids):
    out = bids()
    assert pd.read_parquet(out)["price"].tolist() == [200, 300]
    assert ds.dataset(out).to_table()["price"].to_pylist() == [200, 300]
    assert read_back(out)["price"].to_pylist() == [200, 300]


def test_rows_that_are_set_aside_are_a_table_each(bids):
    aside = bids() / "_set_aside"
    assert sorted(path.name for path in aside.iterdir()) == ["bid.bad", "late"]
    assert pd.read_parquet(aside / "bid.bad")["line"].tolist() == ["not a bid"]
    assert pd.read_parquet(aside / "late")["price"].tolist() == [400]


def test_an_empty_result_has_its_columns(bids):
    out = bids("")
    for folder, more in ((out, {"window_end"}), (out / "_set_aside" / "late", set())):
        found = pd.read_parquet(folder)
        assert len(found) == 0
        assert set(found.columns) == COLUMNS | more


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_spark_reads_the_same(bids, spark):
    out = bids()
    rows = spark.read.parquet(str(out)).orderBy("price").collect()
    assert [row.price for row in rows] == [200, 300]
    late = spark.read.parquet(str(out / "_set_aside" / "late"))
    assert [row.price for row in late.collect()] == [400]
    empty = spark.read.parquet(str(bids("", "--overwrite")))
    assert (empty.count(), set(empty.columns)) == (0, COLUMNS | {"window_end"})


def test_earlier_results_are_replaced_where_that_is_asked_for(bids):
    bids()
    out = bids(BIDS.splitlines(keepends=True)[0], "--overwrite")
    assert pd.read_parquet(out)["price"].tolist() == [100]
    assert read_back(out / "_set_aside" / "late").num_rows == 0


@ab.map(out="ts: int64", on_error="side")
def same(batch):
    return {"ts": batch["ts"]}


def sinks(*ports):
    """A flow with a sink at each of some ports of a step."""
    flow = ab.Flow("sinks")
    timed = flow.source("s", ab.memory([{"ts": 1}]), time="ts", lateness=0)
    checked = timed.apply("checked", same)
    streams = {"out": checked, "more": checked, "late": timed.late, "errors": checked.errors}
    for port in ports:
        streams[port].sink(port, ab.collect())
    return flow


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        (["out"], {"out": "to"}),
        (["late"], {"late": "to"}),
        (["out", "more"], {"out": "to/out", "more": "to/more"}),
        (["out", "late"], {"out": "to", "late": "to/_set_aside/late"}),
        (
            ["out", "more", "errors"],
            {"out": "to/out", "more": "to/more", "errors": "to/_set_aside/errors"},
        ),
    ],
    ids=" ".join,
)
def test_where_sinks_write(ports, expected):
    found = result_folders(sinks(*ports), Path("to"), resumes=False)
    assert {sink: place.as_posix() for sink, place in found.items()} == expected


def test_a_run_that_goes_on_finds_the_output_of_earlier_versions(tmp_path):
    """In those every one of several sinks had a folder of its own name."""
    flow, checkpoint, out = sinks("out", "late"), tmp_path / "checkpoint", tmp_path / "out"
    old = {name: ab.parquet(out / name) for name in ("out", "late")}
    ab.run(flow.writing(old), engine="local", checkpoint=checkpoint)
    assert set(result_folders(flow, out, resumes=True).values()) == {out / "out", out / "late"}
    new = {name: ab.parquet(to) for name, to in result_folders(flow, out, resumes=True).items()}
    ab.run(flow.writing(new), engine="local", checkpoint=checkpoint)
    assert read_back(out / "out")["ts"].to_pylist() == [1]
