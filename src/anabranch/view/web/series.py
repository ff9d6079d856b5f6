"""Rate, latency and backlog over time: as many points as a chart shows, however long a run is."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from anabranch.events import Observation
from anabranch.view.web.numbers import moment, short
from anabranch.view.web.rates import Rates
from anabranch.view.words import RECENT

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

    def rates(self) -> Rates:
        """Rates of this moment; a value that no later observation changes."""
        return Rates(tuple(self._recent))


def _halved(points: Sequence[Point]) -> list[Point]:
    """Every two neighbours as one; the last of an odd number stays as it is."""
    merged = [a.merged(b) for n, (a, b) in enumerate(pairwise(points)) if n % 2 == 0]
    return merged + ([points[-1]] if len(points) % 2 else [])
