"""What applications may be asked for: arguments are looked at before anything is built of them.

Whoever writes `--set tickers=0` shall read which numbers there are, not where a division failed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta
from enum import Enum
from numbers import Integral, Real
from typing import Any, NamedTuple, TypeVar

from anabranch.errors import BuildError, Subject


class Usual(Enum):
    """Stands for what is usual where that depends on another argument.

    Example:
        >>> Usual.USUAL
        usual
    """

    USUAL = "usual"

    def __repr__(self) -> str:
        """As errors and signatures show it."""
        return self.value

    __str__ = __repr__


T = TypeVar("T")


def or_usual(value: T | Usual, usual: T) -> T:
    """What was asked for, or else what is usual.

    Example:
        >>> or_usual(7, 4), or_usual(Usual.USUAL, 4)
        (7, 4)
    """
    return usual if isinstance(value, Usual) else value


class Requirement(NamedTuple):
    """A value, whether it will do, and what would."""

    value: Any
    holds: bool
    expected: str


def require(app: str, **arguments: Requirement) -> None:
    """Refuse the first argument that will not do, with its name.

    Example:
        >>> require("finance", tickers=a_count(1000, least=1), lateness=a_duration(timedelta()))
        >>> require("finance", tickers=a_count(0, least=1))
        Traceback (most recent call last):
            ...
        anabranch.errors.BuildError: application 'finance': expected tickers: a whole number \
of at least 1, got 0; choose another value for tickers
    """
    for name, wanted in arguments.items():
        if not wanted.holds:
            raise BuildError(
                Subject("application", app),
                f"{name}: {wanted.expected}",
                repr(wanted.value),
                f"choose another value for {name}",
            )


def a_count(value: Any, least: int, most: int | None = None) -> Requirement:
    """A whole number."""
    fits = _is(value, Integral) and least <= value and (most is None or value <= most)
    bounds = f"of at least {least:,}" if most is None else f"from {least:,} to {most:,}"
    return Requirement(value, fits, f"a whole number {bounds}")


def a_number(value: Any, least: float = -math.inf, *, above: float | None = None) -> Requirement:
    """A number that is not below the least, or is above another one; never NaN."""
    fits = _is(value, Real)
    if above is not None:
        return Requirement(value, fits and value > above, f"a number above {above:g}")
    bound = "" if least == -math.inf else f" of at least {least:g}"
    return Requirement(value, fits and value >= least, f"a number{bound}")


def a_share(value: Any) -> Requirement:
    """A part of a whole.

    Example:
        >>> a_share(2).holds, a_share(0.5).holds
        (False, True)
    """
    fits = _is(value, Real) and 0 <= value <= 1
    return Requirement(value, fits, "a share from 0 to 1")


def a_duration(value: Any, *, above_zero: bool = False) -> Requirement:
    """A length of time."""
    fits = isinstance(value, timedelta)
    if above_zero:
        return Requirement(value, fits and value > timedelta(), "a length of time above 0")
    return Requirement(value, fits and value >= timedelta(), "a length of time of at least 0")


def a_text(value: Any) -> Requirement:
    """A text."""
    return Requirement(value, isinstance(value, str), "a text")


def some_texts(value: Any) -> Requirement:
    """Several texts, at least one."""
    several = isinstance(value, Sequence) and not isinstance(value, str) and len(value) > 0
    fits = several and all(isinstance(each, str) for each in value)
    return Requirement(value, fits, "texts, at least one")


def unless(usual: Any, wanted: Requirement) -> Requirement:
    """What is wanted, or a value that stands for something else, such as None.

    Example:
        >>> unless(None, a_count(None, least=1)).holds
        True
    """
    same = wanted.value is usual or (usual is not None and wanted.value == usual)
    return wanted._replace(holds=wanted.holds or same, expected=f"{wanted.expected}, or {usual}")


def _is(value: Any, kind: type) -> bool:
    """Whether a number is of a kind; NumPy's are, and truth values are no numbers."""
    return isinstance(value, kind) and not isinstance(value, bool)
