"""Ranges: each position has one owner, and no replica waits for what cannot be its own."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.ranges import Ranges
from anabranch.state.positions import FIRST, LAST, START, Jumbo, Positions, Root, end

ranges = st.builds(Ranges, st.sampled_from([1, 2, 8, 1 << 18, 1 << 40]), st.integers(1, 5))
times = st.integers(-5, 100) | st.integers(0, 1 << 45) | st.sampled_from([FIRST, LAST])
roots = st.builds(Root, times, st.integers(-2, 2), times, st.integers(0, 2))


def rows(*numbers: int) -> Jumbo:
    positions = Positions.of_source(0, np.array(numbers, np.int64))
    return Jumbo(pa.record_batch({"n": numbers}), positions)


@given(ranges, st.integers(0, 4), roots, roots)
def test_what_a_stream_has_not_passed_is_not_before_the_frontier_of_its_owner(
    found: Ranges, replica: int, frontier: Root, root: Root
) -> None:
    replica %= found.replicas
    owner = int(found.owners(np.array([root.time]))[0])
    passed = found.frontier(replica, frontier)
    assert passed >= frontier
    if root >= frontier and owner == replica:
        assert root >= passed


def test_a_replica_need_not_wait_for_the_range_of_another_one() -> None:
    found = Ranges(rows=4, replicas=3)
    reached = [found.frontier(replica, Root(5, 0, 5, 0)).time for replica in range(3)]
    assert reached == [12, 5, 8]


def test_the_end_is_the_end_for_every_replica() -> None:
    assert Ranges(4, 3).frontier(2, end(7)) == end(7)


def test_before_the_first_tuple_nothing_is_passed_that_could_come() -> None:
    assert Ranges(4, 3).frontier(1, START) < Root(0, 0, 0, 0)


def test_tuples_are_cut_where_a_range_ends() -> None:
    pieces = Ranges(4, 2).pieces(rows(1, 3, 4, 9))
    found = [(number, piece.batch.column("n").to_pylist()) for number, piece in pieces]
    assert found == [(0, [1, 3]), (1, [4]), (2, [9])]
