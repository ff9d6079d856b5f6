"""Columns in another type: which values fit, what they become, and why others do not."""

import math
from datetime import datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.columns.casting import can_fit, fit

US = pa.timestamp("us")


def moment(text):
    return datetime.fromisoformat(text)


@pytest.mark.parametrize(
    ("column", "wanted", "made"),
    [
        (pa.array([1, -128, None], pa.int64()), pa.int8(), [1, -128, None]),
        (pa.array([2.0, None]), pa.int32(), [2, None]),
        (pa.array([-(2.0**63)]), pa.int64(), [-(2**63)]),
        (pa.array([1, 2**53 + 1]), pa.float64(), [1.0, 2.0**53]),
        (pa.array([0.5, float("inf"), float("nan")]), pa.float32(), [0.5, math.inf, math.nan]),
        (pa.array([Decimal("3.00")]), pa.int64(), [3]),
        (pa.array([-1], pa.timestamp("ns")), US, [moment("1969-12-31 23:59:59.999999")]),
        (pa.array([1], pa.timestamp("s", "Europe/Rome")), US, [moment("1970-01-01 00:00:01")]),
        (pa.array([1], pa.date32()), US, [moment("1970-01-02")]),
        (pa.array(["2024-01-02T01:00:00+01:00"]), US, [moment("2024-01-02")]),
        (pa.array(["a", None, "a"]).dictionary_encode(), pa.string(), ["a", None, "a"]),
        (pa.array(["a"], pa.large_string()), pa.string(), ["a"]),
        (pa.array([7]), pa.string(), ["7"]),
        (pa.array(["7"]), pa.int32(), [7]),
        (pa.nulls(2), US, [None, None]),
        (pa.array([], pa.float64()), pa.int64(), []),
        (
            pa.array([["a", None], None, []], pa.large_list(pa.large_string())),
            pa.list_(pa.string()),
            [["a", None], None, []],
        ),
    ],
)
def test_values_that_fit(column, wanted, made):
    assert can_fit(column.type, wanted)
    found, why = fit(column, pa.field("x", wanted))
    assert (found.type, why) == (wanted, {})
    assert repr(found.to_pylist()) == repr(made)


@pytest.mark.parametrize(
    ("value", "kind", "wanted", "shown"),
    [
        (128, pa.int64(), pa.int8(), "128"),
        (2**63, pa.uint64(), pa.int64(), str(2**63)),
        (-1, pa.int64(), pa.uint64(), "-1"),
        (101.25, pa.float64(), pa.int32(), "101.25"),
        (2.0**63, pa.float64(), pa.int64(), "9.223372036854776e+18"),
        (float("nan"), pa.float64(), pa.int64(), "nan"),
        (1e300, pa.float64(), pa.float32(), "1e+300"),
        (Decimal("1.25"), pa.decimal128(5, 2), pa.int64(), "1.25"),
        (2**62, pa.timestamp("s"), US, str(2**62)),
        ("2024-02-30", pa.string(), US, "'2024-02-30'"),
        ("seven", pa.string(), pa.int64(), "'seven'"),
        (b"\xff", pa.binary(), pa.string(), r"b'\xff'"),
        ([1, 2**31], pa.list_(pa.int64()), pa.list_(pa.int32()), "[1, 2147483648]"),
    ],
)
def test_values_that_do_not_fit_are_told_and_harm_no_others(value, kind, wanted, shown):
    column = pa.array([None, value, None, value], kind)
    found, why = fit(column, pa.field("x", wanted))
    assert found.null_count == 4
    assert why == dict.fromkeys([1, 3], f"no {wanted} in 'x': {shown}")


@given(
    st.lists(st.one_of(st.none(), st.floats(), st.integers(-300, 300).map(float)), max_size=20),
    st.sampled_from([pa.int8(), pa.uint16(), pa.int64(), pa.float32()]),
    st.integers(0, 20),
)
def test_what_becomes_of_a_value_follows_from_it_alone(values, wanted, start):
    column, field = pa.array(values, pa.float64()).slice(start), pa.field("x", wanted)
    found, why = fit(column, field)
    for row in range(len(column)):
        alone, why_alone = fit(pa.array([column[row].as_py()], pa.float64()), field)
        assert repr(found[row]) == repr(alone[0])
        assert why.get(row) == why_alone.get(0)


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (pa.bool_(), pa.int64()),
        (pa.int64(), US),
        (pa.float64(), pa.string()),
        (pa.string(), pa.bool_()),
        (pa.list_(pa.bool_()), pa.list_(pa.string())),
        (pa.string(), pa.list_(pa.string())),
    ],
)
def test_types_without_a_common_value(kind, wanted):
    assert not can_fit(kind, wanted)
