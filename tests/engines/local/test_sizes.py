"""Sizes of parts: a source that hangs or fails holds up nobody but who reads it."""

from __future__ import annotations

import threading

import pytest

import anabranch as ab
from anabranch.engines.local import sizes as sizes_module
from anabranch.engines.local.dispenser import Dispenser
from anabranch.engines.local.engine import LocalEngine, Options
from anabranch.engines.local.sizes import Sizes
from anabranch.errors import SourceError
from anabranch.events import Event, Observed
from anabranch.io.source import Extent
from anabranch.planning.plan import Plan, SourcePlan
from tests.engines.local.handmade import Side, wait_until
from tests.engines.local.rows_to_read import Rows
from tests.engines.spark.test_growing import Growing

pytestmark = pytest.mark.timeout(120)
PLAN = SourcePlan("rows", batch_rows=4)


class Hanging(Growing):
    """Does not say how large it is while it hangs."""

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.answers, self.asked = threading.Event(), threading.Event()
        self.answers.set()

    def hang(self) -> None:
        self.answers.clear()
        self.asked.clear()

    def extent(self, part: str) -> Extent:
        self.asked.set()
        assert self.answers.wait(20)
        return super().extent(part)


class Refusing(Growing):
    """Cannot say how large it is any more, once it refuses."""

    refuses = True

    def extent(self, part: str) -> Extent:
        if self.refuses:
            raise SourceError(part, "a server that answers", "silence", "wake it up")
        return super().extent(part)


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes_module, "SOON_S", 0.01)


def known_after_a_while(dispenser: Dispenser) -> int:
    wait_until(lambda: dispenser.backlog() is not None)
    return dispenser.backlog()


def test_the_last_backlog_has_to_do_while_a_source_hangs():
    source = Hanging(10)
    dispenser = Dispenser(source, 0, PLAN)
    assert known_after_a_while(dispenser) == 10
    source.hang()
    source.rows = 90
    assert dispenser.backlog() == 10
    source.answers.set()
    wait_until(lambda: dispenser.backlog() == 90)


def test_a_source_that_hangs_is_asked_by_one_thread_at_a_time():
    source = Hanging(10)
    sizes = Sizes(source)
    source.hang()
    before = threading.active_count()
    for _ in range(5):
        assert sizes.soon() is None
    assert threading.active_count() == before + 1
    source.answers.set()


def test_a_reader_that_waits_for_its_source_holds_up_nobody_else():
    source = Hanging(10)
    dispenser = Dispenser(source, 0, PLAN)
    dispenser.change(PLAN)
    source.hang()
    claiming = Side(dispenser.claim, 0)
    assert source.asked.wait(20)
    assert dispenser.asking
    assert dispenser.at_rest  # each of these needs the lock
    assert not dispenser.over
    dispenser.stop()
    source.answers.set()
    assert claiming.end() is None


def test_a_backlog_that_cannot_be_told_is_unknown_and_known_again_later():
    source = Refusing(10)
    dispenser = Dispenser(source, 0, PLAN)
    assert (dispenser.backlog(), dispenser.grown()) == (None, True)
    source.refuses = False
    assert known_after_a_while(dispenser) == 10


def test_sizes_that_are_known_are_not_asked_for_again():
    source = Rows([3, 4])
    sizes = Sizes(source)
    wait_until(lambda: sizes.soon() is not None)
    source.extent = lambda part: pytest.fail("asked again")
    assert [each.rows for each in sizes.soon()] == [3, 4]


def test_a_source_that_is_over_is_not_asked_what_waits():
    source = Refusing(4)
    dispenser = Dispenser(source, 0, PLAN, limit=4)
    dispenser.restore({"open": {"0": 4}, "unopened": 1, "rows": 4})
    source.extent = lambda part: pytest.fail("asked")
    assert dispenser.backlog() == 0


def test_a_server_that_goes_away_behind_the_last_row_does_not_fail_the_run():
    """The run has all that it wanted; what it shows last must not ask for more."""
    source, seen = Refusing(5), []
    source.refuses, source.ended = False, True

    def written(batch: object, version: int) -> None:
        source.refuses = True

    def hear(event: Event) -> None:
        if isinstance(event, Observed):
            seen.append(event.observation)

    flow = ab.Flow("gone")
    flow.source("rows", source).sink("out", ab.call(written))
    engine = LocalEngine(flow, Plan.sequential(flow), Options())
    engine.start(hear)
    assert engine.wait(20)
    assert (engine.rows, seen[-1].sources[0].backlog_rows) == ((5, 5), 0)
