"""What each key had last: the values of a batch behind those that were kept from before it."""

from __future__ import annotations

import numpy as np

from anabranch.columns.grouped_rows import Runs
from anabranch.state.positions import Ints


class Recent:
    """For each group what is past and then its new values, one group behind another.

    No look back over as many values as are kept reaches into another group, so that all groups are
    dealt with at once.

    Attributes:
        line: All values.
        fronts: Where each group begins in it.
        places: Where the value of each row is.

    Args:
        runs: The rows by group.
        values: One for each row.
        past: By age, oldest first, and group: values from before these rows.

    Example:
        >>> recent = Recent(Runs(np.array([0, 1, 0]), 2), np.array([1, 10, 2]), np.array([[5, 50]]))
        >>> recent.line.tolist()
        [5, 1, 2, 50, 10]
        >>> recent.before(1).tolist(), recent.sums().tolist(), recent.past().tolist()
        ([5, 50, 1], [6, 60, 3], [[2, 10]])
    """

    def __init__(self, runs: Runs, values: Ints, past: Ints) -> None:
        """Lay the values out."""
        self._ages, groups = past.shape
        self._kept = np.arange(self._ages)[:, None]
        self._counts = runs.counts
        self.fronts: Ints = runs.starts + np.arange(groups) * self._ages
        in_order = np.arange(len(runs)) + (runs.codes[runs.order] + 1) * self._ages
        self.line: Ints = np.empty(len(runs) + past.size, np.int64)
        self.line[self.fronts + self._kept] = past
        self.line[in_order] = values[runs.order]
        self.places: Ints = np.empty(len(runs), np.int64)
        self.places[runs.order] = in_order

    def before(self, many: int) -> Ints:
        """For each row the value so many before its own."""
        found: Ints = self.line[self.places - many]
        return found

    def sums(self) -> Ints:
        """For each row the sum of its value and of as many before it as are kept."""
        # Running sums may wrap around; the differences of those that did are right all the same.
        until = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.line)])
        sums: Ints = until[self.places + 1] - until[self.places - self._ages]
        return sums

    def past(self) -> Ints:
        """What is to be kept then, as it was given."""
        kept: Ints = self.line[self.fronts + self._counts + self._kept]
        return kept
