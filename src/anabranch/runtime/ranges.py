"""Ranges of positions, which the replicas of a sink take in turn.

Each replica writes files of whole ranges. Read in the order of their ranges, the files of all
replicas are the sequence that one replica would have written, and no row passes a common place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from anabranch.io.reader import PART_SHIFT
from anabranch.planning.plan import RegionPlan
from anabranch.state.positions import FIRST, Ints, Jumbo, Root, is_end

LAST_ROW = (1 << PART_SHIFT) - 1
"""The last row that a part can have."""


@dataclass(frozen=True)
class Ranges:
    """Ranges of equal size, dealt out to replicas.

    The ranges of part 0 of a source begin with replica 0, those of part 1 with replica 1, and so
    on: many parts that are shorter than a range are dealt out, too.

    Attributes:
        rows: The positions of one range, a power of two: no range has positions of two parts.
        replicas: How many replicas take them in turn.

    Example:
        >>> ranges = Ranges(rows=4, replicas=2)
        >>> ranges.owners(np.array([0, 3, 4, 8]))
        array([0, 0, 1, 0])
        >>> ranges.owners(np.array([0, 1 << PART_SHIFT, 2 << PART_SHIFT]))
        array([0, 1, 0])
        >>> ranges.frontier(1, Root(2, 0, 2, 0)).time
        4
    """

    rows: int
    replicas: int

    @staticmethod
    def of(plan: RegionPlan) -> Ranges:
        """Return the ranges of a sink under its plan."""
        return Ranges(plan.range_rows, plan.replicas)

    def owners(self, times: Ints) -> Ints:
        """Return the replica of each tuple, by the first column of its position."""
        part, row = times >> PART_SHIFT, times & LAST_ROW
        owners: Ints = (row // self.rows + part) % self.replicas
        return owners

    def share(self, replica: int, rows: int) -> float:
        """Return the share of a replica in the first rows of a part.

        Example:
            >>> [Ranges(rows=4, replicas=2).share(replica, 10) for replica in range(2)]
            [0.6, 0.4]
        """
        if not rows:
            return 1 / self.replicas
        rounds, rest = divmod(rows, self.rows * self.replicas)
        last = min(max(rest - replica * self.rows, 0), self.rows)
        return (rounds * self.rows + last) / rows

    def frontier(self, replica: int, frontier: Root) -> Root:
        """Return how far a stream that has reached a frontier has come for one replica.

        Before the next range of the replica it cannot get any tuple. Where the rest of the part has
        no such range, that is the start of the next part at the earliest.
        """
        if self.replicas == 1 or is_end(frontier):
            return frontier
        part, row = frontier.time >> PART_SHIFT, frontier.time & LAST_ROW
        number = row // self.rows
        ahead = (replica - part - number) % self.replicas
        if not ahead:
            return frontier
        row = min((number + ahead) * self.rows, LAST_ROW + 1)
        return Root((part << PART_SHIFT) + row, FIRST, FIRST, FIRST)

    def pieces(self, jumbo: Jumbo) -> Iterator[tuple[int, Jumbo]]:
        """Cut sorted tuples where a range ends; with the number of the range over all parts."""
        numbers = jumbo.positions.columns[0] // self.rows
        cuts = np.flatnonzero(numbers[1:] != numbers[:-1]) + 1
        edges = [0, *cuts.tolist(), len(jumbo)]
        for start, stop in pairwise(edges):
            yield int(numbers[start]), jumbo.slice(start, stop)
