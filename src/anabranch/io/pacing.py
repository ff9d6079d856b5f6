"""How many rows are due when: a rate that changes in steps."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite

from anabranch.errors import BuildError, Subject


@dataclass(frozen=True)
class Steps:
    """A rate for each stretch of time, the last one without end.

    Attributes:
        points: When a rate begins, in seconds, and how many rows a second it means; the first one
            begins at 0.

    Example:
        >>> steps = Steps.parse("0:1000, 30:5000, 60:1000")
        >>> steps.due(31.0), steps.rate_at(31.0)
        (35000, 5000.0)
    """

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        """Refuse what is no sequence of steps."""
        begins = [begin for begin, _ in self.points]
        ordered = begins[:1] == [0.0] and all(a < b for a, b in pairwise(begins))
        rates = [rate for _, rate in self.points]
        finite = all(isfinite(number) for point in self.points for number in point)
        if not finite or not ordered or min(rates) < 0 or rates[-1] <= 0:
            raise _wrong(", ".join(f"{begin:g}:{rate:g}" for begin, rate in self.points))

    @staticmethod
    def constant(rate_per_s: float) -> Steps:
        """One rate for ever."""
        return Steps(((0.0, rate_per_s),))

    @staticmethod
    def parse(text: str) -> Steps:
        """Steps as `second:rate, second:rate, …`."""
        try:
            pairs = [part.split(":") for part in text.split(",")]
            return Steps(tuple((float(begin), float(rate)) for begin, rate in pairs))
        except ValueError as error:
            raise _wrong(text) from error

    def due(self, elapsed_s: float) -> int:
        """How many rows are due by then."""
        ends = [begin for begin, _ in self.points[1:]] + [elapsed_s]
        rows = 0.0
        for (begin, rate), stop in zip(self.points, ends, strict=True):
            rows += rate * max(0.0, min(stop, elapsed_s) - begin)
        return int(rows + 1e-9)

    def number_at(self, elapsed_s: float) -> int:
        """Which step that time is in."""
        return max(0, bisect_right(self.points, elapsed_s, key=lambda point: point[0]) - 1)

    def rate_at(self, elapsed_s: float) -> float:
        """The rate at that time."""
        return self.points[self.number_at(elapsed_s)][1]


def _wrong(text: str) -> BuildError:
    return BuildError(
        Subject("argument", "steps"),
        "steps as 'second:rate, second:rate, …' from second 0 on, the last rate above 0",
        repr(text),
        "write for example '0:1000, 30:5000, 60:1000'",
    )
