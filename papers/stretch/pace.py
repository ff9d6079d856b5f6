"""A pace that changes: rows become due at one rate, then at another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.errors import SourceError, Subject
from anabranch.io.generate_source import GenerateSource, Make

Numbers = np.ndarray[Any, np.dtype[np.float64]]


class Pace:
    """Rates in rows per second, each from some second on.

    Example:
        >>> pace = Pace([(0.0, 100.0), (10.0, 200.0)])
        >>> [pace.rows_at(second) for second in (5.0, 10.0, 11.0)]
        [500, 1000, 1200]
        >>> pace.times_of(np.array([500, 1000, 1200])).tolist()
        [5.0, 10.0, 11.0]
    """

    def __init__(self, steps: Sequence[tuple[float, float]]) -> None:
        """(from second, rate) in the order of time, the first from 0 on."""
        starts = [start for start, _ in steps]
        if not steps or starts[0] != 0 or starts != sorted(starts):
            raise SourceError(
                Subject("argument", "steps"),
                "steps in the order of time, from 0 on",
                repr(steps),
                "sort them",
            )
        if min(rate for _, rate in steps) <= 0:
            raise SourceError(
                Subject("argument", "steps"), "rates above 0", repr(steps), "leave the others out"
            )
        self._starts = np.array(starts, np.float64)
        self._rates = np.array([rate for _, rate in steps], np.float64)
        done = np.diff(self._starts) * self._rates[:-1]
        self._rows = np.r_[0.0, np.cumsum(done)]  # due at the start of each step

    def rate_at(self, second: float) -> float:
        """Rows per second at a moment."""
        return float(self._rates[self._step(self._starts, second)])

    def rows_at(self, second: float) -> int:
        """How many rows are due by then; they grow in straight lines."""
        step = self._step(self._starts, second)
        return int(self._rows[step] + (second - self._starts[step]) * self._rates[step])

    def times_of(self, index: np.ndarray[Any, Any]) -> Numbers:
        """When each row becomes due."""
        step = np.searchsorted(self._rows, index, "right") - 1
        times: Numbers = self._starts[step] + (index - self._rows[step]) / self._rates[step]
        return times

    @staticmethod
    def _step(bounds: Numbers, value: float) -> int:
        return max(0, int(np.searchsorted(bounds, value, "right")) - 1)


class PacedSource(GenerateSource):
    """Generated rows without an end that become due by a pace."""

    def __init__(self, make: Make, schema: pa.Schema, pace: Pace, seed: int) -> None:
        """See `generate`."""
        super().__init__(make, schema, None, None, seed)
        self._pace = pace

    def due_rows(self, elapsed_s: float) -> int:
        """As many as the pace makes due."""
        return self._pace.rows_at(elapsed_s)
