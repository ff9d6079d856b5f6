"""The gate: merges what several links deliver into one sequential order.

Each link reports how far it has come (its frontier). A tuple is *ready* when every link has passed
it (STRETCH §2); ready tuples leave in the order of positions, the others wait. A link may deliver
out of order between two frontiers; the gate sorts what it releases.

A region that cannot tell the order of its input (`ordered=False`) waits for nothing: it gets what
is there, each release sorted, though a later one may hold earlier tuples. Upstream of a clock with
several replicas, each delivery is released by itself (`in_slices`): it is a run of one source's
rows, and several together need not be.

STRETCH's elastic gate has six operations (§6.1). `add` and `take` are two of them; `open` announces
a source and a new gate of the next epoch leaves sources out. Deviation: every reader has a gate of
its own, so readers are added and removed with their gates, and nobody shares one between processes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from anabranch.runtime.messages import Chunks
from anabranch.state.positions import FIRST, LAST, START, Jumbo, Mark, Root, is_end, meet

GOOD_ROWS = 32_768
"""Pieces are put together until a release has so many tuples, where they allow a cut."""


class Piece(NamedTuple):
    """A delivered jumbo tuple, or the part of one that still waits.

    Attributes:
        jumbo: The tuples.
        born_s: When the oldest of them was read; None where nobody says.
        chunks: The claims that they stem from.
        promised: How far all links had come when it was delivered.
        whole: Whether no part of the delivery comes after this one.
    """

    jumbo: Jumbo
    born_s: float | None = None
    chunks: Chunks = frozenset()
    promised: Root = START
    whole: bool = True


class Completion(NamedTuple):
    """A frontier that completes what was delivered before, and the claims that moved it."""

    frontier: Root
    born_s: float | None
    chunks: Chunks


class Release(NamedTuple):
    """What a gate releases at once.

    Attributes:
        inputs: By port, the tuples in sequential order; None where there are none.
        frontier: How far the gate has come with them.
        born_s: When the oldest of the tuples was read; None without tuples.
        chunks: For each delivery that was released to its end, the claims that it stems from.
        completing: The claims among them that moved a frontier past tuples delivered before.
    """

    inputs: list[Jumbo | None]
    frontier: Root
    born_s: float | None
    chunks: list[Chunks]
    completing: Chunks = frozenset()


class Gate:
    """Merges links of one or several input ports."""

    def __init__(self, ports: int, *, ordered: bool = True, in_slices: bool = False) -> None:
        """A gate without links."""
        self._ordered, self._in_slices = ordered, in_slices
        self._waiting: list[list[Piece]] = [[] for _ in range(ports)]
        self._arrived: deque[int] = deque()  # ports in the order of arrival, where that counts
        self._passed: dict[Hashable, Root] = {}
        self._completions: list[Completion] = []
        self._frontier = self._released = START

    def open(self, link: Hashable) -> None:
        """Announce a link; nothing is ready before it has delivered."""
        self._passed[link] = START
        self._frontier = START

    def add(
        self,
        link: Hashable,
        port: int,
        jumbo: Jumbo | None,
        frontier: Root,
        born_s: float | None = None,
        chunks: Chunks = frozenset(),
    ) -> None:
        """Take a delivery; `frontier` is how far the link has come with it."""
        self._passed[link] = frontier
        self._frontier = meet(list(self._passed.values()))
        if jumbo is not None and (len(jumbo) or jumbo.marks):
            self._hold(port, Piece(jumbo, born_s, chunks, self._frontier))
        elif not self._ordered and self._arrived:
            last = self._waiting[self._arrived[-1]]
            last[-1] = last[-1]._replace(promised=self._frontier)
        if jumbo is None and chunks:
            self._completions.append(Completion(frontier, born_s, chunks))

    def preload(self, port: int, jumbo: Jumbo) -> None:
        """Put back what a gate of an earlier epoch could not release."""
        self._hold(port, Piece(jumbo))

    def _hold(self, port: int, piece: Piece) -> None:
        self._waiting[port].append(piece._replace(jumbo=piece.jumbo.in_order()))
        if not self._ordered:
            self._arrived.append(port)

    @property
    def frontier(self) -> Root:
        """What all links have passed."""
        return self._frontier

    @property
    def released(self) -> Root:
        """How far the gate has come with what it has released."""
        return self._released

    def has_news(self) -> bool:
        """Whether a release would give tuples or a new frontier."""
        return self._frontier != self._released or (not self._ordered and bool(self._arrived))

    def length(self) -> tuple[int, int]:
        """How many deliveries wait, and how many tuples."""
        pieces = [piece for port in self._waiting for piece in port]
        return len(pieces), sum(len(piece.jumbo) for piece in pieces)

    def candidates(self) -> list[Root]:
        """Roots of ready tuples: the positions at which a release may be cut."""
        bound = self.frontier
        roots = {
            Root(*row[:4])
            for pieces in self._waiting
            for piece in pieces
            for row in piece.jumbo.positions.rows()
        }
        last = last_cut(bound)
        return sorted(r for r in roots if self._released < r < bound and r.time <= last)

    def ready(self, upto: Root | None = None) -> tuple[list[Jumbo | None], Root]:
        """Release per port what is ready (or ready and before `upto`), and the frontier reached."""
        release = self._released_upto(self.frontier if upto is None else min(upto, self.frontier))
        return release.inputs, release.frontier

    def take(self, upto: Root | None = None, most_rows: int = GOOD_ROWS) -> Release:
        """Release what is ready, of much about `most_rows` tuples; or all that is before `upto`."""
        if upto is not None:
            return self._released_upto(min(upto, self.frontier))
        if not self._ordered:
            return self._next_arrived(most_rows)
        return self._released_upto(self._good_cut(most_rows))

    def runs(self, most_rows: int) -> Iterator[tuple[list[Jumbo | None], Root]]:
        """Release all that is ready, as `ready` does, in pieces of about `most_rows` tuples.

        Jumbo tuples that follow one another are handed on as they are; only those that overlap are
        merged. Several ports are released in one piece, since their pieces would have to match.
        """
        frontier = self.frontier
        if len(self._waiting) > 1 or not self._ordered:
            yield self.ready()
            return
        self._released = frontier
        both = [split(piece.jumbo, frontier) for piece in self._waiting[0]]
        ready = [r for r, _ in both if r is not None]
        self._waiting[0] = [Piece(w) for _, w in both if w is not None]
        # A mark counts between the tuples around its root: it goes with the piece that holds these.
        marks = sorted(mark for jumbo in ready for mark in jumbo.marks)
        pieces = _sequence(ready)
        held: list[Jumbo] = []
        for piece, following in pairwise(pieces):
            held.append(piece)
            if sum(map(len, held)) < most_rows:
                continue
            cut = _root(following, 0)
            if _root(piece, -1) < cut and cut.time <= last_cut(frontier):
                early = tuple(m for m in marks if m.root < cut)
                marks = marks[len(early) :]
                yield [_marked(Jumbo.concat(held), early)], cut
                held = []
        held += pieces[-1:]
        rest = held or [Jumbo(j.batch.slice(0, 0), j.positions.slice(0, 0)) for j in ready[:1]]
        yield [_marked(Jumbo.concat(rest), tuple(marks)) if rest else None], frontier

    def leftover(self) -> list[Jumbo | None]:
        """What is not ready, per port; the gate is empty afterwards."""
        rest = [
            Jumbo.concat([piece.jumbo for piece in pieces]) if pieces else None
            for pieces in self._waiting
        ]
        self._waiting = [[] for _ in self._waiting]
        self._arrived.clear()
        return rest

    def waiting_chunks(self) -> list[Chunks]:
        """For each delivery that waits, the claims that it stems from."""
        waiting = [piece.chunks for port in self._waiting for piece in port]
        return waiting + [each.chunks for each in self._completions]

    def _released_upto(self, frontier: Root) -> Release:
        self._released = frontier
        ready: list[list[Piece]] = []
        for port, pieces in enumerate(self._waiting):
            if self._ordered:
                both = [_parted(piece, frontier) for piece in pieces]
                ready.append([early for early, _ in both if early is not None])
                self._waiting[port] = [late for _, late in both if late is not None]
            else:
                ready.append(pieces)
                self._waiting[port] = []
        self._arrived.clear()
        return self._release(ready, frontier)

    def _next_arrived(self, most_rows: int) -> Release:
        """The next piece in the order of arrival; small ones together."""
        ready: list[list[Piece]] = [[] for _ in self._waiting]
        rows, frontier = 0, self._frontier
        while self._arrived:
            port = self._arrived[0]
            piece = self._waiting[port][0]
            full = rows > 0 and rows + len(piece.jumbo) > most_rows
            if full or (self._in_slices and any(ready)):
                break
            self._arrived.popleft()
            ready[port].append(self._waiting[port].pop(0))
            rows += len(piece.jumbo)
            frontier = piece.promised
        if not self._arrived:
            frontier = self._frontier
        self._released = frontier
        return self._release(ready, frontier)

    def _release(self, ready: Sequence[list[Piece]], frontier: Root) -> Release:
        pieces = [piece for port in ready for piece in port]
        done = [each for each in self._completions if each.frontier <= frontier]
        if done:
            self._completions = [each for each in self._completions if each.frontier > frontier]
        births = [p.born_s for p in pieces if p.born_s is not None and len(p.jumbo)]
        births += [each.born_s for each in done if each.born_s is not None]
        return Release(
            [_merged([piece.jumbo for piece in port]) for port in ready],
            frontier,
            min(births, default=None),
            [piece.chunks for piece in pieces if piece.whole] + [each.chunks for each in done],
            frozenset().union(*(each.chunks for each in done)),
        )

    def _good_cut(self, most_rows: int) -> Root:
        """The position up to which a release has about `most_rows` tuples."""
        frontier = self.frontier
        if len(self._waiting) > 1 or len(self._waiting[0]) < 2:
            return frontier
        pieces = [piece.jumbo for piece in self._waiting[0]]
        if any(jumbo.marks or not len(jumbo) for jumbo in pieces):
            return frontier  # marks are rare, and belong between the tuples around them
        bounds = sorted((_root(jumbo, 0), _root(jumbo, -1), len(jumbo)) for jumbo in pieces)
        rows, last = 0, START
        for first, final, count in bounds:
            if first >= frontier:
                break
            if rows >= most_rows and last < first and first.time <= last_cut(frontier):
                return first
            rows += count
            last = max(last, final)
        return frontier


def last_cut(frontier: Root) -> int:
    """The last time at which a release may be cut.

    What the end of the stream sets free beyond its last time is released together with the end, so
    that a kernel that sees such a tuple knows that the stream is over.
    """
    return frontier.sub if is_end(frontier) and frontier.sub != FIRST else LAST


def _merged(jumbos: list[Jumbo]) -> Jumbo | None:
    """Sorted jumbo tuples as one."""
    if not jumbos:
        return None
    return jumbos[0] if len(jumbos) == 1 else Jumbo.concat(jumbos).in_order()


def _parted(piece: Piece, frontier: Root) -> tuple[Piece | None, Piece | None]:
    """What is before a frontier, and what is not; mostly that is all or nothing."""
    jumbo = piece.jumbo
    if not jumbo.marks and len(jumbo):
        if _root(jumbo, -1) < frontier:
            return piece, None
        if _root(jumbo, 0) >= frontier:
            return None, piece
    early, late = split(jumbo, frontier)
    return (
        None if early is None else piece._replace(jumbo=early, whole=late is None),
        None if late is None else piece._replace(jumbo=late),
    )


def _sequence(ready: list[Jumbo]) -> list[Jumbo]:
    """The tuples, without marks, one jumbo tuple after another; what overlaps is merged."""
    rows = [Jumbo(j.batch, j.positions).in_order() for j in ready if len(j)]
    rows.sort(key=lambda j: _position(j, 0))
    pieces: list[list[Jumbo]] = []
    last: tuple[int, ...] = ()
    for jumbo in rows:
        if pieces and _position(jumbo, 0) < last:
            pieces[-1].append(jumbo)
        else:
            pieces.append([jumbo])
        last = max(last, _position(jumbo, -1))
    return [Jumbo.concat(piece).in_order() for piece in pieces]


def _position(jumbo: Jumbo, row: int) -> tuple[int, ...]:
    return jumbo.positions.row(row)


def _root(jumbo: Jumbo, row: int) -> Root:
    time, rank, seq, sub = (int(column[row]) for column in jumbo.positions.columns[:4])
    return Root(time, rank, seq, sub)


def split(jumbo: Jumbo, frontier: Root) -> tuple[Jumbo | None, Jumbo | None]:
    """The part of a sorted jumbo tuple before a frontier and the rest, tuples and marks alike."""
    early: tuple[Mark, ...] = tuple(m for m in jumbo.marks if m.root < frontier)
    late: tuple[Mark, ...] = tuple(m for m in jumbo.marks if m.root >= frontier)
    cut = int(np.count_nonzero(jumbo.positions.before(frontier)))
    if cut == len(jumbo) and not late:
        return jumbo, None
    return _marked(jumbo.slice(0, cut), early), _marked(jumbo.slice(cut, len(jumbo)), late)


def _marked(jumbo: Jumbo, marks: tuple[Mark, ...]) -> Jumbo | None:
    if not len(jumbo) and not marks:
        return None
    return Jumbo(jumbo.batch, jumbo.positions, marks)
