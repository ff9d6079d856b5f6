"""What a gate holds until it may be read: in the order of positions, or as it comes.

Both keep to one rule: when pieces are released with a frontier, nothing that stands before that
frontier is released later.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from anabranch.engines.local.entry import Piece, merged
from anabranch.runtime.gate import last_cut, split
from anabranch.state.positions import START, Jumbo, Root

SMALL_ROWS = 4096
"""Pieces are put together until an entry has so many tuples, and not beyond that."""


class Holding(Protocol):
    """Pieces by port, before they are released."""

    def add(self, port: int, piece: Piece | None, frontier: Root) -> None:
        """Hold a piece, if there is one; all sources together have come to `frontier`."""

    def has_news(self, released: Root) -> bool:
        """Whether a release would give pieces, or a frontier beyond what was released."""

    def release(self) -> tuple[list[list[Piece]], Root]:
        """The next pieces by port, and how far the gate has come with them."""

    def held(self) -> list[Piece]:
        """All that is here."""

    def nothing(self) -> list[list[Piece]]:
        """No piece on any port."""

    def leftover(self) -> list[Jumbo | None]:
        """All that is here, by port."""


class InOrder:
    """Releases what all sources have passed."""

    def __init__(self, ports: int) -> None:
        """Nothing held."""
        self._waiting: list[list[Piece]] = [[] for _ in range(ports)]
        self._frontier = START

    def add(self, port: int, piece: Piece | None, frontier: Root) -> None:
        """Hold a piece until its tuples are ready."""
        if piece is not None:
            self._waiting[port].append(piece)
        self._frontier = frontier

    def has_news(self, released: Root) -> bool:
        """A frontier is news by itself: it may set timers off."""
        return self._frontier != released

    def release(self) -> tuple[list[list[Piece]], Root]:
        """What is ready, by port; of much that is ready on one port, the first part."""
        frontier = self._frontier
        ready = [self._take(port, frontier) for port in range(len(self._waiting))]
        if len(ready) == 1:
            first, frontier = _first_part(ready[0], frontier)
            self._waiting[0] = ready[0][len(first) :] + self._waiting[0]
            ready = [first]
        return ready, frontier

    def held(self) -> list[Piece]:
        """All that waits."""
        return [piece for port in self._waiting for piece in port]

    def nothing(self) -> list[list[Piece]]:
        """No piece on any port."""
        return [[] for _ in self._waiting]

    def leftover(self) -> list[Jumbo | None]:
        """All that waits, by port."""
        return [merged([piece.jumbo for piece in port]) for port in self._waiting]

    def _take(self, port: int, frontier: Root) -> list[Piece]:
        ready, rest = [], []
        for piece in self._waiting[port]:
            early, late = _parted(piece.jumbo, frontier)
            if early is not None:
                ready.append(Piece(piece.source, early, piece.born_s, late is None and piece.last))
            if late is not None:
                rest.append(Piece(piece.source, late, piece.born_s, piece.last))
        self._waiting[port] = rest
        return ready


class AsTheyCome:
    """Releases in the order of arrival, for regions that cannot tell the order of tuples."""

    def __init__(self, ports: int) -> None:
        """Nothing held."""
        self._ports = ports
        self._arrived: deque[tuple[int, Piece, Root]] = deque()
        self._frontier = START

    def add(self, port: int, piece: Piece | None, frontier: Root) -> None:
        """Hold a piece, and what was promised when it came."""
        self._frontier = frontier
        if piece is not None:
            self._arrived.append((port, piece, frontier))
        elif self._arrived:
            last_port, last, _ = self._arrived[-1]
            self._arrived[-1] = (last_port, last, frontier)

    def has_news(self, released: Root) -> bool:
        """Whether anything came."""
        return bool(self._arrived) or self._frontier != released

    def release(self) -> tuple[list[list[Piece]], Root]:
        """The next piece; small ones together."""
        pieces = self.nothing()
        rows, frontier = 0, self._frontier
        while self._arrived:
            port, piece, promised = self._arrived[0]
            if rows and rows + len(piece.jumbo) > SMALL_ROWS:
                break
            self._arrived.popleft()
            pieces[port].append(piece)
            rows += len(piece.jumbo)
            frontier = promised
        return pieces, frontier

    def held(self) -> list[Piece]:
        """All that waits."""
        return [piece for _, piece, _ in self._arrived]

    def nothing(self) -> list[list[Piece]]:
        """No piece on any port."""
        return [[] for _ in range(self._ports)]

    def leftover(self) -> list[Jumbo | None]:
        """All that waits, by port."""
        pieces = self.nothing()
        for port, piece, _ in self._arrived:
            pieces[port].append(piece)
        return [merged([piece.jumbo for piece in port]) for port in pieces]


def _parted(jumbo: Jumbo, frontier: Root) -> tuple[Jumbo | None, Jumbo | None]:
    """What stands before a frontier, and what does not; mostly that is all or nothing."""
    if not jumbo.marks:
        if _root(jumbo, -1) < frontier:
            return jumbo, None
        if _root(jumbo, 0) >= frontier:
            return None, jumbo
    return split(jumbo, frontier)


def _root(jumbo: Jumbo, row: int) -> tuple[int, ...]:
    return tuple(int(column[row]) for column in jumbo.positions.columns[:4])


def _first_part(pieces: list[Piece], frontier: Root) -> tuple[list[Piece], Root]:
    """So many pieces as make a good entry, and how far they go; cut between two timestamps."""
    if len(pieces) < 2 or any(piece.jumbo.marks for piece in pieces):
        return pieces, frontier  # marks stand between tuples, and are rare
    pieces.sort(key=lambda piece: _root(piece.jumbo, 0))
    rows, last = 0, _root(pieces[0].jumbo, 0)[0]
    for count, piece in enumerate(pieces):
        first = _root(piece.jumbo, 0)[0]
        if rows >= SMALL_ROWS and last < first <= last_cut(frontier):
            return pieces[:count], Root(first, *START[1:])
        rows += len(piece.jumbo)
        last = max(last, _root(piece.jumbo, -1)[0])
    return pieces, frontier
