"""A bounded flow on an engine, compared like any other run: its sinks collect, its plan changes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from random import Random
from typing import Any

from anabranch.events import Event, Observed
from anabranch.flow import Flow
from anabranch.graph import Role
from anabranch.io import collect
from anabranch.operators.base import Counters
from anabranch.plan.plan import Plan
from anabranch.run import start
from anabranch.testing.result import RunResult

FEWEST_BATCHES, MOST_BATCHES = 3, 6
START_S = 60.0


def run_on_engine(flow: Flow, engine: str, plans: Sequence[Plan], **options: Any) -> RunResult:
    """Run to the end under the first plan, then with each batch under the next one, then the last.

    Args:
        flow: Bounded; its own sinks are not written.
        engine: Name of the engine.
        plans: At least one.
        options: As for `start`.
    """
    sinks = {name: collect() for name in flow.names(Role.SINK)}
    waiting = list(plans[1:])
    counted: dict[str, Counters] = {name: Counters() for name in flow.names(Role.OPERATOR)}
    begun = threading.Event()

    def hear(event: Event) -> None:
        if not isinstance(event, Observed):
            return
        for step in event.observation.steps:
            if step.step in counted:
                counted[step.step] = Counters(skipped=step.skipped, late=step.late)
        if waiting and begun.wait(START_S):  # the first batch may be done before `start` returns
            handle.apply(waiting.pop(0))

    handle = start(flow.writing(sinks), engine=engine, plan=plans[0], listener=hear, **options)
    begun.set()
    handle.await_termination()
    return RunResult({name: sink.table() for name, sink in sinks.items()}, counted)


def small_batches(plan: Plan, rows: int, rng: Random) -> Plan:
    """The plan with batches that cut `rows` rows into a few, each source in its own way."""
    for source in plan.sources:
        batches = rng.randint(FEWEST_BATCHES, MOST_BATCHES)
        plan = plan.with_source(source.source, batch_rows=max(1, -(-rows // batches)))
    return plan
