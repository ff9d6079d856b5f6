"""No value is cut to fit the column that was declared for it, whichever style gives it."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from anabranch.columns.python_values import exact_array
from anabranch.errors import OperatorError
from anabranch.operators.row_wise.map_filter_expand import expand, flat_map, map
from anabranch.operators.tuple_style.reduce import reduce
from anabranch.operators.tuple_style.tuples import partitioned, stateless
from anabranch.testing.sequential import run_sequential
from tests.operators.small_flows import flow_of, outcome, values

ROWS = [{"k": "a", "v": i} for i in range(4)]
STRUCT = pa.struct([("x", pa.int64()), ("y", pa.float64())])


def emitting(value, **properties):
    """Emits what a function makes of each tuple."""
    return partitioned(key="k", out="n: int64", **properties)(
        lambda ctx: [ctx.emit(n=value(row.v)) for row in ctx.tuples()]
    )


STYLES = {
    "emit": emitting,
    "emit, where bad rows are skipped": lambda value: emitting(value, on_error="skip"),
    "emit without state": lambda value: stateless(out="n: int64")(
        lambda ctx: [ctx.emit(n=value(row.v)) for row in ctx.tuples()]
    ),
    "flat map": lambda value: flat_map(lambda row: [{"n": value(row["v"])}], out="n: int64"),
    "flat map, where bad rows are skipped": lambda value: flat_map(
        lambda row: [{"n": value(row["v"])}], out="n: int64", on_error="skip"
    ),
    "reduce": lambda value: reduce(lambda held, row: {"n": value(row.v)}, "k", out="n: int64"),
    "map to a list": lambda value: map(out="n: int64")(
        lambda batch: {"n": [value(v) for v in batch["v"].to_pylist()]}
    ),
    "map to an array": lambda value: map(out="n: int64")(
        lambda batch: {"n": np.array([value(v) for v in batch["v"].to_pylist()], object)}
    ),
    "map to what can be read once": lambda value: map(out="n: int64")(
        lambda batch: {"n": (value(v) for v in batch["v"].to_pylist())}
    ),
    "expand": lambda value: expand(out="n: int64")(
        lambda batch: ({"n": [value(v) for v in batch["v"].to_pylist()]}, range(batch.num_rows))
    ),
}


@pytest.mark.parametrize("style", sorted(STYLES))
def test_a_float_with_digits_is_no_whole_number(style):
    operator = STYLES[style](lambda v: v + 0.5 if v == 2 else v)
    with pytest.raises(OperatorError) as caught:
        run_sequential(flow_of(operator, ROWS))
    assert str(caught.value) == (
        "step 'step': expected column 'n' of type int64, got 2.5; "
        "round it, or declare n: double in out="
    )


@pytest.mark.parametrize("style", sorted(STYLES))
def test_a_whole_number_may_come_as_a_float(style):
    assert values(outcome(STYLES[style](float), ROWS), "n") == [0, 1, 2, 3]


CUT = {
    "NumPy's floats": ([np.float64(1.5)], pa.int64(), "got np.float64(1.5)"),
    "short floats": ([np.float32(1.5)], pa.int8(), "got np.float32(1.5)"),
    "decimals": ([Decimal("1.5")], pa.int64(), "got Decimal('1.5')"),
    "behind nulls": ([None, 1, 1.5], pa.int64(), "got 1.5"),
    "behind large numbers": ([2**63 - 1, 2**63 - 1, 1.5], pa.int64(), "got 1.5"),
    "behind NumPy's numbers": ([np.int64(2**62), np.int64(2**62), 1.5], pa.int64(), "got 1.5"),
    "unsigned": ([1.5], pa.uint64(), "got 1.5"),
    "times": ([1.5], pa.timestamp("us"), "got 1.5"),
    "durations": ([1.5], pa.duration("s"), "got 1.5"),
    "lists": ([[1], None, [2, 0.5]], pa.list_(pa.int64()), "got 0.5"),
    "lists of lists": ([[[1], [0.5]]], pa.list_(pa.list_(pa.int64())), "got 0.5"),
    "arrays in lists": ([np.array([1.5])], pa.list_(pa.int64()), "got np.float64(1.5)"),
    "structs": ([{"x": 1, "y": 1.5}, {"x": 0.5}], STRUCT, "got 0.5"),
    "maps": ([{"a": 1.5}], pa.map_(pa.string(), pa.int64()), "got 1.5"),
    "NumPy's truth values": ([np.bool_(True)], pa.int64(), "got np.True_"),
}


@pytest.mark.parametrize("what", sorted(CUT))
def test_nothing_is_cut(what):
    given, kind, got = CUT[what]
    assert len(pa.array(given, type=kind)) == len(given), "Arrow itself would take it"
    with pytest.raises(OperatorError) as caught:
        exact_array("step", pa.field("n", kind), given)
    assert f"'n' of type {kind}" in str(caught.value)
    assert got in str(caught.value)


OTHERS = {
    "truth as number": ([1, True], pa.int64(), "got True (Expected integer, got bool)"),
    "number as text": (["a", 7], pa.string(), "got 7 (Expected bytes, got a 'int' object)"),
    "number as truth": ([1], pa.bool_(), "Could not convert 1 with type int"),
    "text as number": (["7"], pa.int64(), "Could not convert '7' with type str"),
    "too large": ([1, 2**70], pa.int64(), f"got {2**70} (Python int too large"),
    "too large for a float": ([2**53 + 1], pa.float64(), str(2**53 + 1)),
    "no column": (7, pa.int64(), "'int' object is not iterable"),
}


@pytest.mark.parametrize("what", sorted(OTHERS))
def test_a_value_of_another_type_is_named(what):
    given, kind, got = OTHERS[what]
    with pytest.raises(OperatorError) as caught:
        exact_array("step", pa.field("n", kind), given)
    assert f"column 'n' of type {kind}" in str(caught.value)
    assert got in str(caught.value)
    assert "declare another one for n in out=" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ([1, 2.0, None, np.float64(3)], pa.int64()),
        ([Decimal(2), 3], pa.int32()),
        ([2**62, 2**62, 2**62], pa.int64()),
        ([float("inf"), 1.5, 1], pa.float64()),
        ([[1, 2.0], [], None], pa.list_(pa.int64())),
        ([{"x": 1.0, "y": 0.5}, None], STRUCT),
        (range(3), pa.int64()),
        ({1: "a", 2: "b"}.keys(), pa.int64()),
        ([], pa.int64()),
    ],
)
def test_what_fits_is_taken(given, kind):
    made = exact_array("step", pa.field("n", kind), given)
    assert made.equals(pa.array(list(given), type=kind))
