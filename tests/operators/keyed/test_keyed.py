from __future__ import annotations

import numpy as np
import pyarrow.compute as pc
import pytest

from anabranch.errors import OperatorError, SchemaError
from anabranch.operators.keyed.keyed import keyed
from anabranch.testing.sequential import run_sequential
from tests.operators.small_flows import flow_of, outcome, values

WORDS = [{"word": w, "v": i} for i, w in enumerate(["a", "b", "a", "a", "b", "c"])]


def ranks(codes: np.ndarray, groups: int) -> np.ndarray:
    """How many rows of its key stand before each row of the batch."""
    seen = np.zeros(groups, np.int64)
    before = np.empty(len(codes), np.int64)
    for row, code in enumerate(codes):
        before[row] = seen[code]
        seen[code] += 1
    return before


def count(batch, state) -> np.ndarray:
    before = state["n"]
    state["n"] = before + np.bincount(state.codes, minlength=state.groups)
    return before[state.codes] + ranks(state.codes, state.groups) + 1


@keyed(key="word", state="n: int64", out="n: int64", keeps="word")
def counted(batch, state):
    return {"n": count(batch, state)}


def refuses(operator, words: str) -> None:
    with pytest.raises(OperatorError, match=words) as caught:
        run_sequential(flow_of(operator, WORDS))
    assert caught.value.step == "step"


def test_each_key_has_its_own_values():
    assert [(r["word"], r["n"]) for r in outcome(counted, WORDS).rows("out")] == [
        ("a", 1),
        ("b", 1),
        ("a", 2),
        ("a", 3),
        ("b", 2),
        ("c", 1),
    ]


def test_a_new_key_begins_with_zero():
    @keyed(key="word", state="n: int64", out="n: int64, fresh: bool")
    def first_value(batch, state):
        return {"n": state["n"][state.codes], "fresh": state.fresh[state.codes]}

    assert run_sequential(flow_of(first_value, WORDS[:1])).rows("out") == [{"n": 0, "fresh": True}]


def test_what_was_written_is_read_again_in_the_same_call():
    @keyed(key="word", state="n: int64", out="n: int64")
    def written(batch, state):
        state["n"] = state["n"] + 5
        return {"n": state["n"][state.codes]}

    assert values(run_sequential(flow_of(written, WORDS[:3])), "n") == [5, 5, 10]


def test_rows_may_be_left_out_with_parents():
    @keyed(key="word", state="n: int64", out="n: int64", keeps="word")
    def first_of_each(batch, state):
        numbers = count(batch, state)
        rows = np.flatnonzero(numbers == 1)
        return {"n": numbers[rows]}, rows

    assert values(outcome(first_of_each, WORDS), "word") == ["a", "b", "c"]


def test_a_wrong_number_of_rows_is_refused():
    refuses(
        keyed(key="word", state="n: int64", out="n: int64")(lambda b, s: {"n": [1, 2]}),
        "1 rows, as many as came in, got 2 rows",
    )


@pytest.mark.parametrize("keeps", [(), "word"], ids=["nothing kept", "kept"])
@pytest.mark.parametrize("parents", [[0], [0, 0, 0]], ids=["too few", "too many"])
def test_there_is_one_parent_for_each_row(keeps, parents):
    operator = keyed(key="word", state="n: int64", out="n: int64", keeps=keeps)
    refuses(operator(lambda b, s: ({"n": [1, 2]}, parents)), f"2 parents, got {len(parents)}")


def test_a_key_that_does_not_exist_is_refused():
    operator = keyed(key="wrd", state="n: int64", out="n: int64")(lambda b, s: {})
    with pytest.raises(SchemaError, match=r"step 'step': expected columns among \['word', 'v'\]"):
        flow_of(operator, WORDS)


def fragile(on_error: str):
    @keyed(key="word", state="n: int64", out="n: int64", keeps=["word", "v"], on_error=on_error)
    def operator(batch, state):
        numbers = count(batch, state)
        if pc.any(pc.is_in(batch["v"], pc.cast([2, 5], "int64"))).as_py():
            raise ValueError("a two or a five")
        return {"n": numbers}

    return operator


def test_fail_names_the_row():
    refuses(fragile("fail"), r"ValueError: a two or a five on \{'word': 'a', 'v': 2\}")


def test_skipped_rows_leave_no_trace_in_state():
    result = outcome(fragile("skip"), WORDS)
    assert [(r["v"], r["n"]) for r in result.rows("out")] == [(0, 1), (1, 1), (3, 2), (4, 2)]
    assert result.counters["step"].skipped == 2


def test_rows_on_the_side_are_given_back_whole():
    result = outcome(fragile("side"), WORDS)
    assert [(r["word"], r["v"], r["error"]) for r in result.rows("errors")] == [
        ("a", 2, "ValueError: a two or a five"),
        ("c", 5, "ValueError: a two or a five"),
    ]


def test_state_of_a_wrong_length_leaves_no_trace_in_other_columns():
    @keyed(key="word", state="n: int64, m: int64", out="n: int64, m: int64", on_error="skip")
    def clumsy(batch, state):
        before = state["n"]
        state["n"] = before + 1
        state["m"] = np.zeros(7, np.int64) if 0 in batch["v"].to_pylist() else before
        return {"n": before[state.codes], "m": before[state.codes]}

    result = run_sequential(flow_of(clumsy, WORDS[::2]))
    assert (values(result, "n"), result.counters["step"].skipped) == ([0, 0], 1)


def test_a_key_whose_first_row_was_skipped_is_still_new():
    @keyed(key="word", state="n: int64", out="fresh: bool", on_error="skip")
    def operator(batch, state):
        if 0 in batch["v"].to_pylist():
            raise ValueError
        return {"fresh": state.fresh[state.codes]}

    result = run_sequential(flow_of(operator, WORDS[:1] + WORDS[2:3]))
    assert values(result, "fresh") == [True]
