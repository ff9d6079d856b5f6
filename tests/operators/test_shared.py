from __future__ import annotations

import pytest

from anabranch.errors import BuildError, OperatorError
from anabranch.operators.shared import shared
from anabranch.testing.sequential import run_sequential
from tests.operators.small_flows import flow_of, outcome

NUMBERS = [{"x": i} for i in range(7)]


@shared(out="bucket: int64, x: int64, seen: int64", buckets=3)
def pairs(batch, bucket):
    """Each bucket takes its own tuples twice, and counts all it was shown."""
    made = {"bucket": [], "x": [], "seen": []}
    parents = []
    for row, x in enumerate(batch["x"].to_pylist()):
        bucket.state["seen"] = bucket.state.get("seen", 0) + 1
        if x % bucket.count == bucket.index or x == 6:
            for _ in range(2):
                made["bucket"].append(bucket.index)
                made["x"].append(x)
                made["seen"].append(bucket.state["seen"])
                parents.append(row)
    return made, parents


def test_every_bucket_sees_every_tuple():
    rows = outcome(pairs, NUMBERS).rows("out")
    assert all(row["seen"] == row["x"] + 1 for row in rows)


def test_outputs_stand_by_input_then_bucket_then_emission():
    rows = outcome(pairs, NUMBERS).rows("out")
    assert [(row["x"], row["bucket"]) for row in rows] == [
        *((x, x % 3) for x in range(6) for _ in range(2)),
        *((6, bucket) for bucket in range(3) for _ in range(2)),
    ]


def refuses(function, words: str) -> None:
    with pytest.raises(OperatorError, match=words) as caught:
        run_sequential(flow_of(shared(out="x: int64", buckets=2)(function), NUMBERS))
    assert caught.value.step == "step"


@pytest.mark.parametrize("parents", [[0], [0, 0, 0]], ids=["too few", "too many"])
def test_there_is_one_parent_for_each_row(parents):
    refuses(lambda batch, bucket: ({"x": [1, 2]}, parents), f"2 parents, got {len(parents)}")


def test_parents_are_rows_of_the_batch():
    refuses(lambda batch, bucket: ({"x": [1]}, [5]), r"parents in 0\.\.0, got 5\.\.5")


def test_a_wrong_type_is_refused():
    refuses(lambda batch, bucket: ({"x": ["a"]}, [0]), "column 'x' of type int64")


def test_an_exception_names_the_bucket():
    def raising(batch, bucket):
        raise ValueError("no")

    refuses(raising, "ValueError: no on bucket 0, a batch of 1 tuples")


def test_there_is_at_least_one_bucket():
    with pytest.raises(BuildError, match="at least one bucket"):
        shared(out="x: int64", buckets=0)(lambda batch, bucket: None)
