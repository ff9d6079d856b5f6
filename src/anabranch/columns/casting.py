"""Columns of one type as columns of another: each value that fits by itself, and why others do not.

What is taken is what a CSV file with the same values could say: whole numbers of any width, whole
numbers that came as floats (as those with gaps often do), times of any unit, texts. Numbers become
the nearest float; digits of a time below its unit are cut off. No value is changed in any other
way: one that does not fit is no value, and is told.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.columns.key_words import Mask
from anabranch.columns.type_matching import looks_in_csv, no_such_value

_UNITS = {"s": "second", "ms": "millisecond", "us": "microsecond", "ns": "nanosecond"}


def can_fit(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of a type may be of another one.

    Example:
        >>> can_fit(pa.timestamp("ns"), pa.timestamp("us")), can_fit(pa.bool_(), pa.int64())
        (True, False)
    """
    types = pa.types
    if kind == wanted or types.is_null(kind):
        return True
    if types.is_dictionary(kind):
        return can_fit(kind.value_type, wanted)
    if types.is_integer(wanted) or types.is_floating(wanted):
        return _is_number(kind) or _is_text(kind)
    if types.is_timestamp(wanted):
        return types.is_timestamp(kind) or types.is_date(kind) or _is_text(kind)
    if types.is_string(wanted):
        return _is_text(kind) or types.is_binary(kind) or types.is_integer(kind)
    if types.is_list(wanted):
        return _is_list(kind) and can_fit(kind.value_type, wanted.value_type)
    return False


def fit(column: pa.Array, field: pa.Field) -> tuple[pa.Array, dict[int, str]]:
    """A column in the type of a field, null where a value does not fit; and why, by row.

    Example:
        >>> column, why = fit(pa.array([1.0, 1.5, None]), pa.field("n", pa.int32()))
        >>> column.to_pylist(), why
        ([1, None, None], {1: "no int32 in 'n': 1.5"})
    """
    if column.type == field.type:
        return column, {}
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if _is_text(column.type):
        column = column.cast(pa.string())
    if _is_list(column.type):
        made = _fit_lists(column, field)
    else:
        unfit = _surely_unfit(column, field.type)
        kept = pc.if_else(pa.array(unfit), None, column) if unfit.any() else column
        made = _converted(kept, field.type, _conversion(column.type, field.type))
    lost = np.flatnonzero(_mask(pc.and_(made.is_null(), column.is_valid())))
    return made, {row: no_such_value(field, _shown(column[row])) for row in lost.tolist()}


def _fit_lists(column: pa.Array, field: pa.Field) -> pa.Array:
    """Lists of values that fit; a list with one that does not is none."""
    values, unfit = fit(column.flatten(), field.type.value_field)
    missing = _mask(column.is_null()).copy()
    missing[pc.list_parent_indices(column).to_numpy()[list(unfit)]] = True
    lengths = pc.list_value_length(column).fill_null(0).to_numpy()
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    made = pa.ListArray.from_arrays(offsets, values, mask=pa.array(missing))
    return made.cast(field.type)


def _surely_unfit(column: pa.Array, wanted: pa.DataType) -> Mask:
    """Which values cannot fit, found all at once; of the others some still may not."""
    kind = column.type
    if pa.types.is_string(kind):
        return looks_in_csv(pa.chunked_array([column.fill_null("")]), wanted).wrong
    if pa.types.is_integer(wanted) and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        bounds = np.iinfo(wanted.to_pandas_dtype())
        values = column.fill_null(0).to_numpy(zero_copy_only=False)
        if values.dtype.kind == "f":
            floats = values.astype(np.float64)
            # The largest number may be no float; the one behind it is a power of two, and is one.
            inside = (floats >= float(bounds.min)) & (floats < float(bounds.max + 1))
            return np.asarray(~(inside & (floats == np.trunc(floats))))
        return np.asarray((values < bounds.min) | (values > bounds.max))
    if pa.types.is_integer(wanted) and pa.types.is_decimal(kind):
        floats = column.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False)
        return np.asarray(floats != np.trunc(floats))
    return np.zeros(len(column), np.bool_)


Conversion = Callable[[pa.Array], pa.Array]


def _conversion(kind: pa.DataType, wanted: pa.DataType) -> Conversion:
    """How values of one type become those of another; raises pa.ArrowInvalid where one does not."""
    if is_instant(wanted) and pa.types.is_string(kind):
        return lambda values: to_instants(values, wanted)
    if pa.types.is_timestamp(wanted) and pa.types.is_timestamp(kind):
        return lambda values: pc.floor_temporal(values, unit=_UNITS[wanted.unit]).cast(wanted)
    if pa.types.is_floating(wanted) and _is_number(kind):
        return lambda values: _nearest(values, wanted)
    return lambda values: values.cast(wanted)


def _nearest(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    made = values.cast(wanted, safe=False)
    beyond = pc.is_inf(made)
    if pa.types.is_floating(values.type):
        beyond = pc.and_(beyond, pc.is_finite(values))
    return pc.if_else(beyond, pa.scalar(None, wanted), made) if beyond.true_count else made


def _converted(column: pa.Array, wanted: pa.DataType, convert: Conversion) -> pa.Array:
    """All at once; when that fails, in halves, until those that do not fit stand alone."""
    try:
        return convert(column)
    except pa.ArrowInvalid:
        if len(column) == 1:
            return pa.nulls(1, wanted)
    middle = len(column) // 2
    halves = (column.slice(0, middle), column.slice(middle))
    return pa.concat_arrays([_converted(half, wanted, convert) for half in halves])


def _shown(value: pa.Scalar) -> object:
    """A value for people; some times are none for Python."""
    if pa.types.is_decimal(value.type):
        value = value.cast(pa.float64())
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        return value.cast(pa.int64()).as_py()


def _mask(column: pa.Array) -> Mask:
    mask: Mask = column.to_numpy(zero_copy_only=False)
    return mask


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


# Texts that tell a time by ISO 8601, as columns of time.

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
