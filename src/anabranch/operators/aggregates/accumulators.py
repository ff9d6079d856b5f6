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
import pyarrow.compute as pc

from anabranch.columns.grouped_rows import Runs
from anabranch.state.positions import Ints, Positions
from anabranch.state.tables.values import dtype_of, from_arrow, to_arrow

Fields = dict[str, Any]
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

    def lift(self, column: pa.Array | None, rows: int) -> Fields:
        """One state per row."""
        raise NotImplementedError

    def merge(self, state: Fields, codes: Ints, given: Fields) -> None:
        """Let rows flow into the states of their groups."""
        raise NotImplementedError

    def scan(self, state: Fields, runs: Runs, given: Fields) -> Fields:
        """Merge, and return the state of its group after each row."""
        raise NotImplementedError

    def finish(self, state: Fields) -> pa.Array:
        """One result per state."""
        raise NotImplementedError

    def locate(self, state: Fields, codes: Ints, given: Fields, positions: Positions) -> None:
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

    def lift(self, column: pa.Array | None, rows: int) -> Fields:
        return {self.part("count"): counted(column, rows)}

    def merge(self, state: Fields, codes: Ints, given: Fields) -> None:
        add_at(state[self.part("count")], codes, given[self.part("count")])

    def scan(self, state: Fields, runs: Runs, given: Fields) -> Fields:
        return scan_sum(self.part("count"), state, runs, given)

    def finish(self, state: Fields) -> pa.Array:
        return pa.array(state[self.part("count")], pa.int64())


class Sum(Accumulator):
    """The total of doubles, added from left to right; of integers see `WholeSum`."""

    @property
    def fields(self) -> list[pa.Field]:
        parts = (("total", pa.float64()), ("count", pa.int64()))
        return [pa.field(self.part(name), kind) for name, kind in parts]

    def lift(self, column: pa.Array | None, rows: int) -> Fields:
        assert column is not None
        values = from_arrow(column).astype(np.float64, copy=False)
        return {self.part("total"): values, self.part("count"): counted(column, rows)}

    def merge(self, state: Fields, codes: Ints, given: Fields) -> None:
        for name in (self.part("total"), self.part("count")):
            add_at(state[name], codes, given[name])

    def scan(self, state: Fields, runs: Runs, given: Fields) -> Fields:
        total = scan_sum(self.part("total"), state, runs, given)
        return total | scan_sum(self.part("count"), state, runs, given)

    def finish(self, state: Fields) -> pa.Array:
        nothing = state[self.part("count")] == 0
        return masked(state[self.part("total")], nothing, self.out)


class Mean(Sum):
    """The total divided by the count."""

    def finish(self, state: Fields) -> pa.Array:
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

    def lift(self, column: pa.Array | None, rows: int) -> Fields:
        assert column is not None
        values = from_arrow(column)
        if np.issubdtype(self._dtype, np.floating):
            # One zero and one NaN, so that the result does not depend on which came first.
            with np.errstate(invalid="ignore"):  # signalling NaNs complain when touched
                values = np.where(np.isnan(values), self._dtype.type(np.nan), values + 0)
        return {self.part("value"): values, self.part("seen"): valid(column)}

    def merge(self, state: Fields, codes: Ints, given: Fields) -> None:
        best = self._filled(state)
        with np.errstate(invalid="ignore"):  # some builds of NumPy complain about NaN here
            self._ufunc.at(best, codes, self._filled(given))
        state[self.part("value")] = best
        see(state[self.part("seen")], codes, given[self.part("seen")])

    def scan(self, state: Fields, runs: Runs, given: Fields) -> Fields:
        value, seen = self.part("value"), self.part("seen")
        made = {
            value: runs.accumulate(self._ufunc, self._filled(state), self._filled(given)),
            seen: runs.accumulate(np.logical_or, state[seen], given[seen]),
        }
        self.merge(state, runs.codes, given)
        return made

    def finish(self, state: Fields) -> pa.Array:
        return masked(state[self.part("value")], ~state[self.part("seen")], self.out)

    def _filled(self, parts: Fields) -> npt.NDArray[Any]:
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


def scan_sum(name: str, state: Fields, runs: Runs, given: Fields) -> Fields:
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


# Accumulators that choose one of the values they saw: extremes of texts, first and last.
#
# Values held as objects are compared by their rank among all values at hand, which Arrow computes,
# so that choosing is integer arithmetic like everything else.


class ExtremeObject(Accumulator):
    """The least or greatest of texts and other values held as objects; None is nothing seen."""

    def __init__(self, name: str, out: pa.DataType, largest: bool) -> None:
        """Name, type of the values, and which end."""
        super().__init__(name, out)
        self._largest = largest

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(self.part("value"), self.out)]

    def lift(self, column: pa.Array | None, rows: int) -> Fields:
        return {self.part("value"): column}

    def merge(self, state: Fields, codes: Ints, given: Fields) -> None:
        every, held, ranks = self._ranked(state, given)
        best = _best(held, codes, ranks, self._largest)
        state[self.part("value")] = from_arrow(_by_rank(every, held, ranks, best))

    def scan(self, state: Fields, runs: Runs, given: Fields) -> Fields:
        every, held, ranks = self._ranked(state, given)
        ufunc = np.maximum if self._largest else np.minimum
        best = runs.accumulate(ufunc, held, ranks)
        self.merge(state, runs.codes, given)
        return {self.part("value"): from_arrow(_by_rank(every, held, ranks, best))}

    def finish(self, state: Fields) -> pa.Array:
        return to_arrow(state[self.part("value")], self.out)

    def _ranked(self, state: Fields, given: Fields) -> tuple[pa.Array, Ints, Ints]:
        """All values, held ones first, and the ranks of both."""
        values = state[self.part("value")]
        every = pa.concat_arrays([to_arrow(values, self.out), given[self.part("value")]])
        ranks = ranked(every, nulls_first=self._largest)
        return every, ranks[: len(values)], ranks[len(values) :]


class Pick(Accumulator):
    """The first or last value that is not null, of rows that come in order."""

    def __init__(self, name: str, out: pa.DataType, last: bool) -> None:
        """Name, type of the values, and which end."""
        super().__init__(name, out)
        self._last = last

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(self.part("value"), self.out), pa.field(self.part("seen"), pa.bool_())]

    def lift(self, column: pa.Array | None, rows: int) -> Fields:
        assert column is not None
        values = column if dtype_of(self.out).hasobject else from_arrow(column)
        return {self.part("value"): values, self.part("seen"): valid(column)}

    def merge(self, state: Fields, codes: Ints, given: Fields) -> None:
        value, seen = self.part("value"), self.part("seen")
        rows = self._chosen(len(state[seen]), codes, given[seen])
        taking = rows >= 0 if self._last else (rows >= 0) & ~state[seen]
        state[value][taking] = take(given[value], rows[taking])
        state[seen] = state[seen] | (rows >= 0)

    def scan(self, state: Fields, runs: Runs, given: Fields) -> Fields:
        value, seen = self.part("value"), self.part("seen")
        held, rows = len(state[seen]), np.arange(len(runs))
        if self._last:
            nothing = np.full(held, -1)
            running = runs.accumulate(np.maximum, nothing, np.where(given[seen], rows, -1))
        else:
            nothing = np.where(state[seen], -1, len(runs))
            found = np.where(given[seen], rows, len(runs))
            running = runs.accumulate(np.minimum, nothing, found)
        fresh = (running >= 0) & (running < len(runs))
        lifted = given[value]
        lifted = from_arrow(lifted) if isinstance(lifted, pa.Array) else lifted
        both = np.concatenate([state[value], lifted])
        made = {
            value: both[np.where(fresh, held + running, runs.codes)],
            seen: fresh | state[seen][runs.codes],
        }
        self.merge(state, runs.codes, given)
        return made

    def finish(self, state: Fields) -> pa.Array:
        return masked(state[self.part("value")], ~state[self.part("seen")], self.out)

    def _chosen(self, groups: int, codes: Ints, seen: npt.NDArray[np.bool_]) -> Ints:
        """For each group the row whose value counts, -1 where none does."""
        rows = np.flatnonzero(seen)
        rows = rows if self._last else rows[::-1]
        chosen = np.full(groups, -1)
        chosen[codes[rows]] = rows  # where a group comes several times, the last assignment stays
        return chosen


class PickAnywhere(Pick):
    """The first or last value, of states in any order: each knows where its tuple stood."""

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(self.part("value"), self.out), pa.field(self.part("at"), pa.binary())]

    def locate(self, state: Fields, codes: Ints, given: Fields, positions: Positions) -> None:
        """Rows of one batch do come in order: only what was chosen needs its position."""
        value, at = self.part("value"), self.part("at")
        rows = self._chosen(len(state[at]), codes, given[self.part("seen")])
        taking = rows >= 0
        state[value][taking] = take(given[value], rows[taking])
        state[at][taking] = sortable(positions.take(rows[taking]))

    def merge(self, state: Fields, codes: Ints, given: Fields) -> None:
        value, at = self.part("value"), self.part("at")
        held = len(state[at])
        every = pa.concat_arrays([to_arrow(state[at], pa.binary()), given[at]])
        ranks = ranked(every, nulls_first=self._last)
        best = _best(ranks[:held], codes, ranks[held:], self._last)
        rows = _representatives(ranks)[best] - held
        better = rows >= 0
        state[value][better] = take(given[value], rows[better])
        state[at][better] = take(given[at], rows[better])

    def scan(self, state: Fields, runs: Runs, given: Fields) -> Fields:
        raise NotImplementedError("a running value is not combined before the shuffle")

    def finish(self, state: Fields) -> pa.Array:
        nothing = np.array([at is None for at in state[self.part("at")].tolist()], np.bool_)
        return masked(state[self.part("value")], nothing, self.out)


def take(values: Any, rows: Ints) -> npt.NDArray[Any]:
    """Chosen values in the form in which they are held."""
    if isinstance(values, pa.Array):
        return from_arrow(values.take(pa.array(rows)))
    taken: npt.NDArray[Any] = values[rows]
    return taken


def ranked(values: pa.Array, nulls_first: bool) -> Ints:
    """The rank of each value; equal values share one, nulls are before or behind all values."""
    dense = pc.rank(values, sort_keys="ascending", tiebreaker="dense")
    ranks: Ints = dense.to_numpy().astype(np.int64)
    if nulls_first and values.null_count:
        ranks[values.is_null().to_numpy(zero_copy_only=False)] = 0
    return ranks


def sortable(positions: Positions) -> npt.NDArray[Any]:
    """Positions as bytes that compare as positions do."""
    columns = [np.ascontiguousarray(c).view(np.uint64) for c in positions.columns]
    table = (np.stack(columns, axis=1) ^ np.uint64(1 << 63)).astype(">u8")
    made = np.empty(len(positions), object)
    made[:] = [row.tobytes() for row in table]
    return made


def _best(held: Ints, codes: Ints, ranks: Ints, largest: bool) -> Ints:
    best = held.copy()
    (np.maximum if largest else np.minimum).at(best, codes, ranks)
    return best


def _representatives(ranks: Ints) -> Ints:
    """A row of each rank, the first one."""
    rows = np.full(int(ranks.max(initial=0)) + 1, -1)
    rows[ranks[::-1]] = np.arange(len(ranks))[::-1]
    return rows


def _by_rank(every: pa.Array, held: Ints, ranks: Ints, wanted: Ints) -> pa.Array:
    """A value of each wanted rank."""
    return every.take(pa.array(_representatives(np.concatenate([held, ranks]))[wanted]))


# Totals of whole numbers, exact however many there are and in whatever order they come.
#
# A total is kept as two's complement of 128 bits: `total` holds the low 64 of them, read as a
# signed number, and `carry` the others. Nearly always no total of a batch can leave 64 bits, which
# the largest value and the number of rows tell at once; then there is one addition per row.
# Otherwise the halves of all values are added up apart, 32 bits each, which leaves room for 2³¹
# rows at a time.
#
# Totals must not be checked while they are added up: that one of them leaves 64 bits for a while
# would depend on which values met first. Only a result is too large, or is not.

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

    def lift(self, column: pa.Array | None, rows: int) -> Fields:
        assert column is not None
        values, carry = from_arrow(column), np.broadcast_to(np.int64(0), rows)
        if values.dtype == np.uint64:
            values = values.view(np.int64)
            if rows and values.min() < 0:
                carry = (values < 0).astype(np.int64)
        values = values.astype(np.int64, copy=False)
        return {self._total: values, self._carry: carry, self._count: counted(column, rows)}

    def merge(self, state: Fields, codes: Ints, given: Fields) -> None:
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

    def scan(self, state: Fields, runs: Runs, given: Fields) -> Fields:
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

    def finish(self, state: Fields) -> pa.Array:
        carry, total = state[self._carry], state[self._total]
        if carry.any():
            row = int(np.flatnonzero(carry)[0])
            raise TooLarge(self.name, row, (int(carry[row]) << 64) + int(total[row]))
        return masked(total, state[self._count] == 0, self.out)

    def _fits(self, state: Fields, given: Fields) -> bool:
        """Whether no total can leave 64 bits, whichever rows meet in it."""
        carry, values = given[self._carry], given[self._total]
        if not len(values):
            return True
        if carry[0] if carry.strides == (0,) else carry.any():
            return False
        return _largest(values) * len(values) + _largest(state[self._total]) < _ROOM


class WholeMean(WholeSum):
    """The total of integers divided by their number, as a double."""

    def finish(self, state: Fields) -> pa.Array:
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
