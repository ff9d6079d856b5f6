"""Checks of key columns that several operators share."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.errors import About, BuildError
from anabranch.operators.base import key_columns


def required_key(about: About, key: str | Sequence[str] | None) -> tuple[str, ...]:
    """A key as the user wrote it, which must name at least one column."""
    names = key_columns(key, about)
    if not names:
        raise BuildError(
            about, "one or several key columns", repr(key), "name the key: key='column'"
        )
    return names


def is_count(value: object, least: int) -> bool:
    """Whether a value the user gave is a whole number of at least so much."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
