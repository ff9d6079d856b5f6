"""What is due, found by time: against a sorted list, and shared by several owners."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from anabranch.state.tables.keyed_table import KeyedTable
from anabranch.state.tables.slab import DueIndex, Slab
from tests.state.tables.tables import BUCKETS, VALUES, ints, key_schema


def everywhere(slots: np.ndarray) -> np.ndarray:
    return slots >= 0


@given(st.lists(st.one_of(st.lists(st.integers(0, 50), max_size=9), st.integers(0, 50))))
def test_entries_come_out_once_when_their_time_has_come(script: list[list[int] | int]) -> None:
    index, waiting, number = DueIndex(), [], 0
    for step in script:
        if isinstance(step, int):
            taken = index.take(until=step).tolist()
            assert sorted(taken) == sorted(slot for due, slot in waiting if due <= step)
            waiting = [(due, slot) for due, slot in waiting if due > step]
        else:
            slots = list(range(number, number + len(step)))
            number += len(step)
            index.add(np.array(step, np.int64), np.array(slots, np.int64), everywhere)
            waiting += zip(step, slots, strict=True)
        dues, _ = index.first_hints()
        assert dues[:1].tolist() == [due for due, _ in sorted(waiting)[:1]]


def test_owners_of_one_index_take_out_entries_each_for_itself() -> None:
    one = DueIndex()
    one.add(np.arange(10), np.arange(10), everywhere)
    two = one.shared()
    assert one.take(until=4).tolist() == two.take(until=4).tolist() == [0, 1, 2, 3, 4]
    one.take(until=7)
    one.join(two, everywhere)
    assert one.take(until=20).tolist() == [5, 6, 7, 8, 9]


def test_indexes_that_join_again_and_again_stay_small() -> None:
    index = DueIndex()
    for turn in range(200):
        other = index.shared()
        other.add(np.array([turn]), np.array([turn]), everywhere)
        index.add(np.array([turn + 1000]), np.array([turn]), everywhere)
        index.join(other, everywhere)
        assert len(index._runs) <= 24
    assert set(index.take(until=5000).tolist()) == set(range(200))


def stamped(keys: range) -> KeyedTable:
    table = KeyedTable(key_schema([ints([1]).type]), VALUES, BUCKETS)
    if len(keys):
        slots = table.groups([ints(keys)]).slots
        table.stamp(slots, np.array(keys))
    return table


def due(table: KeyedTable, until: int) -> list[int]:
    slots = table.take_due(until)
    keys: list[int] = table.keys(slots)[0].to_pylist()
    table.remove(slots)
    return keys


def test_buckets_bring_what_is_due_without_a_look_at_their_rows() -> None:
    one, two = stamped(range(100)), stamped(range(0))
    assert (one.earliest_due(), two.earliest_due()) == (0, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Slab, "live", lambda *_: pytest.fail("looked at all rows"))
        two.absorb(one.release(range(0, BUCKETS, 2)))
        assert sorted(due(one, 49) + due(two, 49)) == list(range(50))
        one.absorb(two.release(range(0, BUCKETS, 2)))
        assert one.earliest_due() == 50
        assert sorted(due(one, 200)) == list(range(50, 100))
    assert len(one) == len(two) == 0


def test_a_stamp_that_moved_to_a_later_time_is_noticed_by_whoever_has_the_row() -> None:
    one, two = stamped(range(100)), stamped(range(0))
    one.earliest_due()
    two.absorb(one.release(range(1, BUCKETS)))
    slots = two.live()
    two.stamp(slots, two.time(slots) + 1000)
    assert two.earliest_due() == min(two.time(slots))
    assert due(two, 999) == []
    one.absorb(two.release(range(1, BUCKETS)))
    assert len(due(one, 999)) == 100 - len(slots)
    assert len(due(one, 2000)) == len(slots)


def test_rows_that_move_in_or_are_replayed_are_due_as_before() -> None:
    one, two, three = stamped(range(100)), stamped(range(0)), stamped(range(0))
    three.earliest_due()
    three.apply(one.snapshot())
    two.earliest_due()
    two.absorb(one.release(range(1, BUCKETS)))
    two.settle()
    assert sorted(due(one, 60) + due(two, 60)) == sorted(due(three, 60)) == list(range(61))
