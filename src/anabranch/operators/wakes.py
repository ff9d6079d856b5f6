"""When which key must be looked at: a heap of times, with entries that may be out of date."""

from __future__ import annotations

import heapq
from typing import Any, NamedTuple


class Wake(NamedTuple):
    """A key to be looked at; keys of one order may be of any type, so they are never compared."""

    time: int
    order: tuple[int, int]
    ticket: int
    bucket: int
    key: Any


class Wakes:
    """Keys by the time at which something is due.

    Example:
        >>> wakes = Wakes()
        >>> wakes.note(5, (0, 0), 1, "b")
        >>> wakes.note(3, (0, 0), 1, "a")
        >>> wakes.pop(upto=4).key
        'a'
        >>> wakes.pop(upto=4) is None
        True
    """

    def __init__(self) -> None:
        """Nothing is due."""
        self._heap: list[Wake] = []
        self._ticket = 0

    def note(self, time: int, order: tuple[int, int], bucket: int, key: Any) -> None:
        """Look at a key at a time."""
        self._ticket += 1
        heapq.heappush(self._heap, Wake(time, order, self._ticket, bucket, key))

    def first(self) -> Wake | None:
        """The earliest entry, which stays."""
        return self._heap[0] if self._heap else None

    def pop(self, upto: int) -> Wake | None:
        """The earliest entry if it is due by a time."""
        return heapq.heappop(self._heap) if self._heap and self._heap[0].time <= upto else None

    def clear(self) -> None:
        """Forget all."""
        self._heap.clear()
