"""A reader of a source: it reads its claims in order, and promises no more than it may."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.io.reader import place, sequence_number
from anabranch.io.stamped_source import stamped
from anabranch.planning.plan import Plan
from anabranch.runtime.layout import Layout, Topology
from anabranch.runtime.messages import (
    Barrier,
    Chunk,
    Claim,
    Delivery,
    Finished,
    Promise,
    Survey,
    Surveyed,
    UnitId,
)
from anabranch.runtime.outlet import Outlet
from anabranch.runtime.source_unit import SourceUnit
from anabranch.state.positions import FIRST, LAST, START, end
from tests.runtime.parts import SCHEMA, Part, Parts, flow_of

READER = UnitId("rows", 0)
THE_END = end(FIRST)


class Alone:
    """One reader without anybody else; all that it sends is kept."""

    def __init__(self, source: Any) -> None:
        flow = flow_of(source)
        layout = Layout(Topology(flow), Plan.sequential(flow))
        self.sent: list[Any] = []
        self.reports: list[Any] = []
        self.changes: list[tuple[Chunk, int]] = []
        outlet = Outlet(0, layout, READER, {}, self.sent.append, self.note, lambda count: 0)
        self.unit = SourceUnit(READER, 0, source, 0, outlet, self.reports.append)
        self.now_s = 50.0

    def note(self, chunk: Chunk, change: int) -> None:
        self.changes.append((chunk, change))

    def claim(self, part: int, start: int, stop: int, free: Any, **more: Any) -> None:
        number, first = more.pop("number", 0), sequence_number(part, start)
        claim = Claim(0, READER, number, str(part), start, stop, first, free, **more)
        self.unit.receive(claim)

    def run(self) -> Delivery:
        """Let it do one thing; the last delivery of that."""
        self.unit.run(self.note, lambda: self.now_s)
        return self.sent[-1]

    def run_all(self) -> list[Delivery]:
        while self.unit.runnable():
            self.run()
        return self.sent

    @property
    def rows(self) -> list[tuple[int, int]]:
        batches = [each.jumbo.batch for each in self.sent if each.jumbo is not None]
        lists = [[b.column(name).to_pylist() for name in SCHEMA.names] for b in batches]
        return [row for columns in lists for row in zip(*columns, strict=True)]


def test_a_reader_with_nothing_to_do_is_not_runnable():
    assert not Alone(Parts(5)).unit.runnable()


def test_a_claim_is_read_and_what_comes_after_it_is_promised():
    reader = Alone(Parts(9))
    reader.claim(0, 2, 5, place(0, 0, 7))
    assert reader.run().frontier == place(0, 0, 7)
    assert reader.rows == [(0, 2), (0, 3), (0, 4)]


def test_the_rest_of_a_claim_is_not_promised_away():
    reader = Alone(Parts(9, most=2))
    reader.claim(0, 0, 4, place(0, 0, 4))
    assert [reader.run().frontier for _ in range(2)] == [place(0, 0, 2), place(0, 0, 4)]


def test_a_promise_never_passes_the_claim_that_is_read_next():
    """Two claims of different parts are queued: the dispenser's word is beyond the second."""
    reader = Alone(Parts(4, 4, 4))
    reader.claim(0, 0, 4, place(0, 0, 4), number=0)
    reader.claim(1, 0, 4, place(0, 2, 0), number=1)
    assert [reader.run().frontier for _ in range(2)] == [place(0, 1, 0), place(0, 2, 0)]


def test_a_promise_never_passes_an_earlier_part_that_is_claimed_later():
    reader = Alone(Parts(4, 4, 4))
    reader.claim(1, 0, 4, place(0, 2, 0), number=0)
    reader.claim(0, 2, 4, place(0, 2, 0), number=1)
    assert reader.run().frontier == place(0, 0, 2)


def test_a_promise_alone_is_sent_on_without_rows():
    reader = Alone(Parts(9))
    reader.unit.receive(Promise(0, READER, place(0, 0, 7)))
    (sent,) = reader.run_all()
    assert (sent.jumbo, sent.frontier) == (None, place(0, 0, 7))


def test_a_promise_that_was_sent_makes_a_reader_runnable_no_more():
    reader = Alone(Parts(9))
    reader.unit.receive(Promise(0, READER, place(0, 0, 7)))
    reader.run()
    assert not reader.unit.runnable()


def test_a_reader_marks_the_end_of_its_source_once():
    reader = Alone(Parts(2))
    reader.claim(0, 0, 2, THE_END)
    reader.unit.receive(Promise(0, READER, THE_END))
    reader.run_all()
    marks = [m for each in reader.sent if each.jumbo is not None for m in each.jumbo.marks]
    assert [mark.passed for mark in marks] == [LAST]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=9))
def test_a_promise_is_that_of_the_least_claim(parts: list[int]):
    reader = Alone(Parts(*[2] * 10))
    for part in parts:
        reader.claim(part, 0, 2, THE_END)
    for number in range(len(parts)):
        assert reader.unit._promise() == min(place(0, part, 0) for part in parts[number:])
        reader.run()
    assert reader.unit._promise() == THE_END


def test_the_last_rows_are_sent_before_the_end_is_promised():
    reader = Alone(Parts(2))
    reader.claim(0, 0, 2, THE_END)
    assert [each.frontier for each in reader.run_all()] == [START, THE_END]


def test_the_mark_of_the_end_belongs_to_no_claim():
    reader = Alone(Parts(2))
    reader.claim(0, 0, 2, THE_END, number=7)
    reader.run_all()
    assert [each.chunks for each in reader.sent] == [{Chunk("rows", 7)}, frozenset()]


@pytest.mark.parametrize(
    ("part", "stop", "finished"),
    [
        (Part(9), 4, Finished(READER, 3, 4, part_over=False)),
        (Part(2, exact=False), 4, Finished(READER, 3, 2, part_over=True)),
        (Part(2, growing=True), 4, Finished(READER, 3, 2, part_over=False)),
        (Part(0), 1, Finished(READER, 3, 0, part_over=True)),
    ],
    ids=["whole", "over", "dry", "empty"],
)
def test_a_reader_reports_how_a_claim_has_ended(part: Part, stop: int, finished: Finished):
    reader = Alone(Parts(part))
    reader.claim(0, 0, stop, place(0, 0, stop), number=3)
    reader.run_all()
    assert reader.reports == [finished]


def test_a_part_that_ran_dry_holds_back_the_promise():
    reader = Alone(Parts(Part(2, growing=True)))
    reader.claim(0, 0, 4, place(0, 0, 4))
    reader.run_all()
    assert reader.sent[-1].frontier == place(0, 0, 2)


def test_rows_that_came_after_a_part_ran_dry_are_read_where_it_went_on():
    source = Parts(Part(2, growing=True))
    reader = Alone(source)
    reader.claim(0, 0, 4, place(0, 0, 4))
    reader.run_all()
    source.all[0].rows = 6
    reader.claim(0, 2, 6, place(0, 0, 6))
    reader.run_all()
    assert (reader.rows, reader.sent[-1].frontier) == (source.every_row(), place(0, 0, 6))


def test_a_question_is_answered_before_anything_is_read():
    reader = Alone(Parts(4, Part(5, exact=False)))
    reader.claim(0, 0, 4, place(0, 1, 0))
    reader.unit.receive(Survey(0, READER, ("0", "1")))
    reader.unit.run(reader.note, lambda: 0.0)
    (answer,) = reader.reports
    assert isinstance(answer, Surveyed)
    assert {part: extent.rows for part, extent in answer.extents.items()} == {"0": 4, "1": None}


def test_deliveries_of_a_claim_are_counted_until_it_is_finished():
    reader = Alone(Parts(9, most=2))
    reader.claim(0, 0, 4, place(0, 0, 4), number=5)
    reader.run_all()
    assert [change for _, change in reader.changes] == [1, 1, -1]


def test_rows_are_as_old_as_their_reading():
    reader = Alone(Parts(4))
    reader.claim(0, 0, 2, place(0, 0, 2))
    assert reader.run().born_s == 50.0


def test_rows_with_a_pace_are_as_old_as_they_are_due():
    reader = Alone(Parts(4))
    reader.claim(0, 0, 2, place(0, 0, 2), due_s=31.5)
    assert reader.run().born_s == 31.5


def test_rows_are_stamped_as_their_claim_says():
    reader = Alone(stamped(Parts(4), clock=lambda: 999))
    reader.claim(0, 0, 2, place(0, 0, 2), record={"0": [(0, 2, 7)]})
    stamps = reader.run().jumbo.batch.column("arrival")
    assert [stamp.value for stamp in stamps] == [7, 7]


def test_an_epoch_ends_with_a_barrier_on_every_link():
    reader = Alone(Parts(4))
    reader.unit.end_epoch()
    assert [(type(each), each.epoch) for each in reader.sent] == [(Barrier, 0)]


def test_a_claim_that_was_given_out_too_early_promises_nothing_of_a_dry_part():
    reader = Alone(Parts(Part(5, growing=True)))
    reader.claim(0, 3, 13, place(0, 0, 13))
    reader.run()
    reader.claim(1, 0, 4, place(0, 0, 13), number=1)  # of another part
    assert reader.unit._promise() == place(0, 0, 5)


def test_a_reader_that_has_promised_more_than_it_can_is_not_runnable_for_ever():
    reader = Alone(Parts(Part(5, growing=True)))
    reader.claim(0, 3, 13, place(0, 0, 13))
    reader.run_all()
    reader.unit.receive(Promise(0, READER, place(0, 0, 4)))
    assert not reader.unit.runnable()
