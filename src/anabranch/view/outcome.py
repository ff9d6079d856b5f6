"""What came of a run, in words for people and as one object for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from anabranch.columns.times import CLOCK_YEARS, TIMESTAMP, duration
from anabranch.engines.handle import Result
from anabranch.events import SkippedRow
from anabranch.flow import Flow
from anabranch.graph import Output
from anabranch.operators.timed import Timed
from anabranch.view.plan_report import counted
from anabranch.view.text import change_line, latency_line

NOTICED_S = 1.0
LONGEST_ROW = 120


def in_words(result: Result, flow: Flow) -> str:
    """Rate, rows that were left out, plan tree, plan changes and the journal of the policy."""
    read = f"{result.rows_in:,} rows in, {result.rows_out:,} out, in {run_time(result)}"
    end = "all sources have ended" if result.ended else "stopped before the end of its sources"
    changes = [f"  {change_line(change)}" for change in result.reconfigurations]
    journal = result.decisions
    return "\n".join(
        [
            f"{result.flow} on {result.engine}: {result.rate_per_s:,.0f} rows a second",
            f"  {read}; {end}",
            f"  latency {latency_line(result.latency_p50_ms, result.latency_p99_ms)}",
            *(f"  {line}" for line in left_out(result, flow)),
            *(f"  {first_line(step, row)}" for step, row in result.first_skipped.items()),
            repr(result.plan),
            *([f"plan changes: {len(changes)}", *changes] if changes else ["no plan changes"]),
            *(["journal:", *(f"  {each}" for each in journal)] if journal else []),
        ]
    )


def run_time(result: Result) -> str:
    """How long it worked; a start that could be noticed is told, too, as it is not part of that."""
    start = f", after {result.starting_s:.1f} s to start" if result.starting_s > NOTICED_S else ""
    return f"{result.seconds:.1f} s{start}"


def left_out(result: Result, flow: Flow) -> list[str]:
    """What did not go the way of all rows, and where; nothing if all did."""
    skipped = [
        f"{count:,} rows malformed or not to be worked on at {step!r}"
        for step, count in result.skipped.items()
    ]
    return [*skipped, *map(str, set_aside(flow, result))]


def first_line(step: str, row: SkippedRow) -> str:
    """The first row that a step set aside, where it stands and what is wrong with it.

    Example:
        >>> first_line("parse", SkippedRow("lines", "bids.jsonl", 3, "no value for 'n'", "{}"))
        "the first at 'parse' is bids.jsonl:3, no value for 'n': {}"
    """
    return f"the first at {step!r} is {place_of(row)}{row.why}: {_shortened(row.text)}"


def place_of(row: SkippedRow) -> str:
    """Where a row stands, before what is said of it; nothing where that is not known."""
    return f"{row.part}:{row.row}, " if row.part else ""


def _shortened(text: str) -> str:
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= LONGEST_ROW else f"{one_line[: LONGEST_ROW - 1]}…"


def as_object(app: str, result: Result, flow: Flow) -> dict[str, Any]:
    """What `run --json` prints; plans are objects as `plan --json` writes them."""
    return {
        "app": app,
        "engine": result.engine,
        "rows_in": result.rows_in,
        "rows_out": result.rows_out,
        "seconds": round(result.seconds, 3),
        "starting_s": round(result.starting_s, 3),
        "rate_per_s": round(result.rate_per_s, 1),
        "latency_ms": {
            "p50": round(result.latency_p50_ms, 3),
            "p99": round(result.latency_p99_ms, 3),
        },
        "ended": result.ended,
        "skipped": dict(result.skipped),
        "first_skipped": {step: asdict(row) for step, row in result.first_skipped.items()},
        "late": dict(result.late),
        "set_aside": [each.as_object() for each in set_aside(flow, result)],
        "reconfigurations": [
            {
                "at_s": round(change.at_s, 3),
                "pause_ms": round(change.pause_ms, 3),
                "what": list(change.moved),
                "from": json.loads(change.before),
                "to": json.loads(change.after),
            }
            for change in result.reconfigurations
        ],
        "decisions": [asdict(decision) for decision in result.decisions],
        "plan": json.loads(result.plan.to_json()),
    }


# Why clocks set rows aside in a run: which setting decided, and how far rows were from it.

MICROSECONDS = 1_000_000
DAY_S = 86_400


@dataclass(frozen=True)
class SetAside:
    """Rows that a clock set aside for one reason.

    Attributes:
        step: The clock.
        rows: How many rows there are.
        setting: The setting that decided, `lateness` or `ahead`; None for another reason.
        value: Its value in the unit of the stream's time; None where no setting decided.
        most_behind: How far the furthest row was behind; None where rows were not behind.
        in_seconds: Whether the unit is a microsecond, which is shown as seconds.
    """

    step: str
    rows: int
    setting: str | None
    value: int | None
    most_behind: int | None
    in_seconds: bool

    def __str__(self) -> str:
        """Return a sentence about the rows.

        Example:
            >>> print(SetAside("bids.time", 12, "lateness", 4_000_000, 37_500_000, True))
            12 rows were late at 'bids.time': lateness=4 s decides, the furthest was 37.5 s behind
            >>> print(SetAside("bids.time", 1, "ahead", 60, None, False))
            1 row had an implausible time at 'bids.time': ahead=60 decides
            >>> print(SetAside("bids.time", 2, None, None, None, False))
            2 rows were set aside at 'bids.time' for a reason other than lateness and ahead
        """
        rows, were = counted(self.rows, "row"), "were" if self.rows != 1 else "was"
        if self.setting is None or self.value is None:
            reason = "for a reason other than lateness and ahead"
            if self.in_seconds:
                first, last = CLOCK_YEARS
                reason += f", such as a time outside of the years {first} to {last}"
            return f"{rows} {were} set aside at {self.step!r} {reason}"
        decides = f"{self.setting}={self._length(self.value)} decides"
        if self.most_behind is None:
            return f"{rows} had an implausible time at {self.step!r}: {decides}"
        furthest = f"the furthest was {self._length(self.most_behind)} behind"
        return f"{rows} {were} late at {self.step!r}: {decides}, {furthest}"

    def as_object(self) -> dict[str, Any]:
        """Return what programs get; lengths are in seconds where times are timestamps."""
        return {
            "step": self.step,
            "rows": self.rows,
            "setting": self.setting,
            "value": self._number(self.value),
            "most_behind": self._number(self.most_behind),
            "unit": "s" if self.in_seconds else None,
        }

    def _number(self, length: int | None) -> float | int | None:
        return length / MICROSECONDS if length is not None and self.in_seconds else length

    def _length(self, length: int) -> str:
        if not self.in_seconds:
            return f"{length:,}"
        days, seconds = length / MICROSECONDS / DAY_S, length / MICROSECONDS
        return f"{_short(days, 1)} days" if days > 1 else f"{_short(seconds, 6)} s"


def set_aside(flow: Flow, result: Result) -> Iterator[SetAside]:
    """Say of each clock that set rows aside how many there were, by the setting that decided.

    No setting decides about times that no clock takes, and about what a step emits at the end of
    its stream. Nor is it known for rows that a checkpoint has counted without their reason.
    """
    types = flow.resolve().types
    for step, late in result.late.items():
        clock: Timed = flow.graph.steps[step].body
        time = types[Output(step)].time
        behind, ahead = result.behind.get(step, 0), result.ahead.get(step, 0)
        for setting, length, rows, furthest in (
            ("lateness", clock.lateness, behind, result.most_behind.get(step)),
            ("ahead", clock.ahead, ahead, None),
            (None, None, late - behind - ahead, None),
        ):
            if rows:
                value = duration(setting or "", length, time, step)
                yield SetAside(step, rows, setting, value, furthest, time == TIMESTAMP)


def _short(number: float, digits: int) -> str:
    return f"{number:,.{digits}f}".rstrip("0").rstrip(".")
