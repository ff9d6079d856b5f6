"""A run as it goes: what its events come to, shown on a terminal or as lines.

`Progress` hears the events and says how things stand; `terminal.py` draws that.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from anabranch.events import (
    Decision,
    Event,
    Observation,
    Observed,
    Reconfiguration,
    RunEnded,
    RunStarted,
    Shape,
    StepMetrics,
)
from anabranch.planning.plan import Plan
from anabranch.view.run_state import MINUTE_S, JournalEntry, ReadSpan, RunState
from anabranch.view.serial_report import serial_line
from anabranch.view.terminal import on_terminal
from anabranch.view.text import (
    RECENT,
    backlog_line,
    known_lag_ms,
    lag_lines,
    latency_line,
    milliseconds,
    plan_line,
    printable,
    recent_rate_per_s,
    work_line,
)

JOURNAL = 20


class Progress:
    """Hears the events of a run, from any thread, and says how it stands.

    Example:
        >>> from anabranch.apps import word_count
        >>> plan = Plan.sequential(word_count.build())
        >>> progress = Progress("word-count")
        >>> print(progress)
        word-count: starting …
        >>> progress.hear(RunStarted("word-count", "spark", plan.to_json(), -1))
        >>> print(progress)
        word-count on spark: waiting for the first rows
        plan     lines 1 reader × 65,536 rows · split 1 · count 1 · out 1
    """

    def __init__(self, name: str) -> None:
        """Know the name of what is about to run."""
        self._name = name
        self._lock = threading.Lock()
        self._lines: Lines | None = None
        self._started: RunStarted | None = None
        self._plan: Plan | None = None
        self._recent: deque[Observation] = deque(maxlen=RECENT)
        self._minute: deque[ReadSpan] = deque()
        self._journal: deque[JournalEntry] = deque(maxlen=JOURNAL)
        self._steps: dict[str, StepMetrics] = {}
        self._rows_in = self._rows_out = 0
        self._news = 0

    def hear(self, event: Event) -> None:
        """Take in an event; this is the listener to give to `start`."""
        with self._lock:
            self._news += 1
            if isinstance(event, RunStarted):
                self._started, self._plan = event, Plan.from_json(event.plan)
            elif isinstance(event, Observed):
                self._observed(event.observation)
            elif isinstance(event, Reconfiguration):
                self._plan = Plan.from_json(event.after)
                self._journal.append(JournalEntry.of_change(event))
            elif isinstance(event, Decision):
                self._journal.append(JournalEntry.of_decision(event))
        if self._lines is not None and not isinstance(event, RunEnded):
            self._lines.tell(event, self.standing)

    def standing(self) -> RunState:
        """How it stands now; a value that no later event changes."""
        with self._lock:
            return RunState(
                self._name,
                self._started.engine if self._started is not None else None,
                self._started.shape if self._started is not None else Shape(),
                self._plan,
                self._recent[-1] if self._recent else None,
                recent_rate_per_s(self._recent),
                self._rows_in,
                self._rows_out,
                sum(step.skipped for step in self._steps.values()),
                sum(step.late for step in self._steps.values()),
                tuple(self._minute),
                tuple(self._journal),
                self._news,
            )

    def __str__(self) -> str:
        """How it stands now, in some lines."""
        now = self.standing()
        if now.seen is None:
            lines = [now.title]
        else:
            lines = [
                f"{now.title}: {now.seen.at_s:.0f} s",
                f"rate     {now.rate_per_s:,.0f} rows/s",
                f"rows     {now.rows}",
                work_line(now.seen),
                f"latency  {latency_line(now.seen.latency_p50_ms, now.seen.latency_p99_ms)}",
                *lag_lines(now.seen),
                f"backlog  {backlog_line(now.seen)}",
            ]
        if now.plan is not None:
            lines.append(f"plan     {plan_line(now.plan)}")
        if (serial := serial_line(now.serial())) is not None:
            lines.append(f"serial   {serial}")
        lines += [f"last     {entry}" for entry in now.journal[-1:]]
        return "\n".join(lines)

    @contextmanager
    def live(self, console: Console) -> Iterator[None]:
        """Show it while the block runs: as a picture that moves on a terminal, else as lines."""
        if console.is_terminal and not console.is_dumb_terminal:
            with on_terminal(self.standing, console):
                yield
            return
        self._lines = Lines(console)
        try:
            yield
        finally:
            self._lines = None

    def _observed(self, seen: Observation) -> None:
        began_s = self._recent[-1].at_s if self._recent else seen.at_s - seen.times.total_s
        self._minute.append(ReadSpan(began_s, seen.at_s, seen.rows_in))
        while self._minute[0].ended_s < seen.at_s - MINUTE_S:
            self._minute.popleft()
        self._recent.append(seen)
        self._steps |= {step.step: step for step in seen.steps}
        self._rows_in += seen.rows_in
        self._rows_out += seen.rows_out


# A run without a terminal: a line now and then, for logs.

PERIOD_S = 5.0


class Lines:
    """Writes a line at each plan change and decision, and one every five seconds of the run."""

    def __init__(self, console: Console) -> None:
        """Write to the file of a console."""
        self._console: Console | None = console
        self._told_s = 0.0

    def tell(self, event: Event, standing: Callable[[], RunState]) -> None:
        """Take in an event that `standing` knows of already."""
        if isinstance(event, Observed):
            if event.observation.at_s - self._told_s >= PERIOD_S:
                self._told_s = event.observation.at_s
                self._write(line_of(standing()))
        elif isinstance(event, Reconfiguration):
            self._write(str(JournalEntry.of_change(event)))
        elif isinstance(event, Decision):  # its own, as another thread may have told a newer one
            self._write(str(JournalEntry.of_decision(event)))
        else:
            self._told_s = 0.0

    def _write(self, line: str) -> None:
        if self._console is None:
            return
        file = self._console.file
        try:
            file.write(printable(line, self._console.options.ascii_only) + "\n")
            file.flush()
        except (OSError, ValueError):  # nobody reads any more, which does not concern the run
            self._console = None


def line_of(now: RunState) -> str:
    """A run that has seen something, in one line."""
    seen = now.seen
    if seen is None:
        return now.title
    lag_ms = known_lag_ms(seen)
    parts = [
        f"{now.rate_per_s:,.0f} rows/s",
        f"rows {now.rows}",
        f"latency {latency_line(seen.latency_p50_ms, seen.latency_p99_ms)}",
        *([f"lag {milliseconds(lag_ms)}"] if lag_ms is not None else []),
        f"backlog {backlog_line(seen)}",
    ]
    return f"{seen.at_s:7.1f} s  {'; '.join(parts)}"
