"""Positions: where a tuple stands in the sequential order, carried beside every batch.

A position is a row of int64 columns compared from left to right. The first four are the *root*, the
event that caused the tuple, the others are *levels*, one per step that may emit several tuples for
one:

    time   event time, or the sequence number where the source has no time
    rank   number of the source; negative for timers, so that they come before tuples of that time
    seq    sequence number within the source; for timers the order of the key
    sub    0, or the part of an interleaved source; upper bits place tuples behind another one of
           their part; for timers a hash that parts keys of one order
    level… port at a merge of streams, emission index at a step that expands

So sequential order is lexicographic order, and restoring it never needs more than a sort.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.columns.rows import compact
from anabranch.columns.times import LAST_TIME

Ints = npt.NDArray[np.int64]

ROOT_WIDTH = 4
LAST = LAST_TIME
FIRST = -LAST


class Root(NamedTuple):
    """The event a tuple stems from; also used as a frontier: nothing before it comes any more."""

    time: int
    rank: int
    seq: int
    sub: int


START = Root(FIRST, FIRST, FIRST, FIRST)


def end(last_time: int) -> Root:
    """The frontier after the end of a stream whose greatest time was `last_time`."""
    return Root(LAST, LAST, LAST, last_time)


def is_end(frontier: Root) -> bool:
    """Whether the stream is over."""
    return frontier[:3] == (LAST, LAST, LAST)


def meet(frontiers: Sequence[Root]) -> Root:
    """What several streams have passed together: the slowest; at the end, the greatest last time.

    Example:
        >>> meet([Root(5, 0, 0, 0), Root(3, 0, 0, 0)]).time
        3
        >>> meet([end(7), end(9)]).sub
        9
    """
    if all(is_end(f) for f in frontiers):
        return max(frontiers)
    return min(frontiers)


def after(root: Root) -> Root:
    """The frontier right behind a root."""
    return Root(root.time, root.rank, root.seq, root.sub + 1)


class Positions:
    """Positions of the tuples of one batch, column by column. Constant columns cost no memory."""

    __slots__ = ("_columns",)

    def __init__(self, columns: tuple[Ints, ...]) -> None:
        """Positions whose columns are known."""
        self._columns = columns

    @property
    def columns(self) -> tuple[Ints, ...]:
        """Time, rank, seq, sub, then the levels."""
        return self._columns

    def __len__(self) -> int:
        """Number of tuples."""
        return len(self.columns[0])

    def __reduce__(self) -> Any:
        """Constant columns cost nothing when pickled either."""
        return _positions, (tuple(_packed(column) for column in self.columns),)

    @property
    def depth(self) -> int:
        """Number of levels behind the root."""
        return len(self.columns) - ROOT_WIDTH

    @staticmethod
    def of_source(rank: int, seq: Ints, part: int = 0) -> Positions:
        """Positions of source tuples: the sequence number is their time until a clock says more."""
        ranks, parts = (np.broadcast_to(np.int64(each), len(seq)) for each in (rank, part))
        return Positions((seq, ranks, seq, parts))

    @staticmethod
    def of_rows(rows: Sequence[tuple[int, ...]], width: int) -> Positions:
        """Positions from Python tuples, all of one width."""
        table = np.array(rows, dtype=np.int64).reshape(len(rows), width)
        return Positions(tuple(np.ascontiguousarray(table[:, i]) for i in range(width)))

    @staticmethod
    def empty(depth: int) -> Positions:
        """No position at all."""
        return Positions(tuple(np.empty(0, np.int64) for _ in range(ROOT_WIDTH + depth)))

    @staticmethod
    def concat(parts: Sequence[Positions]) -> Positions:
        """All positions one after another; shallower ones are padded with zeros."""
        depth = max(p.depth for p in parts)
        padded = [p.pad(depth).columns for p in parts]
        joined: list[Ints] = []
        for place in range(ROOT_WIDTH + depth):
            pieces = [columns[place] for columns in padded]
            twins = (p for p in range(place) if all(c[p] is c[place] for c in padded))
            twin = next(twins, None)
            joined.append(_joined(pieces) if twin is None else joined[twin])
        return Positions(tuple(joined))

    def take(self, rows: Ints | npt.NDArray[np.bool_]) -> Positions:
        """The positions of chosen rows."""
        if rows.dtype == np.bool_:
            rows = np.flatnonzero(rows)
        chosen: list[Ints] = []
        for place, column in enumerate(self.columns):
            twin = next((p for p in range(place) if self.columns[p] is column), None)
            if twin is not None:
                chosen.append(chosen[twin])
            elif column.strides == (0,) and len(column):
                chosen.append(np.broadcast_to(column[0], len(rows)))
            else:
                chosen.append(column.take(rows))
        return Positions(tuple(chosen))

    def slice(self, start: int, stop: int) -> Positions:
        """A run of positions, without a copy."""
        return Positions(tuple(c[start:stop] for c in self.columns))

    def pad(self, depth: int) -> Positions:
        """The same positions with zero levels up to `depth`."""
        if depth == self.depth:
            return self
        zeros = np.broadcast_to(np.int64(0), len(self))
        return Positions(self.columns + (zeros,) * (depth - self.depth))

    def extend(self, level: Ints) -> Positions:
        """One more level at the end."""
        return Positions((*self.columns, level))

    def under_port(self, port: int, depth: int) -> Positions:
        """The positions as seen behind a merge: the port is the first level."""
        padded = self.pad(depth).columns
        level = np.broadcast_to(np.int64(port), len(self))
        return Positions((*padded[:ROOT_WIDTH], level, *padded[ROOT_WIDTH:]))

    def at_time(self, time: Ints) -> Positions:
        """The same positions, now ordered by an event time first."""
        return Positions((time, *self.columns[1:]))

    def order(self) -> Ints:
        """Row numbers in sequential order; equal positions stay as they stand."""
        telling: list[Ints] = []
        for column in self.columns:
            known = any(column is each for each in telling)
            if not known and len(column) and column.strides != (0,):
                telling.append(column)
        packed = _one_key(telling)
        if packed is not None:
            # Rows mostly come as a few sorted runs, which a stable sort finds and merges.
            return np.argsort(packed, kind="stable").astype(np.int64, copy=False)
        return np.lexsort(self.columns[::-1]).astype(np.int64, copy=False)

    def is_sorted(self) -> bool:
        """Whether the rows stand in sequential order already."""
        undecided = np.ones(max(len(self) - 1, 0), dtype=bool)
        for column in self.columns:
            if column.strides == (0,):
                continue
            left, right = column[:-1], column[1:]  # a difference could overflow
            if (undecided & (right < left)).any():
                return False
            undecided &= left == right
            if not undecided.any():
                return True
        return True

    def before(self, frontier: Root) -> npt.NDArray[np.bool_]:
        """Which rows stand before a frontier."""
        if is_end(frontier):
            return np.ones(len(self), dtype=bool)
        passed = np.zeros(len(self), dtype=bool)
        tied = np.ones(len(self), dtype=bool)
        for column, bound in zip(self.columns[:ROOT_WIDTH], frontier, strict=True):
            passed |= tied & (column < bound)
            tied &= column == bound
            if not tied.any():
                break
        return passed

    def row(self, number: int) -> tuple[int, ...]:
        """The position of one tuple."""
        return tuple(int(column[number]) for column in self.columns)

    def rows(self) -> list[tuple[int, ...]]:
        """As Python tuples."""
        return list(zip(*(c.tolist() for c in self.columns), strict=True))


def _joined(pieces: Sequence[Ints]) -> Ints:
    """Columns one after another; constants that agree stay a constant."""
    values = {int(p[0]) for p in pieces if len(p) and p.strides == (0,)}
    if len(values) == 1 and all(p.strides == (0,) or not len(p) for p in pieces):
        return np.broadcast_to(np.int64(values.pop()), sum(map(len, pieces)))
    return np.concatenate(pieces)


def _one_key(columns: Sequence[Ints]) -> Ints | None:
    """One column that orders as several do, if their ranges fit together into 63 bits."""
    if not columns:
        return None
    key, room = None, 1
    for column in columns:
        low, high = int(column.min()), int(column.max())
        span = high - low + 1
        room *= span
        if room >= 1 << 62:
            return None
        digits = column if low == 0 else column - low
        key = digits if key is None else key * span + digits
    return key


class Expansion(Positions):
    """Positions of tuples that stem from others, worked out when somebody asks.

    A step that expands makes many tuples; one that combines them right behind asks for few.

    Args:
        base: Positions of the tuples that they stem from.
        parents: For each tuple, the row in `base` that it stems from; never decreasing.
    """

    __slots__ = ("_base", "_known", "_parents")

    def __init__(self, base: Positions, parents: Ints) -> None:
        """Work nothing out yet."""
        self._base, self._parents = base, parents
        self._known: Positions | None = None

    def __len__(self) -> int:
        """Number of tuples."""
        return len(self._parents)

    @property
    def depth(self) -> int:
        """One level more than what they stem from: the number among those of one parent."""
        return self._base.depth + 1

    @property
    def columns(self) -> tuple[Ints, ...]:
        """All columns."""
        if self._known is None:
            level = emission_index(self._parents)
            self._known = self._base.take(self._parents).extend(level)
        return self._known.columns

    def take(self, rows: Ints | npt.NDArray[np.bool_]) -> Positions:
        """The positions of chosen rows; for few of them the rest is never worked out."""
        if self._known is not None or rows.dtype == np.bool_ or 4 * len(rows) > len(self):
            return super().take(rows)
        parents = self._parents.take(rows)
        level = rows - np.searchsorted(self._parents, parents, side="left")
        return self._base.take(parents).extend(level)


def emission_index(parents: Ints) -> Ints:
    """Number of each row among those of its parent: 0, 1, 2… within each run of equal parents.

    Example:
        >>> emission_index(np.array([0, 0, 3, 3, 3])).tolist()
        [0, 1, 0, 1, 2]
    """
    if not len(parents):
        return parents
    starts = np.flatnonzero(np.r_[True, parents[1:] != parents[:-1]])
    lengths = np.diff(np.r_[starts, len(parents)])
    return np.arange(len(parents), dtype=np.int64) - np.repeat(starts, lengths)


class Mark(NamedTuple):
    """Reports at a position how far a source has come in event time.

    Attributes:
        root: The position, before that of the tuple that comes next.
        passed: The time that the source has passed; LAST at its end. JOINED: from here on clocks
            wait for the part. IDLE: they do not until it has a tuple again.
        part: The part of an interleaved source, or EVERY_PART.
    """

    root: Root
    passed: int
    part: int = 0


EVERY_PART = -1
JOINED = FIRST
IDLE = FIRST - 1


@dataclass(frozen=True, slots=True)
class Jumbo:
    """A jumbo tuple: a batch of tuples with their positions; what queues and shuffles carry."""

    batch: pa.RecordBatch
    positions: Positions
    marks: tuple[Mark, ...] = ()

    def __len__(self) -> int:
        """Number of tuples."""
        return int(self.batch.num_rows)

    def __reduce__(self) -> Any:
        """A slice leaves the rest of its batch behind when pickled."""
        return Jumbo, (compact(self.batch), self.positions, self.marks)

    @staticmethod
    def empty(schema: pa.Schema, depth: int, marks: tuple[Mark, ...] = ()) -> Jumbo:
        """A batch without tuples."""
        return Jumbo(_empty(schema), Positions.empty(depth), marks)

    @staticmethod
    def concat(parts: Sequence[Jumbo]) -> Jumbo:
        """One batch of all; a single part is returned as it is."""
        if len(parts) == 1:
            return parts[0]
        marks = tuple(m for p in parts for m in p.marks)
        return Jumbo(
            pa.concat_batches([p.batch for p in parts]),
            Positions.concat([p.positions for p in parts]),
            marks,
        )

    def take(self, rows: Ints) -> Jumbo:
        """Chosen rows, in the order given."""
        return Jumbo(self.batch.take(pa.array(rows)), self.positions.take(rows), self.marks)

    def where(self, mask: npt.NDArray[np.bool_]) -> Jumbo:
        """The rows a mask keeps; no copy when it keeps all."""
        if mask.all():
            return self
        return self.take(np.flatnonzero(mask).astype(np.int64))

    def slice(self, start: int, stop: int) -> Jumbo:
        """A run of rows, without a copy and without the marks."""
        return Jumbo(self.batch.slice(start, stop - start), self.positions.slice(start, stop))

    def in_order(self) -> Jumbo:
        """The rows in sequential order."""
        return self if self.positions.is_sorted() else self.take(self.positions.order())


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)


def _packed(column: Ints) -> Ints | tuple[int, int]:
    """A column for pickling: contiguous, or (value, length) where it is constant."""
    if column.strides == (0,) and len(column):
        return int(column[0]), len(column)
    return np.ascontiguousarray(column)


def _positions(columns: tuple[Ints | tuple[int, int], ...]) -> Positions:
    return Positions(
        tuple(np.broadcast_to(np.int64(c[0]), c[1]) if isinstance(c, tuple) else c for c in columns)
    )
