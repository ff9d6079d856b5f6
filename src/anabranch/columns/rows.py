"""Rows of a batch as light objects with attributes, as Python values, and compact for pickling."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.columns.times import in_microseconds

UNREADABLE = (OverflowError, ValueError)
"""What is raised where Python has no value for one of Arrow's: a time in the year 20000."""

_CLASSES: dict[tuple[str, ...], type] = {}


class Row(tuple[Any, ...]):
    """One tuple of a stream: `row.column`, `row["column"]`, or by position."""

    __slots__ = ()
    _fields: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Any:
        """The value of a column."""
        try:
            return tuple.__getitem__(self, self._fields.index(name))
        except ValueError:
            raise AttributeError(f"no column {name!r}; there are {list(self._fields)}") from None

    def __getitem__(self, item: Any) -> Any:
        """The value of a column by name or number."""
        return getattr(self, item) if isinstance(item, str) else tuple.__getitem__(self, item)

    def asdict(self) -> dict[str, Any]:
        """The row as a dict."""
        return dict(zip(self._fields, self, strict=True))

    def __repr__(self) -> str:
        """Column names and values."""
        return "(" + ", ".join(f"{n}={v!r}" for n, v in zip(self._fields, self, strict=True)) + ")"

    def __reduce__(self) -> Any:
        """Rows wait in checkpointed buffers; their class is remade from the names."""
        return _remake, (self._fields, tuple(self))


def is_nan(value: Any) -> bool:
    """Whether a value is the float that does not equal itself."""
    return isinstance(value, float) and math.isnan(value)


def python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """A column as Python values; datetimes hold microseconds, so nanoseconds are cut off.

    Raises one of `UNREADABLE` where Python has no such value.
    """
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = in_microseconds(column)
    values: list[Any] = column.to_pylist()
    return values


def shown_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """A column as Python values to be looked at; a text stands where Python has no such value.

    Example:
        >>> shown_values(pa.array([0, 600 * 10**9], pa.timestamp("s")))
        [datetime.datetime(1970, 1, 1, 0, 0), '20983-03-30 10:40:00']
    """
    try:
        return python_values(column)
    except UNREADABLE:
        pieces = (column.slice(place, 1) for place in range(len(column)))
        return [_text_of(one) if _why_unreadable(one) else python_values(one)[0] for one in pieces]


def python_rows(rows: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """Rows as dicts, to be looked at: see `shown_values`."""
    return _dicts(rows.schema.names, map(shown_values, rows.columns))


def exact_rows(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as dicts, to be computed with; raises one of `UNREADABLE` where that cannot be."""
    return _dicts(rows.schema.names, map(python_values, rows.columns))


def unreadable_rows(rows: pa.RecordBatch) -> dict[int, str]:
    """Rows with values that Python does not have, each with what is wrong with the first.

    Example:
        >>> unreadable_rows(pa.record_batch({"t": pa.array([0, 600 * 10**9], pa.timestamp("s"))}))
        {1: "OverflowError: date value out of range in 't': 20983-03-30 10:40:00"}
    """
    found: dict[int, str] = {}
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        try:
            python_values(column)
        except UNREADABLE:
            for place in range(len(column)):
                one = column.slice(place, 1)
                if place not in found and (why := _why_unreadable(one)):
                    found[place] = f"{why} in {name!r}: {_text_of(one)}"
    return dict(sorted(found.items()))


def row_reader(schema: pa.Schema) -> Callable[[pa.RecordBatch], Iterable[Any]]:
    """A function that turns batches of a schema into rows."""
    cls = row_class(tuple(schema.names))

    def read(batch: pa.RecordBatch) -> Iterable[Any]:
        return map(cls, zip(*map(python_values, batch.columns), strict=True))

    return read


def row_class(names: tuple[str, ...]) -> type:
    """The row class of a list of columns; column access compiles to an index."""
    if names not in _CLASSES:
        members: dict[str, Any] = {n: property(itemgetter(i)) for i, n in enumerate(names)}
        members.update(__slots__=(), _fields=names)
        _CLASSES[names] = type("Row", (Row,), members)
    return _CLASSES[names]


def _dicts(names: list[str], columns: Iterable[list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _why_unreadable(one: pa.Array | pa.ChunkedArray) -> str | None:
    """What is raised for a column of one value; None if nothing is."""
    try:
        python_values(one)
    except UNREADABLE as error:
        return f"{type(error).__name__}: {error}"
    return None


def _text_of(one: pa.Array | pa.ChunkedArray) -> str:
    """A column of one value as Arrow writes it."""
    if pa.types.is_temporal(one.type):
        return str(one.cast(pa.string())[0].as_py())
    return " ".join(one.to_string().split())


def _remake(names: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    return row_class(names)(values)


# Arrow rows as they should be pickled: without the buffers of the batch they were sliced from.

_SLACK_BYTES = 4096


def compact(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows; copied when they are a small part of the buffers they refer to.

    Example:
        >>> whole = pa.record_batch({"n": list(range(100_000))})
        >>> compact(whole.slice(7, 10)).get_total_buffer_size() < 1000
        True
        >>> compact(whole) is whole
        True
    """
    if batch.get_total_buffer_size() <= 2 * batch.nbytes + _SLACK_BYTES:
        return batch
    return copied(batch)


def copied(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the same rows in buffers of their own.

    Example:
        >>> batch = pa.record_batch({"n": [1, 2]})
        >>> copied(batch) == batch, copied(batch)["n"].buffers()[1] == batch["n"].buffers()[1]
        (True, True)
        >>> copied(batch)["n"].buffers()[1].address == batch["n"].buffers()[1].address
        False
    """
    return batch.take(pa.array(np.arange(batch.num_rows)))
