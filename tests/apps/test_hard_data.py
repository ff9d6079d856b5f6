"""What every application does with files that are empty, broken, or of an impossible time."""

from __future__ import annotations

import json
from functools import cache

import pyarrow as pa
import pytest

from anabranch.apps import APPS
from anabranch.flow import Flow
from anabranch.operators.timed import Timed
from anabranch.testing.checking import Recording
from anabranch.testing.sequential import run_sequential
from tests.apps.cases import EVERYTHING, cases
from tests.sampling import few

ANY_TEXT_WILL_DO = {"word-count", "synthetic-word-count"}
BROKEN = ["}{", "no such row", '"1', "\t,,,,,,,,,,", "[]", "9999"]
BROKEN_LINES = {"network-monitoring": ["Failed password for", "Mar 99 Failed password for a b"]}
"""Where most lines are somebody else's, those that are bad all the same."""

TIMES = {"future": "9999-12-31 23:59:59", "past": "1900-01-01 00:00:00"}
SECONDS = {"future": 2**31 - 1, "past": -(2**31)}
"""Where times are seconds of a simulation."""

_BREAK_IN = "{} web sshd[7]: Failed password for root from 192.0.2.7 port 4 ssh2"
_BREAK_INS = {when: _BREAK_IN.format(f"{t.replace(' ', 'T')}Z") for when, t in TIMES.items()}
_TWEETS = {"future": "Fri Dec 31 23:59:59 +0000 9999", "past": "Mon Jan 01 00:00:00 +0000 1900"}
WRONG_LINES = {
    "log-watch": _BREAK_INS,
    "network-monitoring": _BREAK_INS,
    "sentiment": {
        when: json.dumps({"created_at": time, "text": "this is #tomorrow"})
        for when, time in _TWEETS.items()
    },
}
"""Where rows are texts, one whose time is far from all others."""

PLACES = {"first": lambda rows: 0, "middle": lambda rows: rows // 2, "last": lambda rows: rows}

WITH_FILES = [name for name in cases() if "input" in APPS[name].parameters]


@cache
def generated(name: str) -> Flow:
    """The application on its own data, held in memory."""
    flow = APPS[name].build(**cases()[name].small)
    return Recording.of(flow, EVERYTHING).feed(flow)


@cache
def lines_of(name: str) -> dict[str, list[str]]:
    """Its data as lines of files, by source."""
    flow = APPS[name].build(**cases()[name].small)
    return {source: to_lines(t) for source, t in Recording.of(flow, EVERYTHING).tables.items()}


def to_lines(table: pa.Table) -> list[str]:
    if is_text(table.schema):
        return table["line"].to_pylist()
    for place, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(place, field.name, table[field.name].cast(pa.string()))
    return [json.dumps(row) for row in table.to_pylist()]


def is_text(schema: pa.Schema) -> bool:
    return schema.names == ["line"]


def clocked(name: str) -> dict[str, set[str]]:
    """The sources that hold event times, and in which columns; none where it is the whole line."""
    steps = [step.body for step in generated(name).graph.steps.values()]
    columns = {body.column for body in steps if isinstance(body, Timed)}
    schemas = {s: generated(name).graph.steps[s].body.source.schema for s in lines_of(name)}
    if not columns:
        return {}
    return {
        source: columns & set(schema.names)
        for source, schema in schemas.items()
        if is_text(schema) or columns & set(schema.names)
    }


def reading(name: str, folder, lines: dict[str, list[str]]) -> Flow:
    """The application on files with these lines, by source."""
    paths = {}
    for source, each in lines.items():
        text = is_text(generated(name).graph.steps[source].body.source.schema)
        path = folder / f"{source}.{'txt' if text else 'jsonl'}"
        path.write_text("".join(f"{line}\n" for line in each), encoding="utf-8")
        paths[source] = str(path)
    config = {k: v for k, v in cases()[name].small.items() if k != "rows"}
    given = paths if len(paths) > 1 else next(iter(paths.values()))
    return APPS[name].build(**config, input=given)


def with_a_wrong_time(
    name: str, times: set[str], lines: list[str], when: str, place: str
) -> list[str]:
    """The lines, and at some place one whose time is far from all others."""
    number = PLACES[place](len(lines))
    if times:
        old = json.loads(lines[min(number, len(lines) - 1)])
        wrong = {each: (SECONDS if isinstance(old[each], int) else TIMES)[when] for each in times}
        row = json.dumps({**old, **wrong})
    else:
        row = WRONG_LINES[name][when]
    return [*lines[:number], row, *lines[number:]]


def counted(result, what: str) -> int:
    return sum(getattr(counters, what) for counters in result.counters.values())


@pytest.mark.parametrize("name", WITH_FILES)
def test_an_empty_file_gives_nothing_and_says_so(name, tmp_path):
    result = run_sequential(reading(name, tmp_path, {source: [] for source in lines_of(name)}))
    assert [sink for sink, table in result.outputs.items() if table.num_rows] == []
    assert str(APPS[name].module.Summary.of(result.outputs)).strip()


@pytest.mark.parametrize("name", [n for n in WITH_FILES if n not in ANY_TEXT_WILL_DO])
def test_rows_that_are_all_broken_are_all_counted(name, tmp_path):
    broken = BROKEN_LINES.get(name, BROKEN)
    result = run_sequential(reading(name, tmp_path, dict.fromkeys(lines_of(name), broken)))
    bad = [table for sink, table in result.outputs.items() if sink.endswith(".bad")]
    assert result.outputs["out"].num_rows == 0
    assert counted(result, "skipped") == len(lines_of(name)) * len(broken)
    assert sum(table.num_rows for table in bad) == counted(result, "skipped")
    assert str(APPS[name].module.Summary.of(result.outputs)).strip()


@cache
def expected(name: str):
    return run_sequential(generated(name))


@pytest.mark.parametrize("place", few(PLACES, 1))
@pytest.mark.parametrize("when", TIMES)
@pytest.mark.parametrize("name", [n for n in WITH_FILES if clocked(n)])
def test_a_row_of_a_wrong_time_harms_no_other(name, when, place, tmp_path):
    clocks = clocked(name)
    lines = {
        source: with_a_wrong_time(name, clocks[source], each, when, place)
        if source in clocks
        else each
        for source, each in lines_of(name).items()
    }
    result = run_sequential(reading(name, tmp_path, lines))
    assert expected(name).outputs["out"].num_rows >= 3
    assert result.rows("out") == expected(name).rows("out")
    assert counted(result, "late") == counted(expected(name), "late") + len(clocks)
