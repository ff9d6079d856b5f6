from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from anabranch.errors import BuildError, OperatorError, SchemaError
from anabranch.graph import StreamType
from anabranch.operators.row_wise.map_filter_expand import Filter, expand, flat_map, map
from anabranch.state.positions import emission_index, end
from anabranch.testing.sequential import run_sequential
from tests.operators.driving import Drive, stream
from tests.operators.small_flows import flow_of, outcome, values

ROWS = [{"x": 0}, {"x": 1}]
NUMBERS = [{"x": i, "y": f"y{i}"} for i in range(6)]


def refuses(operator, words: str) -> None:
    with pytest.raises(OperatorError, match=words) as caught:
        run_sequential(flow_of(operator, NUMBERS))
    assert caught.value.step == "step"


# --- map -----------------------------------------------------------------------------------------


def test_a_map_gives_a_row_for_each_row():
    double = map(out="x: int64")(lambda b: {"x": pc.multiply(b["x"], 2)})
    assert values(outcome(double, NUMBERS), "x") == [0, 2, 4, 6, 8, 10]


def test_a_map_with_another_number_of_rows_is_refused():
    refuses(map(out="x: int64")(lambda b: {"x": [1, 2]}), "1 rows, as many as came in, got 2 rows")


def test_kept_columns_are_carried_by_the_runtime():
    negate = map(out="x: int64", keeps="y")(lambda b: {"x": pc.negate(b["x"])})
    assert outcome(negate, NUMBERS).rows("out")[5] == {"y": "y5", "x": -5}


def test_a_function_cannot_change_what_it_keeps():
    refuses(
        map(out="x: int64", keeps="y")(lambda b: {"x": b["x"], "y": ["other"] * b.num_rows}),
        r"the columns \['x'\], got \['x', 'y'\]",
    )


def test_a_column_that_is_made_is_not_kept():
    shout = map(out="y: string", keeps="*")(lambda b: {"y": pc.utf8_upper(b["y"])})
    given = pa.schema([("x", pa.int64()), ("y", pa.string())])
    assert (shout.keeps(given), values(outcome(shout, NUMBERS), "y")[1]) == (frozenset("x"), "Y1")


def test_keeping_everything_takes_no_function_of_columns():
    same = map(keeps="*")(lambda b: {})
    assert outcome(same, NUMBERS).rows("out") == NUMBERS


# --- filter --------------------------------------------------------------------------------------


def test_a_filter_keeps_the_rows_of_its_mask():
    odd = Filter(lambda b: pc.equal(pc.bit_wise_and(b["x"], 1), 1))
    assert outcome(odd, NUMBERS).rows("out") == [NUMBERS[1], NUMBERS[3], NUMBERS[5]]


def test_null_in_a_mask_means_no():
    mask = Filter(lambda b: pc.if_else(pc.greater(b["x"], 3), True, pa.scalar(None, pa.bool_())))
    assert values(outcome(mask, NUMBERS), "x") == [4, 5]


@pytest.mark.parametrize(
    "mask",
    [
        lambda b: [True] * b.num_rows,
        lambda b: np.ones(b.num_rows, bool),
        lambda b: pa.chunked_array([pc.is_valid(b["x"])]),
    ],
    ids=["list", "numpy", "chunked"],
)
def test_masks_may_be_lists_numpy_or_arrow(mask):
    assert outcome(Filter(mask), NUMBERS).rows("out") == NUMBERS


def test_a_mask_of_another_length_is_refused():
    refuses(Filter(lambda b: [True, False]), r"a mask of 1 rows, got \(2,\)")


@pytest.mark.parametrize(
    "mask", [lambda b: b["x"], lambda b: [1] * b.num_rows], ids=["arrow", "list"]
)
def test_a_mask_of_numbers_is_refused(mask):
    refuses(Filter(mask), "a boolean mask, got int64")


# --- expand --------------------------------------------------------------------------------------


def copies(batch: pa.RecordBatch) -> np.ndarray:
    x = batch["x"].to_numpy(zero_copy_only=False)
    return np.repeat(np.arange(len(x)), x % 3)


@expand(out="n: int64", keeps="x")
def spread(batch):
    parents = copies(batch)
    return {"n": emission_index(parents)}, parents


def test_an_expanded_row_stands_with_its_parent():
    assert [(r["x"], r["n"]) for r in outcome(spread, NUMBERS).rows("out")] == [
        (1, 0),
        (2, 0),
        (2, 1),
        (4, 0),
        (5, 0),
        (5, 1),
    ]


def test_rows_given_out_of_order_are_put_behind_their_parents_each_in_its_place():
    twice = expand(out="n: int64")(lambda b: ({"n": [20, 10, 21, 11]}, [1, 0, 1, 0]))
    given = pa.schema([("x", pa.int64())])
    (made,) = Drive(twice, StreamType(given)).kernel().step([stream(given, ROWS[:2])], end(1))
    assert made.batch["n"].to_pylist() == [10, 11, 20, 21]
    assert [row[4:] for row in made.positions.rows()] == [(0,), (1,), (0,), (1,)]


BAD_PARENTS = {
    "too few": (lambda b: ({"n": [1, 2]}, [0]), "2 parents, got 1"),
    "too many": (lambda b: ({"n": [1]}, [0, 0]), "1 parents, got 2"),
    "out of range": (lambda b: ({"n": [1]}, [7]), r"parents in 0\.\.0, got 7\.\.7"),
    "negative": (lambda b: ({"n": [1]}, [-1]), r"parents in 0\.\.0, got -1"),
    "not whole": (lambda b: ({"n": [1]}, [0.5]), "integer parents, got float64"),
    "none": (lambda b: {"n": [1]}, r"\(columns, parents\), got dict"),
}


@pytest.mark.parametrize("mistake", sorted(BAD_PARENTS))
def test_parents_are_checked(mistake):
    function, words = BAD_PARENTS[mistake]
    refuses(expand(out="n: int64")(function), words)


def test_emission_numbers_begin_anew_with_each_parent():
    assert emission_index(np.array([0, 0, 3, 3, 3, 5])).tolist() == [0, 1, 0, 1, 2, 0]


def test_a_row_function_gives_any_number_of_rows():
    spelled = flat_map(lambda row: [{"c": c} for c in row["y"]], out="c: string", keeps="x")
    assert [(r["x"], r["c"]) for r in outcome(spelled, NUMBERS[:2]).rows("out")] == [
        (0, "y"),
        (0, "0"),
        (1, "y"),
        (1, "1"),
    ]


# --- what was returned ---------------------------------------------------------------------------


RETURNED = {
    "a wrong type": (lambda b: {"x": b["y"]}, "column 'x' of type int64, got string"),
    "a value that does not fit": (lambda b: {"x": ["no"]}, "column 'x' of type int64"),
    "a missing column": (lambda b: {}, r"the columns \['x'\], got \[\]"),
    "something else": (lambda b: 3, "a mapping of columns or a RecordBatch, got int"),
}


@pytest.mark.parametrize("mistake", sorted(RETURNED))
def test_what_does_not_fit_the_promise_is_refused(mistake):
    function, words = RETURNED[mistake]
    refuses(map(out="x: int64")(function), words)


def test_columns_of_different_lengths_are_refused():
    function = expand(out="a: int64, b: int64")(lambda b: ({"a": [1], "b": [1, 2]}, [0]))
    refuses(function, "columns of one length, got a: 1, b: 2")


def test_a_broken_promise_is_an_error_under_every_policy():
    refuses(map(out="x: int64", on_error="skip")(lambda b: {"x": b["y"]}), "of type int64")


def test_nan_stays_nan_however_it_is_returned():
    def nans(batch):
        nan = [float("nan")] * batch.num_rows
        return {"numpy": np.array(nan), "list": nan, "arrow": pa.array(nan)}

    operator = map(out="numpy: double, list: double, arrow: double")(nans)
    row = run_sequential(flow_of(operator, NUMBERS[:1])).rows("out")[0]
    assert {name for name, value in row.items() if value is None} == set()


# --- rows that raise -----------------------------------------------------------------------------


def fragile(on_error: str):
    def halved(batch):
        if pc.any(pc.equal(pc.bit_wise_and(batch["x"], 3), 3)).as_py():
            raise ValueError("a three")
        return {"x": batch["x"]}

    return map(out="x: int64", on_error=on_error)(halved)


def test_fail_names_the_row_and_the_exception():
    refuses(fragile("fail"), r"got ValueError: a three on \{'x': 3, 'y': 'y3'\}")


def test_skip_leaves_out_the_row_alone_and_counts_it():
    result = outcome(fragile("skip"), NUMBERS)
    assert (values(result, "x"), result.counters["step"].skipped) == ([0, 1, 2, 4, 5], 1)


def test_side_sends_the_row_with_its_error_and_counts_it():
    result = outcome(fragile("side"), NUMBERS)
    assert result.rows("errors") == [{"x": 3, "y": "y3", "error": "ValueError: a three"}]
    assert (values(result, "x"), result.counters["step"].skipped) == ([0, 1, 2, 4, 5], 1)


def test_a_batch_of_bad_rows_alone_gives_nothing():
    result = outcome(fragile("side"), [NUMBERS[3]] * 3)
    assert (result.rows("out"), len(result.rows("errors"))) == ([], 3)


def test_an_unknown_policy_is_refused():
    with pytest.raises(BuildError, match=r"on_error in \['fail', 'skip', 'side'\], got 'ignore'"):
        fragile("ignore")


def test_a_schema_that_cannot_be_read_names_the_function():
    with pytest.raises(SchemaError, match="operator 'length'"):

        @map(out="n: integer64")
        def length(batch):
            return {}


@pytest.mark.parametrize("policy", ["fail", "skip", "side"])
@pytest.mark.parametrize(
    ("made", "words"),
    [
        ([{"b": 1}], r"rows with the columns \['a'\], got \['b'\]"),
        ([{}], r"rows with the columns \['a'\], got \[\]"),
        ([{"a": 1}, {"a": 1, "b": 2}], r"rows with the columns \['a'\], got \['a', 'b'\]"),
        ({"a": 1}, r"rows, as in .*, got \{'a': 1\}; return a list of dicts"),
        (None, "rows, as in .*, got None; return a list of dicts"),
        ([1], r"rows with the columns \['a'\], got 1"),
        ("a", r"rows with the columns \['a'\], got 'a'"),
    ],
)
def test_rows_that_are_not_as_declared_are_no_bad_input(policy, made, words):
    refuses(flat_map(lambda row: made, out="a: int64", on_error=policy), words)


def test_rows_may_come_from_a_generator_that_raises_on_a_bad_one():
    def halves(row):
        for part in range(2):
            if row["x"] == 3:
                raise ValueError("three")
            yield {"half": 2 * row["x"] + part}

    made = outcome(flat_map(halves, out="half: int64", on_error="skip"), NUMBERS)
    assert values(made, "half") == [0, 1, 2, 3, 4, 5, 8, 9, 10, 11]
    assert made.counters["step"].skipped == 1
