"""What aggregate functions keep per group, and how whole columns flow into it.

Each function is four operations on columns, so that one batch costs a few array operations however
many groups it touches:

    lift    a column of input  → state as if each row were a group of its own
    merge   such states, row by row → into the states of groups
    scan    the same, and the state of its group after every row
    finish  states → a column of results

Rows merge in the order in which they stand, so floating-point sums are bitwise those of a loop.
Combining before the shuffle is `merge` into empty states, then `merge` of those.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.operators.runs import Runs
from anabranch.state.positions import Ints, Positions
from anabranch.state.values import dtype_of, from_arrow

Parts = dict[str, Any]
"""State columns by name: NumPy arrays; lifted values held as objects stay Arrow arrays."""


class Accumulator:
    """The state of one function.

    An implementer owes: state columns that start as zero, False or None mean "nothing seen";
    merging is associative, and `scan` leaves in `state` what `merge` would.
    """

    def __init__(self, name: str, out: pa.DataType) -> None:
        """Name the output column, which names the state columns, and its type."""
        self.name, self.out = name, out

    @property
    def fields(self) -> list[pa.Field]:
        """The state columns."""
        raise NotImplementedError

    def lift(self, column: pa.Array | None, rows: int) -> Parts:
        """One state per row."""
        raise NotImplementedError

    def merge(self, state: Parts, codes: Ints, given: Parts) -> None:
        """Let rows flow into the states of their groups."""
        raise NotImplementedError

    def scan(self, state: Parts, runs: Runs, given: Parts) -> Parts:
        """Merge, and return the state of its group after each row."""
        raise NotImplementedError

    def finish(self, state: Parts) -> pa.Array:
        """One result per state."""
        raise NotImplementedError

    def locate(self, state: Parts, codes: Ints, given: Parts, positions: Positions) -> None:
        """Merge a batch into empty states that will meet others out of order."""
        self.merge(state, codes, given)

    def part(self, name: str) -> str:
        """Full name of a state column."""
        return f"{self.name}.{name}"


class Count(Accumulator):
    """How many rows, or how many values that are not null."""

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(self.part("count"), pa.int64())]

    def lift(self, column: pa.Array | None, rows: int) -> Parts:
        return {self.part("count"): counted(column, rows)}

    def merge(self, state: Parts, codes: Ints, given: Parts) -> None:
        add_at(state[self.part("count")], codes, given[self.part("count")])

    def scan(self, state: Parts, runs: Runs, given: Parts) -> Parts:
        return scan_sum(self.part("count"), state, runs, given)

    def finish(self, state: Parts) -> pa.Array:
        return pa.array(state[self.part("count")], pa.int64())


class Sum(Accumulator):
    """The total of doubles, added from left to right; of integers see `whole_sums.py`."""

    @property
    def fields(self) -> list[pa.Field]:
        parts = (("total", pa.float64()), ("count", pa.int64()))
        return [pa.field(self.part(name), kind) for name, kind in parts]

    def lift(self, column: pa.Array | None, rows: int) -> Parts:
        assert column is not None
        values = from_arrow(column).astype(np.float64, copy=False)
        return {self.part("total"): values, self.part("count"): counted(column, rows)}

    def merge(self, state: Parts, codes: Ints, given: Parts) -> None:
        for name in (self.part("total"), self.part("count")):
            add_at(state[name], codes, given[name])

    def scan(self, state: Parts, runs: Runs, given: Parts) -> Parts:
        total = scan_sum(self.part("total"), state, runs, given)
        return total | scan_sum(self.part("count"), state, runs, given)

    def finish(self, state: Parts) -> pa.Array:
        nothing = state[self.part("count")] == 0
        return masked(state[self.part("total")], nothing, self.out)


class Mean(Sum):
    """The total divided by the count."""

    def finish(self, state: Parts) -> pa.Array:
        count = state[self.part("count")]
        return masked(state[self.part("total")] / np.maximum(count, 1), count == 0, self.out)


class Extreme(Accumulator):
    """The least or greatest of fixed-width values; NaN counts as greater than any number."""

    def __init__(self, name: str, out: pa.DataType, largest: bool) -> None:
        """Name, type of the values, and which end."""
        super().__init__(name, out)
        self._dtype = dtype_of(out)
        floating = np.issubdtype(self._dtype, np.floating)
        # fmin passes over NaN, maximum hands it on: NaN is last in the order of values.
        self._ufunc: np.ufunc = np.maximum if largest else (np.fmin if floating else np.minimum)
        self._identity = _worst(self._dtype, largest)

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(self.part("value"), self.out), pa.field(self.part("seen"), pa.bool_())]

    def lift(self, column: pa.Array | None, rows: int) -> Parts:
        assert column is not None
        values = from_arrow(column)
        if np.issubdtype(self._dtype, np.floating):
            # One zero and one NaN, so that the result does not depend on which came first.
            with np.errstate(invalid="ignore"):  # signalling NaNs complain when touched
                values = np.where(np.isnan(values), self._dtype.type(np.nan), values + 0)
        return {self.part("value"): values, self.part("seen"): valid(column)}

    def merge(self, state: Parts, codes: Ints, given: Parts) -> None:
        best = self._filled(state)
        with np.errstate(invalid="ignore"):  # some builds of NumPy complain about NaN here
            self._ufunc.at(best, codes, self._filled(given))
        state[self.part("value")] = best
        see(state[self.part("seen")], codes, given[self.part("seen")])

    def scan(self, state: Parts, runs: Runs, given: Parts) -> Parts:
        value, seen = self.part("value"), self.part("seen")
        made = {
            value: runs.accumulate(self._ufunc, self._filled(state), self._filled(given)),
            seen: runs.accumulate(np.logical_or, state[seen], given[seen]),
        }
        self.merge(state, runs.codes, given)
        return made

    def finish(self, state: Parts) -> pa.Array:
        return masked(state[self.part("value")], ~state[self.part("seen")], self.out)

    def _filled(self, parts: Parts) -> npt.NDArray[Any]:
        """Values, with what loses against every value where there is none."""
        values = parts[self.part("value")].astype(self._dtype, copy=False)
        filled: npt.NDArray[Any] = np.where(parts[self.part("seen")], values, self._identity)
        return filled


def valid(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Which values are not null; constant when all are."""
    if not column.null_count:
        return np.broadcast_to(np.bool_(True), len(column))
    mask: npt.NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    return mask


def see(seen: npt.NDArray[np.bool_], codes: Ints, given: npt.NDArray[np.bool_]) -> None:
    """Note which groups got a value."""
    seen[codes if given.strides == (0,) else codes[given]] = True


def add_at(state: npt.NDArray[Any], codes: Ints, values: npt.NDArray[Any]) -> None:
    """Add to groups, one row after another."""
    with np.errstate(over="ignore", invalid="ignore"):
        if values.strides == (0,) and len(values):
            state += np.bincount(codes, minlength=len(state)) * values[0]
        else:
            np.add.at(state, codes, values)


def masked(values: npt.NDArray[Any], nulls: npt.NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    """Held values as an Arrow column, null where a mask says so."""
    if values.dtype == object:
        return pa.array(values.tolist(), type=kind, mask=nulls)
    if not len(values):
        return pa.array([], kind)
    return pa.array(values, mask=nulls, from_pandas=False).view(kind)


def counted(column: pa.Array | None, rows: int) -> Ints:
    """One for each value that is not null; constant when none is."""
    if column is None or not column.null_count:
        return np.broadcast_to(np.int64(1), rows)
    return valid(column).astype(np.int64)


def scan_sum(name: str, state: Parts, runs: Runs, given: Parts) -> Parts:
    """Add a state column up, and return what it is after each row."""
    if given[name].strides == (0,) and len(runs):
        running = (runs.ranks() + 1) * given[name][0] + state[name][runs.codes]
    else:
        running = runs.accumulate(np.add, state[name], given[name])
    last = runs.last_rows()
    state[name][runs.codes[last]] = running[last]
    return {name: running}


def _worst(dtype: np.dtype[Any], largest: bool) -> Any:
    """What every value beats."""
    if dtype == np.bool_:
        return np.bool_(not largest)
    if np.issubdtype(dtype, np.floating):
        return dtype.type(-np.inf if largest else np.nan)
    limits = np.iinfo(dtype)
    return dtype.type(limits.min if largest else limits.max)
