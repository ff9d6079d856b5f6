"""Rows of a key that follow each other with one value, counted and added up across batches.

A vehicle that reports from one place again and again stands; its reports of one minute make up an
average.
"""

from __future__ import annotations

import numpy as np

from anabranch.operators.runs import Runs
from anabranch.state.positions import Ints


class Stretches:
    """Rows of a key that follow each other with one value, which may have begun in an old batch.

    Attributes:
        changed: For each row, in the order of `runs`, whether it begins a stretch.
        before: The value of the row before it.
        lengths: Of how many rows its stretch is, up to it.
    """

    def __init__(self, runs: Runs, values: Ints, last: Ints, had: Ints) -> None:
        """Find the stretches; `last` is each key's value so far, `had` of how many rows."""
        heads = runs.starts
        self._groups = runs.codes[runs.order]
        self.before = np.roll(values, 1)
        self.before[heads] = last
        self.changed = values != self.before
        rows = np.arange(len(values))
        begins = self.changed.copy()
        begins[heads] = True
        self._first = np.maximum.accumulate(np.where(begins, rows, 0))
        self.lengths: Ints = rows - self._first + 1 + self._earlier(had)

    def sums(self, values: Ints, had: Ints) -> Ints:
        """The sum of each stretch up to each row; `had` is that of each key's last one so far."""
        running = np.cumsum(values)
        total: Ints = running - (running - values)[self._first] + self._earlier(had)
        return total

    def _earlier(self, had: Ints) -> Ints:
        return np.where(self.changed[self._first], 0, had[self._groups])
