"""What waits between a source and a slower sink is bounded; what was worked on is let go of."""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from anabranch.engines.engine import Options
from anabranch.engines.local.engine import LocalEngine
from anabranch.flow import Flow
from anabranch.io import call, generate, stamped
from anabranch.operators.keyed.keyed import keyed
from anabranch.operators.row_wise.map_filter_expand import expand
from anabranch.planning.plan import Plan
from anabranch.runtime.dispenser import QUEUED
from anabranch.state.positions import Jumbo
from tests.waiting import wait_until

SECONDS = 3.0
BATCH_ROWS = 1000
MOST_BYTES = 64 << 20
SCHEMA = pa.schema([("x", pa.int64())])


def numbers(rng: Any, index: Any) -> dict[str, Any]:
    return {"x": index}


def resident_bytes(pid: int | str = "self") -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sink_a_hundred_times_slower_than_its_source_does_not_fill_the_memory(workers: int):
    flow = Flow("slow-sink")
    sink = call(lambda batch, version: time.sleep(batch.num_rows * 2e-5))
    source = flow.source("rows", generate(numbers, SCHEMA))
    source.map("all", lambda b: {}, keeps="*").sink("out", sink)
    plan = Plan.sequential(flow).with_source("rows", batch_rows=BATCH_ROWS)
    engine = LocalEngine(flow, plan, Options(workers=workers))
    engine.start(lambda event: None)
    wait_until(lambda: engine.rows[1] > 10 * BATCH_ROWS)
    pids = ["self", *(worker.pid for worker in engine._session._workers)]
    before = sum(map(resident_bytes, pids))
    most_rows, until = 0, time.monotonic() + SECONDS
    while time.monotonic() < until:
        read, written = engine.rows
        most_rows = max(most_rows, read - written)
        time.sleep(0.01)
    grown = sum(map(resident_bytes, pids)) - before
    engine.stop()
    # Workers report what they have written five times a second.
    delay_rows = engine.rows[1] / engine.seconds if workers else 0
    assert most_rows <= 2 * QUEUED * BATCH_ROWS + delay_rows
    assert grown < MOST_BYTES


def test_jumbo_tuples_are_let_go_of_without_the_garbage_collector():
    """It seldom looks at old objects: a cycle with a batch in it is memory that only grows."""
    by_key = keyed(key="x", state="n: int64", out="y: int64")(lambda b, state: {"y": b["x"]})
    twice = expand(out="x: int64")(lambda b: ({"x": b["x"]}, range(b.num_rows)))
    flow = Flow("steps")
    source = flow.source("rows", generate(numbers, SCHEMA, rows=10 * BATCH_ROWS))
    source.map("map", lambda b: {}, keeps="*").apply("expand", twice).apply("by_key", by_key).sink(
        "out", call(lambda batch, version: None)
    )
    engine = LocalEngine(flow, Plan.sequential(flow), Options())
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        engine.start(lambda event: None)
        assert engine.wait(60)
        gc.collect()
        left = [each for each in gc.garbage if isinstance(each, Jumbo | pa.RecordBatch)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert engine.rows[0] == 10 * BATCH_ROWS
    assert not left


def test_arrival_times_are_forgotten_where_nothing_is_read_again():
    source = stamped(generate(numbers, SCHEMA), clock=lambda: 0)
    flow = Flow("stamped")
    flow.source("rows", source).sink("out", call(lambda batch, version: None))
    plan = Plan.sequential(flow).with_source("rows", batch_rows=BATCH_ROWS)
    engine = LocalEngine(flow, plan, Options(rows=20 * BATCH_ROWS))
    engine.start(lambda event: None)
    assert engine.wait(60)
    assert engine.rows[1] == 20 * BATCH_ROWS
    assert sum(map(len, source.record.values())) <= 1
