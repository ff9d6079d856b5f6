"""A batch arranged key by key for the quick replay, with its columns as Python values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from anabranch.operators.combine import group_rows
from anabranch.operators.rows import python_values
from anabranch.operators.runs import Runs
from anabranch.state.positions import ROOT_WIDTH, Ints, Positions


def is_exact(key_type: pa.DataType) -> bool:
    """Whether equal keys of a type are the same Python value, so that one stands for all of them.

    Example:
        >>> is_exact(pa.string()), is_exact(pa.float64())  # 0.0 equals -0.0
        (True, False)
    """
    if pt.is_timestamp(key_type):
        # Python knows no nanoseconds, and takes the two hours of a clock set back for one.
        return key_type.tz is None and key_type.unit != "ns"
    return bool(
        pt.is_string(key_type)
        or pt.is_large_string(key_type)
        or pt.is_binary(key_type)
        or pt.is_large_binary(key_type)
        or pt.is_integer(key_type)
        or pt.is_boolean(key_type)
        or pt.is_date32(key_type)
    )


@dataclass(frozen=True)
class Arranged:
    """A batch whose rows stand key by key, keys in order of occurrence, rows of a key in theirs.

    Attributes:
        batch: The batch as it came.
        positions: Its positions, as they came.
        order: For each place, the row of the batch that stands there.
        firsts: For each key, the row of the batch where it occurs first.
        stops: For each key, the place behind its last row.
        bases: For each place, the last place of its event: of the tuples of its key and root.
        several: For each key, whether an event of it has several tuples; None when none has.
    """

    batch: pa.RecordBatch
    positions: Positions
    order: Ints
    firsts: Ints
    stops: list[int]
    bases: Sequence[int]
    several: list[bool] | None

    @staticmethod
    def by_key(batch: pa.RecordBatch, positions: Positions, key: tuple[str, ...]) -> Arranged:
        """Arrange by key columns; without any, all rows are of one key. Rows come in order."""
        rows = batch.num_rows
        if key:
            runs = Runs(*group_rows([batch.column(name) for name in key], rows))
            order, starts = runs.order, runs.starts
        else:
            order, starts = np.arange(rows), np.zeros(1, np.int64)
        stops = np.append(starts[1:], rows)
        lasts = _event_lasts(positions, order, starts)
        if lasts is None:
            return Arranged(
                batch, positions, order, order[starts], stops.tolist(), range(rows), None
            )
        counts = np.add.reduceat(lasts, starts)
        several = counts < stops - starts
        ends = np.flatnonzero(lasts)
        bases = np.repeat(ends, np.diff(ends, prepend=-1))
        return Arranged(
            batch, positions, order, order[starts], stops.tolist(), bases.tolist(), several.tolist()
        )

    @staticmethod
    def apart(batch: pa.RecordBatch, positions: Positions) -> Arranged:
        """Every row an event of its own, and one key for all: nothing is remembered."""
        rows = batch.num_rows
        return Arranged(
            batch, positions, np.arange(rows), np.zeros(1, np.int64), [rows], range(rows), None
        )

    def times(self) -> Ints:
        """The time of each place."""
        return self.positions.columns[0].take(self.order)

    def rows(self, row_class: type, keys: dict[str, list[Any]]) -> Iterator[tuple[Any]]:
        """The rows as they stand, each alone in a tuple.

        Args:
            row_class: What a row becomes.
            keys: Columns whose value is known key by key.
        """
        counts = np.diff(self.stops, prepend=0).tolist()
        order = None if len(counts) == 1 else pa.array(self.order)
        columns: list[Any] = []
        for name, column in zip(self.batch.schema.names, self.batch.columns, strict=True):
            if name in keys:
                columns.append(chain.from_iterable(map(repeat, keys[name], counts)))
            else:
                columns.append(python_values(column if order is None else column.take(order)))
        return zip(map(row_class, zip(*columns, strict=True)))

    def alike(self, row_class: type, keys: dict[str, list[Any]]) -> Iterable[tuple[Any] | None]:
        """Per key, the row that stands for all of its rows; None where they may differ."""
        names = self.batch.schema.names
        if not all(name in keys for name in names):
            return repeat(None)
        return zip(map(row_class, zip(*(keys[name] for name in names), strict=True)))


def _event_lasts(positions: Positions, order: Ints, starts: Ints) -> Ints | None:
    """Which places are the last of their event; None when every one is an event of its own."""
    fresh = np.zeros(len(positions), np.bool_)
    fresh[:1] = True
    for column in positions.columns[:ROOT_WIDTH]:
        if column.strides != (0,):
            fresh[1:] |= column[1:] != column[:-1]
    if fresh.all():
        return None
    # Rows of one root stand together, so the number of roots so far tells them apart.
    roots = np.cumsum(fresh)[order]
    lasts = np.ones(len(roots), np.int64)
    lasts[:-1] = roots[1:] != roots[:-1]
    lasts[starts[1:] - 1] = 1
    return lasts
