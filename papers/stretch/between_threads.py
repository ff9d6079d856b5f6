"""Queues and gates between the threads of figures 4 and 5, which compare ways to share memory.

STRETCH's threads read one gate together (§6.1). The local engine has no such gate: there, every
unit merges its input by itself, and tuples go by reference within a process and through shared
memory to another one. Measuring the paper's gate takes threads in one process, so its gate is here.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from threading import Condition
from typing import Generic, NamedTuple, TypeVar

from anabranch.runtime.gate import Gate, Release
from anabranch.runtime.messages import Chunk
from anabranch.state.positions import Jumbo, Root

Item = TypeVar("Item")

QUOTA = 4
"""Jumbo tuples of one source that a gate holds before the source has to wait."""
MOST_AHEAD = 1
"""Releases that the fastest reader may be ahead of the slowest."""
SMALL_ROWS = 4096
"""Jumbo tuples are put together until a release has so many tuples."""


class Closed(Exception):
    """The run is over: every thread that uses the gate or queue must end."""


class BoundedQueue(Generic[Item]):
    """Carries items from several threads to one, which chooses the sender whose item it takes next.

    Each sender has a bound of its own, so that none of them can run ahead of the others.

    Example:
        >>> queue = BoundedQueue(senders=2, length=4)
        >>> queue.put(1, "a")
        >>> queue.take(1)
        'a'
    """

    def __init__(self, senders: int, length: int) -> None:
        self._length = length
        self._change = Condition()
        self._items: list[deque[Item]] = [deque() for _ in range(senders)]
        self._closed = False

    def put(self, sender: int, item: Item) -> None:
        """Add an item; waits while as many of this sender wait as may."""
        items = self._items[sender]
        with self._change:
            self._change.wait_for(lambda: self._closed or len(items) < self._length)
            if self._closed:
                raise Closed
            items.append(item)
            self._change.notify_all()

    def take(self, sender: int) -> Item:
        """Return the next item of a sender; waits until there is one."""
        items = self._items[sender]
        with self._change:
            self._change.wait_for(lambda: self._closed or bool(items))
            if self._closed:
                raise Closed
            item = items.popleft()
            self._change.notify_all()
            return item

    def close(self) -> None:
        """Let all waiting threads end."""
        with self._change:
            self._closed = True
            self._change.notify_all()


class _Added(NamedTuple):
    """A delivery that no reader has put into the gate yet."""

    source: int
    jumbo: Jumbo | None
    frontier: Root
    born_s: float

    @property
    def is_held(self) -> bool:
        """Whether it counts as held, and its age as a latency: a frontier alone does not."""
        return self.jumbo is not None and bool(len(self.jumbo) or self.jumbo.marks)


class SharedGate:
    """Merges several sources into one order that every reader gets, by reference.

    Sources only queue what they add. The first reader that needs the next release merges it,
    outside of the lock; the others get the same objects.

    Args:
        ports: By source, the port that its tuples go to.
        readers: How many threads read.

    Example:
        >>> from anabranch.io import memory
        >>> from anabranch.io.reader import SourceReader
        >>> gate = SharedGate(ports=(0, 0), readers=2)
        >>> for rank, name in enumerate("ab"):
        ...     reader = SourceReader(memory([{"v": f"{name}{i}"} for i in range(3)]), rank)
        ...     gate.add(rank, *reader.read(2), born_s=0.0)
        >>> [gate.take(reader).inputs[0].batch["v"].to_pylist() for reader in (0, 1)]
        [['a0', 'b0', 'a1', 'b1'], ['a0', 'b0', 'a1', 'b1']]
    """

    def __init__(self, ports: Sequence[int], readers: int) -> None:
        self._ports = ports
        self._gate = Gate(max(ports) + 1)
        for source in range(len(ports)):
            self._gate.open(source)
        self._change = Condition()
        self._added: deque[_Added] = deque()
        self._held: Counter[int] = Counter()  # by source, jumbo tuples that not all have read
        self._releases: deque[Release] = deque()
        self._first = 0  # number of the first of the releases
        self._next = [0] * readers  # by reader, the number of the release that it takes next
        self._merging = self._closed = False

    def add(self, source: int, jumbo: Jumbo | None, frontier: Root, born_s: float) -> None:
        """Add tuples and the frontier of a source; waits while too much of it is held."""
        added = _Added(source, jumbo, frontier, born_s)
        with self._change:
            self._held[source] += added.is_held
            self._added.append(added)
            self._change.notify_all()
            self._change.wait_for(lambda: self._closed or self._held[source] < QUOTA)
            if self._closed:
                raise Closed

    def take(self, reader: int) -> Release:
        """Return the next release for a reader; waits until there is one."""
        while True:
            with self._change:
                self._change.wait_for(
                    lambda: self._closed or self._released(reader) or self._may_merge(reader)
                )
                if self._closed:
                    raise Closed
                if self._released(reader):
                    return self._taken(reader)
                self._merging = True
                added, self._added = self._added, deque()
            self._merge(added)

    def close(self) -> None:
        """Let all waiting threads end."""
        with self._change:
            self._closed = True
            self._change.notify_all()

    def _merge(self, added: deque[_Added]) -> None:
        """Put deliveries into the gate and append what is ready; one thread at a time does so."""
        for each in added:
            port, origin = self._ports[each.source], Chunk("", each.source)
            chunks = frozenset({origin} if each.is_held else ())
            self._gate.add(each.source, port, each.jumbo, each.frontier, each.born_s, chunks)
        release = self._gate.take(most_rows=SMALL_ROWS) if self._gate.has_news() else None
        with self._change:
            if release is not None:
                self._releases.append(release)
            self._merging = False
            self._change.notify_all()

    def _released(self, reader: int) -> bool:
        return self._next[reader] < self._first + len(self._releases)

    def _may_merge(self, reader: int) -> bool:
        ahead = self._next[reader] - min(self._next)
        if self._merging or ahead >= MOST_AHEAD:
            return False
        return bool(self._added) or self._gate.has_news()

    def _taken(self, reader: int) -> Release:
        release = self._releases[self._next[reader] - self._first]
        self._next[reader] += 1
        while self._first < min(self._next):
            for chunks in self._releases.popleft().chunks:
                self._held.subtract(chunk.number for chunk in chunks)
            self._first += 1
        self._change.notify_all()
        return release
