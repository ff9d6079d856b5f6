"""A batch cut into stretches of one key each, the first of which continues what is in the table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from anabranch.operators.runs import Runs
from anabranch.state.positions import Ints


@dataclass(frozen=True)
class Segments:
    """Stretches of the keys of a batch, numbered key by key.

    Every key has at least one, its oldest, which may have no row in the batch: it stands for what
    the table holds.

    Attributes:
        codes: Segment of each row.
        owner: Key number of each segment.
        oldest: Segment of each key that continues the table's row.
        newest: Segment of each key that stays open behind the batch.
    """

    codes: Ints
    owner: Ints
    oldest: Ints
    newest: Ints

    @staticmethod
    def cut(runs: Runs, breaks: npt.NDArray[np.bool_]) -> Segments:
        """Start a new segment at each row that `breaks` names.

        Example:
            >>> made = Segments.cut(Runs(np.array([0, 1, 0]), 2), np.array([False, True, True]))
            >>> made.codes.tolist(), made.owner.tolist()
            ([0, 3, 1], [0, 0, 1, 1])
        """
        by_group = breaks[runs.order]
        cuts = np.cumsum(by_group)
        codes = np.empty(len(runs), np.int64)
        codes[runs.order] = runs.codes[runs.order] + cuts
        per_key = np.bincount(runs.codes[breaks], minlength=runs.groups) + 1
        newest = np.cumsum(per_key) - 1
        owner = np.repeat(np.arange(runs.groups), per_key)
        return Segments(codes, owner, newest - per_key + 1, newest)

    def __len__(self) -> int:
        """Number of segments."""
        return len(self.owner)

    def closed(self) -> Ints:
        """Segments that ended within the batch."""
        ended = np.ones(len(self), np.bool_)
        ended[self.newest] = False
        return np.flatnonzero(ended)
