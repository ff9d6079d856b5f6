"""Ranges: each position has one owner, and no replica waits for what cannot be its own."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.io.reader import PART_SHIFT
from anabranch.runtime.ranges import Ranges
from anabranch.state.positions import FIRST, LAST, START, Jumbo, Positions, Root, end

NEXT_PART = 1 << PART_SHIFT

sizes = st.sampled_from([1, 2, 8, 1 << 18, 1 << 39, 1 << 40])
ranges = st.builds(Ranges, sizes, st.integers(1, 9))
borders = st.builds(
    lambda part, row: (part << PART_SHIFT) + row, st.integers(0, 9), st.integers(-40, 40)
)
times = borders | st.integers(-(1 << 45), 1 << 45) | st.sampled_from([FIRST, LAST])
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


def test_a_replica_without_a_range_in_the_rest_of_a_part_waits_for_the_next_part() -> None:
    found, last = Ranges(rows=4, replicas=3), NEXT_PART - 1
    owners = found.owners(np.arange(last - 3, last + 10, 4)).tolist()
    assert owners == [0, 1, 2, 0]  # the last range of part 0, the first ones of part 1
    reached = [found.frontier(replica, Root(last, 0, last, 0)).time for replica in range(3)]
    assert reached == [last, NEXT_PART, NEXT_PART]


@pytest.mark.parametrize("replicas", range(1, 10))
@pytest.mark.parametrize("size", [1 << 17, 1 << 18, 1 << 40])
def test_parts_that_are_shorter_than_a_range_are_dealt_out_in_turn(
    replicas: int, size: int
) -> None:
    first_rows = np.arange(18, dtype=np.int64) << PART_SHIFT
    owners = Ranges(size, replicas).owners(first_rows + 100_000)
    assert owners.tolist() == [part % replicas for part in range(18)]


@given(st.builds(Ranges, st.sampled_from([1, 2, 8]), st.integers(1, 5)), st.integers(1, 200))
def test_the_share_of_a_replica_is_that_of_the_rows_that_it_owns(found: Ranges, rows: int) -> None:
    owned = np.bincount(found.owners(np.arange(rows)), minlength=found.replicas)
    shares = [found.share(replica, rows) for replica in range(found.replicas)]
    assert shares == pytest.approx((owned / rows).tolist())


def test_the_end_is_the_end_for_every_replica() -> None:
    assert Ranges(4, 3).frontier(2, end(7)) == end(7)


def test_before_the_first_tuple_nothing_is_passed_that_could_come() -> None:
    assert Ranges(4, 3).frontier(1, START) < Root(0, 0, 0, 0)


def test_tuples_are_cut_where_a_range_ends() -> None:
    pieces = Ranges(4, 2).pieces(rows(1, 3, 4, 9))
    found = [(number, piece.batch.column("n").to_pylist()) for number, piece in pieces]
    assert found == [(0, [1, 3]), (1, [4]), (2, [9])]


def test_tuples_are_cut_where_a_part_ends() -> None:
    pieces = Ranges(NEXT_PART, 2).pieces(rows(NEXT_PART - 1, NEXT_PART, NEXT_PART + 1))
    assert [len(piece) for _, piece in pieces] == [1, 2]
