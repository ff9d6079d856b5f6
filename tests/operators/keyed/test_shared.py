from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import BuildError, OperatorError
from anabranch.operators.keyed.shared import buckets_of, shared
from anabranch.testing.sequential import run_sequential
from tests.operators.driving_ports import simple
from tests.operators.keyed.driving_shared import SharedDrive, turns
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
    with pytest.raises(BuildError, match="at least 1 in buckets="):
        shared(out="x: int64", buckets=0)(lambda batch, bucket: None)


@pytest.mark.parametrize("policy", ["skip", "side"])
def test_only_failing_is_offered(policy):
    with pytest.raises(BuildError, match="part off bad tuples before this step"):
        shared(out="x: int64", on_error=policy)(lambda batch, bucket: None)


# --- filters -------------------------------------------------------------------------------------

TAGGED = pa.schema([("n", pa.int64()), ("tags", pa.list_(pa.int64()))])
TAGS = st.lists(st.lists(st.integers(0, 5), max_size=4), max_size=30)
BUCKETS = 3


def by_tag(batch, buckets):
    """A tuple concerns the buckets of its tags: none, several, or one for two reasons."""
    pairs = [
        (row, tag % buckets)
        for row, tags in enumerate(batch["tags"].to_pylist())
        for tag in reversed(tags)
    ]
    return [row for row, _ in pairs], [bucket for _, bucket in pairs]


@shared(out="bucket: int64, n: int64, seen: int64", buckets=BUCKETS, filter=by_tag)
def gathered(batch, bucket):
    """Tells each tuple twice, and how many the bucket was shown up to it."""
    assert batch.num_rows, "a bucket that nothing concerns is left alone"
    made = {"bucket": [], "n": [], "seen": []}
    parents = []
    for row, n in enumerate(batch["n"].to_pylist()):
        bucket.state["seen"] = bucket.state.get("seen", 0) + 1
        for column, value in (("bucket", bucket.index), ("n", n), ("seen", bucket.state["seen"])):
            made[column] += [value] * 2
        parents += [row] * 2
    return made, parents


def shown(rows):
    """Tuple by tuple, bucket by bucket."""
    seen = dict.fromkeys(range(BUCKETS), 0)
    out = []
    for n, tags in enumerate(rows):
        for bucket in sorted({tag % BUCKETS for tag in tags}):
            seen[bucket] += 1
            out += [{"bucket": bucket, "n": n, "seen": seen[bucket]}] * 2
    return out


@given(TAGS, turns(BUCKETS))
def test_a_bucket_sees_what_concerns_it_however_it_is_run(rows, way):
    stream = simple(TAGGED, list(enumerate(rows)))
    made = SharedDrive(gathered, [stream], None).run(way)
    assert [row for _, row in made] == shown(rows)
    assert [place[-2:] for place, _ in made] == [
        (row["bucket"], turn % 2) for turn, row in enumerate(shown(rows))
    ]


def test_filtered_buckets_agree_in_a_flow():
    rows = [{"n": n, "tags": [n % 7, n % 5, n * n % 3][: n % 4]} for n in range(40)]
    assert outcome(gathered, rows, schema=TAGGED).rows("out") == shown([r["tags"] for r in rows])


def test_a_filter_is_asked_once_per_batch_and_of_all_buckets():
    asked = []

    def nobody(batch, buckets):
        asked.append((batch.num_rows, buckets))
        return [], []

    operator = shared(out="x: int64", buckets=5, filter=nobody)(lambda batch, bucket: None)
    drive = SharedDrive(operator, [simple(TAGGED, [(n, []) for n in range(9)])], None)
    (kernel, *_) = drive.fresh((0, 0, 1, 1, 1))
    assert kernel.step(drive.inputs, None) == [None]
    assert asked == [(9, 5)]


def test_a_replica_without_buckets_asks_nobody():
    drive = SharedDrive(gathered, [simple(TAGGED, [(1, [1])])], None)
    kernel = drive.fresh((0, 0, 0))[1]
    assert kernel.step(drive.inputs, None) == [None]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda batch, buckets: [0], r"\(rows, buckets\) from filter, got list"),
        (lambda batch, buckets: ([0, 0], [1]), "as many rows as buckets from filter, got 2 and 1"),
        (lambda batch, buckets: ([1], [0]), r"rows from filter in 0\.\.0, got 1\.\.1"),
        (lambda batch, buckets: ([0], [2]), r"buckets from filter in 0\.\.1, got 2\.\.2"),
        (lambda batch, buckets: ([0], [-1]), r"buckets from filter in 0\.\.1, got -1\.\.-1"),
        (lambda batch, buckets: ([0.0], [0]), "rows from filter as a column of whole numbers"),
        (lambda batch, buckets: ([0], pa.array([None], pa.int64())), "got float64"),
        (lambda batch, buckets: ([0], np.zeros((1, 1), int)), "got int64 in 2 dimension"),
        (lambda batch, buckets: 1 // 0, "ZeroDivisionError: .* on filtering a batch of 1 tuples"),
    ],
)
def test_a_filter_that_breaks_its_contract_fails_the_step(answer, words):
    operator = shared(out="x: int64", buckets=2, filter=answer)(lambda batch, bucket: None)
    with pytest.raises(OperatorError, match=words) as caught:
        run_sequential(flow_of(operator, NUMBERS))
    assert caught.value.step == "step"


def test_rows_and_buckets_may_be_arrow_columns():
    def of_chunks(batch, buckets):
        rows = pa.chunked_array([pa.array(range(batch.num_rows), pa.int32())])
        return rows, pa.array(buckets_of(batch["x"], buckets))

    @shared(out="bucket: int64, x: int64", buckets=4, filter=of_chunks)
    def told(batch, bucket):
        rows = range(batch.num_rows)
        return {"bucket": [bucket.index] * len(rows), "x": batch["x"]}, rows

    wanted = buckets_of(pa.array([row["x"] for row in NUMBERS]), 4).tolist()
    made = outcome(told, NUMBERS).rows("out")
    assert [(row["x"], row["bucket"]) for row in made] == list(enumerate(wanted))
