"""The dispenser: every row is given out once, and no promise passes a row that is under way."""

from __future__ import annotations

import pytest

from anabranch.engines.local.dispenser import LINGER_S, MOST_AHEAD, Dispenser
from anabranch.engines.local.gate import Closed
from anabranch.io.reader import place
from anabranch.planning.plan import SourcePlan
from anabranch.state.positions import FIRST, Root, end, is_end
from tests.engines.local.handmade import Side, wait_until
from tests.engines.local.rows_to_read import Rows

pytestmark = pytest.mark.timeout(120)


def plan(replicas: int = 1, batch_rows: int = 4, limit: int | None = None) -> SourcePlan:
    return SourcePlan("rows", replicas, limit, batch_rows)


def hired(source: Rows, replicas: int = 1, batch_rows: int = 4, limit: int | None = None, **more):
    dispenser = Dispenser(source, 0, plan(replicas, batch_rows), limit, **more)
    dispenser.change(plan(replicas, batch_rows))
    return dispenser


def read_claim(dispenser: Dispenser, source: Rows, reader: int) -> tuple[list, Root] | None:
    """Read what one claim gives; its rows, and what is promised behind them."""
    claim = dispenser.claim(reader)
    if claim is None:
        return None
    rows, over = [], False
    while claim.at < claim.stop and not over:
        chunk = source.read(str(claim.part), claim.at, claim.stop - claim.at)
        if chunk is None:
            over = True
        else:
            rows += [(claim.part, r) for r in chunk.batch["row"].to_pylist()]
            dispenser.advance(reader, chunk.batch.num_rows)
    promised = dispenser.finish(reader, part_over=over)
    dispenser.told(reader)
    return rows, promised


def read_all(dispenser: Dispenser, source: Rows, reader: int = 0) -> list[tuple[int, int]]:
    found = []
    while (read := read_claim(dispenser, source, reader)) is not None:
        found += read[0]
    dispenser.leave(reader)
    return found


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("seekable", [True, False])
def test_one_reader_gets_all_rows_in_order(seekable: bool, exact: bool):
    source = Rows([5, 0, 3, 1], seekable=seekable, exact=exact)
    dispenser = hired(source, batch_rows=2)
    got = read_all(dispenser, source)
    assert got == [(0, r) for r in range(5)] + [(2, 0), (2, 1), (2, 2), (3, 0)]
    assert dispenser.over
    assert dispenser.at_rest
    assert dispenser.rows == 9


def test_a_source_without_parts_is_over_at_once():
    dispenser = hired(Rows([]))
    assert dispenser.claim(0) is None
    assert dispenser.over


def test_a_source_of_empty_parts_is_over_when_they_were_looked_at():
    source = Rows([0, 0])
    dispenser = hired(source)
    assert read_all(dispenser, source) == []
    assert (dispenser.over, source.reads) == (True, 2)


def test_readers_share_a_seekable_part_in_turn():
    dispenser = hired(Rows([10]), replicas=2)
    first, second = dispenser.claim(0), dispenser.claim(1)
    assert [(c.at, c.stop) for c in (first, second) if c] == [(0, 4), (4, 8)]


def test_readers_have_parts_of_their_own_where_seeking_is_dear():
    source = Rows([10, 10], seekable=False)
    dispenser = hired(source, replicas=2)
    assert dispenser.claim(0).part == 0
    assert dispenser.claim(1).part == 1
    dispenser.advance(1, 4)
    dispenser.finish(1, part_over=False)
    again = dispenser.claim(1)
    assert (again.part, again.at) == (1, 4)


def test_the_part_of_a_reader_that_leaves_goes_to_another():
    source = Rows([10, 2], seekable=False)
    dispenser = hired(source, replicas=2)
    dispenser.claim(0)
    read_claim(dispenser, source, 1)
    dispenser.advance(0, 4)
    dispenser.finish(0, part_over=False)
    dispenser._active = [1, 0]  # the elder stays
    dispenser.change(plan(1))
    assert dispenser.claim(0) is None
    dispenser.leave(0)
    claim = dispenser.claim(1)
    assert (claim.part, claim.at) == (0, 4)


def test_fewer_readers_wanted_means_that_the_youngest_end():
    dispenser = hired(Rows([100]), replicas=3)
    assert dispenser.change(plan(1)) == []
    for reader in (2, 1):
        assert dispenser.claim(reader) is None
        dispenser.leave(reader)
    assert dispenser.claim(0) is not None


def test_more_readers_get_new_numbers():
    dispenser = hired(Rows([100]), replicas=2)
    dispenser.change(plan(1))
    assert dispenser.claim(1) is None
    dispenser.leave(1)
    assert dispenser.change(plan(3)) == [2, 3]


def test_no_more_rows_are_given_out_than_the_limit():
    source = Rows([5, 5])
    assert read_all(hired(source, limit=7), source) == [
        *[(0, r) for r in range(5)],
        (1, 0),
        (1, 1),
    ]


def test_a_limit_of_nothing_is_over_at_once():
    dispenser = hired(Rows([5]), limit=0)
    assert dispenser.claim(0) is None
    assert dispenser.over


def test_rows_that_a_part_did_not_have_do_not_count_against_the_limit():
    source = Rows([1, 0, 9], exact=False)
    got = read_all(hired(source, limit=5), source)
    assert got == [(0, 0), (2, 0), (2, 1), (2, 2), (2, 3)]


def test_a_batch_is_no_larger_than_what_may_be_in_flight():
    dispenser = Dispenser(Rows([100]), 0, plan(), None)
    dispenser.change(SourcePlan("rows", 1, 3, batch_rows=50))
    assert dispenser.claim(0).stop == 3


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_paced_source_gives_out_what_is_due():
    clock, source = Clock(), Rows([100], per_s=10.0)
    dispenser = hired(source, batch_rows=50, clock=clock)
    clock.now = 1.0
    asking = Side(dispenser.claim, 0)
    clock.now += 2 * LINGER_S
    assert asking.end().stop == 10
    assert dispenser.backlog() == 0
    clock.now = 2.0
    assert dispenser.backlog() == 10


def test_a_paced_source_does_not_wait_for_more_when_a_batch_is_full():
    clock, source = Clock(), Rows([100], per_s=10.0)
    dispenser = hired(source, batch_rows=5, clock=clock)
    clock.now = 1.0
    assert dispenser.claim(0).stop == 5


def test_a_paced_source_waits_until_rows_are_due():
    clock, source = Clock(), Rows([100], per_s=10.0)
    dispenser = hired(source, batch_rows=1, clock=clock)
    asking = Side(dispenser.claim, 0)
    assert not asking.over
    assert dispenser.expectant
    clock.now = 0.1
    assert asking.end().stop == 1


def test_the_end_of_a_paced_source_is_found():
    clock, source = Clock(), Rows([3, 0], per_s=10.0, exact=False)
    dispenser = hired(source, clock=clock)
    clock.now = 100.0
    reading = Side(read_all, dispenser, source)

    def later() -> bool:
        clock.now += 1
        return reading.over

    wait_until(later)
    assert reading.end() == [(0, 0), (0, 1), (0, 2)]
    assert not dispenser.expectant


def test_what_an_endless_part_did_not_have_is_given_out_again():
    source = Rows([2], bounded=False)
    dispenser = hired(source)
    claim = dispenser.claim(0)
    dispenser.advance(0, 2)
    assert dispenser.give_back(0)
    assert is_end(dispenser.finish(0, part_over=False)) is False
    again = dispenser.claim(0)
    assert (claim.stop, again.at, dispenser.rows) == (2, 2, 6)


def test_nothing_is_given_back_when_another_reader_has_claimed_what_comes_behind():
    dispenser = hired(Rows([0], bounded=False), replicas=2)
    dispenser.claim(0)
    dispenser.claim(1)
    assert not dispenser.give_back(0)
    assert dispenser.give_back(1)


def test_stopping_ends_readers_without_the_stream_being_over():
    dispenser = hired(Rows([100]))
    dispenser.stop()
    assert dispenser.claim(0) is None
    assert not dispenser.over
    assert not dispenser.at_rest  # the reader may have something to say yet
    dispenser.leave(0)
    assert dispenser.at_rest


def test_closing_wakes_a_reader_that_waits_for_others():
    dispenser = hired(Rows([4], seekable=False), replicas=2)
    dispenser.claim(0)
    waiting = Side(dispenser.claim, 1)
    dispenser.close()
    with pytest.raises(Closed):
        waiting.end()


def test_the_backlog_is_what_was_not_given_out():
    dispenser = hired(Rows([10, 5]))
    assert dispenser.backlog() == 15
    dispenser.claim(0)
    assert dispenser.backlog() == 11
    assert hired(Rows([10], exact=False)).backlog() is None


def test_behind_the_last_row_the_end_is_left_to_the_last_word():
    dispenser = hired(Rows([3]))
    dispenser.claim(0)
    assert dispenser.frontier_after(0, 3) == place(0, 0, 3)
    dispenser.advance(0, 3)
    assert dispenser.finish(0, part_over=False) == end(FIRST)


def test_nothing_is_given_out_while_a_source_is_held():
    dispenser = hired(Rows([10]))
    dispenser.hold()
    asking = Side(dispenser.claim, 0)
    wait_until(lambda: dispenser._change._waiters)
    assert dispenser.at_rest
    dispenser.go_on()
    assert asking.end().stop == 4
    assert not dispenser.at_rest


def test_another_dispenser_goes_on_at_the_offsets_of_one_at_rest():
    source = Rows([5, 3])
    dispenser = hired(source)
    read_claim(dispenser, source, 0)
    resumed = Dispenser(source, 0, plan())
    resumed.restore(dispenser.offsets())
    resumed.change(plan())
    assert read_all(resumed, source) == [(0, 4), (1, 0), (1, 1), (1, 2)]


def test_a_part_is_not_read_far_ahead_of_one_that_is_not_done():
    """Its rows would have to wait for those, and fill the memory meanwhile."""
    dispenser = hired(Rows([100, 100], seekable=False), replicas=2, batch_rows=2)
    dispenser.claim(0)
    for _ in range(MOST_AHEAD):
        claim = dispenser.claim(1)
        assert claim.part == 1
        dispenser.advance(1, 2)
        dispenser.finish(1, part_over=False)
        dispenser.told(1)
    waiting = Side(dispenser.claim, 1)
    assert not waiting.over
    dispenser.finish(0, part_over=True)
    assert waiting.end().at == 2 * MOST_AHEAD


def test_a_source_is_not_at_rest_before_its_last_promise_was_delivered():
    dispenser = hired(Rows([4]))
    dispenser.claim(0)
    dispenser.advance(0, 4)
    dispenser.finish(0, part_over=False)
    assert not dispenser.at_rest
    dispenser.told(0)
    assert dispenser.at_rest


def test_a_reader_that_is_about_to_end_is_replaced_when_more_are_wanted():
    dispenser = hired(Rows([100]), replicas=2)
    dispenser.change(plan(1))
    assert dispenser.claim(1) is None
    assert dispenser.change(plan(2)) == [2]
    dispenser.leave(1)
    assert dispenser.claim(2) is not None


def test_a_claim_of_a_paced_source_knows_when_its_first_row_was_due():
    """Rows that had to wait are as old as they are, not as young as their reading."""
    clock = Clock()
    dispenser = hired(Rows([100], per_s=10.0), batch_rows=5, clock=clock)
    clock.now = 2.0  # nobody asked for two seconds
    assert dispenser.claim(0).due_s == pytest.approx(0.1, abs=0.01)
    dispenser.advance(0, 5)
    dispenser.finish(0, part_over=False)
    assert dispenser.claim(0).due_s == pytest.approx(0.6, abs=0.01)
