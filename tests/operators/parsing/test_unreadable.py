"""Values that Python does not have: tuples with such follow the step's `on_error`."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa
import pytest

from anabranch.columns.rows import python_rows, python_values
from anabranch.errors import OperatorError
from anabranch.flow import Flow
from anabranch.io import collect, memory
from anabranch.operators.base import describe_row
from anabranch.operators.row_wise.map_filter_expand import flat_map
from anabranch.operators.tuple_style.tuples import partitioned, stateful, stateless
from anabranch.testing.sequential import run_sequential
from tests.operators.small_flows import agreed, values

YEAR_20983, BEFORE_CHRIST = 600_000_000_000_000_000, -70_000_000_000_000_000
TIMES = pa.array([0, YEAR_20983, 1_000_000, None, BEFORE_CHRIST, 2_000_000], pa.timestamp("us"))
ROWS = pa.table({"n": list(range(6)), "t": TIMES})
NESTED = pa.array([[each] for each in TIMES.cast(pa.int64()).to_pylist()], pa.list_(TIMES.type))
READABLE = [0, 2, 3, 5]


def numbers(ctx):
    for row in ctx.tuples():
        ctx.emit(m=row.n)


STYLES = {
    "stateless": lambda policy: stateless(out="m: int64", on_error=policy)(numbers),
    "by a key": lambda policy: partitioned(key="n", out="m: int64", on_error=policy)(numbers),
    "by the time": lambda policy: partitioned(key="t", out="m: int64", on_error=policy)(numbers),
    "stateful": lambda policy: stateful(out="m: int64", on_error=policy)(numbers),
    "flat map": lambda policy: flat_map(
        lambda row: [{"m": row["n"]}], out="m: int64", on_error=policy
    ),
}


def flow_of(style: str, policy: str, table: pa.Table = ROWS) -> Flow:
    flow = Flow("unreadable", buckets=4)
    made = flow.source("s", memory(table)).apply("step", STYLES[style](policy))
    made.sink("out", collect())
    if policy == "side":
        # What a batch step sets aside has its columns as they came; those no test could show.
        made.errors.map("why", lambda b: {"why": b["error"]}, out="why: string").sink(
            "errors", collect()
        )
    return flow


@pytest.mark.parametrize("style", STYLES)
def test_the_error_names_step_column_and_row(style):
    with pytest.raises(OperatorError, match=r"'t': '?20983-03-30.*on_error='skip'") as caught:
        run_sequential(flow_of(style, "fail"))
    assert caught.value.step == "step"
    assert "'n': 1" in str(caught.value)


@pytest.mark.parametrize("style", STYLES)
def test_such_tuples_are_skipped_and_counted_and_harm_no_other(style):
    result = agreed(flow_of(style, "skip"))
    assert values(result, "m") == READABLE
    assert result.counters["step"].skipped == 2


@pytest.mark.parametrize("style", STYLES)
def test_such_tuples_are_set_aside(style):
    result = agreed(flow_of(style, "side"))
    assert values(result, "m") == READABLE
    assert [why.split(":")[0] for why in values(result, "why", "errors")] == ["OverflowError"] * 2


@pytest.mark.parametrize("style", [each for each in STYLES if each != "by the time"])
def test_values_inside_of_others_count_as_well(style):
    table = ROWS.set_column(1, "t", NESTED)
    assert values(agreed(flow_of(style, "skip", table)), "m") == READABLE


def test_what_is_set_aside_says_what_it_was():
    @stateless(out="m: int64", on_error="side")
    def none(ctx):
        """Emits nothing."""

    flow = Flow("unreadable", buckets=4)
    flow.source("s", memory(ROWS)).apply("step", none).errors.sink("errors", collect())
    [first, _] = agreed(flow).rows("errors")
    assert first["port"] == 0
    assert first["row"] == "(n=1, t='20983-03-30 10:40:00.000000')"


def test_rows_to_be_looked_at_have_texts_where_python_has_no_value():
    shown = [row["t"] for row in python_rows(ROWS)]
    assert shown[:2] == [datetime(1970, 1, 1), "20983-03-30 10:40:00.000000"]
    assert "20983" in describe_row(ROWS.to_batches()[0], 1)


def test_nanoseconds_are_cut_off_downward_also_before_1970():
    times = pa.array([-500, None, 1999], pa.timestamp("ns"))
    assert python_values(times) == [
        datetime(1969, 12, 31, 23, 59, 59, 999_999),
        None,
        datetime(1970, 1, 1, 0, 0, 0, 1),
    ]
