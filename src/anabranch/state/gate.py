"""The gate: merges what several channels deliver into one sequential order.

Each channel tells how far it has come (its frontier). A tuple is *ready* when every channel has
passed it (STRETCH §2); ready tuples leave in the order of positions, the others wait. A channel may
deliver out of order between two frontiers; the gate sorts what it releases.

A region that cannot tell the order of its input (`ordered=False`) waits for nothing: it gets what
is there, each release sorted, though a later one may hold earlier tuples.
"""

from __future__ import annotations

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
        # What the end of the stream sets free beyond its last time is released together with the
        # end, so that a kernel that sees such a tuple knows that the stream is over.
        last = bound.sub if is_end(bound) and bound.sub != FIRST else LAST
        return sorted(r for r in roots if self._released < r < bound and r.time <= last)

    def ready(self, upto: Root | None = None) -> tuple[list[Jumbo | None], Root]:
        """Release per port what is ready (or ready and before `upto`), and the frontier reached."""
        frontier = self.frontier if upto is None else min(upto, self.frontier)
        self._released = frontier
        return [self._release(port, frontier) for port in range(len(self._waiting))], frontier

    def leftover(self) -> list[Jumbo | None]:
        """What is not ready, per port; the gate is empty afterwards."""
        rest = [Jumbo.concat(jumbos) if jumbos else None for jumbos in self._waiting]
        self._waiting = [[] for _ in self._waiting]
        return rest

    def _release(self, port: int, frontier: Root) -> Jumbo | None:
        released: list[Jumbo] = []
        kept: list[Jumbo] = []
        for jumbo in self._waiting[port]:
            ready, waiting = _split(jumbo, frontier) if self._ordered else (jumbo, None)
            released += [ready] if ready is not None else []
            kept += [waiting] if waiting is not None else []
        self._waiting[port] = kept
        if not released:
            return None
        return Jumbo.concat(released).in_order()


def _split(jumbo: Jumbo, frontier: Root) -> tuple[Jumbo | None, Jumbo | None]:
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
