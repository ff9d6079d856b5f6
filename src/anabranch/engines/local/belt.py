"""A belt between two pipelines of one replica: a bounded queue that can be closed."""

from __future__ import annotations

from collections import deque
from threading import Condition
from typing import Generic, TypeVar

from anabranch.engines.local.gate import Closed

Item = TypeVar("Item")

LENGTH = 4


class Belt(Generic[Item]):
    """Carries items from one thread to the next.

    Example:
        >>> belt = Belt()
        >>> belt.put("a")
        >>> belt.take()
        'a'
    """

    def __init__(self, length: int = LENGTH) -> None:
        """An empty belt that holds so many items."""
        self._length = length
        self._change = Condition()
        self._items: deque[Item] = deque()
        self._closed = self._taking = False

    def put(self, item: Item) -> None:
        """Add an item; waits while the belt is full."""
        with self._change:
            self._change.wait_for(lambda: self._closed or len(self._items) < self._length)
            if self._closed:
                raise Closed
            self._items.append(item)
            self._change.notify_all()

    def take(self) -> Item:
        """The next item; waits until there is one."""
        with self._change:
            self._taking = True
            self._change.wait_for(lambda: self._closed or bool(self._items))
            self._taking = False
            if self._closed:
                raise Closed
            item = self._items.popleft()
            self._change.notify_all()
            return item

    def __len__(self) -> int:
        """How many items lie on it."""
        return len(self._items)

    def idle(self) -> bool:
        """Whether it is empty and somebody waits at its end."""
        with self._change:
            return self._taking and not self._items

    def close(self) -> None:
        """Nobody waits any longer: both ends of the belt end."""
        with self._change:
            self._closed = True
            self._change.notify_all()
