"""Python values as columns, none of them cut to fit.

Arrow refuses most values that are not of a column's type, but takes 1.9 for 1 in a column of whole
numbers, or of times, which are whole numbers too. Such a value is refused here, as Arrow refuses it
in an array: 1.0 may be 1, and no other value is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from numbers import Integral, Number
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from anabranch.errors import OperatorError

_NO_ARRAY = (
    pa.ArrowInvalid,
    pa.ArrowTypeError,
    pa.ArrowNotImplementedError,
    TypeError,
    OverflowError,
)


def exact_array(step: str, field: pa.Field, values: Any) -> pa.Array:
    """What an author gave for a column, as that column; NaN is a value and no null.

    Example:
        >>> exact_array("count", pa.field("n", pa.int64()), [1, 2.0, None]).to_pylist()
        [1, 2, None]
        >>> try:
        ...     exact_array("count", pa.field("n", pa.int64()), [1, 2.5])
        ... except OperatorError as error:
        ...     print(error)
        step 'count': expected column 'n' of type int64, got 2.5; round it, or declare n: double \
in out=
    """
    if isinstance(values, Iterable) and not (
        isinstance(values, Sequence) or hasattr(values, "dtype")
    ):
        values = list(values)  # what can be read only once is read here
    try:
        made = pa.array(values, type=field.type, from_pandas=False)
    except _NO_ARRAY as error:
        raise _refused(step, field, _misfit(values, field.type, error)) from error
    cut = first_cut(values, field.type)
    if cut is not None:
        raise _refused(step, field, repr(cut), "round it, or declare {name}: double in out=")
    return made


def first_cut(values: Any, kind: pa.DataType) -> Any | None:
    """The first of values, which Arrow takes for a type, that it cuts; None if there is none.

    Example:
        >>> first_cut([[1, 2.0], [0.5]], pa.list_(pa.int32()))
        0.5
    """
    if hasattr(values, "dtype"):
        if values.dtype != object:
            return None  # Arrow casts those, and refuses to cut
        values = values.tolist()
    if pt.is_integer(kind):
        return None if _is_of_ints(values) else _first_with_digits(values)
    if pt.is_temporal(kind):
        return _first_with_digits(values)
    parts: list[tuple[Any, pa.DataType]] = []
    if pt.is_nested(kind):
        parts = _parts([value for value in values if value is not None], kind)
    found = (first_cut(part, part_kind) for part, part_kind in parts)
    return next((cut for cut in found if cut is not None), None)


def _is_of_ints(values: Sequence[Any]) -> bool:
    """Whether all are Python's whole numbers, told by their sum: several times faster than types.

    The sum of whole numbers is one; what is added to a float, a Decimal or a NumPy scalar is none
    any more.
    """
    try:
        with np.errstate(over="ignore"):
            return type(sum(values)) is int
    except TypeError:
        return False


def _first_with_digits(values: Sequence[Any]) -> Any | None:
    """The first number that is not whole; NumPy's booleans are no numbers, as Python's are none."""
    doubtful = {
        kind
        for kind in set(map(type, values))
        if kind is np.bool_ or (issubclass(kind, Number) and not issubclass(kind, Integral))
    }
    if not doubtful:
        return None
    numbers = (value for value in values if type(value) in doubtful)
    return next((v for v in numbers if isinstance(v, np.bool_) or v != int(v)), None)


def _parts(values: list[Any], kind: pa.DataType) -> list[tuple[Any, pa.DataType]]:
    """What values of a nested type are made of, with the types of that."""
    if pt.is_struct(kind):
        rows = [dict(value) for value in values]
        return [([row.get(field.name) for row in rows], field.type) for field in kind]
    if pt.is_map(kind):
        pairs = [pair for value in values for pair in dict(value).items()]
        keys, items = [key for key, _ in pairs], [item for _, item in pairs]
        return [(keys, kind.key_type), (items, kind.item_type)]
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return [(list(chain.from_iterable(values)), kind.value_type)]
    return []


def _misfit(values: Any, kind: pa.DataType, error: Exception) -> str:
    """The first value that is not of a type, and why; or why there are no values."""
    for value in values if isinstance(values, Sequence) else ():
        try:
            pa.array([value], type=kind, from_pandas=False)
        except _NO_ARRAY as own:
            return f"{value!r} ({own})" if repr(value) not in str(own) else str(own)
    return str(error)


def _refused(
    step: str,
    field: pa.Field,
    got: str,
    remedy: str = "give values of the declared type, or declare another one for {name} in out=",
) -> OperatorError:
    expected = f"column {field.name!r} of type {field.type}"
    return OperatorError(step, expected, got, remedy.format(name=field.name))
