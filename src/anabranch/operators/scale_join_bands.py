"""Bands: conditions that two numbers are at most so far apart, which can be looked up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.errors import BuildError, SchemaError, Subject
from anabranch.operators.schemas import columns_of

_WIDEST = 1 << 53  # whole numbers up to here are the same as doubles
_LOWEST, _HIGHEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_ROUNDING = 4 * np.finfo(np.float64).eps

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[Any]


@dataclass(frozen=True)
class Band:
    """A condition: the left and the right number are at most `within` apart."""

    left: str
    right: str
    within: float


def band(left: str, right: str, within: float) -> Band:
    """The condition that two numbers of a pair are at most so far apart, both ends included.

    Null, NaN and the infinities are near nothing. Whole numbers are compared exactly, others as
    doubles.

    Args:
        left: A column of the left side.
        right: A column of the right side.
        within: How far apart they may be.

    Example:
        >>> band("x", "a", 10)
        Band(left='x', right='a', within=10)
    """
    if not _is_number(within) or not 0 <= within <= _WIDEST:
        raise BuildError(
            Subject("argument", "within"),
            "a width from 0 to 2**53",
            repr(within),
            "say how far apart the two may be",
        )
    return Band(left, right, within)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_band(step: str, given: Band, left: pa.Schema, right: pa.Schema) -> None:
    """Raise unless a band is of numbers that both sides have."""
    for name, side in ((given.left, left), (given.right, right)):
        columns_of(step, (name,), side)
        kind = side.field(name).type
        whole = pa.types.is_integer(kind) and not pa.types.is_uint64(kind)
        if not whole and not pa.types.is_floating(kind):
            raise SchemaError(
                step,
                f"column {name!r} of numbers, whole ones of at most 64 bits with a sign",
                str(kind),
                "cast it, or write the condition as a function",
            )


@dataclass(frozen=True)
class BandCheck:
    """A band over columns of known types.

    Attributes:
        names: The column of the left side and that of the right.
        within: How far apart the two may be.
        exact: Whether both are whole numbers; otherwise they are compared as doubles.
    """

    names: tuple[str, str]
    within: float
    exact: bool

    @staticmethod
    def of(given: Band, schemas: tuple[pa.Schema, pa.Schema]) -> BandCheck:
        """The check of a band, which fits these columns."""
        names = (given.left, given.right)
        kinds = [side.field(name).type for name, side in zip(names, schemas, strict=True)]
        exact = all(pa.types.is_integer(kind) for kind in kinds)
        return BandCheck(names, int(given.within) if exact else float(given.within), exact)

    def numbers(self, batch: pa.RecordBatch, port: int) -> tuple[Numbers, Mask]:
        """The column of one side, and which of its values can be near any."""
        column = batch.column(self.names[port])
        if not self.exact:
            values = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
            return values, np.isfinite(values)  # null became NaN
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        return column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64), valid

    def bounds(self, values: Numbers) -> tuple[Numbers, Numbers]:
        """From where to where numbers are near these; doubles a little beyond, for rounding."""
        if self.exact:
            low = np.where(values < _LOWEST + self.within, _LOWEST, values - self.within)
            high = np.where(values > _HIGHEST - self.within, _HIGHEST, values + self.within)
            return low, high
        with np.errstate(over="ignore"):  # infinity is a bound, too
            reach = self.within + _ROUNDING * (np.abs(values) + self.within)
            return values - reach, values + reach

    def near(self, mine: Numbers, theirs: Numbers) -> Mask:
        """Whether numbers are near each other, pair by pair."""
        if self.exact:
            low, high = self.bounds(mine)
            return (low <= theirs) & (theirs <= high)
        with np.errstate(over="ignore"):
            near: Mask = np.abs(mine - theirs) <= self.within
        return near


def usable_rows(columns: Sequence[tuple[Numbers, Mask]]) -> Mask:
    """Rows whose numbers can all be near others."""
    usable: Mask = np.logical_and.reduce([mask for _, mask in columns])
    return usable
