"""Rows of a linear program, collected one by one and solved by HiGHS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Indices: TypeAlias = NDArray[np.int64]
Term: TypeAlias = tuple[Indices | int, NDArray[np.float64] | float]
"""Variables and their coefficients; one coefficient may stand for all."""


@dataclass(frozen=True)
class Solved:
    """What became of a program.

    Attributes:
        least: The least value; infinite if nothing satisfies all rows, and minus infinite if the
            solver gave up.
        solution: Values of all variables; None without a solution.
    """

    least: float
    solution: NDArray[np.float64] | None


class LinearRows:
    """A linear program as it grows.

    Example:
        >>> rows = LinearRows()
        >>> x = rows.variables(2)
        >>> rows.equal([(x, 1.0)], 4.0)
        >>> round(rows.least(x[0], np.zeros(2), np.full(2, 3.0)).least, 6)
        1.0
    """

    def __init__(self) -> None:
        self.size = 0
        self._bounded = _Rows()
        self._equal = _Rows()

    def variables(self, *shape: int) -> Indices:
        """Numbers of new variables."""
        count = int(np.prod(shape))
        numbers = np.arange(self.size, self.size + count, dtype=np.int64).reshape(shape)
        self.size += count
        return numbers

    def at_most(self, terms: Sequence[Term], bound: float) -> None:
        """Terms add up to no more than a bound."""
        self._bounded.add(terms, bound)

    def equal(self, terms: Sequence[Term], value: float) -> None:
        """Terms add up to a value."""
        self._equal.add(terms, value)

    @property
    def entries(self) -> int:
        """How many coefficients there are: what solving it costs grows with them."""
        return len(self._bounded.values) + len(self._equal.values)

    def least(
        self, variable: Indices, low: NDArray[np.float64], high: NDArray[np.float64]
    ) -> Solved:
        """The least value of a variable, all variables being within bounds."""
        from scipy.optimize import linprog  # takes a second, which few who plan need to spend

        cost = np.zeros(self.size)
        cost[variable] = 1.0
        bounded, most = self._bounded.matrix(self.size)
        equal, value = self._equal.matrix(self.size)
        bounds = np.column_stack([low, high])
        # Interior points: the simplex method needs forty times as long for twelve units.
        found = linprog(cost, bounded, most, equal, value, bounds, method="highs-ipm")
        if found.status == 2:
            return Solved(np.inf, None)
        if found.status != 0:
            return Solved(-np.inf, None)
        return Solved(float(found.fun), np.asarray(found.x))


class _Rows:
    def __init__(self) -> None:
        self.right: list[float] = []
        self.columns: list[int] = []
        self.values: list[float] = []
        self.ends: list[int] = [0]

    def add(self, terms: Sequence[Term], right: float) -> None:
        for numbers, factors in terms:
            if isinstance(numbers, np.ndarray):
                columns = numbers.ravel().tolist()
                self.columns += columns
                self.values += (
                    factors.ravel().tolist()
                    if isinstance(factors, np.ndarray)
                    else [factors] * len(columns)
                )
            else:
                self.columns.append(int(numbers))
                self.values.append(float(factors))
        self.right.append(right)
        self.ends.append(len(self.columns))

    def matrix(self, width: int) -> tuple[Any, NDArray[np.float64]]:
        from scipy.sparse import csr_array

        found = csr_array((self.values, self.columns, self.ends), shape=(len(self.right), width))
        found.sum_duplicates()
        return found, np.array(self.right)
