"""The elastic gate: many sources, many readers, one order (STRETCH §4.1 and §7, on jumbo tuples).

Sources add sorted jumbo tuples and say how far they have come. What all of them have passed is
*ready* and becomes the next entry; every reader sees every entry, in one order. Sources and readers
come and go while others go on.

Deviations from the paper:

- A lock instead of a lock-free skip list: an operation carries thousands of tuples, so nobody waits
  long for it, and the sorting is done outside (`Entry`).
- A dummy tuple is the frontier that an announced source begins with, a flush tuple is the
  disappearance of its frontier; neither needs a place among the tuples.
- Readiness is strict: a tuple is ready when every source has promised to send nothing before or at
  it, so that tuples of one event time are released together.
- `dealt=True` makes a gate whose entries go to one reader each, whichever comes first: for regions
  that keep no state, where any replica will do. Epoch-switch tuples still go to all.
- Sources that run too far ahead are held up (back-pressure), which the paper leaves to the queues
  in front. A source is held up only while somebody else can go on: others that are behind it, or
  readers that have something to read.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable
from threading import Condition, Lock

from anabranch.engines.local.entry import Control, Entry, Piece
from anabranch.engines.local.holding import AsTheyCome, Holding, InOrder
from anabranch.state.positions import START, Jumbo, Root, meet

QUOTA = 4
"""Jumbo tuples of one source that a gate holds before the source has to wait."""

MOST_AHEAD = 1
"""Entries that the fastest reader may be ahead of the slowest: they meet soon at a switch."""


class Closed(Exception):
    """The run is over: whoever uses a gate shall end."""


class ElasticGate:
    """Merges sources into one order that every reader sees.

    Example:
        >>> from anabranch.io import memory
        >>> from anabranch.io.reader import SourceReader
        >>> gate = ElasticGate(ports=1, ordered=True)
        >>> gate.announce_sources(["a", "b"], START)
        >>> gate.announce_readers(["x", "y"])
        >>> for rank, name in enumerate("ab"):
        ...     reader = SourceReader(memory([{"v": f"{name}{i}"} for i in range(3)]), rank)
        ...     gate.add(name, 0, *reader.read(2))
        >>> seen = {reader: gate.next_ready(reader).inputs()[0] for reader in ("x", "y")}
        >>> [jumbo.batch["v"].to_pylist() for jumbo in seen.values()]
        [['a0', 'b0', 'a1', 'b1'], ['a0', 'b0', 'a1', 'b1']]
    """

    def __init__(self, ports: int, *, ordered: bool, dealt: bool = False) -> None:
        """A gate that nobody uses yet."""
        self._dealt = dealt
        self._holding: Holding = InOrder(ports) if ordered else AsTheyCome(ports)
        # Readers and sources wait apart, so that nobody is woken for what is not theirs.
        self._lock = Lock()
        self._for_readers, self._for_sources = Condition(self._lock), Condition(self._lock)
        self._passed: dict[object, Root] = {}
        self._quotas: dict[object, int] = {}
        self._held: Counter[object] = Counter()
        self._frontier = self._released = START
        self._log: deque[Entry] = deque()
        self._first = 0  # number of the log's first entry
        self._next: dict[object, int] = {}  # by reader, the number of the entry it reads next
        self._at_rest: set[object] = set()  # readers that wait for something to read
        self._closed = self._lenient = False
        self.moves = 0  # how often something was added or taken: a standstill shows by it
        self._held_up: Counter[object] = Counter()  # by source, threads that wait for others

    # Sources

    def announce_sources(self, sources: Iterable[object], at: Root, quota: int = QUOTA) -> None:
        """Sources that will add nothing before `at`; nothing beyond it is ready until they do."""
        with self._lock:
            for source in sources:
                self._passed.setdefault(source, at)
                self._quotas[source] = quota
            self._advance(None)

    def remove_sources(self, sources: Iterable[object]) -> None:
        """Sources that add nothing any more: nobody waits for them, what they added stays."""
        with self._lock:
            for source in sources:
                self._passed.pop(source, None)
                self._quotas.pop(source, None)
            self._advance(None)

    def passed(self, source: object) -> Root:
        """How far a source has come."""
        return self._passed[source]

    def add(
        self, source: object, port: int, jumbo: Jumbo | None, frontier: Root, born_s: float = 0.0
    ) -> None:
        """Add tuples and say how far the source has come; waits while it is too far ahead."""
        with self._lock:
            if self._closed:
                raise Closed
            empty = jumbo is None or not (len(jumbo) or jumbo.marks)
            if source not in self._passed or (empty and frontier <= self._passed[source]):
                return  # it was removed, or has nothing to say
            self._passed[source] = max(frontier, self._passed[source])
            if jumbo is None or empty:
                self._advance(None)
            else:
                self._held[source] += 1
                self._advance(Piece(source, jumbo, born_s), port)
            if self._must_wait(source):
                self._held_up[source] += 1
                self._for_sources.wait_for(lambda: self._closed or not self._must_wait(source))
                self._held_up[source] -= 1
            if self._closed:
                raise Closed

    def hold_nobody_up(self, lenient: bool) -> None:
        """While sources read nothing new, what they have read must come in, however far ahead."""
        with self._lock:
            self._lenient = lenient
            self._for_sources.notify_all()

    def relax(self) -> None:
        """Let sources go further ahead: nobody could go on otherwise (see `standstill.py`)."""
        with self._lock:
            self._quotas = {source: 2 * quota for source, quota in self._quotas.items()}
            self._for_sources.notify_all()

    # Readers

    def announce_readers(self, readers: Iterable[object], like: object = None) -> None:
        """Readers that begin where `like` stands, or with what has not been read by all."""
        with self._lock:
            place = self._next[like] if like is not None else self._first
            for reader in readers:
                self._next.setdefault(reader, place)
            self._for_readers.notify_all()

    def remove_readers(self, readers: Iterable[object]) -> None:
        """Readers that read no more: nobody waits for them."""
        with self._lock:
            for reader in readers:
                self._next.pop(reader, None)
            self._trim()

    def next_ready(self, reader: object) -> Entry:
        """The next entry for a reader; waits until there is one.

        An epoch-switch tuple is given again and again, until `switched` says that it is over.
        """
        with self._lock:
            self._at_rest.add(reader)
            self._for_readers.wait_for(lambda: self._closed or self._readable(reader))
            self._at_rest.discard(reader)
            if self._closed:
                raise Closed
            entry = self._log[self._next[reader] - self._first]
            if entry.control is not None:
                entry.control.seen()
                return entry
            self.moves += 1
            if self._dealt:
                self._next = dict.fromkeys(self._next, entry.number + 1)
            else:
                self._next[reader] += 1
            self._trim()
            return entry

    # Checkpoints

    def leftover(self) -> list[Jumbo | None]:
        """What waits on each port and is not ready, for a checkpoint; it stays."""
        with self._lock:
            return self._holding.leftover()

    def preload(self, port: int, jumbo: Jumbo) -> None:
        """Put back what waited when a checkpoint was made."""
        with self._lock:
            self._advance(Piece(None, jumbo, time.monotonic(), last=False), port)

    # Epochs

    def switch(self, control: Control) -> Root:
        """Put an epoch-switch tuple behind what was released; gives its place in the order."""
        with self._lock:
            self._log.append(Entry(self._end, [], self._released, control))
            self._for_readers.notify_all()
            return self._released

    def switched(self, readers: Iterable[object]) -> int:
        """All readers have met the epoch-switch tuple: these ones go on behind it; its number."""
        with self._lock:
            number = next(iter(self._next.values()))
            self._next = dict.fromkeys(readers, number + 1)
            self._trim()
            self._for_readers.notify_all()
            return number

    def nudge(self) -> None:
        """Put an empty entry behind what was released: it wakes a reader that has time to keep."""
        with self._lock:
            if not self._log:
                self._log.append(Entry(self._end, self._holding.nothing(), self._released))
                self._for_readers.notify_all()

    def close(self) -> None:
        """Nobody waits any longer: who uses the gate ends."""
        with self._lock:
            self._closed = True
            self._for_readers.notify_all()
            self._for_sources.notify_all()

    # What others may see

    @property
    def frontier(self) -> Root:
        """What all sources have passed."""
        return self._frontier

    def idle(self) -> bool:
        """Whether every reader waits for something to read; what is not ready may wait, too."""
        with self._lock:
            behind = any(number < self._end for number in self._next.values())
            resting = self._at_rest.issuperset(self._next)
            return resting and not behind and not self._holding.has_news(self._released)

    def held_up(self) -> list[object]:
        """The sources that wait because they are too far ahead."""
        with self._lock:
            return [source for source, threads in self._held_up.items() if threads]

    def lagging(self) -> list[object]:
        """The sources that the others wait for."""
        with self._lock:
            return [source for source, at in self._passed.items() if at == self._frontier]

    def length(self) -> tuple[int, int]:
        """How many jumbo tuples are held, and how many tuples in them."""
        with self._lock:
            pieces = self._holding.held()
            rows = sum(len(p.jumbo) for p in pieces) + sum(entry.rows for entry in self._log)
            return len(pieces) + len(self._log), rows

    # Inside, under the lock

    @property
    def _end(self) -> int:
        return self._first + len(self._log)

    def _advance(self, piece: Piece | None, port: int = 0) -> None:
        if self._passed:
            self._frontier = meet(list(self._passed.values()))
        self._holding.add(port, piece, self._frontier)
        self.moves += 1
        # Of readers that take turns one is enough; it wakes the next if there is more.
        self._for_readers.notify(1 if self._dealt else len(self._next))

    def _must_wait(self, source: object) -> bool:
        if self._lenient or self._held[source] < self._quotas.get(source, QUOTA):
            return False
        others_are_behind = self._frontier < self._passed.get(source, self._frontier)
        return others_are_behind or bool(self._log) or self._holding.has_news(self._released)

    def _readable(self, reader: object) -> bool:
        """Whether there is an entry for a reader; makes one if it can."""
        number = self._next[reader]
        if number < self._end:
            return True
        if not self._dealt and number - min(self._next.values()) >= MOST_AHEAD:
            return False  # the slowest reader has to come nearer first
        if not self._holding.has_news(self._released):
            return False
        pieces, self._released = self._holding.release()
        self._log.append(Entry(number, pieces, self._released))
        if not self._dealt:
            self._for_readers.notify_all()
        return True

    def _trim(self) -> None:
        """Let go of what every reader has taken."""
        slowest = min(self._next.values(), default=self._first)
        while self._first < slowest:
            entry = self._log.popleft()
            self._first += 1
            for piece in (p for port in entry.pieces for p in port):
                self._held[piece.source] -= piece.last
        self._for_sources.notify_all()
        if not self._dealt or self._holding.has_news(self._released):
            self._for_readers.notify(1 if self._dealt else len(self._next))
