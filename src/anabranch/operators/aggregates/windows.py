"""Windows: what divides the stream of a key into pieces that are aggregated one by one.

A window in time holds the tuples of [start, end), by event time. It leaves when the stream has
passed its end, before the tuples of that time; at the end of the stream all leave, each at its own
end. A window without tuples leaves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import pyarrow as pa

from anabranch.columns.times import duration
from anabranch.errors import BuildError
from anabranch.operators.base import flag_of
from anabranch.state.positions import Ints

WINDOW_START = "window_start"
WINDOW_END = "window_end"


class Window:
    """How a stream is divided; subclasses are values.

    Attributes:
        timed: Whether windows have a start and an end in event time.
    """

    timed = True

    def check(self, step: str, time: pa.DataType | None) -> None:
        """Raise when the lengths do not fit the stream's time."""


@dataclass(frozen=True)
class TimeWindow(Window):
    """Windows of one size that start at every multiple of `slide`, shifted by `offset`."""

    size: int | timedelta
    slide: int | timedelta
    offset: int | timedelta = 0

    def check(self, step: str, time: pa.DataType | None) -> None:
        """Sizes must be positive."""
        self.spans(step, time)

    def spans(self, step: str, time: pa.DataType | None) -> Spans:
        """The same in the stream's unit of time."""
        return Spans(
            positive(step, "size", self.size, time),
            positive(step, "slide", self.slide, time),
            _shift(step, self.offset, time),
        )


@dataclass(frozen=True)
class Spans:
    """Windows [start, start + size) for every start = offset + k · slide, in units of time.

    Example:
        >>> hour, half = 60, 30
        >>> [s.tolist() for _, s in Spans(hour, half, 0).assign(np.array([-1, 0, 45]))]
        [[-30, 0, 30], [-60, -30, 0]]
    """

    size: int
    slide: int
    offset: int

    def assign(self, times: Ints) -> Iterator[tuple[Ints | None, Ints]]:
        """Rows (None for all) and the window start of each, one window per row at a time.

        The latest window of each row comes first, so that the tuples of a window come in order:
        those that reach it in a later round have a later time.
        """
        latest = (times - self.offset) // self.slide * self.slide + self.offset
        for back in range(-(-self.size // self.slide)):
            starts = latest - back * self.slide
            inside = times - starts < self.size
            if inside.all():
                yield None, starts
            elif inside.any():
                rows = np.flatnonzero(inside)
                yield rows, starts[rows]


@dataclass(frozen=True)
class Session(Window):
    """Tuples of a key with less than `gap` between each and the next."""

    gap: int | timedelta

    def check(self, step: str, time: pa.DataType | None) -> None:
        """The gap must be positive."""
        self.length(step, time)

    def length(self, step: str, time: pa.DataType | None) -> int:
        """The gap in the stream's unit of time."""
        return positive(step, "gap", self.gap, time)


@dataclass(frozen=True)
class CountWindow(Window):
    """Every `count` tuples of a key."""

    count: int
    partial: bool = False

    timed = False

    def check(self, step: str, time: pa.DataType | None) -> None:
        """The count must be positive."""
        given: object = self.count
        if isinstance(given, bool) or not isinstance(given, int) or given < 1:
            raise BuildError(
                step, "a window of at least one tuple", repr(self.count), "give a whole number ≥ 1"
            )
        flag_of(step, "partial", self.partial)


def positive(step: str, what: str, value: int | timedelta, time: pa.DataType | None) -> int:
    """A length of time that is not zero."""
    length = duration(what, value, time, step)
    if not length:
        raise BuildError(
            step, f"a window {what} above zero", repr(value), "give a positive length of time"
        )
    return length


def _shift(step: str, value: int | timedelta, time: pa.DataType | None) -> int:
    """A length of time that may also be negative."""
    if isinstance(value, timedelta):
        backward = value < timedelta(0)
    else:
        backward = type(value) is int and value < 0
    length = duration("offset", -value if backward else value, time, step) or 0
    return -length if backward else length


def tumbling(size: int | timedelta, offset: int | timedelta = 0) -> TimeWindow:
    """Windows of one size, one after another, starting at multiples of it shifted by `offset`.

    Example:
        >>> tumbling(60).spans("step", pa.int64())
        Spans(size=60, slide=60, offset=0)
    """
    return TimeWindow(size, size, offset)


def sliding(
    size: int | timedelta, slide: int | timedelta, offset: int | timedelta = 0
) -> TimeWindow:
    """Windows of one size that start every `slide`; they overlap when slide < size."""
    return TimeWindow(size, slide, offset)


def session(gap: int | timedelta) -> Session:
    """Windows that close when a key was silent for `gap`."""
    return Session(gap)


def count_window(count: int, *, partial: bool = False) -> CountWindow:
    """Windows of `count` tuples of a key; `partial` lets incomplete ones leave at the end."""
    return CountWindow(count, partial)
