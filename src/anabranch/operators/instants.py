"""Texts that tell a time by ISO 8601, as columns of time."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
# Behind the time of day; a date by itself ends like a zone.
_ZONED = r"^.{10}[ T].*(?:Z|[+-]\d\d(?::?\d\d)?)$"


def is_instant(kind: pa.DataType) -> bool:
    """Whether a type is a time without a zone, which is taken as UTC."""
    return pa.types.is_timestamp(kind) and kind.tz is None


def to_instants(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Times in UTC, of which some may tell another zone; digits below the unit are cut off.

    Raises pa.ArrowInvalid where one is no time. Whether it is, and which, follows from it alone:
    the first two ways are shortcuts for columns that are all alike.

    Example:
        >>> texts = pa.array(["2024-01-02 09:30:00", "2024-01-02T09:30:00.123456789+02:00"])
        >>> [str(each) for each in to_instants(texts, pa.timestamp("us"))]
        ['2024-01-02 09:30:00', '2024-01-02 07:30:00.123456']
    """
    zoned_kind = pa.timestamp(kind.unit, "UTC")
    for alike in (kind, zoned_kind):
        try:
            return texts.cast(alike).cast(kind)
        except pa.ArrowInvalid:
            continue
    nothing, texts = pa.scalar(None, pa.string()), _cut(texts, kind.unit)
    zoned = pc.match_substring_regex(texts, _ZONED)
    with_zone = pc.if_else(zoned, texts, nothing).cast(zoned_kind)
    without = pc.if_else(zoned, nothing, texts).cast(kind)
    return pc.coalesce(with_zone.cast(kind), without)


def _cut(texts: pa.Array, unit: str) -> pa.Array:
    """The texts without the digits that a unit has no room for."""
    digits = _DIGITS[unit]
    kept, more = (rf"\.\d{{{digits}}}", r"\d+") if digits else ("", r"\.\d+")
    pattern = rf"^(.{{10}}[ T]\d\d:\d\d:\d\d{kept}){more}"
    return pc.replace_substring_regex(texts, pattern, r"\1")
