"""What a gate shows its readers: one entry after another, each the same for all of them.

An entry holds what became ready together. Whoever needs it first brings it into order, and deals it
out by bucket; the others find that done. So that work is neither repeated nor done under the lock
of the gate.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import Protocol

from anabranch.runtime.routing import Router
from anabranch.state.positions import Jumbo, Root


class Control(Protocol):
    """An epoch-switch tuple: readers that meet it have come to the end of their epoch."""

    def seen(self) -> None:
        """A reader has met it and reads no further."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A jumbo tuple that a source added, or the first part of one.

    Attributes:
        source: Who added it.
        jumbo: The tuples, in order.
        born_s: When its oldest tuple was read from outside.
        last: Whether nothing of what was added comes after it.
    """

    source: object
    jumbo: Jumbo
    born_s: float
    last: bool = True


class Entry:
    """What became ready together, or an epoch-switch tuple."""

    def __init__(
        self,
        number: int,
        pieces: list[list[Piece]],
        frontier: Root,
        control: Control | None = None,
    ) -> None:
        """Pieces by port; `frontier` is how far the gate has come with them."""
        self.number, self.pieces, self.frontier = number, pieces, frontier
        self.control = control
        self.rows = sum(len(piece.jumbo) for port in pieces for piece in port)
        self._lock = Lock()
        self._inputs: list[Jumbo | None] | None = None
        self._shares: list[list[Jumbo | None]] | None = None

    @property
    def born_s(self) -> float | None:
        """When the oldest tuple in it was read; None without tuples."""
        return min((p.born_s for port in self.pieces for p in port if len(p.jumbo)), default=None)

    def inputs(self) -> list[Jumbo | None]:
        """By port, all tuples, in order."""
        with self._lock:
            return self._merged()

    def share(self, router: Router, replica: int) -> list[Jumbo | None]:
        """By port, the tuples of one replica."""
        with self._lock:
            if self._shares is None:
                self._shares = [router.route(jumbo) for jumbo in self._merged()]
        return [shares[replica] for shares in self._shares]

    def _merged(self) -> list[Jumbo | None]:
        if self._inputs is None:
            self._inputs = [merged([piece.jumbo for piece in port]) for port in self.pieces]
        return self._inputs


def merged(jumbos: list[Jumbo]) -> Jumbo | None:
    """Jumbo tuples as one, in order; each of them is in order already."""
    if not jumbos:
        return None
    return jumbos[0] if len(jumbos) == 1 else Jumbo.concat(jumbos).in_order()
