"""Back-pressure: who is held up in front of a gate, and who sets it free."""

from __future__ import annotations

import pytest

from anabranch.engines.local.gate import Closed
from anabranch.engines.local.standstill import Standstill
from anabranch.planning.regions import Edge
from anabranch.state.positions import START
from tests.engines.local.handmade import Side, at, gate_of, shown, tuples, wait_until

pytestmark = pytest.mark.timeout(120)


def test_a_fast_source_is_held_up_and_goes_on_when_it_is_read():
    gate = gate_of("a", quota=2)
    added: list[int] = []

    def add() -> None:
        for time in range(5):
            gate.add("a", 0, tuples(time), at(time + 1))
            added.append(time)

    adder = Side(add)
    wait_until(gate.held_up)
    assert (added, gate.length()) == ([0], (2, 2))
    seen = shown(gate.next_ready("r"))[0]
    while len(seen) < 5:
        seen += shown(gate.next_ready("r"))[0]
    adder.end()
    assert (seen, gate.held_up()) == ([0, 1, 2, 3, 4], [])


def test_a_source_waits_for_one_that_is_behind_it():
    gate = gate_of("fast", "slow", quota=1)
    adder = Side(gate.add, "fast", 0, tuples(5), at(6))
    wait_until(gate.held_up)
    gate.add("slow", 0, None, at(9))
    assert not adder.over
    assert shown(gate.next_ready("r")) == [[5]]
    adder.end()


def test_the_source_that_others_wait_for_is_never_held_up():
    gate = gate_of("needed", "fast", quota=2)
    gate.add("fast", 0, None, at(99))
    for time in range(20):
        gate.add("needed", 0, tuples(time), START)
    assert gate.length() == (20, 20)


def test_a_source_is_held_up_for_as_long_as_the_slowest_reader():
    gate = gate_of("a", readers=("x", "y"), quota=1)
    adder = Side(gate.add, "a", 0, tuples(1), at(2))
    gate.next_ready("x")
    wait_until(gate.held_up)
    gate.next_ready("y")
    adder.end()


def test_removing_the_slowest_reader_sets_sources_free():
    gate = gate_of("a", readers=("x", "y"), quota=1)
    adder = Side(gate.add, "a", 0, tuples(1), at(2))
    gate.next_ready("x")
    wait_until(gate.held_up)
    gate.remove_readers(["y"])
    adder.end()


def test_a_jumbo_tuple_that_is_read_in_parts_counts_until_its_last_part_is_read():
    gate = gate_of("a", "b", quota=1)
    adder = Side(gate.add, "a", 0, tuples(1, 2, 3, 4), at(5))
    gate.add("b", 0, None, at(3))
    assert shown(gate.next_ready("r")) == [[1, 2]]
    wait_until(gate.held_up)
    gate.add("b", 0, None, at(9))
    assert not adder.over
    assert shown(gate.next_ready("r")) == [[3, 4]]
    adder.end()


def test_relaxing_lets_sources_go_further_ahead():
    gate = gate_of("fast", "slow", quota=1)
    adder = Side(gate.add, "fast", 0, tuples(5), at(6))
    wait_until(gate.held_up)
    gate.relax()
    adder.end()


def test_nobody_is_held_up_while_nothing_new_is_read():
    gate = gate_of("fast", "slow", quota=1)
    adder = Side(gate.add, "fast", 0, tuples(5), at(6))
    wait_until(gate.held_up)
    gate.hold_nobody_up(True)
    adder.end()
    gate.hold_nobody_up(False)
    again = Side(gate.add, "fast", 0, tuples(6), at(7))
    wait_until(gate.held_up)
    gate.close()
    with pytest.raises(Closed):
        again.end()


FAST, SLOW = (0, 0), (1, 0)
EDGES = [Edge(0, "ahead", 0, "merge", 0), Edge(1, "behind", 0, "merge", 0)]


@pytest.mark.parametrize(
    ("alive", "relaxed"),
    [((), ["merge"]), (("ahead",), ["merge"]), (("behind",), []), (("merge",), ["merge"])],
)
def test_a_gate_gives_way_when_those_it_waits_for_can_never_go_on(
    alive: tuple[str, ...], relaxed: list[str]
):
    gate = gate_of(FAST, SLOW, quota=1)
    standstill = Standstill({"merge": gate}, EDGES, lambda region: region in alive)
    adder = Side(gate.add, FAST, 0, tuples(5), at(6))
    wait_until(gate.held_up)
    looks = [standstill.look() for _ in range(3)]
    gate.relax()
    adder.end()
    assert looks == [[], [], relaxed]  # first seen, then suspected, then certain


def test_a_gate_does_not_give_way_while_it_moves_or_holds_nobody_up():
    gate = gate_of(FAST, SLOW, quota=1)
    standstill = Standstill({"merge": gate}, EDGES, lambda region: False)
    assert not any(standstill.look() for _ in range(3))
    adder = Side(gate.add, FAST, 0, tuples(5), at(6))
    wait_until(gate.held_up)
    for time in range(1, 4):
        gate.add(SLOW, 0, None, at(time))
        assert not standstill.look()
    gate.relax()
    adder.end()


def test_closing_wakes_everybody():
    gate = gate_of("a", "b", readers=("x", "y"), quota=1)
    waiting = [
        Side(gate.next_ready, "x"),
        Side(gate.next_ready, "y"),
        Side(gate.add, "a", 0, tuples(1), at(2)),
    ]
    wait_until(lambda: gate.held_up() and len(gate._at_rest) == 2)
    gate.close()
    for side in waiting:
        with pytest.raises(Closed):
            side.end()
    with pytest.raises(Closed):
        gate.add("b", 0, tuples(1), at(2))


def test_a_gate_is_idle_when_every_reader_waits_and_nothing_is_ready():
    gate = gate_of("a", "b", readers=("x", "y"))
    gate.add("a", 0, tuples(1), at(2))
    readers = [Side(gate.next_ready, reader) for reader in ("x", "y")]
    wait_until(gate.idle)
    gate.add("b", 0, None, at(2))
    assert [shown(reader.end()) for reader in readers] == [[[1]], [[1]]]
    assert not gate.idle()
