"""Totals of whole numbers, exact however many there are and in whatever order they come.

A total is kept as two's complement of 128 bits: `total` holds the low 64 of them, read as a signed
number, and `carry` the others. Nearly always no total of a batch can leave 64 bits, which the
largest value and the number of rows tell at once; then there is one addition per row. Otherwise the
halves of all values are added up apart, 32 bits each, which leaves room for 2³¹ rows at a time.

Totals must not be checked while they are added up: that one of them leaves 64 bits for a while
would depend on which values met first. Only a result is too large, or is not.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from anabranch.operators.accumulators import (
    Accumulator,
    Parts,
    add_at,
    counted,
    masked,
    scan_sum,
)
from anabranch.operators.runs import Runs
from anabranch.state.positions import Ints
from anabranch.state.values import from_arrow

_HALF = 32
_LOW = np.int64((1 << _HALF) - 1)
_ROOM = 1 << 63


class TooLarge(Exception):
    """A result is none of 64 bits.

    Attributes:
        name: The output column.
        row: Which of the results that were asked for.
        total: What it would be.
    """

    def __init__(self, name: str, row: int, total: int) -> None:
        """Say which, and how large."""
        super().__init__(name, row, total)
        self.name, self.row, self.total = name, row, total


class WholeSum(Accumulator):
    """The total of integers as an integer of 64 bits; one that is none is refused."""

    def __init__(self, name: str, out: pa.DataType) -> None:
        """Name of the result and its type."""
        super().__init__(name, out)
        self._total, self._carry = self.part("total"), self.part("carry")
        self._count = self.part("count")

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(n, pa.int64()) for n in (self._total, self._carry, self._count)]

    def lift(self, column: pa.Array | None, rows: int) -> Parts:
        assert column is not None
        values, carry = from_arrow(column), np.broadcast_to(np.int64(0), rows)
        if values.dtype == np.uint64:
            values = values.view(np.int64)
            if rows and values.min() < 0:
                carry = (values < 0).astype(np.int64)
        values = values.astype(np.int64, copy=False)
        return {self._total: values, self._carry: carry, self._count: counted(column, rows)}

    def merge(self, state: Parts, codes: Ints, given: Parts) -> None:
        total, values = state[self._total], given[self._total]
        if self._fits(state, given):
            add_at(total, codes, values)
        else:
            low, high = total & _LOW, total >> _HALF
            np.add.at(low, codes, values & _LOW)
            np.add.at(high, codes, values >> _HALF)
            state[self._total], carried = _joined(low, high)
            state[self._carry] += carried
            np.add.at(state[self._carry], codes, given[self._carry])
        add_at(state[self._count], codes, given[self._count])

    def scan(self, state: Parts, runs: Runs, given: Parts) -> Parts:
        after = scan_sum(self._count, state, runs, given)
        if self._fits(state, given):
            after |= scan_sum(self._total, state, runs, given)
            carry = state[self._carry]
            nothing = np.broadcast_to(np.int64(0), len(runs))
            return after | {self._carry: carry[runs.codes] if carry.any() else nothing}
        total, values = state[self._total], given[self._total]
        low = runs.accumulate(np.add, total & _LOW, values & _LOW)
        high = runs.accumulate(np.add, total >> _HALF, values >> _HALF)
        after[self._total], carried = _joined(low, high)
        after[self._carry] = carried + runs.accumulate(
            np.add, state[self._carry], given[self._carry]
        )
        last = runs.last_rows()
        for name in (self._total, self._carry):
            state[name][runs.codes[last]] = after[name][last]
        return after

    def finish(self, state: Parts) -> pa.Array:
        carry, total = state[self._carry], state[self._total]
        if carry.any():
            row = int(np.flatnonzero(carry)[0])
            raise TooLarge(self.name, row, (int(carry[row]) << 64) + int(total[row]))
        return masked(total, state[self._count] == 0, self.out)

    def _fits(self, state: Parts, given: Parts) -> bool:
        """Whether no total can leave 64 bits, whichever rows meet in it."""
        carry, values = given[self._carry], given[self._total]
        if not len(values):
            return True
        if carry[0] if carry.strides == (0,) else carry.any():
            return False
        return _largest(values) * len(values) + _largest(state[self._total]) < _ROOM


class WholeMean(WholeSum):
    """The total of integers divided by their number, as a double."""

    def finish(self, state: Parts) -> pa.Array:
        count = state[self._count]
        total = state[self._total].astype(np.float64)
        # Where there is a carry the total is at least 2⁶³ in size: nothing is lost in this sum.
        total += state[self._carry] * 2.0**64
        return masked(total / np.maximum(count, 1), count == 0, self.out)


def _joined(low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """The number high · 2³² + low, as 64 bits and what is carried beyond them."""
    high = high + (low >> _HALF)
    total = (high << _HALF) | (low & _LOW)
    return total, (high - (total >> _HALF)) >> _HALF


def _largest(values: Ints) -> int:
    """A bound of the size of all."""
    return max(int(values.max()), -int(values.min())) if len(values) else 0
