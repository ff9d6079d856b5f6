"""The rows of a batch arranged by group, so that all groups advance together.

A running value is sequential by nature: each row of a key builds on the one before. What can be
done at once is one key beside another, so groups of similar size are laid out as rows of a matrix
and accumulated along it. Sizes are rounded up to powers of two, so there are few matrices and at
most half of each is padding. The additions of one key happen one after another, from left to right:
floating-point results are bitwise those of a loop.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from anabranch.columns.key_words import Ints


class Runs:
    """Groups of rows.

    Args:
        codes: Group number of each row.
        groups: How many groups there are.

    Example:
        >>> runs = Runs(np.array([0, 1, 0]), groups=2)
        >>> runs.ranks().tolist()
        [0, 0, 1]
        >>> runs.accumulate(np.add, np.array([10, 20]), np.array([1, 2, 3])).tolist()
        [11, 22, 14]
    """

    def __init__(self, codes: Ints, groups: int) -> None:
        """Sort the rows by group; rows of a group keep their order."""
        self.codes, self.groups = codes, groups
        # Few groups fit a short type, which NumPy sorts by radix, several times faster.
        narrow = codes.astype(np.uint16) if groups <= 1 << 16 else codes
        self.order = np.argsort(narrow, kind="stable")
        self.counts = np.bincount(codes, minlength=groups)
        self.starts = np.cumsum(self.counts) - self.counts

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.codes)

    def ranks(self) -> Ints:
        """Number of each row within its group, from 0."""
        ranks = np.empty(len(self), np.int64)
        ranks[self.order] = np.arange(len(self)) - self.starts[self.codes[self.order]]
        return ranks

    def last_rows(self) -> Ints:
        """The last row of each group that has any."""
        filled = np.flatnonzero(self.counts)
        rows: Ints = self.order[self.starts[filled] + self.counts[filled] - 1]
        return rows

    def accumulate(
        self, ufunc: np.ufunc, initial: npt.NDArray[Any], values: npt.NDArray[Any]
    ) -> npt.NDArray[Any]:
        """For each row, its group's initial value combined with the group's rows up to this one."""
        by_group = values[self.order]
        made = np.empty(len(self), by_group.dtype)
        exponents = np.ceil(np.log2(np.maximum(self.counts, 1))).astype(np.int64)
        exponents[self.counts == 0] = -1
        with np.errstate(over="ignore", invalid="ignore"):
            for exponent in np.unique(exponents[exponents >= 0]).tolist():
                chosen = np.flatnonzero(exponents == exponent)
                width = 1 << exponent
                inside = np.arange(width) < self.counts[chosen, None]
                places = (self.starts[chosen, None] + np.arange(width))[inside]
                matrix = np.zeros((len(chosen), width + 1), by_group.dtype)
                matrix[:, 0] = initial[chosen]
                matrix[:, 1:][inside] = by_group[places]
                made[places] = ufunc.accumulate(matrix, axis=1)[:, 1:][inside]
        running = np.empty_like(made)
        running[self.order] = made
        return running
