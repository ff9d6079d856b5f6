"""Times and durations: int64 in the unit of the time column, microseconds for timestamps.

Two ranges of timestamps matter. Python's `datetime` has the years 1 to 9999: others can be stored
and compared, but no tuple-style operator or printout can show them. A clock takes the years 2 to
9998, so that a window around any of its times, if not longer than a year, can be shown as well;
`timed` sets all others aside as it does with times that are too far ahead.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.columns.key_words import Ints, Mask
from anabranch.errors import About, BuildError, OperatorError, SchemaError

TIMESTAMP = pa.timestamp("us")
# The bounds of time leave a margin on both sides: a window at the end of time must not overflow.
LAST_TIME = 1 << 62
FIRST_TIME = -LAST_TIME
SHOWABLE_YEARS = (1, 9999)
CLOCK_YEARS = (2, 9998)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000}


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
        column = _microseconds(step, column)
    if pa.types.is_uint64(column.type):
        column = pc.min_element_wise(column, LAST_TIME)  # beyond the end of time, refused below
    times: Ints = column.cast(pa.int64()).to_numpy(zero_copy_only=False).astype(np.int64)
    if len(times) and not FIRST_TIME < times.min() <= times.max() < LAST_TIME:
        raise OperatorError(
            step,
            f"times between {FIRST_TIME} and {LAST_TIME}",
            f"{times.min()} to {times.max()}",
            "give them in a coarser unit",
        )
    return times


def in_microseconds(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Timestamps of any unit in microseconds; nanoseconds are rounded down, also before 1970.

    Raises pa.ArrowInvalid where one has no such number.

    Example:
        >>> in_microseconds(pa.array([-1, 1999], pa.timestamp("ns"))).cast(pa.int64()).to_pylist()
        [-1, 1]
    """
    kind = pa.timestamp("us", column.type.tz)
    if column.type.unit != "ns":
        return column.cast(kind)
    given = column.cast(pa.int64())
    toward_zero = pc.divide(given, 1000)
    too_high = pc.less(given, pc.multiply(toward_zero, 1000))
    return pc.subtract(toward_zero, too_high.cast(pa.int64())).cast(kind)


def _microseconds(step: str, column: pa.Array) -> pa.Array:
    try:
        return in_microseconds(column)
    except pa.ArrowInvalid as error:
        raise OperatorError(
            step,
            "times that a number of microseconds can tell",
            str(error),
            "filter out those that are further than 290,000 years from 1970",
        ) from error


def not_within(years: tuple[int, int], column: pa.Array | pa.ChunkedArray) -> Mask | None:
    """Which timestamps of a column lie outside of some years; None when none does, nulls do not.

    Example:
        >>> seconds = pa.array([0, None, 10**12], pa.timestamp("s"))
        >>> not_within(SHOWABLE_YEARS, seconds).tolist()
        [False, False, True]
    """
    if not pa.types.is_timestamp(column.type) or column.type.unit == "ns":
        return None  # nanoseconds reach no further than the years 1677 to 2262
    per_second, (first, last) = _PER_SECOND[column.type.unit], years
    least = to_time(datetime(first, 1, 1)) // 1_000_000 * per_second
    most = (to_time(datetime(last, 12, 31)) // 1_000_000 + 86_400) * per_second - 1
    ticks = column.cast(pa.int64())
    found = pc.min_max(ticks).as_py()
    if found["min"] is None or least <= found["min"] <= found["max"] <= most:
        return None
    inside = pc.and_(pc.greater_equal(ticks, least), pc.less_equal(ticks, most))
    outside: Mask = pc.invert(inside.fill_null(True)).to_numpy(zero_copy_only=False)
    return outside


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


def duration(
    argument: str, value: int | timedelta | None, time: pa.DataType | None, step: str
) -> int | None:
    """A length of time in the stream's unit.

    Example:
        >>> duration("within", timedelta(seconds=2), TIMESTAMP, "pairs")
        2000000
    """
    if value is None:
        return None
    if isinstance(value, timedelta):
        if time != TIMESTAMP:
            raise BuildError(
                step,
                f"a whole number in {argument}=, in the unit of its time ({time})",
                str(value),
                "timedelta fits streams timed by a timestamp column",
            )
        value //= timedelta(microseconds=1)
    if type(value) is not int or value < 0:
        raise BuildError(
            step,
            f"a non-negative length of time in {argument}=",
            repr(value),
            "give a whole number in the unit of the time column",
        )
    return value


# Times of day somewhere as times in UTC, each by itself, whatever stands before it.

UTC_NAME = "UTC"


def required_zone(about: About, zone: str) -> str:
    """A zone by its IANA name, such as `Europe/Berlin`, if there is one."""
    given: object = zone
    try:
        if not isinstance(given, str):
            raise pa.ArrowInvalid("no text")
        pc.assume_timezone(pa.array([0], TIMESTAMP), given)
    except pa.ArrowInvalid:
        raise BuildError(
            about, "the IANA name of a time zone", repr(given), "give one such as 'Europe/Berlin'"
        ) from None
    return zone


def in_utc(times: Ints, zone: str) -> tuple[Ints, Mask]:
    """Times of a zone in UTC, in microseconds; and which of them do not exist there.

    When clocks are set back, an hour comes twice. Its times are taken as those of the first: which
    one is meant could be told only from the times before, and then batching would show.

    Example:
        >>> from datetime import datetime
        >>> hours = [datetime(2026, 3, 29, 2, 30), datetime(2026, 10, 25, 2, 30)]
        >>> local = np.array(hours, "datetime64[us]").astype(np.int64)
        >>> times, missing = in_utc(local, "Europe/Berlin")
        >>> str(times[1:].view("datetime64[us]")[0]), missing.tolist()
        ('2026-10-25T00:30:00.000000', [True, False])
    """
    if zone == UTC_NAME:
        return times, np.zeros(len(times), np.bool_)
    local = pa.array(times).view(TIMESTAMP)
    before, behind = (
        pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent=side)
        .cast(pa.int64())
        .to_numpy()
        for side in ("earliest", "latest")
    )
    return before, before != behind
