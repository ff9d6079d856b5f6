"""Why clocks set rows aside in a run: which setting decided, and how far rows were from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from anabranch.engines.handle import Result
from anabranch.flow import Flow
from anabranch.graph import Output
from anabranch.operators.timed import Timed
from anabranch.operators.times import CLOCK_YEARS, TIMESTAMP, duration
from anabranch.view.answers import counted

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
