"""What an application has found, kept up to date while rows come, in memory that rows do not fill.

A run may be endless, so a summary must not need all rows at once. It counts them, and condenses
tables of the rows that it shows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import pyarrow as pa

from anabranch.columns.rows import python_rows

LOOSE_ROWS = 1 << 14
MOST_PARTS = 64
"""Tables that are kept apart: each takes memory of its own, however few rows it has."""

Condense = Callable[[pa.Table], pa.Table]


class AppSummary(ABC):
    """Takes the rows of each sink as they come, and says in some lines what they amount to.

    An application's module provides a subclass named `Summary`, whose constructor needs no
    arguments. How the rows are cut into tables must not show in what it says.
    """

    @classmethod
    def of(cls, found: Mapping[str, pa.Table]) -> Self:
        """The summary of what each sink got in all."""
        summary = cls()
        for sink, rows in found.items():
            summary.add(sink, rows)
        return summary

    @abstractmethod
    def add(self, sink: str, rows: pa.Table) -> None:
        """Take the next rows of a sink; every sink has a table, which may have no rows."""

    @abstractmethod
    def __str__(self) -> str:
        """What was found so far, in lines."""


class Condensed:
    """The rows that matter of all rows so far.

    Args:
        condense: Makes the rows that matter from some rows. What it makes of several parts
            together must follow from what it makes of each.

    Example:
        >>> largest = Condensed(greatest(2, [("n", "descending")]))
        >>> largest.add(pa.table({"n": [3, 1, 2]}))
        >>> largest.add(pa.table({"n": [5, 0]}))
        >>> largest.rows()
        [{'n': 5}, {'n': 3}]
    """

    def __init__(self, condense: Condense) -> None:
        self._condense = condense
        self._parts: list[pa.Table] = []
        self._loose = 0

    def add(self, rows: pa.Table) -> None:
        """Take some more rows."""
        part = self._condense(rows) if rows.num_rows else rows
        if part.num_rows:
            self._parts.append(part)
            self._loose += part.num_rows
            # Each time as much as is there already, or many keys would be looked at too often.
            if self._loose > LOOSE_ROWS + self._parts[0].num_rows or len(self._parts) > MOST_PARTS:
                self._merge()

    def rows(self, order: Sequence[tuple[str, str]] = (), most: int | None = None) -> list[Any]:
        """The rows that matter, as dicts: the first ones of an order, if one is given."""
        self._merge()
        return [
            row
            for found in self._parts
            for row in python_rows((found.sort_by(list(order)) if order else found).slice(0, most))
        ]

    def __len__(self) -> int:
        """How many rows matter."""
        self._merge()
        return sum(part.num_rows for part in self._parts)

    def _merge(self) -> None:
        if len(self._parts) > 1:
            self._parts = [self._condense(pa.concat_tables(self._parts))]
        self._loose = 0


def first(most: int) -> Condense:
    """Keep the first rows."""
    return lambda rows: _copied(rows, range(min(most, rows.num_rows)))


def last(most: int) -> Condense:
    """Keep the last rows."""
    return lambda rows: _copied(rows, range(max(rows.num_rows - most, 0), rows.num_rows))


def greatest(most: int, order: Sequence[tuple[str, str]]) -> Condense:
    """Keep the first rows of an order; of equal ones those that came first."""
    keep = first(most)
    return lambda rows: keep(rows.sort_by(list(order)))


def grouped(keys: Sequence[str], **aggregates: str) -> Condense:
    """Keep a row for each key, with the `sum`, `max` or `min` of columns; memory grows with keys.

    Example:
        >>> grouped(["word"], n="max")(
        ...     pa.table({"word": ["a", "b", "a"], "n": [1, 1, 2]})
        ... ).to_pydict()
        {'word': ['a', 'b'], 'n': [2, 1]}
    """

    def condense(rows: pa.Table) -> pa.Table:
        found = rows.group_by(list(keys), use_threads=False).aggregate(list(aggregates.items()))
        made = [f"{column}_{how}" for column, how in aggregates.items()]
        return found.select([*keys, *made]).rename_columns([*keys, *aggregates])

    return condense


def distinct(column: str) -> Condense:
    """Keep each value of a column once; those that are missing do not count."""
    once = grouped([column])
    return lambda rows: once(rows.select([column]).drop_null())


def _copied(rows: pa.Table, places: range) -> pa.Table:
    """Some rows without the buffers of the others, which a slice would keep in memory."""
    return rows.take(pa.array(places, pa.int64()))
