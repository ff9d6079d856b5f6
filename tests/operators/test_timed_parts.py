"""Event time where the parts of a source are read side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.errors import BuildError
from anabranch.io.offsets import Run
from anabranch.state.positions import IDLE, JOINED, LAST
from anabranch.testing.sequential import run_sequential
from tests.law.arriving import Arriving
from tests.operators.small_flows import values

SCHEMA = pa.schema([("ts", pa.int64())])
PARTS = "abc"


def judged(
    parts: Mapping[str, Sequence[int]],
    story: Sequence[tuple[str, int]],
    lateness: int = 0,
    ahead: int | None = None,
) -> tuple[list[int], list[int]]:
    """The times that are on time, in their order, and those that are late.

    Args:
        parts: By part, its times.
        story: In turn, a part and how many rows of it are read, or what clocks get to know of it.
        lateness: How far behind a tuple may be.
        ahead: How far ahead.
    """
    rows = {name: [{"ts": time} for time in times] for name, times in parts.items()}
    flow = ab.Flow("parts")
    clock = flow.source("s", Arriving(rows, SCHEMA), time="ts", lateness=lateness, ahead=ahead)
    clock.sink("out", ab.collect())
    clock.late.sink("late", ab.collect())
    for name in parts:
        for _ in parts[name]:
            flow.sources()["s"].extent(name)  # all of its rows come
    runs, done = [], dict.fromkeys(parts, 0)
    for number, (part, what) in enumerate(story):
        lane, first = PARTS.index(part), 100 * number
        if what in (JOINED, IDLE, LAST):
            runs.append(Run(first, lane, part, 0, 0, what))
        else:
            runs.append(Run(first, lane, part, done[part], what))
            done[part] += what
    result = run_sequential(flow, interleavings={"s": runs})
    return values(result, "ts"), values(result, "ts", "late")


BOTH = [("a", JOINED), ("b", JOINED)]


def test_lateness_is_judged_by_part():
    times = {"a": [10, 20, 15], "b": [1, 5, 3]}
    assert judged(times, [*BOTH, ("a", 3), ("b", 3)]) == ([1, 5, 10, 20], [15, 3])


def test_a_part_that_joins_later_cannot_undo_what_was_passed():
    times = {"a": [10, 20], "b": [5, 25]}
    story = [("a", JOINED), ("a", 2), ("b", JOINED), ("b", 2)]
    assert judged(times, story) == ([10, 20, 25], [5])


def test_lateness_counts_when_a_part_joins_later():
    times = {"a": [10, 20], "b": [5, 12, 25]}
    story = [("a", JOINED), ("a", 2), ("b", JOINED), ("b", 3)]
    assert judged(times, story, lateness=8) == ([10, 12, 20, 25], [5])


def test_a_part_without_rows_holds_the_others():
    times = {"a": [10, 20], "b": [5]}
    assert judged(times, [*BOTH, ("a", 2), ("b", 1)]) == ([5, 10, 20], [])


def test_an_idle_part_does_not_and_is_late_when_it_comes_back():
    times = {"a": [10, 20], "b": [5, 30]}
    assert judged(times, [*BOTH, ("a", 2), ("b", IDLE), ("b", 2)]) == ([10, 20, 30], [5])


def test_a_part_that_came_back_holds_the_others_again():
    times = {"a": [10, 20, 30], "b": [25, 22, 26]}
    story = [*BOTH, ("a", 2), ("b", IDLE), ("b", 1), ("a", 1), ("b", 2)]
    assert judged(times, story) == ([10, 20, 25, 26, 30], [22])


def test_what_was_passed_while_all_parts_were_idle_stays_passed():
    times = {"a": [10, 19], "b": [20, 15]}
    story = [*BOTH, ("a", 1), ("b", 1), ("b", IDLE), ("a", IDLE), ("a", 1), ("b", 1)]
    assert judged(times, story) == ([10, 20], [19, 15])


def test_a_part_that_has_ended_does_not_hold_the_others():
    times = {"a": [10], "b": [20], "c": [15]}
    story = [*BOTH, ("a", 1), ("a", LAST), ("b", 1), ("c", JOINED), ("c", 1)]
    assert judged(times, story) == ([10, 20], [15])


def test_a_part_may_be_far_ahead_of_the_others():
    times = {"a": [10, 11, 12], "b": [500, 501, 502, 900]}
    story = [("a", JOINED), ("a", 3), ("b", JOINED), ("b", 4)]
    assert judged(times, story, ahead=5) == ([10, 11, 12, 500, 501, 502], [900])


def test_a_part_whose_clock_has_not_started_joins_where_it_came():
    times = {"a": [10, 11, 20], "b": [4, 5, 21]}
    story = [("a", JOINED), ("a", 2), ("b", JOINED), ("b", 1), ("a", 1), ("b", 2)]
    assert judged(times, story, ahead=20) == ([10, 11, 20, 21], [5, 4])


def test_idle_after_is_a_time_for_a_source_that_waits_for_rows():
    with pytest.raises(BuildError, match="read to its end"):
        ab.Flow("f").source("s", ab.memory([{"ts": 1}]), idle_after=timedelta(seconds=1))
    with pytest.raises(BuildError, match="pass a timedelta"):
        ab.Flow("f").source("s", Arriving({"a": []}, SCHEMA), idle_after=5)  # type: ignore[arg-type]


def test_the_end_of_the_part_that_was_furthest_takes_nothing_back():
    times = {"a": [10, 299, 300], "b": [100, 150, 310]}
    story = [*BOTH, ("b", 1), ("b", IDLE), ("a", 3), ("a", LAST), ("b", 2)]
    assert judged(times, story) == ([10, 100, 299, 300, 310], [150])


def test_a_first_tuple_of_an_idle_part_is_late_if_the_others_passed_it():
    times = {"a": [200, 250, 300, 310], "b": [100]}
    story = [*BOTH, ("b", 1), ("b", IDLE), ("a", 3), ("b", LAST), ("a", 1)]
    assert judged(times, story, ahead=60) == ([200, 250, 300, 310], [100])
    assert judged(times, [*BOTH, ("b", 1), ("b", IDLE), ("a", 4)], ahead=60)[1] == [100]


@st.composite
def stories(draw: st.DrawFn) -> tuple[dict[str, list[int]], list[tuple[str, int]]]:
    """Parts and what happens to them: each joins, then has rows or is idle, and may end."""
    times = st.lists(st.integers(0, 150), min_size=1, max_size=6)
    parts = {name: draw(times) for name in PARTS[: draw(st.integers(1, 3))]}
    story: list[tuple[str, int]] = []
    left = {name: len(rows) for name, rows in parts.items()}
    joined, ended = set[str](), set[str]()
    for name in draw(st.lists(st.sampled_from(sorted(parts)), max_size=30)):
        if name not in joined:
            joined.add(name)
            story.append((name, JOINED))
        elif name not in ended:
            what = draw(st.sampled_from((1, IDLE, LAST)))
            if what == LAST and left[name] == 0:
                ended.add(name)
                story.append((name, LAST))
            elif what == 1 and left[name]:
                left[name] -= 1
                story.append((name, 1))
            elif what == IDLE:
                story.append((name, IDLE))
    story += [(name, JOINED) for name in parts if name not in joined]
    return parts, story + [(name, rows) for name, rows in left.items() if rows]


@given(stories(), st.sampled_from((0, 15)), st.sampled_from((None, 30)))
def test_whatever_parts_do_tuples_leave_in_order_and_none_is_lost(story, lateness, ahead):
    on_time, late = judged(*story, lateness, ahead)
    assert on_time == sorted(on_time)
    assert sorted(on_time + late) == sorted(time for rows in story[0].values() for time in rows)
