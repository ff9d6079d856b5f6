"""Parts that grow: asked again after a while, until all that has come is visible."""

from __future__ import annotations

import anabranch as ab
from anabranch.engines.local.engine import LocalEngine, Options
from anabranch.planning.plan import Plan
from tests.engines.local.rows_to_read import Growing
from tests.waiting import wait_until


def started(source: Growing) -> tuple[LocalEngine, ab.Flow]:
    flow = ab.Flow("growing")
    flow.source("rows", source).sink("out", ab.collect())
    engine = LocalEngine(flow, Plan.sequential(flow), Options())
    engine.start(lambda event: None)
    return engine, flow


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
    assert engine.wait(60)
    table = flow.graph.steps["out"].body.sink.table()
    assert table["row"].to_pylist() == list(range(8))


def test_rows_that_wait_for_those_of_a_slower_source_are_not_caught_up_with():
    flow, slow = ab.Flow("united"), Growing(2)
    fast = flow.source("fast", Growing(10))
    fast.union("both", flow.source("slow", slow)).sink("out", ab.collect())
    engine = LocalEngine(flow, Plan.sequential(flow), Options())
    engine.start(lambda event: None)
    try:
        wait_until(lambda: engine.rows[0] == 12)
        for _ in range(20):
            assert not engine.caught_up()
        assert engine.rows[1] < 12
        slow.rows = 10
        wait_until(engine.caught_up)
        assert engine.rows == (20, 20)
    finally:
        engine.stop()
