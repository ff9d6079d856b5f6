"""Columns of several applications: one of lines, and those that rows must have a value in."""

from __future__ import annotations

import pyarrow as pa

LINES = pa.schema([("line", pa.string())])


def required(**types: pa.DataType) -> pa.Schema:
    """Columns of which none may be null, in this order.

    Example:
        >>> required(device=pa.int64()).field("device").nullable
        False
    """
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in types.items()])
