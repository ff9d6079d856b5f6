"""NEXMark's queries: late events, files, and what must not matter."""

from __future__ import annotations

import pytest

import anabranch as ab
from anabranch.apps.nexmark import QUERIES, Summary, build
from anabranch.cli.writing import save
from anabranch.errors import AnabranchError
from anabranch.graph import Role
from anabranch.testing.sequential import run_sequential
from tests.apps.nexmark_rows import ask, at, auction, bid, fed, found
from tests.sampling import thorough


def test_what_comes_too_late_goes_to_a_sink_of_its_own():
    bids = [bid(10), bid(6), bid(5.999, bidder=9)]
    result = run_sequential(fed("q11", bid=bids))
    assert found(result.rows("late"), "bidder") == [(9,)]
    assert found(result.rows("out"), "bid_count") == [(2,)]
    opened = [auction(10, 20), auction(0, 20, id=8)]
    result = run_sequential(fed("q4", auction=opened, bid=[bid(11)]))
    assert found(result.rows("auction.late"), "id") == [(8,)]
    assert result.rows("bid.late") == []


@thorough
@pytest.mark.parametrize("query", list(QUERIES))
def test_it_does_not_matter_how_a_query_is_run(query):
    report = ab.check(build(query=query, rows=5000, rate_per_s=20.0), cases=4, rows=50, processes=0)
    assert report.ok, report


@pytest.mark.parametrize("query", ["q4", "q5", "q7", "q11", "q17"])
def test_one_key_may_have_nearly_all_bids(query):
    bids = [bid(n / 10, n % 17, auction=7 if n % 10 else 8, bidder=n % 3) for n in range(80)]
    report = ab.check(fed(query, auction=[auction(0, 9)], bid=bids), cases=6, processes=0)
    assert report.ok, report


FORMATS = {"q0": "csv", "q3": "jsonl", "q5": "parquet", "q9": "csv", "q18": "jsonl"}


def written(flow, folder, suffix):
    """The rows of every source of a flow, as files."""
    paths = {}
    for name in flow.names(Role.SOURCE):
        paths[name] = folder / f"{name}.{suffix}"
        save(flow.graph.steps[name].body.source, paths[name], rows=10**6)
    return paths


@pytest.mark.parametrize(("query", "suffix"), FORMATS.items())
def test_files_of_the_same_events_give_the_same_result(query, suffix, tmp_path):
    generated = build(query=query, rows=2000 if query == "q3" else 300, rate_per_s=20.0)
    paths = written(generated, tmp_path, suffix)
    read = run_sequential(build(query=query, input=paths)).rows("out")
    assert read == run_sequential(generated).rows("out")
    assert read


def test_bids_alone_need_no_name(tmp_path):
    paths = written(build(query="q0", rows=100), tmp_path, "csv")
    read = run_sequential(build(query="q13", input=paths["bid"])).rows("out")
    assert len(read) == 92
    with pytest.raises(AnabranchError, match="--input auction=FILES --input bid=FILES"):
        build(query="q4", input=paths)


def test_malformed_rows_are_counted_and_kept(tmp_path):
    file = tmp_path / "bids.csv"
    lines = ["price,bidder,auction,dateTime", "5,1,7,2015-07-15T12:00:00.250", "6,1,,2015-07-15"]
    lines += ["much,1,7,2015-07-15", "8,1,7,yesterday", "9,1,7,2015-07-15T12:00:01"]
    file.write_text("\n".join(lines) + "\n")
    result = run_sequential(build(query="q13", input=file))
    assert found(result.rows("out"), "price", "value") == [(5, "7"), (9, "7")]
    assert [row["line"] for row in result.rows("bid.bad")] == lines[2:5]
    assert result.counters["bid.parse"].skipped == 3


@pytest.mark.parametrize("query", ["q0", "q5", "q18"])
def test_an_empty_file_has_no_results(query, tmp_path):
    file = tmp_path / "bids.jsonl"
    file.write_text("")
    result = run_sequential(build(query=query, input=file))
    assert result.rows("out") == []
    assert str(Summary.of(result.outputs)) == "0 results"


def test_texts_may_be_missing():
    rows = ask("q18", bid=[bid(1, channel=None, url="x"), bid(2, channel=None)])
    assert found(rows, "channel", "url")[-1] == (None, None), "not those of an earlier bid"
    assert ask("q3", person=[{"dateTime": at(0), "state": None}], auction=[auction(1, 2)]) == []
