"""A tuned run, round by round: a round is a stretch of the run under one plan.

`Rounds` hears the events of a run; `report` writes them down as Markdown, `as_object` as JSON.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from anabranch.adapt.policy import Cadence
from anabranch.events import (
    Decision,
    Event,
    Observation,
    Observed,
    Reconfiguration,
    RunStarted,
)
from anabranch.planning.plan import Plan
from anabranch.view.text import known_lag_ms, plan_line

DECIDED = ("tried", "applied", "kept", "reverted")
"""Outcomes that show a policy at work; others are notes."""


@dataclass
class Round:
    """One plan, what was seen under it, and what was decided on that."""

    number: int
    began_s: float
    plan: Plan
    seen: list[Observation] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)


@dataclass(frozen=True)
class Figures:
    """What a round came to, once its plan had settled.

    Attributes:
        periods: Periods that count.
        rate_per_s: Tuples read a second.
        latency_p50_ms: From reading a tuple to its result: the median period's median.
        latency_p99_ms: The same of all but one tuple in a hundred.
        lag_ms: How long tuples had waited to be read, in the last period; None when nobody can
            say. From arrival to result, end to end, takes this and the latency.
        backlog_rows: How many waited then; None when nobody can say.
    """

    periods: int
    rate_per_s: float
    latency_p50_ms: float
    latency_p99_ms: float
    lag_ms: float | None
    backlog_rows: int | None

    @staticmethod
    def of(seen: Sequence[Observation], settle: int) -> Figures | None:
        """From what was seen under a plan; None where that is nothing."""
        counted = seen[settle:] or seen[-1:]
        if not counted:
            return None
        seconds = sum(each.times.total_s + each.times.commit_s for each in counted)
        known = [s.backlog_rows for s in counted[-1].sources]
        waiting = [rows for rows in known if rows is not None]
        return Figures(
            len(counted),
            sum(each.rows_in for each in counted) / seconds if seconds else 0.0,
            median(each.latency_p50_ms for each in counted),
            median(each.latency_p99_ms for each in counted),
            known_lag_ms(counted[-1]),
            sum(waiting) if waiting and len(waiting) == len(known) else None,
        )


class Rounds:
    """Hears the events of a run, from any thread.

    Args:
        pace: How long the policy looks before it speaks.
    """

    def __init__(self, pace: Cadence) -> None:
        self._pace = pace
        self._lock = threading.Lock()
        self._rounds: list[Round] = []
        self._quiet = 0
        self._on_trial = self._under_way = False
        self._good: Plan | None = None

    def hear(self, event: Event) -> None:
        """Take in an event; this is the listener to give to `start`."""
        with self._lock:
            if isinstance(event, RunStarted):
                self._begin(0.0, Plan.from_json(event.plan))
            elif isinstance(event, Reconfiguration):
                self._begin(event.at_s, Plan.from_json(event.after))
            elif isinstance(event, Observed):
                self._quiet += 1
                self._rounds[-1].seen.append(event.observation)
            elif isinstance(event, Decision):
                self._decided(event)

    def settled(self, rounds: int) -> bool:
        """Whether the policy has had so many chances to change something, and did not."""
        with self._lock:
            chances = self._pace.settle + rounds * self._pace.periods
            return not self._on_trial and self._quiet >= chances

    @property
    def under_way(self) -> bool:
        """Whether a plan was decided on that is not in force yet."""
        with self._lock:
            return self._under_way

    @property
    def plan(self) -> Plan | None:
        """The plan that stands: a plan that is still on trial does not count."""
        with self._lock:
            return self._good

    @property
    def rounds(self) -> list[Round]:
        """All rounds so far."""
        with self._lock:
            return list(self._rounds)

    def figures(self, one: Round) -> Figures | None:
        """What a round came to."""
        return Figures.of(one.seen, self._pace.settle)

    def _begin(self, at_s: float, plan: Plan) -> None:
        self._rounds.append(Round(len(self._rounds), at_s, plan))
        self._quiet, self._under_way = 0, False
        if not self._on_trial:
            self._good = plan

    def _decided(self, decision: Decision) -> None:
        current = self._rounds[-1]
        current.decisions.append(decision)
        if decision.outcome in DECIDED:
            self._quiet, self._under_way = 0, decision.outcome != "kept"
        if decision.outcome == "tried":
            self._on_trial = True
        elif decision.outcome in ("kept", "reverted", "failed"):
            self._on_trial = False
            self._under_way = decision.outcome == "reverted"
        if decision.outcome == "kept":
            self._good = current.plan


def report(title: str, why: str, rounds: Rounds) -> str:
    """All rounds as Markdown."""
    lines = [f"# {title}", "", f"The end: {why}.", ""]
    lines += [
        "| round | from | rows/s | latency p50, p99 | lag | end to end p50, p99 | backlog | plan |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in rounds.rounds:
        lines.append(f"| {one.number} | {one.began_s:.0f} s | {_cells(rounds.figures(one))} "
                     f"| {plan_line(one.plan)} |")  # fmt: skip
    for one in rounds.rounds:
        if one.decisions:
            lines += ["", f"## Round {one.number}", ""]
            lines += [f"- {str(decision).strip()}" for decision in one.decisions]
    lines += ["", "## The plan", "", "```text", repr(rounds.plan), "```", ""]
    return "\n".join(lines)


def _cells(told: Figures | None) -> str:
    if told is None:
        return "– | – | – | – | –"
    lag_ms, p50_ms, p99_ms = told.lag_ms, told.latency_p50_ms, told.latency_p99_ms
    waited = "– | –"
    if lag_ms is not None:
        waited = f"{lag_ms:,.0f} ms | {lag_ms + p50_ms:,.1f}, {lag_ms + p99_ms:,.1f} ms"
    backlog = "unknown" if told.backlog_rows is None else f"{told.backlog_rows:,}"
    return f"{told.rate_per_s:,.0f} | {p50_ms:,.1f}, {p99_ms:,.1f} ms | {waited} | {backlog}"


def as_object(rounds: Rounds) -> list[dict[str, Any]]:
    """All rounds for programs."""
    told = []
    for one in rounds.rounds:
        figures = rounds.figures(one)
        told.append(
            {
                "round": one.number,
                "began_s": round(one.began_s, 3),
                "figures": None if figures is None else asdict(figures),
                "decisions": [asdict(decision) for decision in one.decisions],
                "plan": json.loads(one.plan.to_json()),
            }
        )
    return told
