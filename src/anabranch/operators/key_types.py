"""Checks of key columns that several operators share."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from anabranch.errors import BuildError, SchemaError
from anabranch.operators.base import key_columns
from anabranch.operators.schemas import columns_of
from anabranch.state.key_words import SUPPORTED, kind_of


def required_key(step: str, key: str | Sequence[str] | None) -> tuple[str, ...]:
    """A key as the user wrote it, which must name at least one column."""
    names = key_columns(key, step)
    if not names or not all(isinstance(name, str) for name in names):
        raise BuildError(
            step, "one or several key columns", repr(key), "name the key: key='column'"
        )
    return names


def is_count(value: object, least: int) -> bool:
    """Whether a value the user gave is a whole number of at least so much."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def check_key_types(step: str, key: Sequence[str], given: pa.Schema) -> None:
    """Key columns must exist and be of a type whose values can be hashed and compared."""
    columns_of(step, tuple(key), given)
    for name in key:
        try:
            kind_of(given.field(name).type)
        except TypeError:
            raise SchemaError(
                step,
                f"key {name!r} of a type among: {SUPPORTED}",
                str(given.field(name).type),
                "cast the column",
            ) from None
