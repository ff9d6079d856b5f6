"""Columns of several applications, and what must be in them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from anabranch.operators.times import SHOWABLE_YEARS, not_within

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


def beyond_calendar(rows: pa.RecordBatch | pa.Table) -> dict[int, str]:
    """Rows with a time in a year that Python does not have, each with what is said of it.

    They are bad: nothing could be computed with them tuple by tuple, nor be shown of them. Times
    that a clock cannot take, in the years 1 and 9999, are left to it, since a time that is not one
    of events may well be `9999-12-31`.

    Example:
        >>> beyond_calendar(pa.record_batch({"t": pa.array([0, 10**12], pa.timestamp("s"))}))
        {1: "a year outside of 1 to 9999 in 't'"}
    """
    found: dict[int, str] = {}
    for name in reversed(rows.schema.names):
        outside = not_within(SHOWABLE_YEARS, rows[name])
        if outside is not None:
            why = f"a year outside of {SHOWABLE_YEARS[0]} to {SHOWABLE_YEARS[1]} in {name!r}"
            found |= dict.fromkeys(np.flatnonzero(outside).tolist(), why)
    return found
