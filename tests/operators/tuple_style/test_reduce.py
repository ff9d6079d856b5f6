"""Folding the tuples of a key with a function of one's own."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import BuildError, OperatorError
from anabranch.graph import StateKind, StreamType
from anabranch.operators.base import CLOSING
from anabranch.operators.tuple_style.reduce import reduce
from anabranch.state.positions import LAST
from tests.operators.driving import RANK, Cut, Drive, cuts, same, stream

SCHEMA = pa.schema([("k", pa.string()), ("x", pa.int64())])
STREAM = StreamType(SCHEMA)
ROWS = st.lists(
    st.fixed_dictionaries({"k": st.sampled_from(["a", "b", "c"]), "x": st.integers(-9, 9)}),
    max_size=16,
)
OUT = "k: string, trail: string"


def trail(held: dict[str, Any] | None, row: Any) -> dict[str, Any]:
    """The values so far, as text; `steps` is the accumulator's own."""
    held = held or {"trail": "", "steps": 0}
    return {"trail": f"{held['trail']} {row.x}", "steps": held["steps"] + 1}


def folded(rows: list[dict[str, Any]], key: str) -> dict[str, Any]:
    return {"k": key, "trail": "".join(f" {r['x']}" for r in rows if r["k"] == key)}


@given(ROWS, st.data())
def test_every_tuple_leaves_the_accumulator_after_it(rows, data):
    drive = Drive(reduce(trail, "k", out=OUT), STREAM)
    made = drive.run(stream(SCHEMA, rows), data.draw(cuts(len(rows))))
    expected = [((i, 0, i, 0, 0), folded(rows[: i + 1], row["k"])) for i, row in enumerate(rows)]
    assert same(made, expected)


@given(ROWS, st.data())
def test_final_accumulators_leave_at_the_end(rows, data):
    drive = Drive(reduce(trail, "k", out=OUT, emit="final"), STREAM)
    assert drive.out[0].time is None
    made = drive.run(stream(SCHEMA, rows), data.draw(cuts(len(rows))))
    assert [row for _, row in made] == [folded(rows, k) for k in sorted({r["k"] for r in rows})]
    assert all(place[:2] == (LAST, CLOSING + RANK) for place, _ in made)


def test_changes_are_the_last_of_each_key_and_batch():
    rows = [{"k": k, "x": x} for x, k in enumerate("abaab")]
    drive = Drive(reduce(trail, "k", out=OUT, emit="changes"), STREAM)
    made = drive.run(stream(SCHEMA, rows), (Cut(3),))
    assert [(p[0], r["k"], r["trail"]) for p, r in made] == [
        (1, "b", " 1"), (2, "a", " 0 2"), (3, "a", " 0 2 3"), (4, "b", " 1 4"),
    ]  # fmt: skip
    assert drive.out[0].changelog == ("k",)


def test_without_a_key_the_whole_stream_is_folded_from_the_initial_value():
    def push(held, row):
        held["seen"].append(row.x)
        return held

    initial: dict[str, Any] = {"seen": [0]}
    operator = reduce(push, out="seen: list<int64>", emit="final", initial=initial)
    assert operator.state is StateKind.STATEFUL
    rows = [{"k": "a", "x": 1}, {"k": "b", "x": 2}]
    for _ in range(2):
        made = Drive(operator, STREAM).run(stream(SCHEMA, rows))
        assert [row for _, row in made] == [{"seen": [0, 1, 2]}]
    assert initial == {"seen": [0]}


def test_a_function_that_returns_no_accumulator_is_named():
    drive = Drive(reduce(lambda held, row: None, "k", out=OUT), STREAM)
    with pytest.raises(OperatorError, match="a dict") as caught:
        drive.run(stream(SCHEMA, [{"k": "a", "x": 1}]))
    assert caught.value.step == "step"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"out": OUT, "emit": "often"}, "'often'"),
        ({"out": "trail: string", "emit": "changes"}, "key"),
        ({"out": None}, "columns in out="),
    ],
)
def test_a_mistake_is_named_when_the_graph_is_built(arguments, text):
    with pytest.raises(BuildError, match=text):
        reduce(trail, "k", **arguments)
