from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.gate import Gate, Release
from anabranch.runtime.messages import Chunk, Chunks
from anabranch.state.positions import START, Jumbo, Mark, Positions, Root, end


def at(time: int) -> Root:
    return Root(time, 0, 0, 0)


def tuples(*times: int, rank: int = 0, marks: tuple[Mark, ...] = ()) -> Jumbo:
    batch = pa.record_batch({"x": pa.array(times, pa.int64())})
    return Jumbo(batch, Positions.of_rows([(t, rank, t, 0) for t in times], 4), marks)


def times(jumbo: Jumbo | None) -> list[int]:
    return [] if jumbo is None else jumbo.batch.column("x").to_pylist()


def gate_of(*channels: str, ports: int = 1, ordered: bool = True) -> Gate:
    gate = Gate(ports, ordered=ordered)
    for channel in channels:
        gate.open(channel)
    return gate


def test_nothing_is_ready_before_every_channel_has_delivered():
    gate = gate_of("a", "b")
    gate.add("a", 0, tuples(1), at(9))
    assert gate.ready() == ([None], START)


def test_a_gate_without_channels_stands_at_the_start():
    assert Gate(1).frontier == START


def test_what_every_channel_has_passed_leaves_in_the_order_of_positions():
    gate = gate_of("a", "b")
    gate.add("a", 0, tuples(1, 4, 6), at(7))
    gate.add("b", 0, tuples(2, 3), at(5))
    (released,), frontier = gate.ready()
    assert (times(released), frontier) == ([1, 2, 3, 4], at(5))


def test_what_is_not_ready_comes_later():
    gate = gate_of("a", "b")
    gate.add("a", 0, tuples(1, 6), at(7))
    gate.add("b", 0, None, at(5))
    gate.ready()
    gate.add("b", 0, None, at(8))
    (released,), _ = gate.ready()
    assert times(released) == [6]


def test_a_tuple_at_the_frontier_itself_waits():
    gate = gate_of("a")
    gate.add("a", 0, tuples(5), Root(5, 0, 5, 0))
    assert gate.ready()[0] == [None]


def test_a_channel_may_deliver_out_of_order_between_two_frontiers():
    gate = gate_of("a")
    gate.add("a", 0, tuples(3, 1), START)
    gate.add("a", 0, tuples(2), at(4))
    assert times(gate.ready()[0][0]) == [1, 2, 3]


def test_ports_are_kept_apart():
    gate = gate_of("a", "b", ports=2)
    gate.add("a", 0, tuples(1), at(5))
    gate.add("b", 1, tuples(2), at(5))
    left, right = gate.ready()[0]
    assert (times(left), times(right)) == ([1], [2])


def test_channels_that_are_over_do_not_hold_the_others():
    gate = gate_of("a", "b")
    gate.add("a", 0, tuples(1), end(1))
    gate.add("b", 0, tuples(2, 8), at(5))
    (released,), frontier = gate.ready()
    assert (times(released), frontier) == ([1, 2], at(5))


def test_the_end_is_reached_when_all_have_ended():
    gate = gate_of("a", "b")
    gate.add("a", 0, tuples(1), end(1))
    gate.add("b", 0, tuples(8), end(8))
    (released,), frontier = gate.ready()
    assert (times(released), frontier) == ([1, 8], end(8))


def test_a_release_can_be_cut_short():
    gate = gate_of("a")
    gate.add("a", 0, tuples(1, 2, 3), at(9))
    (released,), frontier = gate.ready(Root(2, 0, 2, 0))
    assert (times(released), frontier) == ([1], Root(2, 0, 2, 0))


def test_a_release_is_never_cut_behind_what_is_ready():
    gate = gate_of("a")
    gate.add("a", 0, tuples(1, 8), at(5))
    (released,), frontier = gate.ready(at(9))
    assert (times(released), frontier) == ([1], at(5))


def test_places_to_cut_are_the_roots_of_ready_tuples():
    gate = gate_of("a")
    gate.add("a", 0, tuples(3, 1, 3, 7), at(5))
    assert gate.candidates() == [Root(1, 0, 1, 0), Root(3, 0, 3, 0)]


def test_what_the_end_sets_free_beyond_the_last_time_is_not_cut_off_from_it():
    gate = gate_of("a")
    gate.add("a", 0, tuples(1, 4, 90), end(4))
    assert gate.candidates() == [Root(1, 0, 1, 0), Root(4, 0, 4, 0)]


def test_there_is_news_when_the_frontier_moves_even_without_tuples():
    gate = gate_of("a")
    gate.add("a", 0, None, at(1))
    news = gate.has_news()
    gate.ready()
    assert (news, gate.has_news()) == (True, False)


def test_there_is_news_after_a_release_that_was_cut():
    gate = gate_of("a")
    gate.add("a", 0, tuples(1, 2), at(9))
    gate.ready(Root(2, 0, 2, 0))
    assert gate.has_news()


def test_an_unordered_gate_waits_for_nobody():
    gate = gate_of("a", "b", ordered=False)
    gate.add("a", 0, tuples(3), at(4))
    news = gate.has_news()
    (released,), frontier = gate.ready()
    assert (news, times(released), frontier) == (True, [3], START)


def test_an_unordered_gate_sorts_what_it_releases():
    gate = gate_of("a", "b", ordered=False)
    gate.add("a", 0, tuples(3), at(4))
    gate.add("b", 0, tuples(1), at(4))
    assert times(gate.ready()[0][0]) == [1, 3]


def test_what_is_left_can_be_put_into_another_gate():
    gate = gate_of("a", ports=2)
    gate.add("a", 1, tuples(1, 6), at(5))
    gate.ready()
    nothing, rest = gate.leftover()
    other = gate_of("b", ports=2)
    other.preload(1, rest)
    other.add("b", 0, None, at(7))
    assert (nothing, times(other.ready()[0][1])) == (None, [6])


def test_leftovers_are_given_once():
    gate = gate_of("a")
    gate.add("a", 0, tuples(6), at(5))
    gate.leftover()
    assert gate.leftover() == [None]


@pytest.mark.parametrize(("frontier", "early", "late"), [(at(5), [2], [8]), (at(9), [2, 8], [])])
def test_marks_leave_with_the_tuples_before_them(frontier, early, late):
    marks = tuple(Mark(at(t), t + 100) for t in (2, 8))
    gate = gate_of("a")
    gate.add("a", 0, tuples(1, 7, marks=marks), frontier)
    (released,), _ = gate.ready()
    (kept,) = gate.leftover()
    assert [m.root.time for m in released.marks] == early
    assert [m.root.time for m in (kept.marks if kept else ())] == late


@given(
    st.lists(st.lists(st.integers(0, 30), max_size=6).map(sorted), min_size=1, max_size=3),
    st.lists(st.integers(0, 31), max_size=4).map(sorted),
)
def test_any_deliveries_give_the_sorted_whole_in_the_end(channels, stops):
    gate = gate_of(*(str(number) for number in range(len(channels))))
    released: list[int] = []
    before = -1
    for stop in [*stops, None]:
        for number, all_times in enumerate(channels):
            part = [t for t in all_times if before <= t and (stop is None or t < stop)]
            frontier = end(30) if stop is None else Root(stop, -1, 0, 0)
            gate.add(str(number), 0, tuples(*part, rank=number), frontier)
        released += times(gate.ready()[0][0])
        before = stop if stop is not None else before
    assert released == sorted(t for channel in channels for t in channel)


# Runs: all that is ready, piece by piece


def flat(released) -> tuple[list[tuple[int, ...]], list[int], list[Mark]]:
    """Positions, values and marks of a release."""
    if released is None:
        return [], [], []
    return released.positions.rows(), released.batch.column("x").to_pylist(), sorted(released.marks)


def run_through(gate: Gate, most_rows: int) -> list[tuple[Jumbo | None, Root]]:
    return [(released, frontier) for (released,), frontier in gate.runs(most_rows)]


frontiers = st.integers(0, 32).map(lambda t: Root(t, -1, 0, 0)) | st.integers(0, 31).map(end)
marked = st.lists(st.tuples(st.integers(0, 30), st.integers(-1, 0)), max_size=2).map(
    lambda roots: tuple(Mark(Root(root, 0, root, sub), root + 50) for root, sub in roots)
)
deliveries = st.lists(
    st.tuples(st.lists(st.integers(0, 30), max_size=5), st.integers(0, 1), marked), max_size=6
)


@given(deliveries, frontiers, st.integers(1, 8))
def test_runs_release_what_ready_would_cut_where_the_positions_allow(given_, frontier, most):
    whole, cut = gate_of("a"), gate_of("a")
    for gate in (whole, cut):
        for all_times, rank, marks in given_:
            gate.add("a", 0, tuples(*all_times, rank=rank, marks=marks), START)
        gate.add("a", 0, None, frontier)
    places = whole.candidates()
    (expected,), reached = whole.ready()
    pieces = run_through(cut, most)
    got = [flat(piece) for piece, _ in pieces]
    rows, values, marks = flat(expected)
    assert [row for part, _, _ in got for row in part] == rows
    assert [value for _, part, _ in got for value in part] == values
    assert [mark for _, _, part in got for mark in part] == marks
    reaches = [at for _, at in pieces]
    assert reaches[-1] == reached
    assert set(reaches[:-1]) <= set(places)
    before = START
    for (part, _, some), until in zip(got, reaches, strict=True):
        roots = [Root(*row[:4]) for row in part] + [mark.root for mark in some]
        assert all(before <= root < until for root in roots)
        before = until
    assert flat(whole.leftover()[0]) == flat(cut.leftover()[0])
    assert not cut.has_news()


def test_jumbo_tuples_that_follow_one_another_leave_as_they_came():
    gate = gate_of("a")
    later, earlier = tuples(4, 5, 6), tuples(1, 2, 3)
    gate.add("a", 0, later, START)
    gate.add("a", 0, earlier, at(9))
    first, second = run_through(gate, 2)
    assert first[0].batch is earlier.batch
    assert second[0].batch is later.batch
    assert first[1] == Root(4, 0, 4, 0)


def test_runs_are_not_cut_before_they_are_long_enough():
    gate = gate_of("a")
    for time in range(9):
        gate.add("a", 0, tuples(time), at(20))
    assert [len(piece) for piece, _ in run_through(gate, 4)] == [4, 4, 1]


def test_runs_do_not_part_the_tuples_of_one_root():
    gate = gate_of("a")
    for level in range(3):
        batch = pa.record_batch({"x": pa.array([level], pa.int64())})
        gate.add("a", 0, Jumbo(batch, Positions.of_rows([(1, 0, 1, 0, level)], 5)), at(9))
    assert [len(piece) for piece, _ in run_through(gate, 1)] == [3]


def test_runs_keep_what_the_end_sets_free_with_the_end():
    gate = gate_of("a")
    for time in (1, 4, 90, 91):
        gate.add("a", 0, tuples(time), end(4))
    pieces = run_through(gate, 1)
    assert [times(piece) for piece, _ in pieces] == [[1], [4, 90, 91]]


def test_runs_of_several_ports_are_one_piece():
    gate = gate_of("a", ports=2)
    gate.add("a", 0, tuples(1, 2), at(9))
    gate.add("a", 1, tuples(3), at(9))
    [((left, right), frontier)] = list(gate.runs(1))
    assert (times(left), times(right), frontier) == ([1, 2], [3], at(9))


def test_marks_alone_are_a_run():
    gate = gate_of("a")
    gate.add("a", 0, tuples(marks=(Mark(at(1), 7),)), at(5))
    [(piece, frontier)] = run_through(gate, 3)
    assert (len(piece), len(piece.marks), frontier) == (0, 1, at(5))


def test_a_run_without_anything_still_tells_how_far_it_is():
    gate = gate_of("a")
    gate.add("a", 0, None, at(5))
    assert run_through(gate, 3) == [(None, at(5))]


def test_a_mark_at_a_cut_goes_with_the_piece_behind_it():
    gate = gate_of("a")
    gate.add("a", 0, tuples(1, marks=(Mark(Root(2, 0, 2, 0), 7),)), START)
    gate.add("a", 0, tuples(2), at(9))
    assert [len(piece.marks) for piece, _ in run_through(gate, 1)] == [0, 1]


# What a unit takes at once


def claim(number: int) -> Chunks:
    return frozenset({Chunk("rows", number)})


def take_all(gate: Gate, most_rows: int) -> list[Release]:
    found = []
    while gate.has_news():
        found.append(gate.take(most_rows=most_rows))
    return found


def test_all_that_is_ready_is_taken_at_once_when_it_is_little():
    gate = gate_of("a")
    for time in range(3):
        gate.add("a", 0, tuples(time), at(9))
    assert [times(each.inputs[0]) for each in take_all(gate, 8)] == [[0, 1, 2]]


def test_much_that_is_ready_is_taken_in_pieces_that_follow_one_another():
    gate = gate_of("a")
    for time in (4, 0, 2):
        gate.add("a", 0, tuples(time, time + 1), START)
    gate.add("a", 0, None, at(9))
    taken = [(times(each.inputs[0]), each.frontier) for each in take_all(gate, 2)]
    assert taken == [
        ([0, 1], Root(2, 0, 2, 0)),
        ([2, 3], Root(4, 0, 4, 0)),
        ([4, 5], at(9)),
    ]


def test_deliveries_that_overlap_are_not_cut_apart():
    gate = gate_of("a", "b")
    gate.add("a", 0, tuples(1, 5), at(9))
    gate.add("b", 0, tuples(2, 3), at(9))
    gate.add("b", 0, tuples(7), at(9))
    assert [times(each.inputs[0]) for each in take_all(gate, 1)] == [[1, 2, 3, 5], [7]]


def test_tuples_of_one_root_are_not_cut_apart():
    gate = gate_of("a")
    gate.add("a", 0, tuples(1), START)
    gate.add("a", 0, tuples(1), at(9))
    assert [times(each.inputs[0]) for each in take_all(gate, 1)] == [[1, 1]]


def test_what_the_end_sets_free_beyond_the_last_time_is_taken_with_the_end():
    gate = gate_of("a")
    for time in (1, 2, 50):
        gate.add("a", 0, tuples(time), START)
    gate.add("a", 0, None, end(2))
    assert [times(each.inputs[0]) for each in take_all(gate, 1)] == [[1], [2, 50]]


def test_deliveries_with_marks_are_taken_at_once():
    gate = gate_of("a")
    gate.add("a", 0, tuples(1, marks=(Mark(at(1), 7),)), START)
    gate.add("a", 0, tuples(2), at(9))
    assert [times(each.inputs[0]) for each in take_all(gate, 1)] == [[1, 2]]


def test_several_ports_are_taken_up_to_one_frontier():
    gate = gate_of("a", "b", ports=2)
    gate.add("a", 0, tuples(1, 8), at(9))
    gate.add("b", 1, tuples(2), at(5))
    (taken,) = take_all(gate, 1)
    assert ([times(each) for each in taken.inputs], taken.frontier) == ([[1], [2]], at(5))


def test_what_is_taken_can_be_cut_short():
    gate = gate_of("a")
    gate.add("a", 0, tuples(1, 2, 3), at(9))
    taken = gate.take(Root(2, 0, 2, 0))
    assert (times(taken.inputs[0]), taken.frontier) == ([1], Root(2, 0, 2, 0))


def test_without_order_deliveries_are_taken_as_they_have_come():
    gate = gate_of("a", "b", ordered=False)
    gate.add("a", 0, tuples(5, 6), at(7))
    gate.add("b", 0, tuples(1, 2), at(3))
    assert [times(each.inputs[0]) for each in take_all(gate, 2)] == [[5, 6], [1, 2]]


def test_without_order_small_deliveries_are_taken_together():
    gate = gate_of("a", ordered=False)
    for time in range(5):
        gate.add("a", 0, tuples(time), at(time + 1))
    assert [times(each.inputs[0]) for each in take_all(gate, 2)] == [[0, 1], [2, 3], [4]]


def test_without_order_no_more_is_promised_than_was_taken():
    gate = gate_of("a", ordered=False)
    for time in (0, 2, 4):
        gate.add("a", 0, tuples(time, time + 1), at(time + 2))
    assert [each.frontier for each in take_all(gate, 2)] == [at(2), at(4), at(6)]


def test_without_order_a_frontier_alone_counts_for_the_last_delivery():
    gate = gate_of("a", ordered=False)
    gate.add("a", 0, tuples(0, 1), at(2))
    gate.add("a", 0, None, at(5))
    gate.add("a", 0, tuples(6, 7), at(8))
    assert [each.frontier for each in take_all(gate, 2)] == [at(5), at(8)]


def test_without_order_ports_are_told_apart():
    gate = gate_of("a", "b", ports=2, ordered=False)
    gate.add("b", 1, tuples(5), at(6))
    gate.add("a", 0, tuples(1), at(2))
    taken = [[times(each) for each in release.inputs] for release in take_all(gate, 1)]
    assert taken == [[[], [5]], [[1], []]]


def test_what_is_taken_is_as_old_as_its_oldest_delivery():
    gate = gate_of("a")
    gate.add("a", 0, tuples(1), at(2), born_s=7.0)
    gate.add("a", 0, tuples(2), at(3), born_s=5.0)
    gate.add("a", 0, tuples(9), at(4), born_s=1.0)
    assert gate.take().born_s == 5.0


def test_nothing_is_as_old_as_a_mark():
    gate = gate_of("a")
    gate.add("a", 0, tuples(marks=(Mark(at(1), 7),)), at(3), born_s=5.0)
    assert gate.take().born_s is None


def test_each_delivery_that_is_taken_names_its_claims():
    gate = gate_of("a")
    gate.add("a", 0, tuples(1), at(2), chunks=claim(1))
    gate.add("a", 0, tuples(2), at(3), chunks=claim(1))
    assert gate.take().chunks == [claim(1), claim(1)]


def test_a_delivery_that_is_taken_in_parts_counts_with_its_last_part():
    gate = gate_of("a")
    gate.add("a", 0, tuples(1, 4, 7), at(3), chunks=claim(1))
    taken = [gate.take().chunks]
    for time in (5, 9):
        gate.add("a", 0, None, at(time))
        taken.append(gate.take().chunks)
    assert taken == [[], [], [claim(1)]]


def test_a_delivery_of_which_a_part_waits_is_among_those_that_wait():
    gate = gate_of("a")
    gate.add("a", 0, tuples(1, 4), at(3), chunks=claim(1))
    gate.take()
    assert gate.waiting_chunks() == [claim(1)]


def test_what_was_put_back_belongs_to_no_claim():
    gate = gate_of("a")
    gate.preload(0, tuples(1))
    gate.add("a", 0, None, at(3))
    taken = gate.take()
    assert (times(taken.inputs[0]), taken.chunks) == ([1], [frozenset()])


@given(deliveries, frontiers, st.integers(1, 8))
def test_what_is_taken_piece_by_piece_is_what_is_ready(given_, frontier, most):
    whole, cut = gate_of("a"), gate_of("a")
    for gate in (whole, cut):
        for number, (all_times, rank, marks) in enumerate(given_):
            jumbo = tuples(*all_times, rank=rank, marks=marks)
            gate.add("a", 0, jumbo, START, chunks=claim(number))
        gate.add("a", 0, None, frontier)
    (expected,), _ = whole.ready()
    taken = take_all(cut, most)
    got = [flat(each.inputs[0]) for each in taken]
    assert [row for rows, _, _ in got for row in rows] == flat(expected)[0]
    done = [chunks for each in taken for chunks in each.chunks]
    there = [claim(n) for n, (rows, _, marks) in enumerate(given_) if rows or marks]
    assert sorted([*done, *cut.waiting_chunks()], key=list) == there


# --- clocks with several replicas ----------------------------------------------------------------


def test_upstream_of_such_a_clock_deliveries_are_taken_one_by_one():
    gate = Gate(1, ordered=False, in_slices=True)
    gate.open("a")
    gate.add("a", 0, tuples(8, 9), at(10))
    gate.add("a", 0, tuples(12), at(13))
    assert [times(release.inputs[0]) for release in take_all(gate, 100)] == [[8, 9], [12]]


@pytest.mark.parametrize("ordered", [True, False])
def test_a_frontier_names_the_claims_that_moved_it_when_it_is_reached(ordered):
    gate = gate_of("a", "b", ordered=ordered)
    gate.add("a", 0, None, at(4), born_s=2.0, chunks=claim(7))
    assert gate.waiting_chunks() == [claim(7)]
    gate.add("b", 0, tuples(1), at(3), born_s=9.0, chunks=claim(8))
    first = gate.take()
    assert (first.chunks, first.completing, first.born_s) == ([claim(8)], frozenset(), 9.0)
    gate.add("b", 0, None, at(5))
    second = gate.take()
    assert (second.chunks, second.completing, second.born_s) == ([claim(7)], claim(7), 2.0)
    assert gate.waiting_chunks() == []
