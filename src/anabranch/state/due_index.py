"""Which slots are due when: sorted runs that several owners of one slab read by reference.

A run is never changed, so buckets that move take the index along at no cost: each owner has its own
place in every run and passes over what is not its own. An entry is a hint. Its row may be gone,
given away or due later by now; whoever takes an entry out looks at the row, and files it again if
it is due later. So a row has an entry at or before its time, and perhaps more than one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from anabranch.state.key_words import Ints, Mask

_NO_SLOTS: Ints = np.zeros(0, np.int64)
_HINTS = 1024
_MOST_RUNS = 24

Here = Callable[[Ints], Mask]
"""Says which slots hold rows of this owner."""


class Run:
    """Slots sorted by due time; `next` is the first entry that was not taken out yet."""

    __slots__ = ("dues", "next", "slots")

    def __init__(self, dues: Ints, slots: Ints, next_: int = 0) -> None:
        self.dues, self.slots, self.next = dues, slots, next_

    @property
    def left(self) -> int:
        """How many entries were not taken out."""
        return len(self.dues) - self.next

    @staticmethod
    def of(dues: Ints, slots: Ints) -> Run:
        """Sort entries."""
        order = np.argsort(dues, kind="stable")  # what is sorted in stretches sorts in linear time
        return Run(dues.take(order), slots.take(order))


class DueIndex:
    """Runs, from large to small: a row is sorted again a logarithmic number of times.

    Example:
        >>> index, everybody = DueIndex(), lambda slots: slots >= 0
        >>> index.add(np.array([30, 10, 20]), np.array([0, 1, 2]), everybody)
        >>> index.take(until=20).tolist()
        [1, 2]
        >>> index.first_hints()[0].tolist()
        [30]
    """

    def __init__(self, runs: list[Run] | None = None) -> None:
        """Without runs: nothing is due."""
        self._runs: list[Run] = [] if runs is None else runs

    def add(self, dues: Ints, slots: Ints, here: Here) -> None:
        """File slots; entries that are merged are dropped if their rows are not here."""
        if not len(slots):
            return
        run = Run.of(dues, slots)
        while self._runs and self._runs[-1].left <= 2 * run.left:
            run = _merged([self._runs.pop(), run], here)
        self._runs.append(run)

    def take(self, until: int) -> Ints:
        """Take out all entries up to a time; slots may come twice."""
        taken: list[Ints] = []
        for run in self._runs:
            stop = int(np.searchsorted(run.dues, until, "right"))
            if stop > run.next:
                taken.append(run.slots[run.next : stop])
                run.next = stop
        if not taken:
            return _NO_SLOTS
        self._drop_finished()
        return np.concatenate(taken)

    def first_hints(self) -> tuple[Ints, Ints]:
        """Due times and slots of some entries, the earliest of all at their head; they stay."""
        run = self._earliest()
        if run is None:
            return _NO_SLOTS, _NO_SLOTS
        some = slice(run.next, run.next + _HINTS)
        return run.dues[some], run.slots[some]

    def pass_over(self, hints: int) -> None:
        """Take out the first of what `first_hints` told."""
        run = self._earliest()
        if run is not None:
            run.next += hints
            self._drop_finished()

    def shared(self) -> DueIndex:
        """The same entries for another owner."""
        return DueIndex([Run(run.dues, run.slots, run.next) for run in self._runs])

    def join(self, other: DueIndex, here: Here) -> None:
        """Take in the entries of another owner of the same slab, most of which are here already."""
        mine = {id(run.slots): run for run in self._runs}
        for run in other._runs:
            twin = mine.get(id(run.slots))
            if twin is None:
                self._runs.append(run)
            else:
                twin.next = min(twin.next, run.next)
        self._runs.sort(key=lambda run: -run.left)
        if len(self._runs) > _MOST_RUNS:
            # Small ones all: merging half of them costs less than they were worth filing.
            small = self._runs[_MOST_RUNS // 2 :]
            self._runs = [*self._runs[: _MOST_RUNS // 2], _merged(small, here)]
            self._drop_finished()

    def _earliest(self) -> Run | None:
        return min(self._runs, key=lambda run: int(run.dues[run.next]), default=None)

    def _drop_finished(self) -> None:
        self._runs = [run for run in self._runs if run.left]


def _merged(runs: list[Run], here: Here) -> Run:
    dues = np.concatenate([run.dues[run.next :] for run in runs])
    slots = np.concatenate([run.slots[run.next :] for run in runs])
    kept = np.flatnonzero(here(slots))
    if len(kept) < len(slots):
        dues, slots = dues.take(kept), slots.take(kept)
    return Run.of(dues, slots)
