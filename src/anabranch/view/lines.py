"""A run without a terminal: a line now and then, for logs."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console

from anabranch.events import Decision, Event, Observed, Reconfiguration
from anabranch.view.glyphs import printable
from anabranch.view.standing import Entry, Standing
from anabranch.view.words import backlog_line, known_lag_ms, latency_line, milliseconds

PERIOD_S = 5.0


class Lines:
    """Writes a line at each plan change and decision, and one every five seconds of the run."""

    def __init__(self, console: Console) -> None:
        """Write to the file of a console."""
        self._console: Console | None = console
        self._told_s = 0.0

    def tell(self, event: Event, standing: Callable[[], Standing]) -> None:
        """Take in an event that `standing` knows of already."""
        if isinstance(event, Observed):
            if event.observation.at_s - self._told_s >= PERIOD_S:
                self._told_s = event.observation.at_s
                self._write(line_of(standing()))
        elif isinstance(event, Reconfiguration):
            self._write(str(Entry.of_change(event)))
        elif isinstance(event, Decision):  # its own, as another thread may have told a newer one
            self._write(str(Entry.of_decision(event)))
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


def line_of(now: Standing) -> str:
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
