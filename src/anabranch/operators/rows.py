"""Rows of a batch as light objects with attributes, for tuple-style operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any

import pyarrow as pa

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
    """A column as Python values; datetimes hold microseconds, so nanoseconds are cut off."""
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    values: list[Any] = column.to_pylist()
    return values


def python_rows(rows: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """Rows as dicts."""
    names = rows.schema.names
    columns = [python_values(c) for c in rows.columns]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


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


def _remake(names: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    return row_class(names)(values)
