"""The pace of a source: how many of its rows are due by now, and since when."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.io.source import Source

FOREVER_S = 1e9
HALVINGS = 24


class Pace:
    """What is due of a source, from now on; of one that is not paced, nothing is ever due.

    Args:
        source: What is read.
        clock: Seconds.
    """

    def __init__(self, source: Source, clock: Callable[[], float]) -> None:
        self._source, self._clock, self._started = source, clock, clock()
        self._before = 0  # rows that earlier runs have given out
        self._past_s = 0.0  # all rows that were due by then have been given out

    def go_on_behind(self, rows: int) -> None:
        """An earlier run has given out so many."""
        self._before = rows

    @property
    def is_set(self) -> bool:
        """Whether rows are due one after another, not all at once."""
        return self._source.due_rows(0.0) is not None

    def due(self, given: int) -> int | None:
        """How many rows are due, less those given out; None where there is no pace."""
        rows = self._source.due_rows(self._elapsed())
        return None if rows is None else self._before + int(rows) - given

    def is_over(self) -> bool:
        """Whether nothing more will ever be due."""
        elapsed = self._elapsed()
        due, ever = (self._source.due_rows(s) for s in (elapsed, elapsed + FOREVER_S))
        return self._source.bounded and due == ever

    def due_since_s(self, given: int) -> float:
        """When the next row became due, behind so many given out: rows that wait grow older."""
        wanted = given - self._before
        early, late = self._past_s, self._elapsed()
        for _ in range(HALVINGS):
            middle = (early + late) / 2
            if int(self._source.due_rows(middle) or 0) > wanted:
                late = middle
            else:
                early = middle
        self._past_s = early
        return self._started + late

    def _elapsed(self) -> float:
        return self._clock() - self._started
