"""The elastic gate: one order for all readers; sources and readers that come and go."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from anabranch.engines.local import holding
from anabranch.engines.local.gate import Closed, ElasticGate
from anabranch.state.positions import FIRST, START, Mark, Root, end
from tests.engines.local.handmade import (
    Control,
    Side,
    at,
    gate_of,
    nothing_ready,
    read_all,
    shown,
    tuples,
)


def test_a_tuple_is_ready_when_every_source_has_passed_it():
    gate = gate_of("a", "b")
    gate.add("a", 0, tuples(1, 4, 6), at(7))
    assert nothing_ready(gate)
    gate.add("b", 0, tuples(2, 3), at(5))
    entry = gate.next_ready("r")
    assert (shown(entry), entry.frontier) == ([[1, 2, 3, 4]], at(5))


def test_a_tuple_at_the_frontier_itself_waits():
    gate = gate_of("a")
    gate.add("a", 0, tuples(3, 5), at(5))
    assert read_all(gate) == [3]
    gate.add("a", 0, None, at(6))
    assert read_all(gate) == [5]


def test_tuples_of_one_time_from_several_sources_leave_together():
    gate = gate_of("a", "b")
    gate.add("a", 0, tuples(5, rank=0), Root(6, FIRST, FIRST, FIRST))
    gate.add("b", 0, None, Root(5, FIRST, FIRST, FIRST))
    assert read_all(gate) == []
    gate.add("b", 0, tuples(5, rank=1), Root(6, FIRST, FIRST, FIRST))
    assert shown(gate.next_ready("r")) == [[5, 5]]


def test_a_frontier_alone_is_news_for_timers():
    gate = gate_of("a")
    gate.add("a", 0, None, at(5))
    entry = gate.next_ready("r")
    assert (shown(entry), entry.frontier) == ([[]], at(5))


def test_a_source_never_takes_a_promise_back():
    gate = gate_of("a")
    gate.add("a", 0, None, at(9))
    gate.add("a", 0, tuples(12), at(3))
    assert gate.passed("a") == gate.frontier == at(9)


def test_the_end_tells_the_greatest_last_time_of_all_sources():
    gate = gate_of("a", "b")
    gate.add("a", 0, tuples(1), end(1))
    gate.add("b", 0, tuples(8), end(8))
    assert gate.next_ready("r").frontier == end(8)


def test_ports_are_kept_apart_and_released_up_to_one_frontier():
    gate = gate_of("a", "b", ports=2)
    gate.add("a", 0, tuples(1, 9), at(10))
    gate.add("b", 1, tuples(2, 3), at(4))
    assert shown(gate.next_ready("r")) == [[1], [2, 3]]


def test_marks_leave_with_the_tuples_that_they_stand_between():
    gate = gate_of("a", "b")
    marks = (Mark(at(2), 20), Mark(at(7), 70))
    gate.add("a", 0, tuples(1, 5, marks=marks), at(8))
    gate.add("b", 0, None, at(4))
    (first,) = gate.next_ready("r").inputs()
    gate.add("b", 0, None, at(9))
    (second,) = gate.next_ready("r").inputs()
    assert (first.marks, second.marks) == (marks[:1], marks[1:])


# Sources come and go


def test_nothing_beyond_the_minimum_of_a_new_source_is_ready_until_it_has_passed_it():
    gate = gate_of("a")
    gate.add("a", 0, tuples(1, 2), at(3))
    gate.announce_sources(["b"], at(3))
    gate.add("a", 0, tuples(4, 5), at(6))
    assert read_all(gate) == [1, 2]
    gate.add("b", 0, tuples(3), at(5))
    assert read_all(gate) == [3, 4]
    gate.add("b", 0, None, at(7))
    assert read_all(gate) == [5]


def test_what_is_before_the_minimum_of_a_new_source_is_not_held_back():
    gate = gate_of("a", "late")
    gate.add("a", 0, tuples(1, 4), at(5))
    gate.announce_sources(["new"], at(4))
    gate.add("late", 0, None, at(9))
    assert read_all(gate) == [1]


def test_a_source_announced_again_keeps_its_place():
    gate = gate_of("a")
    gate.add("a", 0, tuples(1), at(5))
    gate.announce_sources(["a"], START)
    assert gate.passed("a") == at(5)


def test_what_a_removed_source_added_stays_and_nobody_waits_for_it():
    gate = gate_of("a", "b")
    gate.add("b", 0, tuples(1, 6), at(2))
    gate.add("a", 0, tuples(3), at(9))
    assert read_all(gate) == [1]
    gate.remove_sources(["b"])
    assert read_all(gate) == [3, 6]


def test_what_a_removed_source_adds_is_ignored():
    gate = gate_of("a", "b")
    gate.remove_sources(["b"])
    gate.add("b", 0, tuples(1), at(2))
    gate.add("a", 0, tuples(3), at(9))
    assert read_all(gate) == [3]


def test_a_source_that_comes_back_begins_at_its_new_minimum():
    gate = gate_of("a", "b")
    gate.add("b", 0, None, at(2))
    gate.remove_sources(["b"])
    gate.add("a", 0, tuples(3), at(4))
    gate.announce_sources(["b"], at(4))
    gate.add("a", 0, tuples(7), at(8))
    assert read_all(gate) == [3]
    gate.add("b", 0, tuples(5), at(8))
    assert read_all(gate) == [5, 7]


# Readers come and go


def test_a_new_reader_begins_where_the_one_stands_that_it_is_like():
    gate = gate_of("a", readers=("x", "y"))
    gate.add("a", 0, tuples(1), at(2))
    gate.next_ready("x")
    gate.announce_readers(["behind"], like="y")
    gate.announce_readers(["ahead"], like="x")
    gate.add("a", 0, tuples(3), at(4))
    for reader in ("y", "behind"):
        assert shown(gate.next_ready(reader)) == [[1]]
    assert read_all(gate, "ahead") == read_all(gate, "behind") == [3]


def test_a_reader_announced_without_a_like_begins_with_what_not_all_have_read():
    gate = gate_of("a", readers=("x",))
    gate.add("a", 0, tuples(1), at(2))
    gate.next_ready("x")
    gate.announce_readers(["new"])
    gate.add("a", 0, tuples(2), at(3))
    assert read_all(gate, "new") == [2]


def test_what_only_a_removed_reader_had_not_read_is_let_go():
    gate = gate_of("a", readers=("x", "y"))
    gate.add("a", 0, tuples(1, 2), at(3))
    gate.next_ready("x")
    assert gate.length() == (1, 2)
    gate.remove_readers(["y"])
    assert gate.length() == (0, 0)


def test_a_reader_waits_for_one_that_is_too_far_behind():
    gate = gate_of("a", readers=("fast", "slow"))
    for time in range(4):
        gate.add("a", 0, tuples(time), at(time + 1))
        if not nothing_ready(gate, "fast"):
            gate.next_ready("fast")
    assert nothing_ready(gate, "fast")
    gate.next_ready("slow")
    assert shown(gate.next_ready("fast")) == [[1, 2, 3]]


def test_a_dealt_gate_gives_each_entry_to_one_reader():
    gate = gate_of("a", readers=("x", "y"), dealt=True)
    got = []
    for time in range(4):
        gate.add("a", 0, tuples(time), at(time + 1))
        got.append(shown(gate.next_ready("xy"[time % 2]))[0])
    assert got == [[0], [1], [2], [3]]
    assert nothing_ready(gate, "x")
    assert nothing_ready(gate, "y")


def test_an_unordered_gate_gives_what_comes_before_it_is_ready():
    gate = gate_of("a", "b", ordered=False)
    gate.add("a", 0, tuples(5, 6), at(7))
    entry = gate.next_ready("r")
    assert (shown(entry), entry.frontier) == ([[5, 6]], START)
    gate.add("b", 0, tuples(1), at(2))
    entry = gate.next_ready("r")
    assert (shown(entry), entry.frontier) == ([[1]], at(2))


def test_an_unordered_gate_never_promises_more_than_it_has_released(monkeypatch):
    monkeypatch.setattr(holding, "SMALL_ROWS", 2)
    gate = gate_of("a", ordered=False)
    for time in range(3):
        gate.add("a", 0, tuples(2 * time, 2 * time + 1), at(2 * time + 2))
    entries = [gate.next_ready("r") for _ in range(3)]
    assert [(shown(e)[0], e.frontier) for e in entries] == [
        ([0, 1], at(2)),
        ([2, 3], at(4)),
        ([4, 5], at(6)),
    ]


# Epochs


def test_an_epoch_switch_stands_behind_what_was_released_and_is_met_by_all():
    gate = gate_of("a", readers=("x", "y"))
    gate.add("a", 0, tuples(1), at(2))
    gate.next_ready("x")
    control = Control()
    assert gate.switch(control) == at(2)
    gate.add("a", 0, tuples(2), at(3))
    assert gate.next_ready("x").control is gate.next_ready("x").control is control
    assert shown(gate.next_ready("y")) == [[1]]
    assert gate.next_ready("y").control is control
    assert gate.switched(["x", "z"]) == 1
    assert read_all(gate, "x") == read_all(gate, "z") == [2]


def test_an_epoch_switch_goes_to_every_reader_of_a_dealt_gate():
    gate = gate_of("a", readers=("x", "y"), dealt=True)
    gate.add("a", 0, tuples(1), at(2))
    gate.next_ready("x")
    control = Control()
    gate.switch(control)
    assert {gate.next_ready(r).control for r in ("x", "y")} == {control}
    assert control.readers == 2


def test_a_large_ready_set_is_cut_between_two_timestamps(monkeypatch):
    monkeypatch.setattr(holding, "SMALL_ROWS", 4)
    rng = Random(5)
    gate = gate_of("a", "b", "c")
    for rank, source in enumerate("abc"):
        time = 0
        for _ in range(30):
            own = sorted(time + rng.randrange(3) for _ in range(rng.randint(1, 4)))
            time = own[-1] + rng.choice((0, 0, 4))
            gate.add(source, 0, tuples(*dict.fromkeys(own), rank=rank), START)
        gate.add(source, 0, None, Root(1000, FIRST, FIRST, FIRST))
    entries = []
    while not nothing_ready(gate):
        entries.append(shown(gate.next_ready("r"))[0])
    assert len(entries) > 5
    assert all(entry == sorted(entry) for entry in entries)
    assert all(left[-1] < right[0] for left, right in pairwise(entries))


def test_what_the_end_sets_free_beyond_the_last_time_leaves_with_the_end(monkeypatch):
    monkeypatch.setattr(holding, "SMALL_ROWS", 1)
    gate = gate_of("a")
    for time in (1, 2, 50):
        gate.add("a", 0, tuples(time), START)
    gate.add("a", 0, None, end(2))
    got = [gate.next_ready("r") for _ in range(2)]
    assert [shown(e)[0] for e in got] == [[1], [2, 50]]
    assert got[-1].frontier == end(2)


# Many threads


def _add_all(gate: ElasticGate, source: int, seed: int) -> list[int]:
    rng, time, mine = Random(seed), 0, []
    for _ in range(150):
        own = sorted({time + rng.randrange(1, 9) for _ in range(rng.randint(1, 5))})
        mine += own
        time = own[-1]
        gate.add(source, 0, tuples(*own, rank=source), Root(time + 1, FIRST, FIRST, FIRST))
    gate.add(source, 0, None, end(FIRST))
    return mine


def _read_to_the_end(gate: ElasticGate, reader: object) -> list[tuple[int, list[int]]]:
    seen: list[tuple[int, list[int]]] = []
    frontier = START
    while frontier != end(FIRST):
        entry = gate.next_ready(reader)
        frontier = entry.frontier
        seen.append((entry.number, shown(entry)[0]))
    return seen


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(3))
def test_many_threads_see_all_tuples_in_one_order(seed: int):
    gate = gate_of(0, 1, 2, readers=("x", "y", "z"), quota=4)
    readers = [Side(_read_to_the_end, gate, reader) for reader in ("x", "y", "z")]
    adders = [Side(_add_all, gate, source, 10 * seed + source) for source in range(3)]
    added = sorted(time for adder in adders for time in adder.end())
    first, *others = [reader.end() for reader in readers]
    assert [time for _, shown_ in first for time in shown_] == added
    assert all(other == first for other in others)


@pytest.mark.timeout(120)
def test_many_threads_share_a_dealt_gate_without_loss_or_doubles():
    gate = gate_of(0, 1, readers=("x", "y", "z"), dealt=True, quota=4)

    def take(reader: str) -> list[tuple[int, list[int]]]:
        seen: list[tuple[int, list[int]]] = []
        try:
            while True:
                entry = gate.next_ready(reader)
                seen.append((entry.number, shown(entry)[0]))
                if entry.frontier == end(FIRST):
                    gate.close()
        except Closed:
            return seen

    readers = [Side(take, reader) for reader in ("x", "y", "z")]
    adders = [Side(_add_all, gate, source, source) for source in range(2)]
    added = sorted(time for adder in adders for time in adder.end())
    seen = sorted(entry for reader in readers for entry in reader.end())
    assert [number for number, _ in seen] == list(range(len(seen)))
    assert [time for _, shown_ in seen for time in shown_] == added
