"""The gate: merges what several channels deliver into one sequential order.

Each channel tells how far it has come (its frontier). A tuple is *ready* when every channel has
passed it (STRETCH §2); ready tuples leave in the order of positions, the others wait. A channel may
deliver out of order between two frontiers; the gate sorts what it releases.

A region that cannot tell the order of its input (`ordered=False`) waits for nothing: it gets what
is there, each release sorted, though a later one may hold earlier tuples.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from anabranch.state.positions import FIRST, LAST, START, Jumbo, Mark, Root, is_end, meet


class Gate:
    """Merges channels of one or several input ports."""

    def __init__(self, ports: int, *, ordered: bool = True) -> None:
        """A gate without channels."""
        self._ordered = ordered
        self._waiting: list[list[Jumbo]] = [[] for _ in range(ports)]
        self._passed: dict[object, Root] = {}
        self._released = START

    def open(self, channel: object) -> None:
        """Announce a channel; nothing is ready before it has delivered."""
        self._passed[channel] = START

    def add(self, channel: object, port: int, jumbo: Jumbo | None, frontier: Root) -> None:
        """Take a delivery; `frontier` is how far the channel has come with it."""
        self._passed[channel] = frontier
        if jumbo is not None and (len(jumbo) or jumbo.marks):
            self._waiting[port].append(jumbo)

    def preload(self, port: int, jumbo: Jumbo) -> None:
        """Put back what a gate of an earlier epoch could not release."""
        self._waiting[port].append(jumbo)

    @property
    def frontier(self) -> Root:
        """What all channels have passed."""
        return meet(list(self._passed.values())) if self._passed else START

    def has_news(self) -> bool:
        """Whether `ready` would give tuples or a new frontier."""
        if self.frontier != self._released:
            return True
        return not self._ordered and any(self._waiting)

    def candidates(self) -> list[Root]:
        """Roots of ready tuples: the places at which a release may be cut."""
        bound = self.frontier
        roots = {
            Root(*row[:4])
            for jumbos in self._waiting
            for jumbo in jumbos
            for row in jumbo.positions.rows()
        }
        last = last_cut(bound)
        return sorted(r for r in roots if self._released < r < bound and r.time <= last)

    def ready(self, upto: Root | None = None) -> tuple[list[Jumbo | None], Root]:
        """Release per port what is ready (or ready and before `upto`), and the frontier reached."""
        frontier = self.frontier if upto is None else min(upto, self.frontier)
        self._released = frontier
        return [self._release(port, frontier) for port in range(len(self._waiting))], frontier

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
        ready, self._waiting[0] = _parted(self._waiting[0], frontier)
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
        rest = [Jumbo.concat(jumbos) if jumbos else None for jumbos in self._waiting]
        self._waiting = [[] for _ in self._waiting]
        return rest

    def _release(self, port: int, frontier: Root) -> Jumbo | None:
        if not self._ordered:
            released, self._waiting[port] = self._waiting[port], []
        else:
            released, self._waiting[port] = _parted(self._waiting[port], frontier)
        if not released:
            return None
        return Jumbo.concat(released).in_order()


def last_cut(frontier: Root) -> int:
    """The last time at which a release may be cut.

    What the end of the stream sets free beyond its last time is released together with the end, so
    that a kernel that sees such a tuple knows that the stream is over.
    """
    return frontier.sub if is_end(frontier) and frontier.sub != FIRST else LAST


def _parted(waiting: list[Jumbo], frontier: Root) -> tuple[list[Jumbo], list[Jumbo]]:
    """What stands before a frontier, and what does not."""
    both = [split(jumbo, frontier) for jumbo in waiting]
    return [r for r, _ in both if r is not None], [w for _, w in both if w is not None]


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
    return tuple(int(column[row]) for column in jumbo.positions.columns)


def _root(jumbo: Jumbo, row: int) -> Root:
    time, rank, seq, sub = (int(column[row]) for column in jumbo.positions.columns[:4])
    return Root(time, rank, seq, sub)


def split(jumbo: Jumbo, frontier: Root) -> tuple[Jumbo | None, Jumbo | None]:
    """The part before a frontier and the rest, tuples and marks alike."""
    early: tuple[Mark, ...] = tuple(m for m in jumbo.marks if m.root < frontier)
    late: tuple[Mark, ...] = tuple(m for m in jumbo.marks if m.root >= frontier)
    mask = jumbo.positions.before(frontier)
    if mask.all() and not late:
        return jumbo, None
    bare = Jumbo(jumbo.batch, jumbo.positions)
    ready, rest = bare.where(mask), bare.where(~mask)
    return _marked(ready, early), _marked(rest, late)


def _marked(jumbo: Jumbo, marks: tuple[Mark, ...]) -> Jumbo | None:
    if not len(jumbo) and not marks:
        return None
    return Jumbo(jumbo.batch, jumbo.positions, marks)
