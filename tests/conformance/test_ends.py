"""How a run ends, on every engine: at the end of its sources, at a limit, when it is stopped."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.apps import APPS
from anabranch.engines.handle import Run
from anabranch.engines.registry import ENGINES
from anabranch.flow import Flow, Order
from anabranch.graph import Output, Role
from anabranch.planning.plan import Plan
from anabranch.testing.checking import Recording
from anabranch.testing.compare import difference
from anabranch.testing.on_engine import small_batches
from anabranch.testing.sequential import run_sequential
from tests.conformance.flows import NAMES, built, subject
from tests.conformance.ways import SLOW, marked, options_of, run_by, wide
from tests.sampling import ALL, sampled

pytestmark = sampled

ROWS = 37
BEFORE_STOP = 60
PER_S = 200.0
ENDLESS = [name for name, app in APPS.items() if "rows" in app.parameters]

WAITING = {
    "log-watch",
    "network-monitoring",
    "fraud-detection",
    "linear-road",
    "sentiment",
    *(f"nexmark{query}" for query in ("", "-q2", "-q5", "-q7", "-q11")),
}
"""They tell something when a window is over, or once in many rows: after so few, nothing is due.
What they tell as changes stands behind a clock, which holds the last tuples until others come."""


def some(names: list[str], *few: str) -> list[object]:
    """Flows by engine; unless all are asked for, a few on the slow one and more on the other."""
    sample = {engine: few if engine == SLOW else {*few, *names[::6]} for engine in ENGINES}
    return [
        marked(engine, name)
        for engine in ENGINES
        for name in names
        if ALL or name in sample[engine]
    ]


def collected(flow: Flow) -> tuple[Flow, dict[str, Any]]:
    sinks = {name: ab.collect() for name in flow.names(Role.SINK)}
    return flow.writing(sinks), sinks


def left(flow: Flow, sink: str, table: pa.Table) -> Any:
    """What a sink is left with: all rows in order, or the last one of each key."""
    changelog = flow.resolve().types[Output(sink)].changelog
    rows = table.to_pylist()
    if changelog is None:
        assert flow.order is Order.TOTAL, "compare in another way"
        return rows
    return {tuple(row[column] for column in changelog): row for row in rows}


# --- at an end --------------------------------------------------------------------------------


@pytest.mark.parametrize(("engine", "name"), some(NAMES, "readings"))
def test_no_more_rows_of_each_source_are_read_than_wanted(engine, name, request):
    whole = subject(name).flow
    flow, sinks = collected(whole)
    plan = small_batches(wide(flow, 0)[0], ROWS, Random(0), engine)
    result = ab.run(flow, engine=engine, plan=plan, rows=ROWS, **options_of(engine, request))
    limited = Recording.of(whole, ROWS)
    assert (result.ended, result.rows_in) == (True, limited.size)
    for sink, table in run_sequential(limited.feed(whole)).outputs.items():
        assert left(flow, sink, sinks[sink].table()) == left(flow, sink, table), sink


@pytest.mark.parametrize(("engine", "name"), some(NAMES, "clicks"))
def test_no_rows_at_all_give_what_they_mean(engine, name, request):
    whole = subject(name).flow
    flow = Recording.of(whole, 0).feed(whole)
    got, _ = run_by(engine, flow, wide(flow, 0), 0, request)
    assert difference(flow, run_sequential(flow), got) is None


# --- stopped ----------------------------------------------------------------------------------


class Paced:
    """A source of which so many rows are due in a second."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def __getattr__(self, name: str) -> Any:
        if name == "source":  # a copy under construction has none yet
            raise AttributeError(name)
        return getattr(self.source, name)

    def due_rows(self, elapsed_s: float) -> int:
        return int(PER_S * elapsed_s)


def stopped(flow: Flow, engine: str, **options: Any) -> Run:
    """Start, and stop when some rows were read."""
    steps = flow.graph.steps
    paced = {name: Paced(steps[name].body.source) for name in flow.names(Role.SOURCE)}
    handle = ab.start(flow.reading(paced), engine=engine, plan=Plan.sequential(flow), **options)
    while handle.engine.rows[0] < BEFORE_STOP:
        assert not handle.await_termination(0.02)
    handle.stop()
    return handle


@pytest.mark.parametrize(("engine", "name"), some(ENDLESS, "word-count"))
def test_a_stopped_run_has_written_what_was_read_so_far_and_fired_nothing(engine, name, request):
    endless = built(name, rows=None)
    flow, sinks = collected(endless)
    handle = stopped(flow, engine, **options_of(engine, request))
    result = handle.result()
    assert not result.ended
    assert result.rows_in >= BEFORE_STOP
    expected = run_sequential(Recording.of(endless, result.rows_in).feed(endless))
    alone = len(flow.names(Role.SOURCE)) == 1  # else nobody knows how much was read of which
    told = 0
    for sink, table in expected.outputs.items():
        got, whole = left(flow, sink, sinks[sink].table()), left(flow, sink, table)
        if isinstance(got, list):
            assert got == whole[: len(got)], sink
        elif alone and name not in WAITING:
            assert got == whole, sink
        told += len(got)
    assert told or not alone or name in WAITING, "nothing to compare"
