"""Lines of files that are blank, torn or wrong: passed over, or told in one form of words."""

from __future__ import annotations

import pyarrow as pa
import pytest

from anabranch.columns.schemas import schema
from anabranch.columns.text_parsers import Csv, Json
from anabranch.flow import Flow
from anabranch.io import collect, files
from anabranch.operators.parsing.parse import parse_csv, parse_json
from anabranch.testing.sequential import run_sequential
from tests.operators.driving_ports import drive, simple
from tests.operators.small_flows import agreed

COLUMNS = "t: timestamp[us], n: int64, f: double, b: bool, d: date32, u: uint8"
GOOD_CSV = ["2024-01-02", "1", "1.5", "true", "2024-01-02", "7"]


def lines_of(tmp_path, operator, text: str) -> Flow:
    """A flow that reads a file line by line."""
    path = tmp_path / "lines.txt"
    path.write_bytes(text.encode())
    flow = Flow("lines", buckets=4)
    made = flow.source("lines", files(path, format="text")).apply("parse", operator)
    made.sink("out", collect())
    if "errors" in operator.out_ports:
        made.errors.sink("errors", collect())
    return flow


@pytest.mark.parametrize("policy", ["fail", "skip", "side"])
@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_csv, "\n1,x\n\n2,y\n   \n\r\n3,z\n\n"),
        (parse_json, '\n{"a":1,"b":"x"}\n\n{"a":2,"b":"y"}\n  \n\r\n{"a":3,"b":"z"}\n\n'),
    ],
)
def test_blank_lines_are_no_rows(tmp_path, parse, text, policy):
    flow = lines_of(tmp_path, parse("line", "a: int64, b: string", on_error=policy), text)
    result = agreed(flow)
    assert [(row["a"], row["b"]) for row in result.rows("out")] == [(1, "x"), (2, "y"), (3, "z")]
    assert result.counters["parse"].skipped == 0
    assert policy != "side" or result.rows("errors") == []


def test_nothing_but_blank_lines_is_nothing(tmp_path):
    flow = lines_of(tmp_path, parse_json("line", "a: int64", on_error="side"), "\n\n \n")
    result = agreed(flow)
    assert (result.rows("out"), result.rows("errors")) == ([], [])


def test_a_blank_line_is_an_empty_field_where_there_is_one_column(tmp_path):
    flow = lines_of(tmp_path, parse_csv("line", "a: int64"), "1\n\n2\n")
    assert [row["a"] for row in run_sequential(flow).rows("out")] == [1, None, 2]


def test_a_line_of_separators_is_a_record(tmp_path):
    tabs = parse_csv("line", "a: int64, b: string", separator="\t")
    flow = lines_of(tmp_path, tabs, "1\tx\n\t\n")
    assert run_sequential(flow).rows("out") == [{"a": 1, "b": "x"}, {"a": None, "b": ""}]


@pytest.mark.parametrize("parse", [parse_csv, parse_json])
def test_a_blank_text_beside_other_columns_is_bad(parse):
    given = pa.schema([("line", pa.string()), ("n", pa.int64())])
    ran = drive(
        parse("line", "a: int64, b: string", on_error="side"), [simple(given, [("", 7), (None, 8)])]
    )
    assert [row["n"] for row in ran.rows(1)] == [7, 8]


def test_a_record_of_several_lines_says_why_it_is_bad(tmp_path):
    operator = parse_csv("line", "a: int64, b: string, c: int64", on_error="side")
    result = agreed(lines_of(tmp_path, operator, '1,x,1\n2,"y\nz",2\n3,x,3\n'))
    assert [row["a"] for row in result.rows("out")] == [1, 3]
    assert [row["error"] for row in result.rows("errors")] == [
        "a quoted field that goes on in the next line is not supported: '2,\"y'",
        "2 fields, not 3",
    ]


def test_quotes_that_balance_are_not_called_torn():
    found = Csv(schema("a: int64, b: string"), ",").parse(pa.array(['1,"x"y']))
    assert found.bad == [(0, "no CSV record: '1,\"x\"y'")]


@pytest.mark.parametrize(
    ("place", "cell", "why"),
    [
        (0, "2024-02-31", "no timestamp[us] in 't': '2024-02-31'"),
        (0, "x", "no timestamp[us] in 't': 'x'"),
        (1, "9" * 20, f"no int64 in 'n': '{'9' * 20}'"),
        (1, "+1", "no int64 in 'n': '+1'"),
        (1, "x", "no int64 in 'n': 'x'"),
        (2, "1.5.5", "no double in 'f': '1.5.5'"),
        (3, "maybe", "no bool in 'b': 'maybe'"),
        (4, "2024-02-31", "no date32[day] in 'd': '2024-02-31'"),
        (5, "300", "no uint8 in 'u': '300'"),
    ],
)
def test_wrong_fields_of_records_are_told_alike(place, cell, why):
    good = ",".join(GOOD_CSV)
    bad = ",".join([*GOOD_CSV[:place], cell, *GOOD_CSV[place + 1 :]])
    found = Csv(schema(COLUMNS), ",").parse(pa.array([good, bad, good, bad]))
    assert found.rows.tolist() == [0, 2]
    assert found.bad == [(1, why), (3, why)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"t": "2024-02-31"}', "no timestamp[us] in 't': '2024-02-31'"),
        ('{"n": 1.5}', "no int64 in 'n': 1.5"),
        ('{"n": "x"}', "no int64 in 'n': 'x'"),
        ('{"u": 300}', "no uint8 in 'u': 300"),
        ('{"n": 1', "no JSON object"),
        ('{"f": 1e400}', "no JSON object: JSON parse error: Number too big"),
    ],
)
def test_wrong_fields_of_objects_are_told_alike(text, why):
    found = Json(schema("t: timestamp[us], n: int64, f: double, u: uint8")).parse(
        pa.array(['{"n": 1}', text, '{"n": 2}'])
    )
    assert found.rows.tolist() == [0, 2]
    [(row, said)] = found.bad
    assert row == 1
    assert said.startswith(why)


def test_numbers_that_python_does_not_read_are_told_too():
    digits = "9" * 5000
    text = f'{{"n": {digits}}}'
    found = Json(schema("n: int64")).parse(pa.array([text]))
    [(_, said)] = found.bad
    assert said.startswith(("no int64 in 'n': ", "no JSON object"))
    assert len(said) < 200
