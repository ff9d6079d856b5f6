"""Keys as dictionary keys: NaN, which does not equal itself, is one key like any other."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from anabranch.operators.rows import is_nan


class _NotANumber:
    """Stands for NaN wherever keys are remembered; there is one, also after unpickling."""

    __slots__ = ()

    def __reduce__(self) -> str:
        return "NOT_A_NUMBER"


NOT_A_NUMBER = _NotANumber()


def may_hold_nan(columns: list[pa.DataType]) -> bool:
    """Whether keys of these types need to be told apart with care."""
    return any(pa.types.is_floating(c) for c in columns)


def remembered(key: Any) -> Any:
    """A key as it is remembered.

    Example:
        >>> remembered(float("nan")) is remembered(float("nan"))
        True
        >>> shown(remembered((1.5, float("nan"))))
        (1.5, nan)
    """
    if isinstance(key, tuple):
        return tuple(remembered(part) for part in key)
    return NOT_A_NUMBER if is_nan(key) else key


def shown(key: Any) -> Any:
    """A remembered key as its author knows it."""
    if isinstance(key, tuple):
        return tuple(shown(part) for part in key)
    return float("nan") if key is NOT_A_NUMBER else key
