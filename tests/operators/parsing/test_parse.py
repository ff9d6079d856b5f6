import csv
import json

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.columns.schemas import schema
from anabranch.columns.text_parsers import Csv, Json
from anabranch.errors import BuildError, OperatorError, SchemaError
from anabranch.graph import StreamType
from anabranch.operators.parsing.parse import parse_csv, parse_json
from tests.operators.driving_ports import ONE_THREAD, drive, simple, ways

LINES = pa.schema([("line", pa.string()), ("n", pa.int64())])
OUT = "a: int64, b: string, c: double, d: list<string>"

SCALAR = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-9, 9),
    st.floats(allow_nan=False, width=32),
    st.text('ab{}"\\\n, é', max_size=4),
)
VALUE = st.one_of(SCALAR, st.lists(SCALAR, max_size=2), st.dictionaries(st.just("q"), SCALAR))
OBJECT = st.dictionaries(st.sampled_from("abcdz"), VALUE, max_size=3).map(json.dumps)
FITTING = st.builds(
    lambda a, b, d: json.dumps({"a": a, "b": b, "d": d}),
    st.integers(-9, 9),
    st.text('x}{"', max_size=3),
    st.lists(st.text("y", max_size=2), max_size=2),
)
JUNK = st.text('{}[]":, ab1n\n', max_size=8)
JSON_LINE = st.one_of(
    FITTING,
    OBJECT,
    JUNK,
    st.none(),
    st.just("null"),
    st.tuples(OBJECT, st.sampled_from(["", " ", "\n", "null", ","]), OBJECT).map("".join),
    OBJECT.map(lambda text: text[:-1]),
    OBJECT.map(lambda text: f" \n{text}\r "),
)


def alone(operator, line):
    """What a line gives by itself: a row, or None when it is bad."""
    rows = drive(operator, [simple(LINES, [(line, 0)])]).rows()
    return repr(rows[0]) if rows else None


@given(st.lists(JSON_LINE, max_size=12), ways(2))
@example(['{"a": 1', "}", '{"a": 2} {"a": 3}', "", "{} null {}"], ONE_THREAD)
@example(['{"a": {"q": 1}', '}} {"a": 1}'], ONE_THREAD)
def test_json_lines_do_not_disturb_each_other(lines, way):
    operator = parse_json("line", OUT, on_error="side")
    ran = drive(operator, [simple(LINES, [(line, n) for n, line in enumerate(lines)])], way)
    found = {position[0]: repr(row) for position, row in ran.ports[0]}
    assert found == {n: row for n, line in enumerate(lines) if (row := alone(operator, line))}
    assert sorted([*found, *(r["n"] for r in ran.rows(1))]) == list(range(len(lines)))
    assert ran.counters.skipped == len(lines) - len(found)


@given(st.lists(FITTING, max_size=10))
def test_json_that_fits_says_what_python_reads(lines):
    ran = drive(parse_json("line", OUT), [simple(LINES, [(line, 0) for line in lines])])
    blank = {"a": None, "b": None, "c": None, "d": None}
    assert ran.rows() == [{**blank, **json.loads(line)} for line in lines]


@pytest.mark.parametrize(
    "line",
    [
        "",
        " ",
        "null",
        "5",
        "[1]",
        '{"a":1',
        '{"a":1}{"a":2}',
        '{"a":1} null',
        '{"a":"x"}',
        '{"a":1.5}',
        '{"a":1,"a":2}',
        None,
        "{} null {}",
    ],
)
def test_a_text_that_is_no_fitting_object_is_bad(line):
    ran = drive(parse_json("line", OUT, "side", keeps="n"), [simple(LINES, [(line, 7)])])
    assert ran.rows() == []
    assert [(r["line"], r["n"]) for r in ran.rows(1)] == [(line, 7)]


CELL = st.one_of(
    st.sampled_from(["", "1", "-5", "x", "a b", '"q"', '"a,b"', '"a""b"', '"a\nb"', 'x"y', "é"]),
    st.text('",ax1\r\n', max_size=4),
)
CSV_LINE = st.one_of(st.lists(CELL, max_size=4).map(",".join), st.none())


@given(st.lists(CSV_LINE, max_size=12), st.booleans(), ways(2))
@example(['1,x"y', '2,"z', '3,w"'], False, ONE_THREAD)
def test_csv_lines_do_not_disturb_each_other(lines, single, way):
    out = "a: string" if single else "a: int64, b: string"
    operator = parse_csv("line", out, on_error="side")
    ran = drive(operator, [simple(LINES, [(line, n) for n, line in enumerate(lines)])], way)
    found = {position[0]: repr(row) for position, row in ran.ports[0]}
    assert found == {n: row for n, line in enumerate(lines) if (row := alone(operator, line))}
    assert sorted([*found, *(r["n"] for r in ran.rows(1))]) == list(range(len(lines)))


@given(st.lists(st.tuples(st.text('ab",\n ;', max_size=4), st.text("x;y", max_size=3)), max_size=9))
def test_csv_that_fits_says_what_python_reads(records):
    lines = []
    for record in records:
        quoted = ['"' + cell.replace('"', '""') + '"' for cell in record]
        lines.append(";".join(quoted))
        assert next(csv.reader([lines[-1]], delimiter=";", strict=True)) is not None
    ran = drive(
        parse_csv("line", "a: string, b: string", ";"), [simple(LINES, [(x, 0) for x in lines])]
    )
    assert [(r["a"], r["b"]) for r in ran.rows()] == records


@pytest.mark.parametrize("line", ["1", "1,x,2", "x,y", '1,"x', '1,"x"y', "1,x\n2,y", "", None])
def test_a_text_that_is_no_fitting_record_is_bad(line):
    ran = drive(
        parse_csv("line", "a: int64, b: string", on_error="skip"),
        [simple(LINES, [("1,x", 0), (line, 1), ("2,y", 2)])],
    )
    assert [r["a"] for r in ran.rows()] == [1, 2]
    assert ran.counters.skipped == 1


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"at": 1704187800}', "no timestamp[us] in 'at': 1704187800"),
        ('{"at": {"s": 1}}', "no timestamp[us] in 'at': {'s': 1}"),
        ('{"n": 1.5}', "no int8 in 'n': 1.5"),
        ('{"n": 128}', "no int8 in 'n': 128"),
        ('{"w": 5}', "no string in 'w': 5"),
        ('{"l": [1]}', "no list<item: string> in 'l': [1]"),
    ],
)
def test_what_is_wrong_with_an_object_names_the_field_and_the_value(line, says):
    operator = parse_json("line", "at: timestamp[us], n: int8, w: string, l: list<string>", "side")
    for lines in ([line], ["{}"] * 999 + [line]):
        ran = drive(operator, [simple(LINES, [(each, 0) for each in lines])])
        assert [row["error"] for row in ran.rows(1)] == [says]


@pytest.mark.parametrize("line", [",1", '"",1'])
def test_a_string_that_is_needed_may_not_be_empty_in_csv(line):
    out = pa.schema([pa.field("name", pa.string(), nullable=False), ("n", pa.int64())])
    operator = parse_csv("line", out, on_error="side")
    ran = drive(operator, [simple(LINES, [("a,0", 0), (line, 1)])])
    assert [row["name"] for row in ran.rows()] == ["a"]
    assert [row["error"] for row in ran.rows(1)] == ["no value for 'name'"]


TYPES = [
    pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.uint64(), pa.float32(), pa.float64(),
    pa.bool_(), pa.date32(), pa.timestamp("s"), pa.timestamp("us"), pa.timestamp("us", "UTC"),
    pa.string(), pa.decimal128(9, 2),
]  # fmt: skip
ODD = st.one_of(
    st.sampled_from(
        ["nan", "-Inf", "infinity", "nan(5)", "+5", "1e5", "1E-400", ".5", "5.", "1_0"]
    ),
    st.sampled_from(["0x1F", "-0X1f", "0x1p3", "1,5", "1f", "TRUE", "٣", "12:00", "20240102"]),
    st.sampled_from(["2024-01-02", "2024-02-30", "2024-01-02T00:00:00+01", "2024-01-02t00:00z"]),
    st.sampled_from([" 5", "5 ", "\t7", "9" * 19, "9" * 30]),
    st.from_regex(r"\A[-+ ]?[0-9xXa-fA-FeE.:TZ+ -]{0,12}\Z"),
    st.text(max_size=4),
)


@given(ODD, st.sampled_from(TYPES))
def test_what_is_surely_wrong_in_csv_is_never_read(cell, kind):
    grammar = Csv(pa.schema([("x", kind), ("y", pa.string())]), ",")
    text = pa.array(['"' + cell.replace('"', '""') + '",'])
    try:
        grammar.read(text)
    except pa.ArrowInvalid:
        return
    assert grammar.sift(text).wrong == {}


@given(
    st.one_of(
        FITTING, OBJECT, JUNK, ODD.map(lambda v: json.dumps({"t": v})), ODD.map('{{"a":{}}}'.format)
    )
)
@example('{"a": NaN}')
@example('{"b": "\t\x01"}')
@example('{"z": ' + "9" * 5000 + "}")
@example('{"b": "\\ud800"}')
def test_what_is_surely_wrong_in_json_is_never_read(line):
    grammar = Json(schema(f"{OUT}, t: timestamp[us]", "json"))
    text = pa.array([line])
    if grammar.sane(text).all():
        try:
            grammar.read(text)
        except pa.ArrowInvalid:
            return
        assert grammar.sift(text).wrong == {}


@pytest.mark.parametrize("make", [parse_csv, parse_json])
def test_bad_texts_cost_few_readings(make, monkeypatch):
    operator = make("line", "a: int64, b: string", on_error="skip")
    lines = [f"{n},x" if n % 7 else f"no {n},x" for n in range(1000)]
    if make is parse_json:
        lines = [f'{{"a": {line[:-2]}, "b": "x"}}' for line in lines]
    readings = []
    read = type(operator.grammar).read
    monkeypatch.setattr(
        type(operator.grammar), "read", lambda self, texts: readings.append(1) or read(self, texts)
    )
    ran = drive(operator, [simple(LINES, [(line, 0) for line in lines])])
    assert [row["a"] for row in ran.rows()] == [n for n in range(1000) if n % 7]
    assert len(readings) <= 12


@pytest.mark.parametrize(
    ("make", "bad"),
    [
        (parse_csv, "one,x"),
        (parse_csv, "1"),
        (parse_json, '{"a": "1"}'),
    ],
)
def test_one_bad_text_among_many_does_not_make_the_others_be_looked_at(make, bad, monkeypatch):
    operator = make("line", "a: int64, b: string", on_error="skip")
    lines = ['{"a": 1, "b": "x"}' if make is parse_json else "1,x"] * 20_000
    looked_at = []
    sift = type(operator.grammar).sift
    monkeypatch.setattr(
        type(operator.grammar),
        "sift",
        lambda self, texts: looked_at.append(len(texts)) or sift(self, texts),
    )
    lines[1234] = bad
    ran = drive(operator, [simple(LINES, [(line, n) for n, line in enumerate(lines)])])
    assert (len(ran.rows()), ran.counters.skipped) == (19_999, 1)
    assert 0 < sum(looked_at) < 30


def test_a_bad_text_fails_with_its_row():
    operator = parse_json("line", "a: int64")
    with pytest.raises(OperatorError, match=r"a JSON object in 'line'.*nonsense.*on_error"):
        drive(operator, [simple(LINES, [('{"a": 1}', 0), ("nonsense", 1)])])


def test_columns_are_kept_beside_what_was_parsed():
    operator = parse_json("line", "a: int64", keeps="n", on_error="skip")
    ran = drive(operator, [simple(LINES, [('{"a": 1}', 10), ("", 11), ('{"a": 3}', 12)])])
    assert ran.rows() == [{"n": 10, "a": 1}, {"n": 12, "a": 3}]


def test_many_bad_texts_among_good_ones_are_all_found():
    lines = ['{"a": "bad"}' if n % 7 == 3 else f'{{"a": {n}}}' for n in range(300)]
    ran = drive(parse_json("line", "a: int64", "skip"), [simple(LINES, [(x, 0) for x in lines])])
    assert [r["a"] for r in ran.rows()] == [n for n in range(300) if n % 7 != 3]


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: parse_json("line", ""), BuildError, "declare out="),
        (lambda: parse_json("line", "a: int64", on_error="x"), BuildError, "skip"),
        (lambda: parse_csv("line", "a: list<int64>"), SchemaError, "as strings"),
        (lambda: parse_csv("line", "a: int64", ", "), BuildError, "one character"),
        (lambda: parse_csv("line", "a: int64", "·"), BuildError, "ASCII"),
        (
            lambda: parse_json("x", "a: int64").types("p", (StreamType(LINES),)),
            SchemaError,
            "'x'",
        ),
        (
            lambda: parse_json("n", "a: int64").types("p", (StreamType(LINES),)),
            SchemaError,
            "cast it",
        ),
    ],
)
def test_what_cannot_be_parsed_is_said_when_the_graph_is_built(make, error, says):
    with pytest.raises(error, match=says):
        make()
