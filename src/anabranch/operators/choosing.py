"""Accumulators that choose one of the values they saw: extremes of texts, first and last.

Values held as objects are compared by their rank among all values at hand, which Arrow computes, so
that choosing is integer arithmetic like everything else.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.operators.accumulators import Accumulator, Parts, masked, valid
from anabranch.operators.runs import Runs
from anabranch.state.positions import Ints, Positions
from anabranch.state.values import dtype_of, from_arrow, to_arrow


class ExtremeObject(Accumulator):
    """The least or greatest of texts and other values held as objects; None is nothing seen."""

    def __init__(self, name: str, out: pa.DataType, largest: bool) -> None:
        """Name, type of the values, and which end."""
        super().__init__(name, out)
        self._largest = largest

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(self.part("value"), self.out)]

    def lift(self, column: pa.Array | None, rows: int) -> Parts:
        return {self.part("value"): column}

    def merge(self, state: Parts, codes: Ints, given: Parts) -> None:
        every, held, ranks = self._ranked(state, given)
        best = _best(held, codes, ranks, self._largest)
        state[self.part("value")] = from_arrow(_by_rank(every, held, ranks, best))

    def scan(self, state: Parts, runs: Runs, given: Parts) -> Parts:
        every, held, ranks = self._ranked(state, given)
        ufunc = np.maximum if self._largest else np.minimum
        best = runs.accumulate(ufunc, held, ranks)
        self.merge(state, runs.codes, given)
        return {self.part("value"): from_arrow(_by_rank(every, held, ranks, best))}

    def finish(self, state: Parts) -> pa.Array:
        return to_arrow(state[self.part("value")], self.out)

    def _ranked(self, state: Parts, given: Parts) -> tuple[pa.Array, Ints, Ints]:
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

    def lift(self, column: pa.Array | None, rows: int) -> Parts:
        assert column is not None
        values = column if dtype_of(self.out).hasobject else from_arrow(column)
        return {self.part("value"): values, self.part("seen"): valid(column)}

    def merge(self, state: Parts, codes: Ints, given: Parts) -> None:
        value, seen = self.part("value"), self.part("seen")
        rows = self._chosen(len(state[seen]), codes, given[seen])
        taking = rows >= 0 if self._last else (rows >= 0) & ~state[seen]
        state[value][taking] = take(given[value], rows[taking])
        state[seen] = state[seen] | (rows >= 0)

    def scan(self, state: Parts, runs: Runs, given: Parts) -> Parts:
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

    def finish(self, state: Parts) -> pa.Array:
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

    def locate(self, state: Parts, codes: Ints, given: Parts, positions: Positions) -> None:
        """Rows of one batch do come in order: only what was chosen needs its position."""
        value, at = self.part("value"), self.part("at")
        rows = self._chosen(len(state[at]), codes, given[self.part("seen")])
        taking = rows >= 0
        state[value][taking] = take(given[value], rows[taking])
        state[at][taking] = sortable(positions.take(rows[taking]))

    def merge(self, state: Parts, codes: Ints, given: Parts) -> None:
        value, at = self.part("value"), self.part("at")
        held = len(state[at])
        every = pa.concat_arrays([to_arrow(state[at], pa.binary()), given[at]])
        ranks = ranked(every, nulls_first=self._last)
        best = _best(ranks[:held], codes, ranks[held:], self._last)
        rows = _representatives(ranks)[best] - held
        better = rows >= 0
        state[value][better] = take(given[value], rows[better])
        state[at][better] = take(given[at], rows[better])

    def scan(self, state: Parts, runs: Runs, given: Parts) -> Parts:
        raise NotImplementedError("a running value is not combined before the shuffle")

    def finish(self, state: Parts) -> pa.Array:
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
