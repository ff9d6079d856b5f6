"""What users hold of a run: a handle like PySpark's StreamingQuery, a result, listeners."""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from traceback import extract_tb
from typing import Protocol, Self

from anabranch.engines.engine import Engine
from anabranch.errors import BuildError, Subject
from anabranch.events import (
    Decision,
    Event,
    Kind,
    Observation,
    Observed,
    Reconfiguration,
    RunEnded,
    RunStarted,
    SkippedRow,
    StepMetrics,
)
from anabranch.planning.plan import Plan

RECENT = 100
JOURNAL = 10_000
"""Decisions that a run remembers."""


@dataclass(frozen=True)
class Result:
    """What came of a run.

    Attributes:
        flow: Name of the flow.
        engine: What ran it.
        rows_in: Tuples read.
        rows_out: Tuples written.
        seconds: From the first batch to the end.
        latency_p50_ms: From reading a tuple to its result being visible, half of the tuples.
        latency_p99_ms: The same, all but one in a hundred.
        reconfigurations: The newest plan changes on the way.
        plan: The plan at the end.
        ended: Whether all sources had come to their end.
        decisions: What the policy did last, and why: the end of the journal.
        skipped: By step, rows that were malformed or on which its code raised; none where zero.
        late: By step, rows that a clock set aside; none where zero.
        error: What the run failed with, as `await_termination` raises it; None if it did not.
        first_skipped: By step, the first of its skipped rows in this run, and why it was skipped.
        rows_by_step: By step, tuples that came in during this run.
        starting_s: From asking for the run to its first batch, which `seconds` leaves out: on
            Spark the start of a session, for one.
        behind: By step, those of the late rows that were further behind than `lateness`.
        most_behind: By step, how far the furthest of them was behind, in the unit of its time;
            microseconds for timestamps.
        ahead: By step, those of the late rows that were further ahead than `ahead`.
        resumed: Whether the run went on from a checkpoint.
    """

    flow: str
    engine: str
    rows_in: int
    rows_out: int
    seconds: float
    latency_p50_ms: float
    latency_p99_ms: float
    reconfigurations: tuple[Reconfiguration, ...]
    plan: Plan
    ended: bool
    decisions: tuple[Decision, ...] = ()
    skipped: Mapping[str, int] = field(default_factory=dict)
    late: Mapping[str, int] = field(default_factory=dict)
    error: str | None = None
    starting_s: float = 0.0
    behind: Mapping[str, int] = field(default_factory=dict)
    most_behind: Mapping[str, int] = field(default_factory=dict)
    first_skipped: Mapping[str, SkippedRow] = field(default_factory=dict)
    rows_by_step: Mapping[str, int] = field(default_factory=dict)
    ahead: Mapping[str, int] = field(default_factory=dict)
    resumed: bool = False

    @property
    def rate_per_s(self) -> float:
        """Tuples read per second."""
        return self.rows_in / self.seconds if self.seconds else 0.0


BY_HAND = "by hand"
"""Who decides when no policy does."""
LISTENING = "listening"
"""Who notes what went wrong in a listener."""


class Tunes(Protocol):
    """Who tunes a run: hears its events, and wishes for plans."""

    @property
    def gave_up(self) -> bool:
        """Whether it could not begin, so that nobody tunes the run."""

    def hear(self, event: Event) -> None:
        """Take an event of the run."""

    def look_again(self) -> None:
        """Decide from what comes from now on; called from any thread."""


class Run:
    """A flow that runs; feels like PySpark's StreamingQuery. As a context it stops when left."""

    def __init__(
        self, name: str, engine: Engine, listeners: Listener | Sequence[Listener] | None = None
    ) -> None:
        """Hold an engine that is about to start; listeners hear every event."""
        self.name = name
        self.engine, self._listeners = engine, Listeners(listeners)
        self._recent: deque[Observation] = deque(maxlen=RECENT)
        self._newest: deque[Observation] = deque(maxlen=2)
        self._journal: deque[Decision] = deque(maxlen=JOURNAL)
        self._end: RunEnded | None = None
        self._steps: dict[str, StepMetrics] = {}
        self._first_skipped: dict[str, SkippedRow] = {}
        self._rows_by_step: Counter[str] = Counter()
        self.tuner: Tunes | None = None
        self._paused = self._resumed = False
        self._asked_s = time.monotonic()
        self._starting_s: float | None = None

    def hear(self, event: Event) -> None:
        """Take an event of the engine, and pass it on."""
        if isinstance(event, Observed | RunEnded) and self._starting_s is None:
            since_s = time.monotonic() - self._asked_s
            self._starting_s = max(0.0, since_s - self.engine.seconds)
        if isinstance(event, Observed):
            self._newest.append(event.observation)
            if not (self._recent and event.observation.is_empty):
                self._recent.append(event.observation)
            self._count(event.observation.steps)
        elif isinstance(event, RunStarted):
            self._resumed = event.version >= 0
        elif isinstance(event, RunEnded):
            self._end = event
        elif isinstance(event, Decision):
            self._journal.append(event)
        complaints = self._listeners.hear(event)
        if self.tuner is not None and not (self._paused and isinstance(event, Observed)):
            self.tuner.hear(event)  # paused, it sees nothing: what does not see cannot decide
        for why in complaints:
            self.hear(Decision(self.engine.seconds, LISTENING, Kind.NOTED, why))

    def _count(self, steps: Sequence[StepMetrics]) -> None:
        for step in steps:
            self._steps[step.step] = step
            self._rows_by_step[step.step] += step.rows_in
            if step.first_skipped is not None:
                self._first_skipped[step.step] = step.first_skipped

    @property
    def adapting(self) -> bool | None:
        """Whether a policy decides at the moment; None where nobody tunes the run."""
        tuned = self.tuner is not None and not self.tuner.gave_up
        return not self._paused if tuned else None

    @property
    def is_active(self) -> bool:
        """Whether it still runs."""
        return self._end is None

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self.engine.plan

    @property
    def last_progress(self) -> Observation | None:
        """The newest observation; where an engine works in batches, of the last that had rows."""
        return self._recent[-1] if self._recent else None

    @property
    def recent_progress(self) -> list[Observation]:
        """The newest observations, oldest first; none of later batches without rows."""
        return list(self._recent)

    @property
    def reconfigurations(self) -> list[Reconfiguration]:
        """The newest plan changes, oldest first."""
        return self.engine.reconfigurations()

    @property
    def decisions(self) -> list[Decision]:
        """The newest decisions of the policy, and why, oldest first."""
        return list(self._journal)

    def reconfigure(self, plan: Plan) -> None:
        """Request another plan; it is in force at the next exact position.

        A plan that is no plan for this flow is refused. One that comes after the end changes
        nothing, which is noted in the journal: nobody can know that a run ends this moment.
        """
        self.engine.reconfigure(plan)
        if not self.is_active:
            why = "a plan was wished for after the end, and changes nothing"
            self._journal.append(Decision(self.engine.seconds, BY_HAND, Kind.NOTED, why))

    def pause_adaptation(self) -> None:
        """Let the plan stay as it is until adaptation goes on; changes by hand are still made.

        So is a change that the policy has already wished for. Where nobody tunes the run, or
        adaptation is paused already, this does nothing.
        """
        if self.adapting:
            self._paused = True
            self._note_by_hand("adaptation is paused by hand")

    def resume_adaptation(self) -> None:
        """Let the policy decide again, from what it sees from now on.

        A change that was on trial is judged by that, too. Where adaptation is not paused, this does
        nothing.
        """
        if self.tuner is not None and self.adapting is False:
            self.tuner.look_again()
            self._paused = False
            self._note_by_hand("adaptation goes on")

    def _note_by_hand(self, why: str) -> None:
        self.hear(Decision(self.engine.seconds, BY_HAND, Kind.NOTED, why))

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Wait for the end; whether it came. Raises what ended the run, if that was an error."""
        return self.engine.wait(timeout_s)

    def stop(self) -> None:
        """Stop; what was committed stays, and nothing fires."""
        self.engine.stop()

    def __enter__(self) -> Self:
        """The run, which stops at the end of the block however that is left."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, unless it has ended."""
        self.stop()

    def process_all_available(self, timeout_s: float = 60.0) -> bool:
        """Wait until all that the sources have is processed, or for the end; whether it came.

        A source that is paced has something due sooner or later, so this is for sources that are
        read as fast as they can be.
        """
        until = time.monotonic() + timeout_s
        seen = self._newest[-1].batch if self._newest else -1
        while self.is_active and time.monotonic() < until:
            caught_up = self.engine.caught_up()
            if caught_up is None:
                caught_up = self._found_nothing_since(seen)
            if caught_up:
                return True
            self.await_termination(0.02)
        return not self.is_active

    def _found_nothing_since(self, batch: int) -> bool:
        """Whether the last two batches after one read nothing.

        One is not enough: it may have been planned before, even by the run before this one.
        """
        return [each.rows_in for each in list(self._newest) if each.batch > batch] == [0, 0]

    def result(self) -> Result:
        """What came of it so far; `error` says what ended a run that failed."""
        ended = self._end
        engine = self.engine
        rows_in, rows_out = engine.rows
        return Result(
            self.name,
            engine.name,
            rows_in,
            rows_out,
            engine.seconds,
            engine.latency_ms(0.5),
            engine.latency_ms(0.99),
            tuple(engine.reconfigurations()),
            engine.plan,
            bool(ended and ended.ended),
            tuple(self._journal),
            self._counted("skipped"),
            self._counted("late"),
            (ended.error or None) if ended else None,
            self._starting_s or 0.0,
            self._counted("behind"),
            self._counted("most_behind"),
            dict(self._first_skipped),
            dict(self._rows_by_step),
            self._counted("ahead"),
            self._resumed,
        )

    def _counted(self, what: str) -> dict[str, int]:
        """Return what each step has counted since the start, without zeros."""
        counts = {name: getattr(step, what) for name, step in self._steps.items()}
        return {name: count for name, count in counts.items() if count}


# Those who hear what a run tells: whatever they do with it, the run goes on.

Listener = Callable[[Event], None]


class Listeners:
    """Some listeners as one that never raises.

    Args:
        listeners: One, several, or none.

    Example:
        >>> from anabranch.events import RunEnded
        >>> heard = []
        >>> both = Listeners([print, heard.append])
        >>> both.hear(RunEnded(2.0, 10, 3, ended=True))
        RunEnded(at_s=2.0, rows_in=10, rows_out=3, ended=True, error='')
        []
        >>> len(heard)
        1
    """

    def __init__(self, listeners: Listener | Sequence[Listener] | None) -> None:
        if listeners is None:
            listeners = ()
        self._listeners = (listeners,) if callable(listeners) else tuple(listeners)
        for listener in self._listeners:
            if not callable(listener):
                raise BuildError(
                    Subject("argument", "listener"),
                    "a function of one event, or several in a sequence",
                    repr(listener),
                    "give its method, such as listener=progress.hear",
                )
        self._complained: set[int] = set()

    def hear(self, event: Event) -> list[str]:
        """Tell all of them; in words, what was raised by those that never had before."""
        complaints = []
        for number, listener in enumerate(self._listeners):
            try:
                listener(event)
            except Exception as error:  # theirs, and no reason to end the run
                if number not in self._complained:
                    self._complained.add(number)
                    complaints.append(_complaint(listener, event, error))
        return complaints


def _complaint(listener: Listener, event: Event, error: Exception) -> str:
    name = getattr(listener, "__qualname__", type(listener).__qualname__)
    frames = extract_tb(error.__traceback__)
    place = f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}"
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return (
        f"the listener {name} raised {what} at {type(event).__name__} ({place}); the run goes on, "
        "and more of this listener is not told"
    )
