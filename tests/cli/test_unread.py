"""`anabranch run` on files of which rows cannot be read: why, where, and with which exit code."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import pyarrow.compute as pc
import pytest

import anabranch as ab
from anabranch.cli.results import unread
from anabranch.engines.handle import Result
from anabranch.engines.skipped_rows import skipped_row
from anabranch.events import SkippedRow
from anabranch.operators.base import SkippedAt

GOOD = '{"auction": 1, "bidder": 2, "price": 3, "dateTime": "2020-01-01 00:00:00"}'
STRANGE = {
    "snake case": (
        '{"auction_id": 1, "bidder": 2, "price": 3, "date_time": "2020-01-01 00:00:00"}',
        "no value for 'auction'",
    ),
    "epoch milliseconds": (
        '{"auction": 1, "bidder": 2, "price": 3, "dateTime": 1577836800000}',
        "no timestamp[ms] in 'dateTime': 1577836800000",
    ),
    "numbers as texts": (GOOD.replace("1,", '"1",', 1), "no int64 in 'auction': '1'"),
    "an array": (f"[{GOOD}]", "no JSON object, but an array"),
    "nested": (f'{{"bid": {GOOD}}}', "no value for 'auction'"),
}
FILES = {"bid": "bid.jsonl", "auction": "auction.csv"}
AUCTION = "id,itemName,description,initialBid,reserve,dateTime,expires,seller,category,extra"
OWN = """
import anabranch as ab


def build(input):
    flow = ab.Flow("own")
    lines = flow.source("lines", ab.files(input, format="text"))
    parse = ab.parse_json("line", out="n: int64", on_error="skip")
    lines.apply("parse", parse).sink("out", ab.collect())
    if BESIDE == "sink":
        lines.sink("raw", ab.collect())
    if BESIDE == "operator":
        lines.filter("some", lambda batch: [True] * batch.num_rows).sink("some.out", ab.collect())
    return flow
"""


@pytest.fixture
def run(command_line):
    return partial(command_line, "run")


@pytest.fixture
def bids(run, tmp_path):
    """Runs a query of NEXMark on lines."""

    def called(lines, *options):
        file = tmp_path / "bids.jsonl"
        file.write_text("".join(f"{line}\n" for line in lines))
        return run("nexmark-q0", "--engine", "local", "--policy", "none", "--input", file, *options)

    return called


@pytest.mark.parametrize(("line", "why"), STRANGE.values(), ids=STRANGE)
def test_a_file_without_a_readable_row_ends_with_an_error_and_the_first_reason(
    bids, line, why, tmp_path
):
    ran = bids([line, line])
    assert ran.code == 1
    assert ran.err.splitlines()[-1] == (
        "error: step 'bid': expected rows that can be read, got 2 rows, all of which were set "
        f"aside at 'bid.parse'; the first is {tmp_path / 'bids.jsonl'}:1, {shown(ran, why)}; "
        "`anabranch apps nexmark-q0` lists the columns and types that it reads"
    )
    assert f"the first at 'bid.parse' is {tmp_path / 'bids.jsonl'}:1, {why}" in ran.out
    assert line[:40] in ran.out


def shown(ran, why):
    """The whole of a reason that is known by its beginning."""
    return why + ran.err.splitlines()[-1].partition(why)[2].partition(";")[0]


def test_some_bad_rows_are_told_with_the_first_of_them_and_are_no_error(bids, tmp_path):
    ran = bids([GOOD, "", "x" * 1000, GOOD, "{}"])
    assert ran.code == 0
    [line] = [line for line in ran.out.splitlines() if "the first" in line]
    assert f"is {tmp_path / 'bids.jsonl'}:3, no JSON object: xxx" in line
    assert line.endswith("x…")
    assert len(line) < 300


def test_programs_get_the_first_reason_and_the_sources_that_could_not_be_read(bids, tmp_path):
    told = json.loads(bids(["{}", "[]"], "--json").out)
    assert told["unread"] == ["bid"]
    assert told["first_skipped"] == {
        "bid.parse": {
            "source": "bid",
            "part": str(tmp_path / "bids.jsonl"),
            "row": 1,
            "why": "no value for 'auction'",
            "text": "{}",
        }
    }
    told = json.loads(bids([GOOD, "{}"], "--json").out)
    assert (told["unread"], told["first_skipped"]["bid.parse"]["row"]) == ([], 2)
    assert json.loads(bids([GOOD], "--json").out)["first_skipped"] == {}


def test_one_of_two_sources_is_enough(run, tmp_path):
    (tmp_path / "bid.jsonl").write_text(f"{GOOD}\n")
    (tmp_path / "auction.csv").write_text("id,itemName\n1,a\n")
    files = [f"--input={name}={tmp_path / file}" for name, file in FILES.items()]
    ran = run("nexmark-q4", "--engine", "local", "--policy", "none", *files)
    assert ran.code == 2  # a header without the columns is told before anything is read
    (tmp_path / "auction.csv").write_text(f"{AUCTION}\n{'x,' * 9}x\n")
    ran = run("nexmark-q4", "--engine", "local", "--policy", "none", *files)
    assert ran.code == 1
    assert "step 'auction'" in ran.err
    assert f"{tmp_path / 'auction.csv'}:2" in ran.err  # the line, with that of the names
    assert "step 'bid'" not in ran.err


@pytest.mark.parametrize(("beside", "code"), [("nothing", 1), ("sink", 1), ("operator", 0)])
def test_rows_that_another_operator_takes_were_not_all_set_aside(run, tmp_path, beside, code):
    module = tmp_path / f"own_beside_{beside}.py"
    module.write_text(OWN.replace("BESIDE", repr(beside)))
    (tmp_path / "lines.txt").write_text("a\nb\n")
    given = (f"{module}:build", "--input", tmp_path / "lines.txt")
    ran = run(*given, "--engine", "local", "--policy", "none")
    assert ran.code == code, ran.err
    assert "lines.txt:1, no JSON object: a" in ran.out


def parsed(stream):
    return stream.apply("parse", ab.parse_json("line", out="n: int64", on_error="side"))


@ab.stateful(out="n: int64", on_error="skip")
def refusing(ctx):
    for _ in ctx.tuples():
        raise ValueError("no")


@pytest.mark.parametrize(
    "after",
    [
        lambda lines: parsed(lines.filter("bad", lambda batch: pc.equal(batch["line"], "x"))),
        lambda lines: lines.aggregate("all", emit="final", n=ab.count()).apply(
            "refusing", refusing
        ),
        lambda lines: lines.flat_map(
            "none", lambda row: [] * int(row["line"]), out="n: int64", on_error="skip"
        ),
    ],
    ids=["a filter before it", "an aggregate before it", "a step that drops the others"],
)
def test_a_source_of_which_rows_were_read_is_no_error(after):
    flow = lines_of(["1", "2", "x"], after)
    result = ab.run(flow, engine="local", policy="none")
    assert (list(result.skipped.values()), unread(flow, result)) == ([1], {})


def test_what_earlier_runs_have_read_is_not_known_after_a_checkpoint(tmp_path):
    flow = lines_of(["x", "y"], parsed)
    first = ab.run(flow, engine="local", policy="none", checkpoint=tmp_path)
    again = ab.run(flow, engine="local", policy="none", checkpoint=tmp_path)
    assert (first.resumed, unread(flow, first)) == (False, {"lines": "parse"})
    assert (again.resumed, unread(flow, replace(first, resumed=True))) == (True, {})


def lines_of(lines, after):
    flow = ab.Flow("own")
    given = flow.source("lines", ab.memory([{"line": line} for line in lines]))
    after(given).sink("out", ab.collect())
    return flow


def test_a_file_without_rows_is_no_error(bids):
    assert bids([]).code == 0


def test_what_a_timer_set_aside_has_no_place(flow_of_two_parts):
    at = SkippedAt(-1, 0, "ValueError: no", "timer of key 'a'")
    assert skipped_row(flow_of_two_parts, at) == SkippedRow("", "", 0, at.why, at.text)


def test_the_first_row_is_the_first_in_the_order_of_files(flow_of_two_parts, tmp_path):
    result = run_local(flow_of_two_parts)
    first = result.first_skipped["parse"]
    assert (first.part, first.row, first.text) == (str(tmp_path / "a.txt"), 2, "bad a")
    assert result.skipped == {"parse": 2}


def run_local(flow) -> Result:
    plan = ab.plan(flow).with_source("lines", replicas=2).with_replicas("parse", 2)
    return ab.run(flow, engine="local", plan=plan)


@pytest.fixture
def flow_of_two_parts(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(f'{{"n": 1}}\nbad {name}\n')
    flow = ab.Flow("parts")
    lines = flow.source("lines", ab.files(tmp_path / "*.txt"))
    parse = ab.parse_json("line", out="n: int64", on_error="skip")
    lines.apply("parse", parse).sink("out", ab.collect())
    return flow
