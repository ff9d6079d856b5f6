"""`anabranch run APP` and `anabranch data APP`: settings, files by source, what is said."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.apps import APPS
from anabranch.io import files, read_back
from anabranch.operators.base import Counters
from anabranch.view.outcome import in_words, set_aside


@pytest.fixture
def trades(command_line, tmp_path):
    """Files with rows of both sources of the band join, some of them bad."""
    for source in ("r", "s"):
        made = command_line(
            "data",
            "band-join",
            *("--source", source, "--rows", "400", "--set", "largest=60"),
            *("--out", str(tmp_path / f"{source}.csv")),
        )
        assert made.out == f"400 rows of {source!r} are in {tmp_path / f'{source}.csv'}\n"
    with (tmp_path / "r.csv").open("a") as file:
        file.write("no time,1,2\n,1,2\n7\n")
    return tmp_path


def test_an_application_runs_on_files_by_source_and_says_which_rows_were_bad(command_line, trades):
    ran = command_line(
        "run", "band-join", "--engine", "local", "--policy", "none",
        *("--input", f"r={trades}/r.csv", "--input", f"s={trades}/s.csv"),
    )  # fmt: skip
    same = command_line(
        "run", "band-join", "--engine", "local", "--policy", "none",
        *("--set", "rows=400", "--set", "largest=60"),
    )  # fmt: skip
    pairs = ran.out.splitlines()[:6]
    assert pairs == same.out.splitlines()[:6]
    assert len(pairs) == 6, "there are pairs"
    assert "3 rows malformed or not to be worked on at 'r.parse'" in ran.out
    assert "malformed" not in same.out


def test_bad_rows_are_counted_for_programs_and_kept(command_line, trades):
    ran = command_line(
        "run", "band-join", "--engine", "local", "--json", "--out", str(trades / "out"),
        *("--input", f"r={trades}/r.csv", "--input", f"s={trades}/s.csv"),
    )  # fmt: skip
    told = json.loads(ran.out)
    assert (told["skipped"], told["late"]) == ({"r.parse": 3}, {})
    lines = read_back(trades / "out" / "_set_aside" / "r.bad")["line"].to_pylist()
    assert lines == ["no time,1,2", ",1,2", "7"]


TIMES = ["12:00:00", "12:00:40", "12:00:37", "12:00:02.5", "12:00:39"]


def late_bids(folder: Path, times: list[str]) -> str:
    """Write a file with bids at some times of a day."""
    path = folder / "bids.csv"
    rows = [f"{n},1,100,2026-01-01 {time}" for n, time in enumerate(times)]
    path.write_text("\n".join(["auction,bidder,price,dateTime", *rows]) + "\n")
    return str(path)


@pytest.mark.parametrize(
    ("times", "settings", "says"),
    [
        (TIMES, [], "1 row was late at 'bid.time': lateness=4 s decides, the furthest was 37.5 s "),
        (
            TIMES,
            ["--set", "lateness=0.25"],
            "3 rows were late at 'bid.time': lateness=0.25 s decides, the furthest was 37.5 s beh",
        ),
        (
            ["12:00:00", "12:00:01", "12:00:02"],
            ["--set", "lateness=0"],
            None,
        ),
    ],
)
def test_late_rows_say_which_setting_decides_and_how_far_behind_they_were(
    command_line, tmp_path, times, settings, says
):
    path = late_bids(tmp_path, times)
    ran = command_line("run", "nexmark-q11", "--engine", "local", "--input", path, *settings)
    found = [line.strip() for line in ran.out.splitlines() if " late " in line]
    assert found == [line for line in found if line.startswith(str(says))]
    assert len(found) == (says is not None)


def test_late_rows_say_it_to_programs_apart_by_the_setting_that_decided(command_line, tmp_path):
    path = late_bids(tmp_path, TIMES)
    with open(path, "a") as file:
        file.write("9,1,100,2099-01-01 00:00:00\n9,1,100,0001-01-01 00:00:00\n")
    ran = command_line("run", "nexmark-q11", "--engine", "local", "--json", "--input", path)
    told = json.loads(ran.out)
    assert told["late"] == {"bid.time": 3}
    behind = {"rows": 1, "setting": "lateness", "value": 4.0, "most_behind": 37.5}
    ahead = {"rows": 1, "setting": "ahead", "value": 365 * 86_400.0, "most_behind": None}
    outside = {"rows": 1, "setting": None, "value": None, "most_behind": None}
    assert told["set_aside"] == [
        {"step": "bid.time", "unit": "s", **behind},
        {"step": "bid.time", "unit": "s", **ahead},
        {"step": "bid.time", "unit": "s", **outside},
    ]


@pytest.mark.parametrize("ahead", [None, timedelta(days=365)])
def test_no_setting_decides_about_a_time_that_no_clock_takes(ahead):
    flow = ab.Flow("f")
    rows = [{"at": datetime(2026, 1, 1)}, {"at": datetime(1, 1, 1)}, {"at": datetime(2026, 1, 2)}]
    flow.source("s", ab.memory(rows), time="at", ahead=ahead).sink("out", ab.collect())
    result = ab.run(flow, engine="local", policy="none")
    assert (
        "  1 row was set aside at 's.time' for a reason other than lateness and ahead, such as a "
        "time outside of the years 2 to 9998\n"
    ) in in_words(result, flow)


def test_the_reason_of_rows_that_were_counted_without_one_is_not_made_up():
    flow = ab.Flow("f")
    rows = ab.memory([{"at": 1}])
    flow.source("s", rows, time="at", lateness=2, ahead=3).sink("out", ab.collect())
    result = ab.run(flow, engine="local", policy="none")
    kept = Counters.of({"skipped": 0, "late": 5})  # as an earlier version left it in a checkpoint
    result = replace(
        result, late={"s.time": kept.late}, behind={"s.time": 1}, most_behind={"s.time": 3}
    )
    assert list(map(str, set_aside(flow, result))) == [
        "1 row was late at 's.time': lateness=2 decides, the furthest was 3 behind",
        "4 rows were set aside at 's.time' for a reason other than lateness and ahead",
    ]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--set", "rows=many"], "expected rows: a value such as 50000, got 'many'"),
        (["--set", "rows=1.5"], "expected rows: a value such as 50000, got '1.5'"),
        (["--set", "paced=1"], "expected paced: a value such as False"),
        (["--set", "depth=3"], "expected --set NAME=VALUE with a name among ['input', 'rows'"),
        (["--set", "rows"], "expected --set NAME=VALUE"),
        (["--set", "window=long"], "window: a length of time in seconds, such as 300, got 'long'"),
        (["--set", "window=1e20"], "window: a length of time in seconds"),
        (["--input", "r.csv"], "expected files for each of ['r', 's'], got files without a name"),
        (["--input", "q=r.csv"], "give --input r=FILES --input s=FILES"),
    ],
)
def test_what_is_not_understood_is_said(command_line, given, says):
    ran = command_line("run", "band-join", "--engine", "local", *given)
    assert ran.code != 0
    assert says in ran.err


def test_data_are_refused_with_what_can_be_done(command_line, tmp_path):
    ran = command_line("data", "band-join", "--out", str(tmp_path / "r.csv"))
    assert "expected --source with one of ['r', 's']" in ran.err
    ran = command_line("data", "word-count", "--out", str(tmp_path / "lines.xml"))
    assert "expected a file that ends with one of" in ran.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("ending", ["txt", "csv", "jsonl", "log"])
def test_lines_are_written_as_lines_and_read_back(command_line, tmp_path, ending):
    path = tmp_path / f"lines.{ending}"
    command_line("data", "word-count", "--out", str(path), "--rows", "70", "--set", "seed=3")
    [part] = files(path, format="text").parts()
    read = files(path, format="text").read(part, 0, 100).batch
    generated = APPS["word-count"].build(seed=3).graph.steps["lines"].body.source
    assert read == generated.read("generated", 0, 70).batch


def test_a_folder_that_is_not_there_is_said(command_line, tmp_path):
    ran = command_line("data", "word-count", "--out", tmp_path / "no" / "lines.txt")
    assert ran.code == 2
    assert "expected a file that can be written, got No such file or directory" in ran.err


def test_settings_may_hold_several_values(command_line):
    ran = command_line(
        "check", "hashtag-sequences", "--cases", "1", "--rows", "30", "--processes", "0",
        *("--set", 'sequence=["wake", "world"]'),
    )  # fmt: skip
    assert "agree with the sequential run" in ran.out


def test_every_application_is_listed_with_what_it_does(command_line):
    lines = command_line("apps").out.splitlines()
    assert [line.split()[0] for line in lines] == sorted(APPS)
    assert all(len(line.split()) > 3 for line in lines)


@pytest.mark.parametrize("name", sorted(APPS))
def test_every_application_runs_by_its_name_and_says_what_it_found(command_line, monkeypatch, name):
    made = []
    summary = APPS[name].module.Summary
    monkeypatch.setattr(APPS[name].module, "Summary", lambda: made.append(summary()) or made[-1])
    ran = command_line("run", name, "--engine", "local", "--rows", "200")
    assert (ran.code, ran.err) == (0, "")
    [found] = made
    assert str(found).strip()
    assert ran.out.startswith(f"{found}\n")
    assert " rows a second" in ran.out


def test_an_application_is_told_of_with_what_its_files_need(command_line):
    told = command_line("apps", "finance").out
    assert "anabranch run finance --input trades='your/trades/*' --input quotes=" in told
    assert "  price   int32, in whole cents\n" in told
    told = command_line("apps", "spike-detection").out
    assert "  ts      timestamp[us], may be empty or missing\n" in told
    refused = command_line("apps", "fincance")
    assert (refused.code, "expected an application, got" in refused.err) == (2, True)


def test_an_application_is_described_with_its_results_and_settings(command_line):
    told = command_line("apps", "nexmark-q17").out
    assert "The average is a fraction of a cent; Flink's is cut to whole cents." in told
    assert "Results of windows (q5, q7, q8, q11, q12) tell" in told, "of all queries"
    assert "out: a changelog: the last row of each (auction, day) counts\n" in told
    assert "  avg_price   double\n" in told
    assert "  rows=3000000        How many events to generate, of which 2 %" in told
    assert "  lateness=4          How far out of order" in told
    assert "input=" not in told
    told = command_line("apps", "spike-detection").out
    assert "What\nis not a number, as from a broken sensor, leaves without an average" in told
    assert "changelog" not in told


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_times_of_any_unit_are_read_back_as_they_were(command_line, tmp_path, ending):
    path = tmp_path / f"bid.{ending}"
    command_line("data", "nexmark-q0", "--out", str(path), "--rows", "50")
    ran = command_line("run", "nexmark-q0", "--engine", "local", "--json", "--input", f"bid={path}")
    told = json.loads(ran.out)
    assert (told["rows_out"], told["skipped"]) == (50, {})
