"""What applications say of the files that they read, and whether such files are read."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pyarrow as pa
import pytest

from anabranch.apps import APPS
from anabranch.apps.kit.columns import NESTED_ROWS, ROWS, what_goes_in
from anabranch.cli.finding import find_flow
from anabranch.cli.writing import save
from anabranch.graph import Role
from anabranch.testing.sequential import run_sequential

HOOKS = Path(__file__).resolve().parents[2] / "docs" / "hooks"
PRINTED = re.compile(r"^anabranch run (\S+) (.*--input .*)$", re.MULTILINE)


def write_files(app, folder, ending):
    """The files that an application's page and its listing tell to give it."""
    flow = app.build(rows=20)
    sources = flow.names(Role.SOURCE)
    for source in sources:
        place = folder / "your" / (source if len(sources) > 1 else "files")
        place.mkdir(parents=True)
        save(flow.graph.steps[source].body.source, place / f"rows.{ending}", 20)


def inputs_of(command):
    words = shlex.split(command)
    return [words[n + 1] for n, word in enumerate(words) if word == "--input"]


@pytest.mark.parametrize("name", sorted(APPS))
def test_what_an_application_tells_to_run_on_files_runs_on_them(
    command_line, tmp_path, monkeypatch, name
):
    listed = command_line("apps", name).out
    [(called, options)] = PRINTED.findall(listed)
    write_files(APPS[name], tmp_path, "jsonl")
    monkeypatch.chdir(tmp_path)
    flow = find_flow(called, inputs_of(options))
    result = run_sequential(flow)
    read = {source: flow.graph.steps[source].body.source for source in flow.names(Role.SOURCE)}
    assert all(len(source.parts()) == 1 for source in read.values())
    # Generated logs and tweets have broken lines on purpose.
    if "syslog" not in listed and "JSON object" not in listed:
        assert not any(result.rows(sink) for sink in flow.names(Role.SINK) if ".bad" in sink)


def test_the_pages_print_commands_that_find_their_files(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(HOOKS))
    from application_pages import application_pages

    pages = {place: text for place, text in application_pages() if place.endswith(".md")}
    printed = [command for text in pages.values() for command in PRINTED.findall(text)]
    assert {name for name, _ in printed} == {app.name for app in APPS.values() if not app.given}
    for name, options in printed:
        (tmp_path / name).mkdir()
        write_files(APPS[name], tmp_path / name, "jsonl")
        monkeypatch.chdir(tmp_path / name)
        assert find_flow(name, inputs_of(options)).names(Role.SOURCE)
    assert "| `price` | `int32` | yes | in whole cents |" in pages["apps/finance.md"]
    assert (
        "Files for the source `RawLines`: text, each line a syslog line."
        in pages["apps/log-watch.md"]
    )


def test_columns_are_told_with_what_they_need():
    [trades, quotes] = what_goes_in(APPS["finance"].build(rows=1))
    assert (trades.source, trades.form, quotes.source) == ("trades", ROWS, "quotes")
    assert [tuple(column) for column in trades.columns if column.name in ("ts", "price")] == [
        ("ts", "timestamp[us]", True, ""),
        ("price", "int32", True, "in whole cents"),
    ]
    [tweets] = what_goes_in(APPS["hashtag-sequences"].build(rows=1))
    assert (tweets.form, [column.required for column in tweets.columns]) == (
        NESTED_ROWS,
        [True, False],
    )
    [tweets] = what_goes_in(APPS["sentiment"].build(rows=1))
    assert tweets.form == "text, each line a JSON object"
    assert {column.name: column.required for column in tweets.columns} == {
        "created_at": True,
        "text": True,
        "user": False,
    }
    [lines] = what_goes_in(APPS["network-monitoring"].build(rows=1))
    assert tuple(lines) == ("lines", "text, each line a syslog line", ())
    [lines] = what_goes_in(APPS["word-count"].build(rows=1))
    assert tuple(lines) == ("lines", "text", ())


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_a_price_in_dollars_is_told_to_be_in_cents(tmp_path, ending):
    write_files(APPS["finance"], tmp_path, ending)
    path = tmp_path / "your" / "trades" / f"rows.{ending}"
    at = pa.array(["2024-01-02 09:30:00"])
    row = pa.table({"ts": at, "ticker": ["A"], "price": [101.25], "volume": [1]})
    if ending == "parquet":
        pa.parquet.write_table(row, path)
    elif ending == "csv":
        pa.csv.write_csv(row, path)
    else:
        path.write_text('{"ts":"2024-01-02","ticker":"A","price":101.25,"volume":1}\n')
    quotes = str(tmp_path / "your" / "quotes")
    flow = APPS["finance"].build(input={"trades": str(path), "quotes": quotes})
    [bad] = run_sequential(flow).rows("trades.bad")
    shown = "'101.25'" if ending == "csv" else "101.25"
    assert bad["error"] == f"no int32 in 'price' (in whole cents): {shown}"
