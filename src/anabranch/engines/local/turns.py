"""Turns: how far replicas have come together that take jumbo tuples in turn, as they are free.

Entries are numbered; each is worked on by one replica. All before the first unfinished one are
done, and that is what the region can promise, whichever of its replicas says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Condition

from anabranch.engines.local.gate import Closed
from anabranch.state.positions import Root

WINDOW = 8
"""How far a replica may be ahead of the first unfinished entry: its results wait for that one."""


class Turns:
    """Finished entries, and the frontiers behind those that are finished without a gap.

    Example:
        >>> turns = Turns()
        >>> five, six = [Root(5, 0, 5, 0)], [Root(6, 0, 6, 0)]
        >>> turns.finish(1, six) is None
        True
        >>> turns.finish(0, five) == six
        True
    """

    def __init__(self) -> None:
        """Nothing finished."""
        self._change = Condition()
        self._finished: dict[int, Sequence[Root] | None] = {}
        self._first = 0  # number of the first unfinished entry
        self._reached: Sequence[Root] | None = None
        self._closed = False

    def admit(self, number: int) -> None:
        """Wait until an entry is near enough to the first unfinished one."""
        with self._change:
            self._change.wait_for(lambda: self._closed or number < self._first + WINDOW)
            if self._closed:
                raise Closed

    def is_first(self, number: int) -> bool:
        """Whether all entries before this one are finished."""
        return number == self._first

    def finish(self, number: int, reached: Sequence[Root] | None) -> Sequence[Root] | None:
        """An entry's results are with the next regions; what can be promised by port, if known."""
        with self._change:
            self._finished[number] = reached
            while self._first in self._finished:
                self._reached = self._finished.pop(self._first) or self._reached
                self._first += 1
            self._change.notify_all()
            return self._reached

    def close(self) -> None:
        """Nobody waits any longer."""
        with self._change:
            self._closed = True
            self._change.notify_all()
