"""What the page knows of a run: events in, the history and the news of it out.

Nothing here knows a server, a clock or a thread. What the page gets is put together when somebody
asks for it: a run that nobody watches pays for a few values in lists.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, replace
from typing import Any

from anabranch.events import (
    Decision,
    Event,
    Kind,
    Observation,
    Observed,
    Reconfiguration,
    RunEnded,
    RunStarted,
    Shape,
)
from anabranch.planning.plan import Plan
from anabranch.view.standing import is_full, with_counts
from anabranch.view.web.numbers import moment, short
from anabranch.view.web.plans import News, Plans, plan_as_object
from anabranch.view.web.seen import Look, seen_as_object
from anabranch.view.web.series import Series

MOST_ENTRIES = 10_000
"""Decisions and plan changes that are kept."""
MOST_TEXT = 2_000
"""Letters of an entry; what a policy says is a line or two."""

CHANGING = (Kind.TRIED, Kind.APPLIED, Kind.REVERTED)
STAYING = (Kind.REFUSED, Kind.FAILED)


class Story:
    """One run, from what it told."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._forget()

    def _forget(self) -> None:
        self._started: RunStarted | None = None
        self._ended: RunEnded | None = None
        self._plans: Plans | None = None
        self._last: Look | None = None
        self._full: Look | None = None
        self._series = Series()
        self._entries: deque[dict[str, Any]] = deque(maxlen=MOST_ENTRIES)
        self._rows_in = self._rows_out = 0
        self._why = ""

    def take(self, event: Event) -> News:
        """Take in an event; gives what makes the news of it for the page."""
        if isinstance(event, RunStarted):
            return self._start(event)
        if isinstance(event, Observed):
            return self._observe(event.observation)
        if isinstance(event, Reconfiguration):
            return self._change(event)
        if isinstance(event, Decision):
            return self._decide(event)
        return self._end(event)

    def history(self) -> News:
        """Everything so far, as one piece of news."""
        points, entries = list(self._series.points), list(self._entries)
        parts = [self._opening(), self._tail()]

        def told() -> dict[str, Any]:
            merged: dict[str, Any] = {"kind": "history"}
            for part in parts:
                merged |= part()
            return merged | {"points": [point.row() for point in points], "entries": entries}

        return told

    def then(self, number: int) -> News | None:
        """What tells how the graph stood under the plan of a number; None if that is not known."""
        return None if self._plans is None else self._plans.then(number)

    def _opening(self) -> News:
        started, plan = self._started, None if self._plans is None else self._plans.now.plan

        def told() -> dict[str, Any]:
            if started is None or plan is None:
                return {"started": None}
            about = {"flow": started.flow, "engine": started.engine, "version": started.version}
            steps = {step.step: asdict(step) for step in started.shape.steps}
            return {"started": about, "steps": steps, **plan_as_object(plan, started.shape)}

        return told

    def _tail(self) -> News:
        """How it stands now."""
        last, ended, shape = self._last, self._ended, self._shape
        if last is not None and self._full is not None and ended is not None:
            # What is left over at the end is no figure of the run: all boxes would show nothing.
            counted = with_counts(self._full.seen, last.seen)
            last = replace(self._full, seen=counted, rates=last.rates)
        now = {
            "rows_in": self._rows_in,
            "rows_out": self._rows_out,
            "rate_per_s": short(self._series.rates().whole),
        }

        def told() -> dict[str, Any]:
            seen = None if last is None else seen_as_object(last, shape)
            return now | {"seen": seen, "ended": None if ended is None else _end_of(ended)}

        return told

    @property
    def _shape(self) -> Shape:
        return Shape() if self._started is None else self._started.shape

    def _start(self, event: RunStarted) -> News:
        """A run begins; whatever was before it belongs to another one."""
        self._forget()
        self._plans = Plans(Plan.from_json(event.plan), event.shape)
        self._started = event
        return self.history()

    def _observe(self, seen: Observation) -> News:
        point = self._series.see(seen)
        self._rows_in += seen.rows_in
        self._rows_out += seen.rows_out
        if self._plans is not None:
            before = None if self._last is None else self._last.seen
            self._last = Look(seen, self._plans.now.plan, self._series.rates())
            if is_full(seen, before):
                self._full = self._plans.now.look = self._last
        tail = self._tail()
        return lambda: {"kind": "observed", "point": point.row(), **tail()}

    def _change(self, event: Reconfiguration) -> News:
        plan = Plan.from_json(event.after)
        if self._plans is None:  # a journal without its beginning
            self._plans = Plans(Plan.from_json(event.before), Shape())
        number = self._plans.change(plan, event.at_s)
        entry = {
            "at_s": moment(event.at_s),
            "kind": "change",
            "plan": number,
            "who": f"plan {number}",
            "text": ("; ".join(event.moved) or "the same plan")[:MOST_TEXT],
            "pause_ms": short(event.pause_ms),
            "why": self._why,
        }
        self._why = ""
        self._entries.append(entry)
        shape = self._shape
        return lambda: {"kind": "changed", "entry": entry, **plan_as_object(plan, shape)}

    def _decide(self, event: Decision) -> News:
        entry = {
            "at_s": moment(event.at_s),
            "kind": str(event.outcome),
            "who": event.policy,
            "text": event.why[:MOST_TEXT],
        }
        if event.outcome in CHANGING:  # the next change of plan is its doing
            self._why = f"{event.policy}: {event.why}"[:MOST_TEXT]
        elif event.outcome in STAYING:
            self._why = ""
        self._entries.append(entry)
        return lambda: {"kind": "decided", "entry": entry}

    def _end(self, event: RunEnded) -> News:
        self._ended = event
        self._rows_in = max(self._rows_in, event.rows_in)
        self._rows_out = max(self._rows_out, event.rows_out)
        tail = self._tail()
        return lambda: {"kind": "ended", **tail()}


def _end_of(event: RunEnded) -> dict[str, Any]:
    return {"at_s": moment(event.at_s), "whole": event.ended, "error": event.error[:MOST_TEXT]}
