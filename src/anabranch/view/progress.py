"""A run in a terminal: a few lines that follow its events."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.text import Text

from anabranch.events import (
    BatchTimes,
    Decision,
    Event,
    Observation,
    Observed,
    Reconfiguration,
    RunEnded,
    RunStarted,
)
from anabranch.plan.plan import Plan

RECENT = 5
FRAMES_PER_S = 4


class Progress:
    """Hears the events of a run, from any thread, and says in some lines how it stands.

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
        self._started: RunStarted | None = None
        self._ended: RunEnded | None = None
        self._plan: Plan | None = None
        self._change: Reconfiguration | None = None
        self._decision: Decision | None = None
        self._recent: deque[Observation] = deque(maxlen=RECENT)
        self._rows_in = self._rows_out = 0

    def hear(self, event: Event) -> None:
        """Take in an event; this is the listener to give to `start`."""
        with self._lock:
            if isinstance(event, RunStarted):
                self._started, self._plan = event, Plan.from_json(event.plan)
            elif isinstance(event, Observed):
                self._recent.append(event.observation)
                self._rows_in += event.observation.rows_in
                self._rows_out += event.observation.rows_out
            elif isinstance(event, Reconfiguration):
                self._change, self._plan = event, Plan.from_json(event.after)
            elif isinstance(event, Decision):
                self._decision = event
            else:
                self._ended = event

    def __str__(self) -> str:
        """How it stands now."""
        with self._lock:
            if self._started is None:
                return f"{self._name}: starting …"
            where = f"{self._name} on {self._started.engine}"
            if not self._recent:
                lines = [f"{where}: waiting for the first rows"]
            else:
                lines = [f"{where}: {self._recent[-1].at_s:.0f} s", *self._measured()]
            if self._plan is not None:
                lines.append(f"plan     {plan_line(self._plan)}")
            if self._change is not None:
                lines.append(f"change   {change_line(self._change)}")
            if self._decision is not None:
                lines.append(f"policy   {str(self._decision).strip()}")
            return "\n".join(lines)

    def __rich__(self) -> Text:
        """The same, for a live display."""
        return Text(str(self))

    @contextmanager
    def live(self, console: Console) -> Iterator[None]:
        """Show it while the block runs, if the console is a terminal; leave nothing behind."""
        # Whatever the run prints goes above the lines that move.
        with Live(
            get_renderable=self.__rich__,
            console=console,
            refresh_per_second=FRAMES_PER_S,
            redirect_stdout=sys.stdout.isatty(),
            transient=True,
        ):
            yield

    def _measured(self) -> list[str]:
        seen = self._recent[-1]
        waiting = [each.backlog_rows for each in seen.sources]
        known = [rows for rows in waiting if rows is not None]
        backlog = f"{sum(known):,} rows" if known and len(known) == len(waiting) else "unknown"
        return [
            f"rate     {recent_rate_per_s(self._recent):,.0f} rows/s",
            f"rows     {self._rows_in:,} in, {self._rows_out:,} out",
            work_line(seen),
            f"latency  {latency_line(seen.latency_p50_ms, seen.latency_p99_ms)}",
            *lag_lines(seen),
            f"backlog  {backlog}",
        ]


def known_lag_ms(seen: Observation) -> float | None:
    """How long tuples had waited to be read, where a source can tell; see `Observation.lag_ms`."""
    return seen.lag_ms if any(each.lag_ms is not None for each in seen.sources) else None


def lag_lines(seen: Observation) -> list[str]:
    """How long tuples waited to be read, and how long they took from there to their results."""
    lag_ms = known_lag_ms(seen)
    if lag_ms is None:
        return []
    whole = latency_line(lag_ms + seen.latency_p50_ms, lag_ms + seen.latency_p99_ms)
    return [f"lag      {milliseconds(lag_ms)} in the queue; end to end {whole}"]


def work_line(seen: Observation) -> str:
    """The newest batch, or what was done since the last look where there are none."""
    if seen.in_batches:
        return f"batch    {seen.batch}: {seen.rows_in:,} rows, {times_line(seen.times)}"
    waiting = sum(region.queue_rows for region in seen.regions)
    return (
        f"work     {seen.rows_in:,} rows, {processor_line(seen.times)}; "
        f"{waiting:,.0f} rows between steps"
    )


def latency_line(p50_ms: float, p99_ms: float) -> str:
    """Latencies, with a digit behind the point where it matters.

    Example:
        >>> latency_line(1.26, 1234.5)
        '1.3 ms p50, 1,234 ms p99'
    """
    return f"{milliseconds(p50_ms)} p50, {milliseconds(p99_ms)} p99"


def milliseconds(value: float) -> str:
    """A duration in milliseconds; engines on threads take less than one.

    Example:
        >>> milliseconds(0.42), milliseconds(42.4)
        ('0.4 ms', '42 ms')
    """
    return f"{value:.1f} ms" if value < 10 else f"{value:,.0f} ms"


def recent_rate_per_s(recent: Sequence[Observation]) -> float:
    """Rows a second over the newest observations, with the time between batches."""
    first, last = recent[0], recent[-1]
    seconds = last.at_s - first.at_s + first.times.total_s
    return sum(each.rows_in for each in recent) / seconds if seconds > 0 else 0.0


def plan_line(plan: Plan) -> str:
    """A plan in one line: readers and batch size of sources, replicas of regions."""
    readers = [
        f"{s.source} {s.replicas} {'reader' if s.replicas == 1 else 'readers'}"
        f" × {s.batch_rows:,} rows"
        for s in plan.sources
    ]
    regions = [
        f"{r.region} {r.replicas}"
        + (f" in {len(r.pipelines)} pipelines" if len(r.pipelines) > 1 else "")
        for r in plan.regions
    ]
    return " · ".join(readers + regions)


def change_line(change: Reconfiguration) -> str:
    """A plan change in one line: when, what, and how long tuples stood still."""
    what = "; ".join(change.moved) or "the same plan"
    return f"at {change.at_s:.1f} s: {what} ({milliseconds(change.pause_ms)} pause)"


def times_line(times: BatchTimes) -> str:
    """Where the time of a batch went.

    Example:
        >>> times_line(BatchTimes(0.5, 0.2, 0.1, 0.0, 0.15, 0.03, 0.02))
        '0.50 s = 0.20 fixed + 0.10 scan + 0.00 shuffle + 0.15 compute + 0.03 state + 0.02 sink'
    """
    parts = ("fixed", "scan", "shuffle", "compute", "state", "sink")
    split = " + ".join(f"{getattr(times, f'{part}_s'):.2f} {part}" for part in parts)
    return f"{times.total_s:.2f} s = {split}"


def processor_line(times: BatchTimes) -> str:
    """What threads spent of their processors in some time; side by side it may be more than that.

    Example:
        >>> processor_line(BatchTimes(1.0, 0.0, 0.3, 0.0, 1.2, 0.0, 0.1))
        '1.60 s of processor in 1.0 s = 0.30 scan + 1.20 compute + 0.10 sink'
    """
    spent = {"scan": times.scan_s, "compute": times.compute_s, "sink": times.sink_s}
    split = " + ".join(f"{seconds:.2f} {part}" for part, seconds in spent.items())
    return f"{sum(spent.values()):.2f} s of processor in {times.total_s:.1f} s = {split}"
