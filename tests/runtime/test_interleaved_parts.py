"""The dispenser of an interleaved source: parts side by side, and the record of their order."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from anabranch.io.interleaving import RunReader
from anabranch.io.offsets import Run
from anabranch.io.reader import numbered
from anabranch.io.source import Chunk, IdleAfter, WrappedSource
from anabranch.runtime.dispenser import FEW_ROWS, FIRST_ROWS, LOOK_S, NAP_S, PAUSE_S
from anabranch.runtime.messages import Claim, Surveyed
from anabranch.state.positions import FIRST, IDLE, JOINED, LAST, end
from tests.runtime.parts import Part, Parts, Reading
from tests.runtime.test_dispenser import (
    FIRST_READER,
    SEALED,
    UNKNOWN,
    Reversed,
    claims,
    dispenser_of,
    finish,
    readings,
)


@given(readings(interleaved=True), st.integers(0, 2**32))
def test_parts_side_by_side_are_read_in_the_order_of_the_record(reading: Reading, seed: int):
    rng = Random(seed)
    for _ in range(200 + 20 * len(reading.source.every_row())):
        reading.now_s += NAP_S
        reading.one_thing(rng.choice)
    runs = sorted(reading.dispenser.runs)
    assert sorted(reading.rows) == reading.source.every_row()
    assert set(reading.promised.values()) == {end(FIRST)}
    rows = [(int(r.part), row) for r in runs for row in range(r.start, r.start + r.rows)]
    assert rows == [row for _, row in sorted(reading.numbered)]


def test_every_part_gets_its_turn():
    reading = Reading(Parts(*[Part(20, **UNKNOWN)] * 3, interleaved=True), readers=1)
    reading.settle()
    parts = [run.part for run in sorted(reading.dispenser.runs) if run.rows]
    assert parts == ["0", "1", "2"] * 5


def test_two_readers_read_two_parts_at_the_same_time():
    dispenser = dispenser_of(Parts(*[Part(20, **SEALED)] * 2, interleaved=True), readers=2)
    assert claims(dispenser.give(0.0)) == [(0, 0, 0, 4), (1, 1, 0, 4)]


def test_numbers_are_given_in_the_order_of_claims():
    dispenser = dispenser_of(Parts(9, 9, interleaved=True), readers=2)
    given_ = [each for each in dispenser.give(0.0) if isinstance(each, Claim)]
    assert [(each.first, each.passed) for each in given_] == [
        (0, JOINED),
        (1, JOINED),
        (2, None),
        (6, None),
    ]
    assert given_[-1].free == numbered(0, 10)


def notices(reading: Reading) -> list[tuple[str, int]]:
    """What clocks get to know, in order."""
    return [(run.part, run.passed) for run in sorted(reading.dispenser.runs) if not run.rows]


def test_clocks_know_of_every_part_before_its_rows_and_when_it_has_ended():
    reading = Reading(Parts(3, 1, interleaved=True))
    reading.settle()
    assert notices(reading)[:2] == [("0", JOINED), ("1", JOINED)]
    assert sorted(notices(reading)[2:]) == [("0", LAST), ("1", LAST)]


def test_a_part_without_rows_for_long_is_idle_once():
    source = Parts(Part(2, growing=True), Part(1, growing=True), interleaved=True)
    reading = Reading(IdleAfter(source, 5.0))
    for _ in range(40):
        reading.now_s += 0.5
        source.all[0].rows += 1
        reading.settle()
    assert notices(reading) == [("0", JOINED), ("1", JOINED), ("1", IDLE)]


def test_a_part_that_nobody_has_asked_again_is_not_idle():
    busy, silent = Part(10**6, growing=True), Part(0, growing=True)
    dispenser = dispenser_of(IdleAfter(Parts(busy, silent, interleaved=True), 5.0))

    def told(now_s: float) -> list[int]:
        """What clocks get to know; the rows of the busy part stay under way."""
        found = []
        while given_ := [each for each in dispenser.give(now_s) if isinstance(each, Claim)]:
            for claim in given_:
                rows = claim.stop - claim.start if claim.part == "0" else 0
                finish(dispenser, claim, rows, processed=not rows, now_s=now_s)
                found += [] if claim.passed is None else [claim.passed]
        return found

    assert told(0.0) == [JOINED, JOINED]
    assert told(60.0) == []
    dispenser.relax()
    assert told(61.0) == [IDLE]


def sizes_of_claims(rows: list[int], part: Part) -> list[int]:
    """How many rows are claimed after claims that have found so many."""
    dispenser = dispenser_of(Parts(part, interleaved=True), batch_rows=10_000)
    sizes, now_s = [], 0.0
    for count in rows:
        now_s += NAP_S
        joined = [each for each in dispenser.give(now_s) if isinstance(each, Claim)]
        for claim in joined[:-1]:
            finish(dispenser, claim)
        sizes.append(joined[-1].stop - joined[-1].start)
        finish(dispenser, joined[-1], min(count, sizes[-1]), now_s=now_s)
    return sizes


def test_about_as_many_rows_are_claimed_as_there_were_the_last_time():
    found = [3, 3, 40, 10_000, 10_000, 10_000, 7, 0]
    expected = [FIRST_ROWS, FEW_ROWS, FEW_ROWS, 80, 160, 320, 640, FEW_ROWS]
    assert sizes_of_claims(found, Part(0, growing=True)) == expected


def test_all_rows_that_are_known_to_have_come_are_claimed():
    assert sizes_of_claims([3, 3, 3], Part(500, growing=True)) == [FIRST_ROWS, 497, 494]


def test_nothing_is_kept_of_parts_that_have_ended():
    reading = Reading(Parts(*range(9), interleaved=True), readers=2)
    reading.settle()
    dispenser = reading.dispenser
    kept = [dispenser._extents, dispenser._latest, dispenser._found, dispenser._not_before]
    assert dispenser.over
    assert kept == [{}] * len(kept)
    assert dispenser.rows_read == 36


class Beating(WrappedSource):
    """Reports another time whenever it has no rows."""

    def __init__(self, source: Parts) -> None:
        super().__init__(source)
        self._time = 0

    def read(self, part: str, start: int, rows: int) -> Chunk | None:
        chunk = super().read(part, start, rows)
        if chunk is None or chunk.batch.num_rows:
            return chunk
        self._time += 1
        return replace(chunk, passed=1000 * int(part) + self._time)


def test_heartbeats_without_rows_are_in_the_record():
    source = Parts(Part(2, growing=True), Part(3, growing=True), interleaved=True)
    reading = Reading(Beating(source), batch_rows=8)
    for _ in range(5):
        reading.settle()
        reading.now_s += NAP_S
        source.all[1].rows += 1
    sent = [each.jumbo for each in reading.deliveries if each.jumbo is not None]
    again = [jumbo for jumbo, _ in RunReader(source, 0, reading.dispenser.runs).read(2)]
    marks = [sorted(mark for jumbo in each for mark in jumbo.marks) for each in (sent, again)]
    assert [mark.passed for mark in marks[0] if mark.passed > 0]
    assert marks[0] == marks[1]


def test_a_heartbeat_between_the_rows_of_a_claim_is_recorded_between_them():
    dispenser = dispenser_of(Parts(Part(9, growing=True), interleaved=True))
    joined, claim = (each for each in dispenser.give(0.0) if isinstance(each, Claim))
    finish(dispenser, joined)
    finish(dispenser, claim, heartbeats=((0, 7), (1, 8), (4, 9)))
    assert dispenser.runs[1:] == [
        Run(1, 0, "0", 0, 0, 7),
        Run(1, 0, "0", 0, 1),
        Run(2, 0, "0", 1, 0, 8),
        Run(2, 0, "0", 1, 3),
        Run(5, 0, "0", 4, 0, 9),
    ]
    assert sorted(dispenser.runs) == dispenser.runs


def test_the_order_of_rows_behind_the_offsets_stays_until_it_is_saved():
    reading = Reading(Parts(8, interleaved=True))
    reading.settle_until(lambda: reading.rows)
    while not reading.dispenser.at_rest:
        reading.one_thing(lambda possible: possible[0])
    offsets = reading.dispenser.offsets()
    reading.settle()
    behind = reading.dispenser.runs[len(offsets.runs) :]
    reading.dispenser.note_saved(offsets)
    reading.dispenser.forget_arrivals()
    assert behind
    assert reading.dispenser.runs == behind


def test_what_clocks_have_to_know_is_not_lost_with_a_dispenser():
    reading = Reading(Parts(1, Part(9, **SEALED), interleaved=True), batch_rows=2)
    reading.settle_until(lambda: reading.dispenser._notices)
    while not reading.dispenser.at_rest:
        reading.one_thing(lambda possible: possible[0])
    rest = Reading(reading.source)
    rest.dispenser.restore(reading.dispenser.offsets())
    rest.settle()
    assert sorted(notices(reading) + notices(rest)) == sorted(
        [("0", JOINED), ("1", JOINED), ("0", LAST), ("1", LAST)]
    )


def test_a_part_that_is_found_later_is_read():
    source = Parts(3, interleaved=True)
    reading = Reading(source)
    reading.settle_until(lambda: reading.rows)
    source.all.append(Part(2))
    reading.settle()
    assert sorted(reading.rows) == source.every_row()
    assert reading.dispenser.over


def test_a_source_without_any_part_waits_for_one():
    source = Parts(interleaved=True)
    reading = Reading(source)
    reading.settle()
    assert not reading.dispenser.over
    source.all.append(Part(2))
    reading.now_s += 2 * LOOK_S
    reading.settle()
    assert (reading.rows, reading.dispenser.over) == ([(0, 0), (0, 1)], True)


def test_parts_keep_their_numbers_when_another_dispenser_reads_on():
    reading = Reading(Parts(Part(2), Part(5, **SEALED), interleaved=True), batch_rows=2)
    reading.settle_until(lambda: len(reading.rows) >= 4)
    while not reading.dispenser.at_rest:
        reading.one_thing(lambda possible: possible[0])
    offsets = reading.dispenser.offsets()
    rest = Reading(Reversed(reading.source), batch_rows=2)
    rest.dispenser.restore(offsets)
    rest.settle()
    assert sorted(reading.rows + rest.rows) == reading.source.every_row()
    assert min(rest.numbered)[0] >= offsets.ordinal


def test_parts_that_are_read_to_their_end_are_not_asked_during_a_pause():
    source = Parts(Part(2, growing=True), Part(3, growing=True), interleaved=True)
    reading = Reading(source)
    reading.settle()
    reading.now_s += NAP_S
    reading.dispenser.pause(reading.now_s)
    source.all[1].rows += 1
    reading.dispenser.surveyed(Surveyed(FIRST_READER, {"1": source.extent("1")}))
    assert claims(reading.give()) == [(0, 1, 3, 7)]
    assert reading.dispenser.wake_s(reading.now_s) == reading.now_s + PAUSE_S
    reading.settle()
    reading.now_s += PAUSE_S
    assert sorted(part for _, part, _, _ in claims(reading.give())) == [0, 1]


def test_rows_that_are_claimed_beyond_what_has_come_do_not_hide_those_of_other_parts():
    dispenser = dispenser_of(
        Parts(Part(5, growing=True), Part(7, growing=True), interleaved=True), batch_rows=100
    )
    dispenser.give(0.0)
    assert dispenser.backlog(0.0) == 12
