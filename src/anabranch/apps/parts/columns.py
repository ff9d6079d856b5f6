"""Columns of several applications: one of lines, and those that rows must have a value in."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

LINES = pa.schema([("line", pa.string())])


def required(**types: pa.DataType) -> pa.Schema:
    """Columns of which none may be null, in this order.

    Example:
        >>> required(device=pa.int64()).field("device").nullable
        False
    """
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in types.items()])


def trouble_with(found: Sequence[str], columns: pa.Schema) -> str | None:
    """What is wrong with the names of a file's columns; None if those that are needed are there.

    Example:
        >>> wanted = required(device=pa.int64(), value=pa.float64())
        >>> trouble_with(["value", "other"], wanted)
        "['value', 'other'], without ['device']"
    """
    missing = [f.name for f in columns if f.name not in found and not f.nullable]
    doubled = [each for each in columns.names if found.count(each) > 1]
    if not missing and not doubled:
        return None
    problem = f"without {missing}" if missing else f"with {doubled} more than once"
    return f"{list(found)}, {problem}"
