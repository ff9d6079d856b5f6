"""A bounded flow on an engine, compared like any other run: its sinks collect, its plan changes.

Plans are requested at two kinds of moments. Where the engine works in batches, each batch that is
done is one. The local engine gives out rows in this process, so there the sources hold rows back:
some are released, a plan is requested, and now and then it is in force before more are released.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from anabranch.engines.handle import LISTENING, Run
from anabranch.errors import EngineError, Subject
from anabranch.events import Event, Observed
from anabranch.flow import Flow
from anabranch.graph import Role
from anabranch.io import collect
from anabranch.io.source import Source, WrappedSource
from anabranch.operators.base import Counters
from anabranch.planning.plan import Plan
from anabranch.running import start
from anabranch.testing.result import RunResult

START_S = 60.0
STEP_S = 0.002
"""How often rows are released."""
IN_FORCE_S = 8.0
"""How long no more rows are released before a requested plan is in force."""
FOREVER_S = 1e8
"""An elapsed time that asks what will ever be due, not what is due now."""
ALL_ROWS = 1 << 60

HOLDING = "local"
"""The engine that gives out rows in this process."""
BATCHES = {"spark": (3, 6)}
"""Fewest and most batches to cut an input into, by engine; a micro-batch costs a third of a second,
where there is none it costs a millisecond."""
MANY_BATCHES = (3, 24)


def run_on_engine(
    flow: Flow, engine: str, plans: Sequence[Plan], *, seed: int = 0, **options: Any
) -> RunResult:
    """Run to the end, under one plan after another.

    Args:
        flow: Bounded; its own sinks are not written.
        engine: Name of the engine.
        plans: At least one; the others are requested on the way, in this order.
        seed: Decides when, where this process gives out rows.
        options: As for `start`.

    Example:
        >>> from anabranch.apps import word_count
        >>> flow = word_count.build(text="a b a")
        >>> ran = run_on_engine(flow, "local", [Plan.sequential(flow)])
        >>> max(row["n"] for row in ran.rows("out"))
        2
    """
    return run_watched(flow, engine, plans, seed=seed, **options)[0]


def run_watched(
    flow: Flow,
    engine: str,
    plans: Sequence[Plan],
    *,
    seed: int = 0,
    deadline_s: float | None = None,
    **options: Any,
) -> tuple[RunResult, Run]:
    """Run like `run_on_engine`; return the handle, too, or raise where the deadline has passed."""
    sinks = {name: collect() for name in flow.names(Role.SINK)}
    counted: dict[str, Counters] = {name: Counters() for name in flow.names(Role.OPERATOR)}
    requests = Requests(plans[1:])

    def hear(event: Event) -> None:
        if not isinstance(event, Observed):
            return
        for step in event.observation.steps:
            if step.step in counted:
                counted[step.step] = Counters(
                    step.skipped, step.late, step.behind, step.most_behind, step.ahead
                )
        if engine != HOLDING:
            requests.next()

    release = Release(requests, plans[0], Random(seed))
    fed = held(flow, release) if engine == HOLDING and len(plans) > 1 else flow
    handle = start(fed.writing(sinks), engine=engine, plan=plans[0], listener=hear, **options)
    requests.begin(handle)
    if not _await_end(handle, release, deadline_s):
        handle.stop()
        raise EngineError(
            Subject("flow", flow.name),
            f"an end within {deadline_s} s",
            "a run that goes on",
            "see who waits for whom",
        )
    for noted in handle.decisions:
        if noted.policy == LISTENING:  # a plan that was refused must not go unseen here
            raise EngineError(
                Subject("flow", flow.name), "plans that are taken", noted.why, "see who refused it"
            )
    return RunResult({name: sink.table() for name, sink in sinks.items()}, counted), handle


def _await_end(handle: Run, release: Release, deadline_s: float | None) -> bool:
    until_s = None if deadline_s is None else time.monotonic() + deadline_s
    while not release.is_over:
        release.step()
        if handle.await_termination(STEP_S):
            return True
        if until_s is not None and time.monotonic() > until_s:
            return False
    rest_s = None if until_s is None else max(0.0, until_s - time.monotonic())
    return handle.await_termination(rest_s)


class Requests:
    """Plans that are requested one after another while a run goes on.

    Args:
        plans: In this order.
    """

    def __init__(self, plans: Sequence[Plan]) -> None:
        self._waiting = list(plans)
        self._begun = threading.Event()
        self._newest: Plan | None = None

    def begin(self, handle: Run) -> None:
        """Know the run; requests before this wait for it."""
        self._handle = handle
        self._begun.set()

    @property
    def is_over(self) -> bool:
        """Return whether all plans were requested."""
        return not self._waiting

    def next(self) -> None:
        """Request the next plan, if there is one."""
        # The first batch may be done before `start` returns.
        if self._waiting and self._begun.wait(START_S):
            self._newest = self._waiting.pop(0)
            self._handle.reconfigure(self._newest)

    @property
    def in_force(self) -> bool:
        """Return whether the plan that was requested last is in force."""
        return self._newest is None or self._handle.plan == self._newest


class Release:
    """Decides how many rows of each source may be given out by now.

    Rows are released a few batches at a time, and plans are requested in between. Before the first
    of them, and before some of the others, is in force no more rows are released.

    Args:
        requests: The plans.
        plan: The plan to begin with.
        rng: Decides when.
    """

    def __init__(self, requests: Requests, plan: Plan, rng: Random) -> None:
        self._requests, self._rng = requests, rng
        self._batch_rows = min(source.most_rows for source in plan.sources)
        self.rows = self._batch_rows
        self._held_until_s = 0.0
        self._first = True
        self.is_over = requests.is_over

    def step(self) -> None:
        """Request a plan or release rows, unless a plan is to be in force before."""
        now_s = time.monotonic()
        if not self._requests.in_force and now_s < self._held_until_s:
            return
        if self._requests.is_over:
            self.rows, self.is_over = ALL_ROWS, True
        elif self._rng.random() < 0.5:
            self._requests.next()
            wait = self._first or self._rng.random() < 0.5
            self._held_until_s = now_s + IN_FORCE_S if wait else 0.0
            self._first = False
        else:
            self.rows += self._batch_rows * self._rng.randint(1, 3)


def held(flow: Flow, release: Release) -> Flow:
    """Return the same flow, whose sources without a pace give out what was released."""
    return flow.reading(
        {
            name: Held(source, release)
            for name, source in flow.sources().items()
            if not source.pushed and source.due_rows(0.0) is None
        }
    )


class Held(WrappedSource):
    """A source with the pace of a `Release`; in another process, the source alone."""

    def __init__(self, source: Source, release: Release) -> None:
        super().__init__(source)
        self._release = release

    def __reduce__(self) -> tuple[Callable[[Source], Source], tuple[Source]]:
        return _itself, (self._source,)

    def __copy__(self) -> Held:
        return Held(copy.copy(self._source), self._release)

    def due_rows(self, elapsed_s: float) -> int:
        return self._release.rows if elapsed_s < FOREVER_S else ALL_ROWS


def _itself(source: Source) -> Source:
    return source


def small_batches(plan: Plan, rows: int, rng: Random, engine: str = "spark") -> Plan:
    """Return the plan with batches that cut `rows` rows into some, each source in its own way."""
    fewest, most = BATCHES.get(engine, MANY_BATCHES)
    for source in plan.sources:
        batches = rng.randint(fewest, most)
        plan = plan.with_source(source.source, batch_rows=max(1, -(-rows // batches)))
    return plan
