"""Ranges of positions, which the replicas of a sink take in turn.

Each replica writes files of whole ranges. Read in the order of their ranges, the files of all
replicas are the sequence that one replica would have written, and no row passes a common place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from anabranch.planning.plan import RegionPlan
from anabranch.state.positions import FIRST, Ints, Jumbo, Root, is_end


@dataclass(frozen=True)
class Ranges:
    """Ranges of equal size, dealt out to replicas.

    Attributes:
        rows: The positions of one range.
        replicas: How many replicas take them in turn.

    Example:
        >>> ranges = Ranges(rows=4, replicas=2)
        >>> ranges.owners(np.array([0, 3, 4, 8]))
        array([0, 0, 1, 0])
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
        owners: Ints = times // self.rows % self.replicas
        return owners

    def frontier(self, replica: int, frontier: Root) -> Root:
        """Return how far a stream that has reached a frontier has come for one replica.

        Before the next range of the replica it cannot get any tuple.
        """
        if self.replicas == 1 or is_end(frontier):
            return frontier
        number = frontier.time // self.rows
        ahead = (replica - number) % self.replicas
        if not ahead:
            return frontier
        return Root((number + ahead) * self.rows, FIRST, FIRST, FIRST)

    def pieces(self, jumbo: Jumbo) -> Iterator[tuple[int, Jumbo]]:
        """Cut sorted tuples where a range ends; with the number of the range."""
        numbers = jumbo.positions.columns[0] // self.rows
        cuts = np.flatnonzero(numbers[1:] != numbers[:-1]) + 1
        edges = [0, *cuts.tolist(), len(jumbo)]
        for start, stop in pairwise(edges):
            yield int(numbers[start]), jumbo.slice(start, stop)
