"""Parts that grow, on threads: asked again after a while, with a backlog that counts what waits."""

from __future__ import annotations

from threading import Semaphore

import anabranch as ab
from anabranch.engines.local.dispenser import Dispenser
from anabranch.engines.local.engine import LocalEngine, Options
from anabranch.planning.plan import Plan, SourcePlan
from tests.waiting import wait_until
from tests.engines.spark.test_growing import Growing


def test_rows_that_a_reader_has_claimed_wait_until_it_has_them():
    source = Growing(10)
    dispenser = Dispenser(source, 0, SourcePlan("rows", batch_rows=100))
    assert dispenser.backlog() == 10
    dispenser.change(SourcePlan("rows", batch_rows=100))
    claim = dispenser.claim(0)
    assert (claim.at, claim.stop, dispenser.backlog()) == (0, 100, 10)
    dispenser.advance(0, 4)
    assert (dispenser.backlog(), dispenser.grown()) == (6, True)
    dispenser.advance(0, 6)
    assert (dispenser.backlog(), dispenser.grown()) == (0, False)


def started(source: Growing) -> tuple[LocalEngine, ab.Flow]:
    flow = ab.Flow("growing")
    flow.source("rows", source).sink("out", ab.collect())
    engine = LocalEngine(flow, Plan.sequential(flow), Options())
    engine.start(lambda event: None)
    return engine, flow


class Trickling(Growing):
    """Has one more row whenever it is asked."""

    def read(self, part, start, rows):
        self.rows += 1
        return super().read(part, start, rows)


def test_rows_that_trickle_in_are_let_gather(monkeypatch):
    naps = Semaphore(0)

    def nap(dispenser: Dispenser) -> None:
        if not naps.acquire(timeout=20):
            raise AssertionError("nobody ends the nap")

    monkeypatch.setattr(Dispenser, "nap", nap)
    source = Trickling()
    engine, _ = started(source)
    try:
        for woken in range(5):
            wait_until(lambda rows=woken + 1: engine.rows == (rows, rows))
            assert source.rows == woken + 1  # not asked again before the nap is over
            naps.release()
    finally:
        naps.release(1000)
        engine.stop()


def test_all_is_caught_up_with_once_what_has_come_is_visible():
    source = Growing(5)
    engine, _ = started(source)
    try:
        wait_until(engine.caught_up)
        assert engine.rows == (5, 5)
        source.rows = 9
        assert not engine.caught_up() or engine.rows == (9, 9)
        wait_until(engine.caught_up)
        assert engine.rows == (9, 9)
    finally:
        engine.stop()


def test_a_run_ends_when_the_end_has_come():
    source = Growing(5)
    engine, flow = started(source)
    source.rows, source.ended = 8, True
    assert engine.wait(20)
    table = flow.graph.steps["out"].body.sink.table()
    assert table["row"].to_pylist() == list(range(8))


def test_rows_that_wait_for_those_of_a_slower_source_are_not_caught_up_with():
    flow, slow = ab.Flow("united"), Growing(2)
    fast = flow.source("fast", Growing(10))
    fast.union("both", flow.source("slow", slow)).sink("out", ab.collect())
    engine = LocalEngine(flow, Plan.sequential(flow), Options())
    engine.start(lambda event: None)
    try:
        wait_until(lambda: engine.rows[0] == 12 and engine._parts.gates["both"].idle())
        assert not engine.caught_up()
        assert engine.rows[1] < 12
        slow.rows = 10
        wait_until(engine.caught_up)
        assert engine.rows == (20, 20)
    finally:
        engine.stop()
