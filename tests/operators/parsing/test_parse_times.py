"""Times in CSV and JSON: zones, fractions, and that one does not disturb another."""

import json
from datetime import datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.operators.parsing.parse import parse_csv, parse_json
from tests.operators.driving_ports import drive, simple
from tests.operators.parsing.test_parse import LINES, alone


@pytest.mark.parametrize(
    ("time", "meant"),
    [
        ("2024-01-02T09:30:00Z", "2024-01-02 09:30:00"),
        ("2024-01-02 09:30:00.25+02:00", "2024-01-02 07:30:00.250000"),
        ("2024-01-02T09:30:00-0130", "2024-01-02 11:00:00"),
        ("2024-01-02 09:30", "2024-01-02 09:30:00"),
        ("2024-01-02", "2024-01-02 00:00:00"),
        ("", None),
    ],
)
def test_a_time_in_csv_may_tell_its_zone(time, meant):
    operator = parse_csv("line", "at: timestamp[us], n: int64", on_error="skip")
    others = ["2024-01-01 00:00:00,1", "2024-01-01T00:00:00Z,2", "Z,3", "2024-02-30T00:00:00Z,4"]
    lines = [others[0], f"{time},0", *others[1:]]
    for several in ([lines[1]], lines):
        ran = drive(operator, [simple(LINES, [(line, 0) for line in several])])
        [found] = [row["at"] for row in ran.rows() if row["n"] == 0]
        assert found == (meant and datetime.fromisoformat(meant))
    assert [row["n"] for row in ran.rows()] == [1, 0, 2]


ODD_TIMES = st.sampled_from(
    ["", "Z", "2024", "2024-02-30", "2024-01-02T09Z", "2024-01-02Z", "2024-01-02-02"]
)
FRACTIONS = [
    ("us", "2024-01-02T09:30:00.123456789Z", "2024-01-02 09:30:00.123456"),
    ("us", "1969-12-31 23:59:59.9999999+00:00", "1969-12-31 23:59:59.999999"),
    ("ms", "2024-01-02 09:30:00.9999", "2024-01-02 09:30:00.999000"),
    ("s", "2024-01-02T09:30:00.5-01:00", "2024-01-02 10:30:00"),
    ("us", "2024-01-02T09:30:00.12345678x", None),
    ("us", "2024-01-02T09:30.1234567", None),
]


@pytest.mark.parametrize(("unit", "time", "meant"), FRACTIONS)
@pytest.mark.parametrize("make", [parse_csv, parse_json])
def test_digits_below_the_unit_of_a_time_are_cut_off(make, unit, time, meant):
    operator = make("line", f"at: timestamp[{unit}], n: int64", on_error="side")
    records = [(time, 0), ("2024-01-01 00:00:00", 1), ("2024-01-01T00:00:00Z", 2)]
    if make is parse_json:
        lines = [json.dumps({"at": at, "n": n}) for at, n in records]
    else:
        lines = [f"{at},{n}" for at, n in records]
    for several in (lines[:1], lines):
        ran = drive(operator, [simple(LINES, [(line, 0) for line in several])])
        found = [row["at"] for row in ran.rows() if row["n"] == 0]
        assert found == ([datetime.fromisoformat(meant)] if meant else [])
        assert [row["line"] for row in ran.rows(1)] == ([] if meant else lines[:1])


TIMES = st.lists(
    st.sampled_from(
        [*" Tt:.+-zZ", "09", ":30", ":00.5", ".123456789", "Z", "+02", "-0130", "+02:00", "1"]
    ),
    max_size=6,
).map(lambda ends: "2024-01-02" + "".join(ends))


@given(st.lists(st.one_of(TIMES, ODD_TIMES), min_size=2, max_size=6), st.sampled_from("jc"))
@example(["2024-01-02T09Z", "2024-01-02", "2024-01-02T09:30:00.1234567"], "c")
def test_times_do_not_disturb_each_other(times, form):
    if form == "j":
        operator = parse_json("line", "at: timestamp[us]", on_error="side")
        lines = [json.dumps({"at": time}) for time in times]
    else:
        operator = parse_csv("line", "at: timestamp[us]", on_error="side")
        lines = times
    rows = [(line, n) for n, line in enumerate(lines)]
    ran = drive(operator, [simple(LINES, rows)])
    found = {position[0]: repr(row) for position, row in ran.ports[0]}
    assert found == {n: row for n, line in enumerate(lines) if (row := alone(operator, line))}
    for bad in ran.rows(1):
        [by_itself] = drive(operator, [simple(LINES, [(bad["line"], bad["n"])])]).rows(1)
        assert bad == by_itself
