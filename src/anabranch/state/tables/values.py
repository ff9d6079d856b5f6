"""Value columns of a keyed table: NumPy arrays for fixed-width types, Python objects for others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt


def dtype_of(value_type: pa.DataType) -> np.dtype[Any]:
    """How values of an Arrow type are held; dates, times and durations as their integers."""
    if pt.is_boolean(value_type) or pt.is_integer(value_type) or pt.is_floating(value_type):
        plain: np.dtype[Any] = np.dtype(value_type.to_pandas_dtype())
        return plain
    if pt.is_temporal(value_type) and not pt.is_interval(value_type):
        return np.dtype(np.int32 if value_type.bit_width == 32 else np.int64)
    return np.dtype(object)


def zeros_of(value_type: pa.DataType, size: int) -> npt.NDArray[Any]:
    """A column of zeros, or of None for types held as objects."""
    dtype = dtype_of(value_type)
    return np.full(size, None, dtype) if dtype.hasobject else np.zeros(size, dtype)


def to_arrow(values: npt.NDArray[Any], value_type: pa.DataType) -> pa.Array:
    """An Arrow column of values that were held."""
    if values.dtype.hasobject:
        return pa.array(values.tolist(), type=value_type)
    return pa.array(values).view(value_type) if len(values) else pa.array([], value_type)


def from_arrow(column: pa.Array) -> npt.NDArray[Any]:
    """Values to hold, from an Arrow column; a null of a fixed-width type becomes zero."""
    dtype = dtype_of(column.type)
    if dtype.hasobject:
        return boxed(column.to_pylist())
    if pt.is_temporal(column.type):
        column = column.view(pa.int32() if dtype.itemsize == 4 else pa.int64())
    if column.null_count:
        column = column.fill_null(False if dtype == np.bool_ else 0)
    values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False).astype(dtype, copy=False)
    return values


def boxed(values: Iterable[Any]) -> npt.NDArray[Any]:
    """Python values as a one-dimensional array, whatever sequences they are themselves."""
    listed = list(values)
    column = np.empty(len(listed), object)
    for place, value in enumerate(listed):
        column[place] = value
    return column
