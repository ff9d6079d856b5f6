"""The dispenser: every row is given out once, and no promise passes a row that is to come."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.io.offsets import SourceOffsets
from anabranch.io.reader import place
from anabranch.io.source import Extent, WrappedSource
from anabranch.io.stamped_source import stamped
from anabranch.planning.plan import SourcePlan
from anabranch.runtime.dispenser import (
    FIRST_ROWS,
    LINGER_S,
    MOST_AHEAD,
    NAP_S,
    QUEUED,
    SOON_S,
    Dispenser,
)
from anabranch.runtime.messages import Claim, Finished, Promise, Survey, Surveyed, UnitId
from anabranch.state.positions import FIRST, end
from tests.runtime.parts import Part, Parts, Reading

FIRST_READER, SECOND_READER = UnitId("rows", 0), UnitId("rows", 1)

SEALED = {"seekable": False}
UNKNOWN = {"seekable": False, "exact": False}


def dispenser_of(
    source: Any,
    readers: int = 1,
    batch_rows: int = 4,
    limit: int | None = None,
    in_flight_limit: int | None = None,
    known: bool = True,
) -> Dispenser:
    """A dispenser at the start; the extents of all parts are known unless told otherwise."""
    dispenser = Dispenser("rows", source, 0, limit)
    dispenser.begin(0, SourcePlan("rows", readers, in_flight_limit, batch_rows))
    if known:
        extents = {part: source.extent(part) for part in source.parts()}
        dispenser.surveyed(Surveyed(FIRST_READER, extents))
    return dispenser


class Reversed(WrappedSource):
    """Lists the parts of a source in another order."""

    def parts(self) -> tuple[str, ...]:
        return super().parts()[::-1]


def claims(given_: list[Any]) -> list[tuple[int, int, int, int]]:
    """Reader, part, first row and the row after the last of each claim."""
    found = [each for each in given_ if isinstance(each, Claim) and each.passed is None]
    return [(claim.reader.replica, int(claim.part), claim.start, claim.stop) for claim in found]


def finish(
    dispenser: Dispenser, claim: Claim, rows: int | None = None, *, processed: bool = True, **more
) -> None:
    """Report that a claim was read, and usually that nothing of it is under way any more."""
    count = claim.stop - claim.start if rows is None else rows
    over = more.pop("part_over", False)
    now_s = more.pop("now_s", 0.0)
    dispenser.finished(Finished(claim.reader, claim.number, count, over, **more), now_s)
    if processed:
        dispenser.acknowledged(claim.number, -1)


# Who gets which rows


@pytest.mark.parametrize("known", [{}, SEALED, {"exact": False}, UNKNOWN])
def test_one_reader_gets_all_rows_in_order(known: dict[str, bool]):
    source = Parts(Part(5, **known), Part(0, **known), Part(3, **known), Part(1, **known))
    reading = Reading(source, batch_rows=2)
    reading.settle()
    assert reading.rows == source.every_row()
    assert (reading.dispenser.over, reading.dispenser.rows) == (True, 9)


def test_a_source_without_parts_is_over_at_once():
    assert dispenser_of(Parts()).over


def test_an_empty_part_is_looked_at():
    dispenser = dispenser_of(Parts(0))
    assert claims(dispenser.give(0.0)) == [(0, 0, 0, 1)]


def test_a_reader_has_a_claim_in_stock():
    dispenser = dispenser_of(Parts(100))
    assert claims(dispenser.give(0.0)) == [(0, 0, 0, 4), (0, 0, 4, 8)]


def test_readers_take_turns_at_a_part_that_they_share():
    dispenser = dispenser_of(Parts(10), readers=2)
    assert claims(dispenser.give(0.0)) == [(0, 0, 0, 4), (1, 0, 4, 8), (0, 0, 8, 10)]


def test_the_reader_that_has_least_to_do_comes_first():
    dispenser = dispenser_of(Parts(100), readers=2, batch_rows=4)
    given_ = dispenser.give(0.0)
    finish(dispenser, given_[1])
    finish(dispenser, given_[3])
    assert claims(dispenser.give(0.0))[0][0] == 1


def test_readers_have_parts_of_their_own_where_seeking_is_dear():
    dispenser = dispenser_of(Parts(Part(10, **SEALED), Part(10, **SEALED)), readers=2)
    assert claims(dispenser.give(0.0)) == [(0, 0, 0, 4), (1, 1, 0, 4), (0, 0, 4, 8), (1, 1, 4, 8)]


def test_the_parts_of_a_reader_go_to_another_one_in_the_next_epoch():
    source = Parts(Part(10, **SEALED), Part(2, **SEALED))
    reading = Reading(source, readers=2, in_flight_limit=4)
    reading.give()
    while not reading.dispenser.at_rest or reading.to_dispenser:
        for reader in reading.runnable():
            reading.read(reader)
        for reader, messages in reading.to_readers.items():
            if messages:
                reading.hand_on(reader)
        if reading.to_dispenser:
            reading.report()
    reading.begin(SourcePlan("rows", 1))
    reading.settle()
    assert sorted(reading.rows) == source.every_row()


def test_a_part_is_not_read_far_ahead_of_one_that_is_not_done():
    """Its rows would have to wait for those, and fill the memory meanwhile."""
    dispenser = dispenser_of(Parts(Part(100, **SEALED), Part(100, **SEALED)), 2, batch_rows=2)
    ahead = [each for each in dispenser.give(0.0) if each.reader == SECOND_READER]
    read = 0
    while ahead:
        claim = ahead.pop(0)
        finish(dispenser, claim)
        read = claim.stop
        ahead += [each for each in dispenser.give(0.0) if each.reader == SECOND_READER]
    assert read == 2 * MOST_AHEAD


# Surveys


def test_nothing_is_given_out_of_a_part_before_its_extent_is_known():
    dispenser = dispenser_of(Parts(10), known=False)
    assert dispenser.give(0.0)[:1] == [Survey(0, FIRST_READER, ("0",))]
    assert claims(dispenser.give(0.0)) == []


def test_a_part_is_asked_for_its_extent_once():
    dispenser = dispenser_of(Parts(10), known=False)
    dispenser.give(0.0)
    assert [each for each in dispenser.give(0.0) if isinstance(each, Survey)] == []


def test_a_new_epoch_asks_again_since_the_answer_may_be_lost():
    dispenser = dispenser_of(Parts(10), known=False)
    dispenser.give(0.0)
    dispenser.begin(1, SourcePlan("rows"))
    assert dispenser.give(0.0)[:1] == [Survey(1, FIRST_READER, ("0",))]


def test_a_survey_of_all_asks_for_what_is_not_known_for_certain():
    dispenser = dispenser_of(Parts(Part(3), Part(3, **UNKNOWN), Part(3, growing=True)))
    assert dispenser.survey_all() == [Survey(0, FIRST_READER, ("1", "2"))]


def test_a_survey_of_all_asks_nothing_when_all_is_certain():
    assert dispenser_of(Parts(3, 4)).survey_all() == []


def test_a_source_that_is_over_is_not_asked_what_waits():
    dispenser = dispenser_of(Parts(Part(9, **UNKNOWN)), limit=4)
    dispenser.restore(SourceOffsets({0: 4}, unopened=1, rows=4))
    assert dispenser.survey_all() == []


# Promises


def test_a_reader_without_a_claim_gets_a_promise():
    dispenser = dispenser_of(Parts(8), readers=2, batch_rows=8)
    assert dispenser.give(0.0)[1:] == [Promise(0, SECOND_READER, end(FIRST))]


def test_a_promise_is_given_once():
    dispenser = dispenser_of(Parts(8), readers=2, batch_rows=8)
    dispenser.give(0.0)
    assert dispenser.give(0.0) == []


def test_a_claim_says_what_its_reader_gets_later():
    claim = dispenser_of(Parts(6)).give(0.0)[0]
    assert claim.free == place(0, 0, 4)


def test_rows_that_another_reader_owns_do_not_hold_back_a_promise():
    dispenser = dispenser_of(Parts(Part(99, **SEALED), Part(1, **SEALED)), 2, batch_rows=1)
    given_ = dispenser.give(0.0)
    (own,) = [each for each in given_ if each.reader == SECOND_READER]
    assert own.free == end(FIRST)


def test_an_unopened_part_holds_back_every_promise():
    dispenser = dispenser_of(Parts(4, Part(9, **UNKNOWN)), 2, known=False)
    assert dispenser.give(0.0)[1:] == [
        Promise(0, FIRST_READER, place(0, 0, 0)),
        Promise(0, SECOND_READER, place(0, 0, 0)),
    ]


@st.composite
def part(draw: st.DrawFn) -> Part:
    return Part(draw(st.integers(0, 9)), draw(st.booleans()), draw(st.booleans()))


@st.composite
def readings(
    draw: st.DrawFn, growing: bool = False, limited: bool = False, interleaved: bool = False
) -> Reading:
    several = st.lists(part(), min_size=int(interleaved), max_size=4)
    parts = [Part(3, growing=True)] if growing else draw(several)
    source = Parts(*parts, most=draw(st.sampled_from([None, 1, 3])), interleaved=interleaved)
    return Reading(
        source,
        draw(st.integers(1, 3)),
        draw(st.integers(1, 5)),
        draw(st.integers(0, 20)) if limited else None,
        draw(st.sampled_from([None, 1, 6])),
    )


@given(readings(), st.integers(0, 2**32))
def test_any_readers_deliver_every_row_once_and_none_before_a_promise(reading: Reading, seed: int):
    """The driver itself refuses rows that come after a promise which excludes them."""
    rng = Random(seed)
    while reading.one_thing(rng.choice):
        pass
    assert sorted(reading.rows) == reading.source.every_row()
    assert set(reading.promised.values()) == {end(FIRST)}


@given(readings(growing=True), st.integers(0, 2**32))
def test_a_part_that_grows_is_read_to_where_it_is(reading: Reading, seed: int):
    rng = Random(seed)
    (part_,) = reading.source.all
    for _ in range(60):
        reading.now_s += NAP_S
        reading.one_thing(rng.choice)
        part_.rows += rng.choice((0, 0, 1, 3))
    for _ in range(100 + 10 * part_.rows):
        reading.now_s += NAP_S
        reading.one_thing(rng.choice)
    assert sorted(reading.rows) == reading.source.every_row()


@given(readings(limited=True), st.integers(0, 2**32))
def test_a_limit_gives_the_first_rows_whoever_reads(reading: Reading, seed: int):
    rng = Random(seed)
    while reading.one_thing(rng.choice):
        pass
    limit = reading.dispenser._limit
    assert sorted(reading.rows) == reading.source.every_row()[:limit]
    assert set(reading.promised.values()) == {end(FIRST)}


@given(readings(), st.lists(st.integers(1, 3), min_size=1, max_size=4), st.integers(0, 2**32))
def test_epochs_with_other_readers_deliver_every_row_once(
    reading: Reading, replicas: list[int], seed: int
):
    rng = Random(seed)
    for count in replicas:
        for _ in range(rng.randint(0, 20)):
            reading.one_thing(rng.choice)
        while not reading.dispenser.at_rest:  # nothing more is given out meanwhile
            reading.one_thing(lambda possible: rng.choice(possible[:-1]))
        reading.begin(SourcePlan("rows", count, batch_rows=rng.randint(1, 4)))
    while reading.one_thing(rng.choice):
        pass
    assert sorted(reading.rows) == reading.source.every_row()


@given(readings(), st.integers(0, 2**32))
def test_another_dispenser_reads_on_at_the_offsets(reading: Reading, seed: int):
    rng = Random(seed)
    for _ in range(rng.randint(0, 20)):
        reading.one_thing(rng.choice)
    while not reading.dispenser.at_rest:
        reading.one_thing(lambda possible: rng.choice(possible[:-1]))
    rest = Reading(reading.source, readers=2)
    rest.dispenser.restore(reading.dispenser.offsets())
    rest.settle()
    assert sorted(reading.rows + rest.rows) == reading.source.every_row()


# Limits


def test_a_limit_of_nothing_is_over_at_once():
    assert dispenser_of(Parts(5), limit=0).over


def test_no_more_rows_are_claimed_than_the_limit_leaves():
    dispenser = dispenser_of(Parts(50), limit=6)
    assert claims(dispenser.give(0.0)) == [(0, 0, 0, 4), (0, 0, 4, 6)]


def test_rows_that_a_part_did_not_have_do_not_count_against_the_limit():
    reading = Reading(Parts(Part(1, **UNKNOWN), Part(0, **UNKNOWN), Part(9, **UNKNOWN)), limit=5)
    reading.settle()
    assert reading.rows == [(0, 0), (2, 0), (2, 1), (2, 2), (2, 3)]


def test_the_end_is_not_promised_while_a_claim_may_have_fewer_rows_than_the_limit():
    dispenser = dispenser_of(Parts(Part(1, **UNKNOWN), 9), limit=4)
    (claim,) = dispenser.give(0.0)
    assert claim.free == place(0, 0, 4)


# Pace


def test_rows_of_a_paced_source_are_gathered_for_a_moment():
    dispenser = dispenser_of(Parts(100, per_s=10.0), batch_rows=50)
    early = dispenser.give(1.0)
    assert (claims(early), claims(dispenser.give(1.0 + 2 * LINGER_S))) == ([], [(0, 0, 0, 10)])


def test_a_paced_source_does_not_wait_for_more_when_a_batch_is_full():
    dispenser = dispenser_of(Parts(100, per_s=10.0), batch_rows=5)
    assert claims(dispenser.give(0.7)) == [(0, 0, 0, 5)]


def test_a_paced_source_gives_out_nothing_that_is_not_due():
    dispenser = dispenser_of(Parts(100, per_s=10.0), batch_rows=1)
    assert (claims(dispenser.give(0.05)), dispenser.expectant) == ([], True)


def test_a_paced_source_wakes_to_give_out_what_becomes_due():
    assert dispenser_of(Parts(100, per_s=10.0)).wake_s(3.0) == 3.0 + LINGER_S


def test_the_end_of_a_paced_source_is_found():
    source = Parts(Part(3, **UNKNOWN), Part(0, **UNKNOWN), per_s=10.0)
    reading = Reading(source)
    reading.now_s = 100.0
    while not reading.dispenser.over:
        reading.now_s += 1.0
        reading.one_thing(lambda possible: possible[0])
    assert reading.rows == source.every_row()


def test_a_claim_of_a_paced_source_says_when_its_first_row_was_due():
    """Rows that had to wait are as old as they are, not as young as their reading."""
    dispenser = dispenser_of(Parts(100, per_s=10.0), batch_rows=5)
    given_ = dispenser.give(2.0)  # nobody asked for two seconds
    assert [claim.due_s for claim in given_] == pytest.approx([0.1, 0.6], abs=0.01)


def test_the_backlog_of_a_paced_source_is_what_is_due():
    dispenser = dispenser_of(Parts(100, per_s=10.0), batch_rows=5)
    dispenser.give(1.0)
    assert dispenser.backlog(2.0) == 10


# Parts that grow


def growing(rows: int = 2) -> Parts:
    return Parts(Part(rows, growing=True))


def test_what_a_part_did_not_have_yet_is_given_out_again_after_a_nap():
    dispenser = dispenser_of(growing())
    (claim,) = dispenser.give(0.0)
    finish(dispenser, claim, rows=2)
    asleep, awake = dispenser.give(NAP_S / 2), dispenser.give(NAP_S)
    assert (claims(asleep), claims(awake)) == ([], [(0, 0, 2, 6)])


def test_a_part_that_had_no_more_rows_is_asked_again_when_its_nap_is_over():
    dispenser = dispenser_of(growing())
    (claim,) = dispenser.give(0.0)
    finish(dispenser, claim, rows=2, now_s=5.0)
    assert dispenser.wake_s(5.0) == 5.0 + NAP_S


def test_a_part_that_grows_has_one_claim_at_a_time():
    dispenser = dispenser_of(growing(50))
    assert claims(dispenser.give(0.0)) == [(0, 0, 0, 4)]


def test_a_source_that_grows_is_read_when_its_backlog_is():
    dispenser = dispenser_of(growing())
    (claim,) = dispenser.give(0.0)
    finish(dispenser, claim, rows=2)
    assert dispenser.is_read(0.0)


def test_a_source_that_grows_is_not_read_while_rows_wait():
    dispenser = dispenser_of(growing(9))
    (claim,) = dispenser.give(0.0)
    finish(dispenser, claim, rows=2)
    assert not dispenser.is_read(0.0)


def test_the_last_report_of_how_long_rows_had_waited_counts():
    dispenser = dispenser_of(Parts(100))
    first, second = dispenser.give(0.0)
    finish(dispenser, first, waited_ms=7.0)
    finish(dispenser, second, waited_ms=3.0)
    assert dispenser.lag_ms == 3.0


# How much is under way


def test_no_more_claims_are_under_way_than_the_window_allows():
    dispenser = dispenser_of(Parts(10_000), readers=2)
    for claim in dispenser.give(0.0):
        finish(dispenser, claim, processed=False)
    given_ = dispenser.give(0.0)
    assert len(claims(given_)) == QUEUED * 3 - QUEUED * 2


def test_a_claim_is_under_way_until_its_last_delivery_is_processed():
    dispenser = dispenser_of(Parts(100), in_flight_limit=4)
    (claim,) = dispenser.give(0.0)
    dispenser.acknowledged(claim.number, 2)  # two deliveries
    finish(dispenser, claim)
    dispenser.acknowledged(claim.number, -1)
    before = claims(dispenser.give(0.0))
    dispenser.acknowledged(claim.number, -1)
    assert (before, claims(dispenser.give(0.0))) == ([], [(0, 0, 4, 8)])


def test_acknowledgements_of_several_hosts_may_come_in_any_order():
    dispenser = dispenser_of(Parts(100), in_flight_limit=4)
    (claim,) = dispenser.give(0.0)
    finish(dispenser, claim, processed=False)
    for change in (-1, -1, 1):
        dispenser.acknowledged(claim.number, change)
    assert claims(dispenser.give(0.0)) == [(0, 0, 4, 8)]


def test_a_limit_of_rows_in_flight_bounds_the_claims():
    dispenser = dispenser_of(Parts(100), batch_rows=4, in_flight_limit=9, readers=3)
    assert claims(dispenser.give(0.0)) == [(0, 0, 0, 4), (1, 0, 4, 8)]


def test_a_claim_has_no_more_rows_than_may_be_in_flight():
    dispenser = dispenser_of(Parts(100), batch_rows=50, in_flight_limit=3)
    assert claims(dispenser.give(0.0)) == [(0, 0, 0, 3)]


def held_up() -> Dispenser:
    """A dispenser with as many claims under way as there may be, all of them read."""
    dispenser = dispenser_of(Parts(100), in_flight_limit=4)
    for claim in dispenser.give(0.0):
        finish(dispenser, claim, processed=False)
    return dispenser


def test_a_source_is_held_up_when_what_is_under_way_does_not_move():
    assert held_up().held_up


def test_relaxing_lets_one_more_claim_be_under_way():
    dispenser = held_up()
    dispenser.relax()
    assert claims(dispenser.give(0.0)) == [(0, 0, 4, 8)]


def test_a_window_is_as_before_when_little_is_under_way_again():
    dispenser = held_up()
    dispenser.relax()
    (claim,) = dispenser.give(0.0)
    dispenser.acknowledged(0, -1)
    finish(dispenser, claim)
    assert len(claims(dispenser.give(0.0))) == 1


# Stopping, offsets, backlog, stamps


def test_stopping_gives_nothing_out_though_the_stream_is_not_over():
    dispenser = dispenser_of(Parts(100))
    dispenser.stop()
    assert (claims(dispenser.give(0.0)), dispenser.over, dispenser.wake_s(0.0)) == ([], False, None)


def test_a_source_is_at_rest_when_every_claim_is_finished():
    dispenser = dispenser_of(Parts(4))
    (claim,) = dispenser.give(0.0)
    before = dispenser.at_rest
    finish(dispenser, claim, processed=False)
    assert (before, dispenser.at_rest) == (False, True)


def test_rows_that_are_saved_count_from_the_start_of_the_run():
    source = Parts(100)
    first = dispenser_of(source)
    (claim, _) = first.give(0.0)
    offsets = first.offsets()
    second = dispenser_of(source)
    second.restore(offsets)
    for claim in second.give(0.0):
        finish(second, claim)
    second.note_saved(second.offsets())
    assert (second.rows, second.rows_read, second.rows_saved) == (16, 8, 8)


def test_the_backlog_is_what_was_not_given_out():
    dispenser = dispenser_of(Parts(10, 5))
    before = dispenser.backlog(0.0)
    dispenser.give(0.0)
    assert (before, dispenser.backlog(0.0)) == (15, 7)


def test_the_backlog_is_unknown_when_a_part_cannot_say():
    assert dispenser_of(Parts(Part(10, **UNKNOWN))).backlog(0.0) is None


def test_rows_that_have_come_wait_until_they_are_read():
    dispenser = dispenser_of(growing(10))
    dispenser.give(0.0)
    assert dispenser.backlog(0.0) == 10


def test_a_source_that_is_over_has_no_backlog_whatever_its_extents():
    dispenser = dispenser_of(Parts(9), limit=4, known=False)
    dispenser.restore(SourceOffsets({0: 4}, unopened=1, rows=4))
    assert dispenser.backlog(0.0) == 0


def clocked(source: Parts) -> Any:
    """The same source; its rows are stamped with 100, 101, and so on."""
    ticks = iter(range(100, 200))
    return stamped(source, clock=lambda: next(ticks))


def test_a_claim_of_a_stamped_source_records_when_its_rows_arrived():
    given_ = dispenser_of(clocked(Parts(100)), batch_rows=4).give(0.0)
    assert [claim.record for claim in given_] == [{"0": [(0, 4, 100)]}, {"0": [(4, 8, 101)]}]


def test_rows_that_had_not_come_are_stamped_when_they_come():
    dispenser = dispenser_of(clocked(growing()))
    (claim,) = dispenser.give(0.0)
    finish(dispenser, claim, rows=2)
    (again,) = dispenser.give(NAP_S)
    assert again.record == {"0": [(2, 6, 101)]}


def test_stamps_are_not_earlier_than_those_before_a_restart():
    early = dispenser_of(clocked(Parts(100)))
    for claim in early.give(0.0):
        finish(early, claim)
    late = dispenser_of(stamped(Parts(100), clock=lambda: 7))
    late.restore(early.offsets())
    (claim, _) = late.give(0.0)
    assert claim.record == {"0": [(8, 12, 101)]}


def test_stamps_before_the_offsets_are_forgotten():
    source = clocked(Parts(100))
    dispenser = dispenser_of(source)
    for claim in dispenser.give(0.0):
        finish(dispenser, claim)
    dispenser.forget_arrivals()
    assert source.record.get("0", []) == []


def test_a_question_that_is_not_answered_keeps_the_epoch_from_ending():
    dispenser = dispenser_of(Parts(Part(9, **UNKNOWN)), known=False)
    question = next(each for each in dispenser.give(0.0) if isinstance(each, Survey))
    waiting = dispenser.at_rest
    dispenser.surveyed(Surveyed(question.reader, {"0": Extent()}))
    assert (waiting, dispenser.at_rest) == (False, True)


def large_claims(step_s: float, claims: int = 12) -> list[int]:
    """The sizes of claims that are given out one by one, each done after some seconds."""
    dispenser, now_s, sizes = (
        dispenser_of(Parts(10_000_000), batch_rows=50_000),
        0.0,
        [],
    )
    for _ in range(claims):
        claim = next(each for each in dispenser.give(now_s) if isinstance(each, Claim))
        sizes.append(claim.stop - claim.start)
        now_s += step_s
        for started in dispenser._claims[FIRST_READER].copy():
            finish(dispenser, started)
    return sizes


def test_claims_become_as_large_as_the_plan_says_where_that_is_quick():
    sizes = large_claims(SOON_S / 2)
    assert sizes[:4] == [FIRST_ROWS, 2 * FIRST_ROWS, 4 * FIRST_ROWS, 50_000]
    assert set(sizes[4:]) == {50_000}


def test_claims_stay_small_where_steps_take_long():
    assert set(large_claims(SOON_S * 2)) == {FIRST_ROWS}
