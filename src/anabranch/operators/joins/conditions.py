"""Which pairs of new and stored tuples fulfil the conditions of a join on any predicate.

A band (two numbers, so far apart at most) is looked up: stored rows are kept in the order of its
column, so that only rows within it are visited. Whatever else is asked is decided on candidate
pairs, whole columns at a time and in chunks of bounded size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.columns.key_words import ranges
from anabranch.columns.schemas import columns_of
from anabranch.errors import BuildError, OperatorError, SchemaError, Subject
from anabranch.state.positions import FIRST, Ints
from anabranch.state.tables.row_segment import Segment

# Bands: conditions that two numbers are at most so far apart, which can be looked up.

_WIDEST = 1 << 53  # whole numbers up to here are the same as doubles
_LOWEST, _HIGHEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_ROUNDING = 4 * np.finfo(np.float64).eps

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[Any]


@dataclass(frozen=True)
class Band:
    """A condition: the left and the right number are at most `within` apart."""

    left: str
    right: str
    within: float


def band(left: str, right: str, within: float) -> Band:
    """The condition that two numbers of a pair are at most so far apart, both ends included.

    Null, NaN and the infinities are near nothing. Whole numbers are compared exactly, others as
    doubles.

    Args:
        left: A column of the left side.
        right: A column of the right side.
        within: How far apart they may be.

    Example:
        >>> band("x", "a", 10)
        Band(left='x', right='a', within=10)
    """
    if not _is_number(within) or not 0 <= within <= _WIDEST:
        raise BuildError(
            Subject("argument", "within"),
            "a width from 0 to 2**53",
            repr(within),
            "say how far apart the two may be",
        )
    return Band(left, right, within)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_band(step: str, given: Band, left: pa.Schema, right: pa.Schema) -> None:
    """Raise unless a band is of numbers that both sides have."""
    for name, side in ((given.left, left), (given.right, right)):
        columns_of(step, (name,), side)
        kind = side.field(name).type
        whole = pa.types.is_integer(kind) and not pa.types.is_uint64(kind)
        if not whole and not pa.types.is_floating(kind):
            raise SchemaError(
                step,
                f"column {name!r} of numbers, whole ones of at most 64 bits with a sign",
                str(kind),
                "cast it, or write the condition as a function",
            )


@dataclass(frozen=True)
class BandCheck:
    """A band over columns of known types.

    Attributes:
        names: The column of the left side and that of the right.
        within: How far apart the two may be.
        exact: Whether both are whole numbers; otherwise they are compared as doubles.
    """

    names: tuple[str, str]
    within: float
    exact: bool

    @staticmethod
    def of(given: Band, schemas: tuple[pa.Schema, pa.Schema]) -> BandCheck:
        """The check of a band, which fits these columns."""
        names = (given.left, given.right)
        kinds = [side.field(name).type for name, side in zip(names, schemas, strict=True)]
        exact = all(pa.types.is_integer(kind) for kind in kinds)
        return BandCheck(names, int(given.within) if exact else float(given.within), exact)

    def numbers(self, batch: pa.RecordBatch, port: int) -> tuple[Numbers, Mask]:
        """The column of one side, and which of its values can be near any."""
        column = batch.column(self.names[port])
        if not self.exact:
            values = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
            return values, np.isfinite(values)  # null became NaN
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        return column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64), valid

    def bounds(self, values: Numbers) -> tuple[Numbers, Numbers]:
        """From where to where numbers are near these; doubles a little beyond, for rounding."""
        if self.exact:
            low = np.where(values < _LOWEST + self.within, _LOWEST, values - self.within)
            high = np.where(values > _HIGHEST - self.within, _HIGHEST, values + self.within)
            return low, high
        with np.errstate(over="ignore"):  # infinity is a bound, too
            reach = self.within + _ROUNDING * (np.abs(values) + self.within)
            return values - reach, values + reach

    def near(self, mine: Numbers, theirs: Numbers) -> Mask:
        """Whether numbers are near each other, pair by pair."""
        if self.exact:
            low, high = self.bounds(mine)
            return (low <= theirs) & (theirs <= high)
        with np.errstate(over="ignore"):
            near: Mask = np.abs(mine - theirs) <= self.within
        return near


def usable_rows(columns: Sequence[tuple[Numbers, Mask]]) -> Mask:
    """Rows whose numbers can all be near others."""
    usable: Mask = np.logical_and.reduce([mask for _, mask in columns])
    return usable


MOST_PAIRS = 1 << 15
"""How many candidate pairs are decided at once, which bounds memory."""
# From a buffer: `pa.array` would import pandas, here for every process that imports this module.
_ZEROS = pa.Array.from_buffers(
    pa.int64(), MOST_PAIRS, [None, pa.py_buffer(np.zeros(MOST_PAIRS, np.int64))]
)
_ALONE = 1 << 11  # from so many pairs on, a new tuple is worth a call of its own


class Candidates:
    """One side of candidate pairs: row i of the left is to be judged with row i of the right.

    Columns are made when they are asked for, so a predicate pays for those it reads.
    """

    def __init__(self, batch: pa.RecordBatch, rows: int | slice | Ints, count: int) -> None:
        self._batch, self._rows = batch, rows
        self.num_rows = count

    @property
    def schema(self) -> pa.Schema:
        """The columns there are."""
        return self._batch.schema

    def __len__(self) -> int:
        return self.num_rows

    def __getitem__(self, name: str) -> pa.Array:
        """A column, as an Arrow array."""
        column, rows = self._batch.column(name), self._rows
        if isinstance(rows, slice):
            return column.slice(rows.start, self.num_rows)
        if isinstance(rows, int):  # one tuple, beside many
            return column.slice(rows, 1).take(_ZEROS.slice(0, self.num_rows))
        return column.take(pa.array(rows))

    column = __getitem__

    def to_batch(self) -> pa.RecordBatch:
        """All columns."""
        arrays = [self[name] for name in self.schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


Predicate: TypeAlias = Callable[[Candidates, Candidates], Any]
"""From the two sides of candidate pairs to a mask, row by row."""

Condition: TypeAlias = Band | Predicate


@dataclass(frozen=True)
class Conditions:
    """What must hold of a pair; the first band is the one that is looked up."""

    bands: tuple[Band, ...]
    predicates: tuple[Predicate, ...]

    @staticmethod
    def of(where: Condition | Sequence[Condition]) -> Conditions:
        """Conditions as the user wrote them: one or several."""
        several: Sequence[Any] = where if isinstance(where, list | tuple) else (where,)
        wrong = [one for one in several if not (isinstance(one, Band) or callable(one))]
        if wrong or not several:
            raise BuildError(
                Subject("operator", "join_where"),
                "where=band(…), a function of (left, right), or several of those",
                repr(wrong[0]) if wrong else "none",
                "say which pairs belong together",
            )
        return Conditions(
            tuple(one for one in several if isinstance(one, Band)),
            tuple(one for one in several if not isinstance(one, Band)),
        )


class New(NamedTuple):
    """New tuples of one side, in order; all replicas have them all.

    Attributes:
        batch: The tuples.
        times: Their event times.
        serials: Their numbers in the merged order.
        port: Which side they are.
    """

    batch: pa.RecordBatch
    times: Ints
    serials: Ints
    port: int


class Found(NamedTuple):
    """Pairs of new tuples (rows) and stored ones (places of a segment)."""

    rows: Ints
    places: Ints


class _Chunk(NamedTuple):
    """Candidates: runs of stored rows, each for one new tuple; one run alone is a slice."""

    rows: int | Ints
    places: slice | Ints

    def __len__(self) -> int:
        places = self.places
        return places.stop - places.start if isinstance(places, slice) else len(places)

    def flat(self) -> tuple[Ints, Ints]:
        """The same, one row and one place for each pair."""
        rows, places = self.rows, self.places
        if isinstance(places, slice):
            places = np.arange(places.start, places.stop)
        if isinstance(rows, int):
            rows = np.full(len(places), rows)
        return rows, places

    def where(self, mask: Mask) -> _Chunk:
        """The pairs that a mask keeps; few, as a rule."""
        kept, (rows, places) = np.flatnonzero(mask), self
        return _Chunk(
            np.full(len(kept), rows) if isinstance(rows, int) else rows.take(kept),
            kept + places.start if isinstance(places, slice) else places.take(kept),
        )


@dataclass(eq=False)
class _Sorted:
    """A segment in the order of the first band's column, without rows that no band can hold."""

    places: Ints
    times: Ints
    numbers: list[Numbers]


class PairFinder:
    """Finds the pairs of new tuples with stored ones that fulfil all conditions.

    Args:
        step: For errors.
        conditions: What must hold of a pair.
        within: How far apart in time the two may be.
        schemas: The columns of the left and of the right side.
    """

    def __init__(
        self, step: str, conditions: Conditions, within: int, schemas: tuple[pa.Schema, pa.Schema]
    ) -> None:
        self._step, self._within = step, within
        self._bands = [BandCheck.of(one, schemas) for one in conditions.bands]
        # What the range of the first band has decided is asked last, and only where it may round.
        self._checked = [*range(1, len(self._bands))]
        if self._bands and not self._bands[0].exact:
            self._checked.append(0)
        self._predicates = conditions.predicates
        self._straight: WeakKeyDictionary[Segment, bool] = WeakKeyDictionary()
        self._sorted: WeakKeyDictionary[Segment, _Sorted] = WeakKeyDictionary()
        self.comparisons = 0  # pairs near enough in time that were decided, visited or not

    def find(self, new: New, stored: Segment, *, fresh: bool) -> Found:
        """The pairs of new tuples of one side with rows of a segment of the other.

        Args:
            new: The new tuples.
            stored: Where to look; its rows stand in the order of their times.
            fresh: Whether the rows of the segment are new as well, so that some come later.
        """
        oldest = np.where(new.times < FIRST + self._within, FIRST, new.times - self._within)
        starts = np.searchsorted(stored.times, oldest)
        stops = np.full(len(starts), len(stored))
        if fresh:
            stops = np.searchsorted(stored.serials, new.serials)
        counts = np.maximum(stops - starts, 0)
        self.comparisons += int(counts.sum())
        if self._bands:
            found = list(self._within_bands(new, stored, oldest, fresh))
        else:
            found = [self._judged(new, stored, chunk) for chunk in _chunks(starts, counts)]
        return Found(*(np.concatenate([one[i] for one in (_NONE, *found)]) for i in range(2)))

    def _within_bands(
        self, new: New, stored: Segment, oldest: Ints, fresh: bool
    ) -> Iterator[tuple[Ints, Ints]]:
        mine = [one.numbers(new.batch, new.port) for one in self._bands]
        usable = np.flatnonzero(usable_rows(mine))
        # In the order of the index: what one looks up is near what the one before looked up.
        usable = usable.take(np.argsort(mine[0][0].take(usable)))
        numbers = [values.take(usable) for values, _ in mine]
        index = self._index(stored, 1 - new.port)
        low, high = self._bands[0].bounds(numbers[0])
        starts = np.searchsorted(index.numbers[0], low, "left")
        counts = np.maximum(np.searchsorted(index.numbers[0], high, "right") - starts, 0)
        oldest, serials = oldest.take(usable), new.serials.take(usable)
        for chunk in _chunks(starts, counts):
            rows, spots = chunk.flat()
            for number in self._checked:
                theirs = index.numbers[number].take(spots)
                near = self._bands[number].near(numbers[number].take(rows), theirs)
                rows, spots = rows[near], spots[near]
            near = index.times.take(spots) >= oldest.take(rows)
            rows, places = rows[near], index.places.take(spots[near])
            if fresh:
                earlier = stored.serials.take(places) < serials.take(rows)
                rows, places = rows[earlier], places[earlier]
            if len(rows):
                yield self._judged(new, stored, _Chunk(usable.take(rows), places))

    def _index(self, stored: Segment, port: int) -> _Sorted:
        known = self._sorted.get(stored)
        if known is None:
            theirs = [one.numbers(stored.batch, port) for one in self._bands]
            usable = np.flatnonzero(usable_rows(theirs).take(stored.rows))
            rows = stored.rows.take(usable)
            order = np.argsort(theirs[0][0].take(rows), kind="stable")
            places, rows = usable.take(order), rows.take(order)
            numbers = [values.take(rows) for values, _ in theirs]
            known = _Sorted(places, stored.times.take(places), numbers)
            self._sorted[stored] = known
        return known

    def _judged(self, new: New, stored: Segment, chunk: _Chunk) -> tuple[Ints, Ints]:
        """What all predicates keep of a chunk."""
        for predicate in self._predicates:
            if not len(chunk):
                break
            one = Candidates(new.batch, chunk.rows, len(chunk))
            two = Candidates(stored.batch, self._rows_of(stored, chunk.places), len(chunk))
            chunk = chunk.where(self._mask(predicate, *((two, one) if new.port else (one, two))))
        return chunk.flat()

    def _rows_of(self, stored: Segment, places: slice | Ints) -> slice | Ints:
        """Rows of the batch; a slice where places and rows are in the same order."""
        if not isinstance(places, slice):
            return stored.rows.take(places)
        straight = self._straight.get(stored)
        if straight is None:
            straight = bool((stored.rows[1:] - stored.rows[:-1] == 1).all())
            self._straight[stored] = straight
        if not straight:
            return stored.rows[places]
        first = int(stored.rows[0])
        return slice(first + places.start, first + places.stop)

    def _mask(self, predicate: Predicate, left: Candidates, right: Candidates) -> Mask:
        try:
            mask = predicate(left, right)
        except OperatorError:
            raise
        except Exception as error:
            raise OperatorError(
                self._step,
                "a truth value for every pair",
                f"{type(error).__name__}: {error} on {len(left)} pairs",
                "mend the condition or the data",
            ) from error
        if isinstance(mask, pa.ChunkedArray):
            mask = mask.combine_chunks()
        if isinstance(mask, pa.BooleanArray):
            mask = mask.fill_null(False).to_numpy(zero_copy_only=False)
        array = np.asarray(mask)
        if array.dtype != np.bool_ or array.shape != (len(left),):
            raise OperatorError(
                self._step,
                f"a boolean mask of {len(left)} pairs",
                f"{array.dtype} of shape {array.shape}",
                "return one truth value per pair",
            )
        return array


_NONE = (np.zeros(0, np.int64), np.zeros(0, np.int64))


def _chunks(starts: Ints, counts: Ints) -> Iterator[_Chunk]:
    """Runs of stored rows, run i for new tuple i, in chunks of at most MOST_PAIRS."""
    ends = np.cumsum(counts)
    at, done = 0, 0
    while at < len(counts) and done < ends[-1]:
        if counts[at] >= _ALONE:
            start, stop = int(starts[at]), int(starts[at] + counts[at])
            for low in range(start, stop, MOST_PAIRS):
                yield _Chunk(at, slice(low, min(low + MOST_PAIRS, stop)))
            upto = at + 1
        else:
            upto = int(np.searchsorted(ends, done + MOST_PAIRS, "right"))
            large = np.flatnonzero(counts[at:upto] >= _ALONE)
            upto = at + int(large[0]) if len(large) else upto
            places, _ = ranges(starts[at:upto], counts[at:upto])
            if len(places):
                yield _Chunk(np.repeat(np.arange(at, upto), counts[at:upto]), places)
        at, done = upto, int(ends[upto - 1])
