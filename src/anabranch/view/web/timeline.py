"""What the page knows of a run: events in, the history and the news of it out.

Nothing here knows a server, a clock or a thread. What the page gets is put together when somebody
asks for it: a run that nobody watches pays for a few values in lists.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
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
from anabranch.pictures.drawing import draw
from anabranch.planning.plan import Plan
from anabranch.view.run_state import is_full, with_counts
from anabranch.view.text import RECENT
from anabranch.view.web.numbers import moment, short
from anabranch.view.web.observation import Look, RateWindow, seen_as_object

MOST_ENTRIES = 10_000
"""Decisions and plan changes that are kept."""
MOST_TEXT = 2_000
"""Letters of an entry; what a policy says is a line or two."""

CHANGING = (Kind.TRIED, Kind.APPLIED, Kind.REVERTED)
STAYING = (Kind.REFUSED, Kind.FAILED)


class Timeline:
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


# Rate, latency and backlog over time: as many points as a chart shows, however long a run is.

MOST_POINTS = 2_000


@dataclass(frozen=True)
class Point:
    """What was seen in one period.

    Attributes:
        at_s: When it ended, in seconds since the start.
        seconds: How long it was.
        rows: Tuples read in it.
        p50_ms: Latency that half of the tuples had.
        p99_ms: Latency that all but one in a hundred had.
        backlog: Tuples known to wait at the end of it; None where nobody can say.
    """

    at_s: float
    seconds: float
    rows: int
    p50_ms: float
    p99_ms: float
    backlog: int | None

    def merged(self, later: Point) -> Point:
        """Two periods as one; the slowest tuples are those of the slower one."""
        first, second = (max(p.seconds, 1e-9) for p in (self, later))
        middle = (self.p50_ms * first + later.p50_ms * second) / (first + second)
        return Point(
            later.at_s,
            self.seconds + later.seconds,
            self.rows + later.rows,
            middle,
            max(self.p99_ms, later.p99_ms),
            later.backlog,
        )

    @property
    def rate_per_s(self) -> float:
        """Tuples read in a second."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0

    def row(self) -> list[float | None]:
        """What the page gets: time, rate, two latencies, backlog."""
        found = (self.rate_per_s, self.p50_ms, self.p99_ms, self.backlog)
        return [moment(self.at_s), *(short(value) for value in found)]


class Series:
    """The points of a run; neighbours are merged when there are too many.

    Example:
        >>> series = Series(most=4)
        >>> for second in range(6):
        ...     series.add(Point(second + 1.0, 1.0, 10, 1.0, 2.0, None))
        >>> [(point.at_s, point.rows) for point in series.points]
        [(2.0, 20), (4.0, 20), (5.0, 10), (6.0, 10)]
    """

    def __init__(self, most: int = MOST_POINTS) -> None:
        """Keep no more than so many points."""
        self._most = most
        self.points: list[Point] = []
        self._recent: deque[Observation] = deque(maxlen=RECENT)

    def see(self, seen: Observation) -> Point:
        """Take in an observation; the point that it makes."""
        self._recent.append(seen)
        before = self.points[-1].at_s if self.points else seen.at_s - seen.times.total_s
        # Between two batches lies more than the batch: its start, its commit.
        seconds = seen.at_s - before if seen.at_s > before else seen.times.total_s
        point = Point(
            seen.at_s,
            seconds,
            seen.rows_in,
            seen.latency_p50_ms,
            seen.latency_p99_ms,
            seen.backlog_rows,
        )
        self.add(point)
        return point

    def add(self, point: Point) -> None:
        """Put a point behind the others."""
        self.points.append(point)
        if len(self.points) > self._most:
            self.points = _halved(self.points)

    def rates(self) -> RateWindow:
        """Rates of this moment; a value that no later observation changes."""
        return RateWindow(tuple(self._recent))


def _halved(points: Sequence[Point]) -> list[Point]:
    """Every two neighbours as one; the last of an odd number stays as it is."""
    merged = [a.merged(b) for n, (a, b) in enumerate(pairwise(points)) if n % 2 == 0]
    return merged + ([points[-1]] if len(points) % 2 else [])


# The plans of a run, and what was last seen under each: how the graph stood then.

News = Callable[[], dict[str, Any]]
"""Makes what the page is told, when somebody asks for it."""
MOST_PLANS = 500
"""Plans that can be looked at again."""


@dataclass
class InForce:
    """A plan from when on it was in force, and the last full look under it."""

    number: int
    at_s: float
    plan: Plan
    look: Look | None = None


class Plans:
    """The plans of one run, numbered from 1, and what its flow looks like."""

    def __init__(self, first: Plan, shape: Shape) -> None:
        """The plan that the run starts with."""
        self._shape = shape
        self._kept = deque([InForce(1, 0.0, first)], maxlen=MOST_PLANS)

    @property
    def now(self) -> InForce:
        """The newest one."""
        return self._kept[-1]

    def change(self, plan: Plan, at_s: float) -> int:
        """Another plan is in force; its number."""
        self._kept.append(InForce(self.now.number + 1, at_s, plan))
        return self.now.number

    def then(self, number: int) -> News | None:
        """What tells how the graph stood under a plan; None if it is not known any more."""
        found = next((each for each in self._kept if each.number == number), None)
        if found is None:
            return None
        plan, look, at_s, shape = found.plan, found.look, found.at_s, self._shape

        def told() -> dict[str, Any]:
            seen = None if look is None else seen_as_object(look, shape)
            about = {"number": number, "at_s": moment(at_s), "seen": seen}
            return about | plan_as_object(plan, shape)

        return told


def plan_as_object(plan: Plan, shape: Shape) -> dict[str, Any]:
    """A plan for the page: as text, by region, and drawn."""
    pipelines = {region.region: region.pipelines for region in plan.regions}
    replicas = {r.region: r.replicas for r in plan.regions} | {
        s.source: s.replicas for s in plan.sources
    }
    threads = sum(r.replicas * len(r.pipelines) for r in plan.regions)
    return {
        "plan": {
            "text": repr(plan),
            "threads": threads + sum(source.replicas for source in plan.sources),
            "pipelines": pipelines,
            "replicas": replicas,
        },
        "drawing": asdict(draw(shape, pipelines, replicas)),
    }
