"""The pace of a source: how many of its rows are due at a time, and since when."""

from __future__ import annotations

from anabranch.io.source import Source

FOREVER_S = 1e9
HALVINGS = 24


class Pace:
    """Computes what is due of a source, from now on; nothing ever is of one that has no pace.

    Args:
        source: What is read.
        now_s: The time now.
    """

    def __init__(self, source: Source, now_s: float) -> None:
        self._source, self._started_s = source, now_s
        self._before = 0  # rows that earlier runs have given out
        self._past_s = 0.0  # all rows that were due by then have been given out

    def go_on_behind(self, rows: int) -> None:
        """Note that an earlier run has given out so many."""
        self._before = rows

    @property
    def is_set(self) -> bool:
        """Return whether rows are due one after another, not all at once."""
        return self._source.due_rows(0.0) is not None

    def due(self, given: int, now_s: float) -> int | None:
        """Return how many rows are due, less those given out; None where there is no pace."""
        rows = self._source.due_rows(now_s - self._started_s)
        return None if rows is None else self._before + int(rows) - given

    def is_over(self, now_s: float) -> bool:
        """Return whether nothing more will ever be due."""
        elapsed = now_s - self._started_s
        due, ever = (self._source.due_rows(s) for s in (elapsed, elapsed + FOREVER_S))
        return self._source.bounded and due == ever

    def due_since_s(self, given: int, now_s: float) -> float:
        """Return when the next row became due, after so many given out: rows that wait age."""
        wanted = given - self._before
        early, late = self._past_s, now_s - self._started_s
        for _ in range(HALVINGS):
            middle = (early + late) / 2
            if int(self._source.due_rows(middle) or 0) > wanted:
                late = middle
            else:
                early = middle
        self._past_s = early
        return self._started_s + late
