"""A case of the law on real threads: its plans are wished for as its sources are read."""

from __future__ import annotations

import threading
from random import Random
from typing import Any

from anabranch.engines.engine import Options
from anabranch.engines.local.engine import LocalEngine
from anabranch.events import Event, Observed
from anabranch.flow import Flow
from anabranch.graph import Role
from anabranch.io import collect
from anabranch.operators.base import Counters
from anabranch.plan.plan import Plan
from anabranch.testing.result import RunResult

DEADLINE_S = 60.0


class Calling:
    """A source that calls a function now and then while it is read."""

    def __init__(self, source: Any, call: Any, rng: Random, share: float) -> None:
        self._source, self._call, self._rng, self._share = source, call, rng, share

    def __copy__(self) -> Calling:
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def read(self, part: str, start: int, rows: int) -> Any:
        if self._rng.random() < self._share:
            self._call()
        return self._source.read(part, start, rows)


def run_on_threads(
    flow: Flow, plans: list[Plan], seed: int, batch_rows: int | None = None
) -> tuple[RunResult, LocalEngine]:
    """Run to the end; each plan but the first is wished for at a moment drawn from the seed."""
    rng = Random(seed)
    waiting = plans[1:]
    lock = threading.Lock()
    started = threading.Event()

    def change() -> None:
        started.wait(DEADLINE_S)
        with lock:
            if waiting:
                engine.apply(waiting.pop(0))

    sources = {
        name: Calling(flow.graph.steps[name].body.source, change, rng, share=0.5)
        for name in flow.names(Role.SOURCE)
    }
    sinks = {name: collect() for name in flow.names(Role.SINK)}
    counted = {name: Counters() for name in flow.names(Role.OPERATOR)}

    def hear(event: Event) -> None:
        if isinstance(event, Observed):
            for step in event.observation.steps:
                if step.step in counted:
                    counted[step.step] = Counters(step.skipped, step.late)

    small = [_small(plan, batch_rows or rng.choice((1, 2, 3, 8))) for plan in plans]
    waiting[:] = small[1:]
    engine = LocalEngine(flow.reading(sources).writing(sinks), small[0], Options())
    engine.start(hear)
    started.set()
    assert engine.wait(DEADLINE_S), "the run did not end"
    tables = {name: sink.table() for name, sink in sinks.items()}
    return RunResult(tables, counted), engine


def _small(plan: Plan, rows: int) -> Plan:
    for source in plan.sources:
        plan = plan.with_source(source.source, batch_rows=rows)
    return plan
