"""When which key must be looked at: heaps of times, with entries that may be out of date.

Each bucket has a heap of its own, so that it moves to another replica by reference; a small heap
over the buckets says which of them is next.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection
from itertools import count
from typing import Any, NamedTuple


class Wake(NamedTuple):
    """A key to be looked at; keys of one order may be of any type, so they are never compared."""

    time: int
    order: tuple[int, int]
    ticket: int
    bucket: int
    key: Any


_tickets = count()  # of all replicas, since entries of one bucket may be of several


class Wakes:
    """Keys by the time at which something is due.

    Example:
        >>> wakes = Wakes()
        >>> wakes.note(5, (0, 0), 1, "b")
        >>> wakes.note(3, (0, 0), 2, "a")
        >>> wakes.pop(upto=4).key
        'a'
        >>> wakes.pop(upto=4) is None
        True
        >>> other = Wakes()
        >>> other.absorb(wakes.release([1]))
        >>> (wakes.first(), other.first().key)
        (None, 'b')
    """

    def __init__(self) -> None:
        """Nothing is due."""
        self._heaps: dict[int, list[Wake]] = {}
        # What was at the head of a bucket's heap at some time, and still is if the heap says so.
        self._heads: list[tuple[int, tuple[int, int], int]] = []

    def note(self, time: int, order: tuple[int, int], bucket: int, key: Any) -> None:
        """Look at a key at a time."""
        wake = Wake(time, order, next(_tickets), bucket, key)
        heap = self._heaps.setdefault(bucket, [])
        heapq.heappush(heap, wake)
        if heap[0] is wake:
            heapq.heappush(self._heads, (time, order, bucket))

    def first(self) -> Wake | None:
        """The earliest entry, which stays."""
        while self._heads:
            time, order, bucket = self._heads[0]
            heap = self._heaps.get(bucket)
            if heap and heap[0].time == time and heap[0].order == order:
                return heap[0]
            heapq.heappop(self._heads)
        return None

    def pop(self, upto: int) -> Wake | None:
        """The earliest entry if it is due by a time."""
        wake = self.first()
        if wake is None or wake.time > upto:
            return None
        heap = self._heaps[wake.bucket]
        heapq.heappop(heap)
        if heap:
            heapq.heapreplace(self._heads, (heap[0].time, heap[0].order, wake.bucket))
        else:
            heapq.heappop(self._heads)
            del self._heaps[wake.bucket]
        return wake

    def clear(self) -> None:
        """Forget all."""
        self._heaps.clear()
        self._heads.clear()

    def release(self, buckets: Collection[int]) -> dict[int, list[Wake]]:
        """Give up the entries of buckets, by reference."""
        return {b: self._heaps.pop(b) for b in buckets if b in self._heaps}

    def absorb(self, heaps: dict[int, list[Wake]]) -> None:
        """Take over what another replica released; costs the number of buckets."""
        for bucket, heap in heaps.items():
            self._heaps[bucket] = heap
            heapq.heappush(self._heads, (heap[0].time, heap[0].order, bucket))
