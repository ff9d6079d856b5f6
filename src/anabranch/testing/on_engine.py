"""A bounded flow on an engine, compared like any other run: its sinks collect, its plan changes.

Plans are wished for at two kinds of moments. Where the engine works in batches, each batch that is
done is one. Where it reads sources in this process, some of those reads are, drawn from a seed; a
source that travels to another process leaves that behind, so nobody has to say which is the case.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from anabranch.engines.handle import LISTENING, Run
from anabranch.errors import EngineError, Subject
from anabranch.events import Event, Observed, Reconfiguration
from anabranch.flow import Flow
from anabranch.graph import Role
from anabranch.io import collect
from anabranch.io.source import Chunk, Source, WrappedSource
from anabranch.operators.base import Counters
from anabranch.planning.plan import Plan
from anabranch.running import start
from anabranch.testing.result import RunResult

START_S = 60.0
IN_FORCE_S = 0.05
"""How long a read waits for the plan that it wished for: few rows would be read before it is."""
AT_THE_END_S = 8.0
"""How long the last read of a part waits for the first plan; less than an engine that fails waits
for its threads."""

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
        plans: At least one; the others are wished for on the way, in this order.
        seed: Decides at which reads, where this process reads the sources.
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
    """The same, with the handle of the run; one that has not ended by the deadline is an error."""
    sinks = {name: collect() for name in flow.names(Role.SINK)}
    counted: dict[str, Counters] = {name: Counters() for name in flow.names(Role.OPERATOR)}
    wishes = Wishes(plans[1:], Random(seed))

    def hear(event: Event) -> None:
        if isinstance(event, Reconfiguration):
            wishes.note_change()
        if not isinstance(event, Observed):
            return
        for step in event.observation.steps:
            if step.step in counted:
                counted[step.step] = Counters(
                    step.skipped, step.late, step.behind, step.most_behind, step.ahead
                )
        wishes.next()

    # Where there is a checkpoint, plans change while no read is under way.
    at_the_end = wishes.at_the_end if options.get("checkpoint") is None else None
    fed = nudging(flow, wishes.at_a_read, at_the_end) if len(plans) > 1 else flow
    handle = start(fed.writing(sinks), engine=engine, plan=plans[0], listener=hear, **options)
    wishes.begin(handle)
    if not handle.await_termination(deadline_s):
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


class Wishes:
    """Plans that are wished for one after another while a run goes on.

    Args:
        plans: In this order.
        rng: Decides which reads are moments to wish.
    """

    def __init__(self, plans: Sequence[Plan], rng: Random) -> None:
        self._waiting, self._rng = list(plans), rng
        self._lock = threading.Lock()
        self._begun = threading.Event()
        self._wished = False
        self._in_force = threading.Event()
        self._changed = threading.Event()

    def begin(self, handle: Run) -> None:
        """Know the run; moments before this wait for it."""
        self._handle = handle
        self._begun.set()

    def next(self) -> bool:
        """Wish for the next plan, if there is one."""
        # The first batch may be done, and the first rows read, before `start` returns.
        if not self._waiting or not self._begun.wait(START_S):
            return False
        with self._lock:
            if not self._waiting:
                return False
            self._in_force.clear()
            self._handle.reconfigure(self._waiting.pop(0))
            self._wished = True
            return True

    def note_change(self) -> None:
        """A plan that was wished for is in force."""
        self._in_force.set()
        self._changed.set()

    def at_a_read(self) -> None:
        """Now and then, wish; and now and then, let the plan be in force before rows follow."""
        wish, wait = self._rng.random() < 0.5, self._rng.random() < 0.5
        if wish and self.next() and wait:
            self._in_force.wait(IN_FORCE_S)

    def at_the_end(self) -> None:
        """If one was wished for, let the plan change at least once before the last rows follow."""
        if self._wished:
            self._changed.wait(AT_THE_END_S)


def nudging(
    flow: Flow, call: Callable[[], None], at_the_end: Callable[[], None] | None = None
) -> Flow:
    """The same flow, whose sources call a function before they are read in this process.

    Args:
        flow: Whose sources are to be read.
        call: Before every read.
        at_the_end: With the last rows of a part, before they are given out.
    """
    return flow.reading(
        {
            name: Nudging(source, call, at_the_end)
            for name, source in flow.sources().items()
            if not source.pushed
        }
    )


class Nudging(WrappedSource):
    """A source that calls a function before each read; in another process, the source alone."""

    def __init__(
        self, source: Source, call: Callable[[], None], at_the_end: Callable[[], None] | None = None
    ) -> None:
        super().__init__(source)
        self._call, self._at_the_end = call, at_the_end

    def __copy__(self) -> Nudging:
        return Nudging(copy.copy(self._source), self._call, self._at_the_end)

    def __reduce__(self) -> tuple[Callable[[Source], Source], tuple[Source]]:
        return _itself, (self._source,)

    def read(self, part: str, start: int, rows: int) -> Chunk | None:
        """Call, then read."""
        self._call()
        chunk = self._source.read(part, start, rows)
        if self._at_the_end is not None and self._is_last(part, start, chunk):
            self._at_the_end()
        return chunk

    def _is_last(self, part: str, start: int, chunk: Chunk | None) -> bool:
        if chunk is None:
            return True
        known = self._source.extent(part)
        behind = start + chunk.batch.num_rows
        return known.exact and known.rows is not None and behind >= known.rows


def _itself(source: Source) -> Source:
    return source


def small_batches(plan: Plan, rows: int, rng: Random, engine: str = "spark") -> Plan:
    """The plan with batches that cut `rows` rows into some, each source in its own way."""
    fewest, most = BATCHES.get(engine, MANY_BATCHES)
    for source in plan.sources:
        batches = rng.randint(fewest, most)
        plan = plan.with_source(source.source, batch_rows=max(1, -(-rows // batches)))
    return plan
