"""Cuts from a matrix of products having no negative eigenvalue.

Shares g and their products g·gᵀ make a matrix [[1, gᵀ], [g, Y]] that is an outer product of one
vector, so z'·M·z ≥ 0 for every z. Where a linear program's solution has an eigenvector z with
z'·M·z < 0, that row is linear in g and Y, holds for every plan, and excludes the solution.
"""

from __future__ import annotations

import numpy as np

from anabranch.planning.models.placed_rates import Floats
from anabranch.planning.planners.search.linear_rows import Indices, LinearRows

MOST_CUTS = 64
PER_SOLUTION = 8
NEGATIVE = -1e-3


class ProductCuts:
    """Cuts for the products of some units' shares; the latest ones are kept.

    Attributes:
        units: Units whose products all are variables.
    """

    def __init__(self, units: list[int], sockets: int) -> None:
        self.units = units
        self.sockets = sockets
        self._cuts: list[Floats] = []

    def learn(self, shares: Floats, products: dict[tuple[int, int], Floats]) -> bool:
        """Add cuts that exclude a solution; whether there were any."""
        values, vectors = np.linalg.eigh(self._matrix(shares, products))
        found = [vectors[:, k] for k in np.flatnonzero(values < NEGATIVE)[:PER_SOLUTION]]
        self._cuts = [*self._cuts, *found][-MOST_CUTS:]
        return bool(found)

    def add_to(
        self, rows: LinearRows, shares: Indices, products: dict[tuple[int, int], Indices]
    ) -> None:
        """Give all cuts to a linear program."""
        for cut in self._cuts:
            parts = dict(zip(self.units, cut[1:].reshape(-1, self.sockets), strict=True))
            first = float(cut[0])
            rows.at_most(
                [(shares[u], -2 * first * parts[u]) for u in self.units]
                + [
                    (products[a, b], -(1 if a == b else 2) * np.outer(parts[a], parts[b]))
                    for a in self.units
                    for b in self.units
                    if a <= b
                ],
                first * first,
            )

    def _matrix(self, shares: Floats, products: dict[tuple[int, int], Floats]) -> Floats:
        blocks = [
            [products[a, b] if a <= b else products[b, a].T for b in self.units] for a in self.units
        ]
        column = shares[self.units].reshape(-1, 1)
        return np.asarray(np.block([[np.ones((1, 1)), column.T], [column, np.block(blocks)]]))
