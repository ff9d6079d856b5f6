"""What replicas share: turns, the belts between pipelines, and the pool of threads."""

from __future__ import annotations

import threading

import pytest

from anabranch.engines.local.belt import Belt
from anabranch.engines.local.gate import Closed
from anabranch.engines.local.pool import Pool
from anabranch.engines.local.turns import WINDOW, Turns
from tests.engines.local.handmade import Side, at, wait_until

pytestmark = pytest.mark.timeout(120)


def test_turns_promise_what_is_finished_without_a_gap():
    turns = Turns()
    assert turns.finish(2, [at(30)]) is None
    assert turns.finish(1, [at(20)]) is None
    assert turns.finish(0, [at(10)]) == [at(30)]


def test_an_epoch_switch_takes_its_turn_and_promises_nothing_of_its_own():
    turns = Turns()
    turns.finish(0, [at(10)])
    assert turns.finish(1, None) == [at(10)]
    assert turns.is_first(2)


def test_an_entry_waits_until_it_is_near_the_first_unfinished_one():
    turns = Turns()
    turns.admit(WINDOW - 1)
    waiting = Side(turns.admit, WINDOW)
    turns.finish(1, [at(2)])
    assert not waiting.over
    turns.finish(0, [at(1)])
    waiting.end()


def test_closing_turns_wakes_who_waits():
    turns = Turns()
    waiting = Side(turns.admit, WINDOW)
    turns.close()
    with pytest.raises(Closed):
        waiting.end()


def test_a_belt_keeps_order_and_holds_up_who_puts_too_much():
    belt: Belt[int] = Belt(length=2)

    def put() -> None:
        for item in range(5):
            belt.put(item)

    putting = Side(put)
    wait_until(lambda: len(belt) == 2)
    assert [belt.take() for _ in range(5)] == list(range(5))
    putting.end()


def test_a_belt_is_idle_when_it_is_empty_and_somebody_waits_at_its_end():
    belt: Belt[int] = Belt()
    assert not belt.idle()
    taking = Side(belt.take)
    wait_until(belt.idle)
    belt.put(1)
    assert taking.end() == 1
    assert not belt.idle()


def test_closing_a_belt_ends_both_sides():
    full: Belt[int] = Belt(length=1)
    full.put(0)
    empty: Belt[int] = Belt()
    sides = [Side(full.put, 1), Side(empty.take)]
    for belt in (full, empty):
        belt.close()
    for side in sides:
        with pytest.raises(Closed):
            side.end()


def test_a_pool_uses_its_idle_threads_again():
    pool = Pool("p")
    used: list[str] = []
    for _ in range(5):
        done = threading.Event()
        pool.run(lambda done=done: (used.append(threading.current_thread().name), done.set()))
        assert done.wait(10)
        wait_until(lambda: pool._idle)
    assert (set(used), pool.size) == ({"p-0"}, 1)
    assert pool.end(10) == []


def test_a_pool_runs_as_much_at_once_as_it_is_given():
    pool = Pool("p")
    meeting = threading.Barrier(4)
    for _ in range(3):
        pool.run(lambda: meeting.wait(10))
    meeting.wait(10)
    assert pool.size == 3
    assert pool.end(10) == []


def test_a_pool_names_threads_that_do_not_end():
    pool, go_on = Pool("p"), threading.Event()
    pool.run(go_on.wait)
    assert pool.end(0.01) == ["p-0"]
    go_on.set()
    assert pool.end(10) == []


def test_work_given_to_a_pool_that_is_about_to_end_still_runs_and_ends():
    pool, ran = Pool("p"), threading.Event()
    inner = threading.Event()

    def work() -> None:
        inner.wait(10)
        pool.run(ran.set)

    pool.run(work)
    ending = Side(pool.end, 10.0)
    wait_until(lambda: pool._over)
    inner.set()
    assert ending.end() == []
    assert ran.is_set()


def test_a_pool_knows_its_own_threads():
    pool = Pool("p")
    inside: list[bool] = []
    pool.run(lambda: inside.append(pool.is_inside()))
    assert pool.end(10) == []
    assert (inside, pool.is_inside()) == ([True], False)
