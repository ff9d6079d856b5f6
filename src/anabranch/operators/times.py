"""Times and durations: int64 in the unit of the time column, microseconds for timestamps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import BuildError, OperatorError, SchemaError
from anabranch.state.positions import FIRST, LAST, Ints

TIMESTAMP = pa.timestamp("us")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_type(step: str, given: pa.DataType) -> pa.DataType:
    """What a stream is ordered by when a column of this type gives its time."""
    if pa.types.is_integer(given):
        return pa.int64()
    if pa.types.is_timestamp(given):
        return TIMESTAMP
    raise SchemaError(
        step,
        "a time column of integers or timestamps",
        str(given),
        "cast it, for instance with .map(…)",
    )


def to_times(step: str, column: pa.Array) -> Ints:
    """A time column as int64; a tuple without a time has no place in the order."""
    if column.null_count:
        raise OperatorError(
            step,
            "a time in every tuple",
            f"{column.null_count} null(s)",
            "filter them out or fill them before this step",
        )
    if pa.types.is_timestamp(column.type):
        column = column.cast(TIMESTAMP, safe=False)
    if pa.types.is_uint64(column.type):
        column = pc.min_element_wise(column, LAST)  # beyond the end of time, refused below
    times: Ints = column.cast(pa.int64()).to_numpy(zero_copy_only=False).astype(np.int64)
    if len(times) and not FIRST < times.min() <= times.max() < LAST:
        raise OperatorError(
            step,
            f"times between {FIRST} and {LAST}",
            f"{times.min()} to {times.max()}",
            "give them in a coarser unit",
        )
    return times


def to_time(value: int | datetime) -> int:
    """One time as int64; a datetime without a zone is UTC, as Arrow reads it.

    Example:
        >>> to_time(datetime(1970, 1, 1, 0, 0, 2))
        2000000
    """
    if isinstance(value, datetime):
        zoned = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (zoned - _EPOCH) // timedelta(microseconds=1)
    return int(value)


def from_times(times: Ints, kind: pa.DataType) -> pa.Array:
    """Int64 times as a column of the stream's time type."""
    return pa.array(times, pa.int64()).cast(kind)


def duration(value: int | timedelta | None, time: pa.DataType | None, step: str) -> int | None:
    """A length of time in the stream's unit.

    Example:
        >>> duration(timedelta(seconds=2), TIMESTAMP, "window")
        2000000
    """
    if value is None:
        return None
    if isinstance(value, timedelta):
        if time != TIMESTAMP:
            raise BuildError(
                step,
                f"a whole number in the unit of its time ({time})",
                str(value),
                "timedelta fits streams timed by a timestamp column",
            )
        value = round(value.total_seconds() * 1_000_000)
    if type(value) is not int or value < 0:
        raise BuildError(
            step,
            "a non-negative length of time",
            repr(value),
            "give a whole number in the unit of the time column",
        )
    return value
