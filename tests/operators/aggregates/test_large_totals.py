"""Sums and means of whole numbers that leave 64 bits: exact, or refused, but never wrapped."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.columns.grouped_rows import Runs
from anabranch.errors import OperatorError
from anabranch.flow import Flow
from anabranch.graph import StreamType
from anabranch.io import collect, memory
from anabranch.operators.aggregates import functions as ab
from anabranch.operators.aggregates.accumulators import TooLarge, WholeMean, WholeSum
from anabranch.operators.aggregates.aggregate import aggregate
from anabranch.operators.aggregates.combine import split
from anabranch.operators.aggregates.windows import count_window, session, sliding, tumbling
from anabranch.state.positions import Jumbo, Root
from anabranch.testing.sequential import run_sequential
from tests.operators.driving import Cut, Drive, stream
from tests.operators.small_flows import agreed

LEAST, MOST = -(2**63), 2**63 - 1
SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])
TIMED = StreamType(SCHEMA, pa.int64())
WIDE = st.integers(LEAST, MOST) | st.sampled_from([LEAST, MOST, 0, 1, -1, 2**32, -(2**32) - 1])
GROUPS = 3


def total_of(state: dict[str, np.ndarray], group: int) -> int:
    return (int(state["t.carry"][group]) << 64) + int(state["t.total"][group])


def lifted(accumulator: WholeSum, values: list[int | None], kind: str = "int64"):
    return accumulator.lift(pa.array(values, pa.type_for_alias(kind)), len(values))


def blank() -> dict[str, np.ndarray]:
    return {f"t.{part}": np.zeros(GROUPS, np.int64) for part in ("total", "carry", "count")}


BATCHES = st.lists(
    st.lists(st.tuples(st.integers(0, GROUPS - 1), st.none() | WIDE), max_size=12), max_size=4
)


@given(BATCHES)
def test_totals_are_those_of_python(batches):
    accumulator, state, expected = WholeSum("t", pa.int64()), blank(), [0] * GROUPS
    for batch in batches:
        codes = np.array([group for group, _ in batch], np.int64)
        accumulator.merge(state, codes, lifted(accumulator, [value for _, value in batch]))
        for group, value in batch:
            expected[group] += value or 0
    assert [total_of(state, group) for group in range(GROUPS)] == expected


@given(BATCHES)
def test_running_totals_are_those_of_python(batches):
    accumulator, state, held = WholeSum("t", pa.int64()), blank(), [0] * GROUPS
    for batch in batches:
        codes = np.array([group for group, _ in batch], np.int64)
        given_ = lifted(accumulator, [value for _, value in batch])
        after = accumulator.scan(state, Runs(codes, GROUPS), given_)
        for row, (group, value) in enumerate(batch):
            held[group] += value or 0
            assert total_of(after, row) == held[group]
    assert [total_of(state, group) for group in range(GROUPS)] == held


@given(BATCHES)
def test_parts_may_meet_in_any_order(batches):
    accumulator = WholeSum("t", pa.int64())
    parts = []
    for batch in batches:
        parts.append(blank())
        codes = np.array([group for group, _ in batch], np.int64)
        accumulator.merge(parts[-1], codes, lifted(accumulator, [value for _, value in batch]))
    states = [blank(), blank()]
    for state, order in zip(states, (parts, parts[::-1]), strict=True):
        for part in order:
            accumulator.merge(state, np.arange(GROUPS), part)
    for name in states[0]:
        assert states[0][name].tolist() == states[1][name].tolist()


@given(st.lists(WIDE, min_size=1, max_size=12))
def test_means_are_right_to_the_last_digits_of_a_double(values):
    accumulator, state = WholeMean("t", pa.float64()), blank()
    accumulator.merge(state, np.zeros(len(values), np.int64), lifted(accumulator, values))
    mean = accumulator.finish(state)[0].as_py()
    expected = Fraction(sum(values), len(values))
    assert abs(Fraction(mean) - expected) <= abs(expected) * Fraction(2) ** -51


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("int8", [-128] * 5),
        ("uint8", [255] * 5),
        ("int32", [-(2**31)] * 5),
        ("uint32", [2**32 - 1] * 5),
        ("uint64", [2**64 - 1, 2**63, 1, 0, None]),
        ("uint64", [1, 2, 3]),
    ],
)
def test_whole_numbers_of_every_width_add_up(kind, values):
    accumulator, state = WholeMean("t", pa.float64()), blank()
    codes = np.zeros(len(values), np.int64)
    accumulator.merge(state, codes, lifted(accumulator, values, kind))
    some = [value for value in values if value is not None]
    assert total_of(state, 0) == sum(some)
    assert accumulator.finish(state)[0].as_py() == sum(some) / len(some)


def test_a_total_that_came_back_is_a_result():
    accumulator, state = WholeSum("t", pa.int64()), blank()
    for values in ([MOST, MOST], [MOST], [-MOST, LEAST]):
        codes = np.zeros(len(values), np.int64)
        accumulator.merge(state, codes, lifted(accumulator, values))
    assert accumulator.finish(state).to_pylist() == [MOST - 1, None, None]


def test_the_largest_result_is_one_and_the_next_is_not():
    accumulator, state = WholeSum("t", pa.int64()), blank()
    accumulator.merge(state, np.array([1, 2]), lifted(accumulator, [MOST, LEAST]))
    assert accumulator.finish(state).to_pylist() == [None, MOST, LEAST]
    accumulator.merge(state, np.array([2]), lifted(accumulator, [-1]))
    with pytest.raises(TooLarge) as caught:
        accumulator.finish(state)
    assert (caught.value.row, caught.value.total) == (2, LEAST - 1)


# --- in flows ------------------------------------------------------------------------------------

STAMPS = [{"k": k, "v": 1_790_000_000_000_000_000 + i} for i in range(6) for k in "ab"]
WAYS = {
    "running": {},
    "final": {"emit": "final", "combine": False},
    "combined": {"emit": "final", "combine": True},
    "changes": {"emit": "changes", "combine": False},
    "tumbling": {"window": tumbling(100)},
    "tumbling, combined": {"window": tumbling(100), "combine": True},
    "sliding": {"window": sliding(100, 50)},
    "session": {"window": session(100)},
    "count": {"window": count_window(6)},
}


def flow_of(way: str, **functions) -> Flow:
    flow = Flow("stamps", buckets=4)
    rows = [{**row, "at": i} for i, row in enumerate(STAMPS)]
    made = flow.source("stamps", memory(rows), time="at").aggregate(
        "step", key="k", **WAYS[way], **functions
    )
    made.sink("out", collect())
    return flow


@pytest.mark.parametrize("way", sorted(WAYS))
def test_the_mean_of_large_numbers_is_among_them(way):
    rows = agreed(flow_of(way, mean=ab.mean("v"))).rows("out")
    last = {row["k"]: row["mean"] for row in rows}
    assert set(last) == {"a", "b"}
    for row in rows:
        assert 1_790_000_000_000_000_000 <= row["mean"] <= 1_790_000_000_000_000_256


@pytest.mark.parametrize("way", sorted(WAYS))
def test_a_sum_that_is_no_number_of_64_bits_is_refused(way):
    with pytest.raises(OperatorError) as caught:
        run_sequential(flow_of(way, total=ab.sum("v")))
    assert caught.value.step == "step"
    assert "a total of 64 bits in total = sum('v')" in str(caught.value)
    assert "for key 'a'" in str(caught.value) or "for key 'b'" in str(caught.value)
    assert "cast 'v' to double before this step" in str(caught.value)
    assert 2**63 <= int(caught.value.got.split(" ")[0]) < 10 * 2**61


def test_without_a_key_the_total_alone_is_named():
    flow = Flow("stamps")
    made = flow.source("stamps", memory(STAMPS)).aggregate("step", emit="final", t=ab.sum("v"))
    made.sink("out", collect())
    expected = sum(row["v"] for row in STAMPS)
    with pytest.raises(OperatorError, match=rf"got {expected}; cast"):
        run_sequential(flow)


@given(st.lists(WIDE, min_size=1, max_size=10), st.sets(st.integers(0, 10)))
def test_combining_does_not_show_in_a_mean(values, cut):
    operator = aggregate("k", emit="final", mean=ab.mean("v"))
    rows = [{"k": "ab"[i % 2], "v": value} for i, value in enumerate(values)]
    jumbo, stops = stream(SCHEMA, rows), sorted(s for s in {*cut, len(rows)} if s <= len(rows))
    alone = Drive(operator, TIMED).run(jumbo, tuple(Cut(stop) for stop in stops))
    combine, merging = split(operator, TIMED)
    first = Drive(combine, TIMED)
    kernel, parts = first.kernel(), []
    for start, stop in pairwise([0, *stops]):
        (made,) = kernel.step([jumbo.slice(start, stop)], Root(0, 0, 0, 0))
        parts += [made] if made is not None else []
    merged = Drive(merging, first.out[0], depth=1).run(Jumbo.concat(parts).in_order())
    assert [row for _, row in merged] == [row for _, row in alone]
