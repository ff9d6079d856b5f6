from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.state.positions import (
    FIRST,
    LAST,
    START,
    Expansion,
    Jumbo,
    Mark,
    Positions,
    Root,
    after,
    end,
    is_end,
    meet,
)

# The whole range of int64, and few enough values that columns tie.
numbers = st.sampled_from([FIRST, -(2**62) - 1, -1, 0, 1, 2**62 + 1, LAST])
roots = st.builds(Root, numbers, numbers, numbers, numbers)


def rows_of(width: int) -> st.SearchStrategy[list[tuple[int, ...]]]:
    return st.lists(st.tuples(*[numbers] * width), max_size=6)


def jumbo(rows: list[tuple[int, ...]], marks: tuple[Mark, ...] = ()) -> Jumbo:
    width = len(rows[0]) if rows else 4
    batch = pa.record_batch({"x": pa.array(range(len(rows)), pa.int64())})
    return Jumbo(batch, Positions.of_rows(rows, width), marks)


# --- order ---------------------------------------------------------------------------------------


@given(rows_of(5))
def test_order_is_that_of_tuples(rows):
    order = Positions.of_rows(rows, 5).order()
    assert [rows[i] for i in order] == sorted(rows)


@given(rows_of(5))
def test_sorted_means_what_it_means_for_tuples(rows):
    assert Positions.of_rows(rows, 5).is_sorted() == (rows == sorted(rows))


@given(st.lists(numbers, max_size=5), numbers)
def test_constant_columns_do_not_change_whether_rows_are_sorted(seqs, rank):
    positions = Positions.of_source(rank, np.array(seqs, dtype=np.int64))
    assert positions.is_sorted() == (seqs == sorted(seqs))


@given(rows_of(6), roots)
def test_before_compares_the_root_alone(rows, frontier):
    got = Positions.of_rows(rows, 6).before(frontier).tolist()
    assert got == [is_end(frontier) or row[:4] < tuple(frontier) for row in rows]


def test_everything_stands_before_the_end():
    assert Positions.of_rows([(LAST, LAST, LAST, LAST)], 4).before(end(3)).tolist() == [True]


@given(rows_of(4))
def test_in_order_sorts_rows_and_values_together(rows):
    sorted_jumbo = jumbo(rows).in_order()
    values = sorted_jumbo.batch.column("x").to_pylist()
    assert [rows[i] for i in values] == sorted_jumbo.positions.rows() == sorted(rows)


# --- frontiers -----------------------------------------------------------------------------------


@given(st.lists(roots, min_size=1, max_size=4))
def test_streams_have_passed_together_what_the_slowest_has_passed(frontiers):
    going = [f for f in frontiers if not is_end(f)]
    assert meet(frontiers) == (min(going) if going else max(frontiers))


@given(st.lists(st.integers(), min_size=1, max_size=4))
def test_streams_that_are_over_end_at_the_greatest_last_time(lasts):
    assert meet([end(last) for last in lasts]) == end(max(lasts))


@given(st.tuples(numbers, numbers, numbers, st.integers(-5, 5)))
def test_right_behind_a_root_is_behind_it_and_before_all_that_follow(values):
    root = Root(*values)
    behind = after(root)
    assert root < behind <= Root(*values[:3], values[3] + 1)


def test_the_start_is_no_end():
    assert not is_end(START)


# --- columns -------------------------------------------------------------------------------------


def test_a_source_tuple_is_timed_by_its_number():
    assert Positions.of_source(2, np.array([7, 8])).rows() == [(7, 2, 7, 0), (8, 2, 8, 0)]


def test_padding_adds_zero_levels():
    assert Positions.of_rows([(1, 2, 3, 4)], 4).pad(2).rows() == [(1, 2, 3, 4, 0, 0)]


def test_a_port_stands_right_behind_the_root():
    positions = Positions.of_rows([(1, 2, 3, 4, 9)], 5)
    assert positions.under_port(1, 2).rows() == [(1, 2, 3, 4, 1, 9, 0)]


def test_an_event_time_replaces_the_number_and_keeps_source_and_sequence():
    positions = Positions.of_source(2, np.array([7]))
    assert positions.at_time(np.array([50])).rows() == [(50, 2, 7, 0)]


def test_a_level_goes_to_the_end():
    assert Positions.of_rows([(1, 2, 3, 4, 5)], 5).extend(np.array([6])).rows() == [
        (1, 2, 3, 4, 5, 6)
    ]


def test_shallow_positions_are_padded_when_joined():
    joined = Positions.concat(
        [Positions.of_rows([(1, 0, 0, 0)], 4), Positions.of_rows([(2, 0, 0, 0, 5)], 5)]
    )
    assert joined.rows() == [(1, 0, 0, 0, 0), (2, 0, 0, 0, 5)]


@given(rows_of(4), st.data())
def test_taking_chooses_rows(rows, data):
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1)) if rows else st.just([]))
    taken = Positions.of_rows(rows, 4).take(np.array(chosen, dtype=np.int64))
    assert taken.rows() == [rows[i] for i in chosen]


def test_depth_counts_the_levels_behind_the_root():
    assert Positions.empty(3).depth == 3


# --- jumbo tuples --------------------------------------------------------------------------------


def test_joining_keeps_every_mark():
    mark = Mark(Root(1, 0, 1, -1), 9)
    other = Mark(Root(2, 0, 2, -1), 12)
    joined = Jumbo.concat([jumbo([(1, 0, 1, 0)], (mark,)), jumbo([(2, 0, 2, 0)], (other,))])
    assert joined.marks == (mark, other)


def test_a_mask_that_keeps_all_copies_nothing():
    whole = jumbo([(1, 0, 1, 0), (2, 0, 2, 0)])
    assert whole.where(np.array([True, True])) is whole


def test_a_mask_keeps_values_and_positions_of_the_same_rows():
    kept = jumbo([(1, 0, 1, 0), (2, 0, 2, 0), (3, 0, 3, 0)]).where(np.array([True, False, True]))
    assert (kept.batch.column("x").to_pylist(), [p[0] for p in kept.positions.rows()]) == (
        [0, 2],
        [1, 3],
    )


def test_a_slice_carries_no_marks():
    whole = jumbo([(1, 0, 1, 0), (2, 0, 2, 0)], (Mark(Root(2, 0, 2, -1), 5),))
    assert whole.slice(0, 2).marks == ()


@pytest.mark.parametrize("depth", [0, 2])
def test_an_empty_jumbo_has_schema_and_depth(depth):
    empty = Jumbo.empty(pa.schema([("x", pa.string())]), depth)
    assert (len(empty), empty.batch.schema.names, empty.positions.depth) == (0, ["x"], depth)


@given(
    rows=st.lists(
        st.tuples(*[st.integers(-3, 3) | st.sampled_from([FIRST, LAST])] * 5), min_size=1
    ),
    constant=st.sets(st.integers(0, 4)),
)
def test_order_is_lexicographic_whatever_the_columns_look_like(
    rows: list[tuple[int, ...]], constant: set[int]
) -> None:
    given_rows = [tuple(0 if i in constant else v for i, v in enumerate(row)) for row in rows]
    positions = Positions.of_rows(given_rows, 5)
    order = positions.order().tolist()
    assert order == sorted(range(len(rows)), key=lambda r: given_rows[r])


def test_joining_keeps_constants_constant_and_twins_one_array() -> None:
    parts = [Positions.of_source(3, np.arange(n, n + 2)) for n in (0, 7)]
    joined = Positions.concat(parts)
    assert joined.rows() == [(0, 3, 0, 0), (1, 3, 1, 0), (7, 3, 7, 0), (8, 3, 8, 0)]
    assert joined.columns[0] is joined.columns[2]
    assert joined.columns[1].strides == (0,)


def test_constants_that_differ_are_written_out_when_joined() -> None:
    parts = [Positions.of_source(rank, np.arange(2)) for rank in (0, 1)]
    assert Positions.concat(parts).columns[1].tolist() == [0, 0, 1, 1]


@given(lengths=st.lists(st.integers(0, 4), max_size=6), data=st.data())
def test_positions_of_expanded_tuples_are_the_same_whenever_they_are_worked_out(
    lengths: list[int], data: st.DataObject
) -> None:
    base = Positions.of_source(1, np.arange(10, 10 + len(lengths)))
    parents = np.repeat(np.arange(len(lengths)), lengths)
    expected = [(*base.rows()[p], i) for p, n in enumerate(lengths) for i in range(n)]
    chosen = data.draw(st.lists(st.integers(0, len(parents) - 1))) if len(parents) else []
    rows = np.array(chosen, np.int64)
    assert Expansion(base, parents).take(rows).rows() == [expected[r] for r in chosen]
    whole = Expansion(base, parents)
    assert whole.rows() == expected
    assert whole.depth == 1
    assert whole.take(rows).rows() == [expected[r] for r in chosen]
