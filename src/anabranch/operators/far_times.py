"""Which times are too far ahead to be believed, and when a clock believes them after all.

One wrong date must not make all others late, so a time more than `ahead` beyond the greatest that
was believed before it is doubted: its tuple is set aside and moves no clock. But if the clock is
what is wrong, since it has started with wrong dates or since the data have a long gap, everything
would be set aside for good. So a source's clock goes on from the doubted times when `CONVINCING`
of its tuples in a row were doubted and agree with each other: from the next tuple on, the greatest
of them counts as believed. Those tuples stay aside; what comes from before the leap is late then.

The rule looks at the tuples of a source one after the other, so batching cannot change what it
says. What it has to remember of those before is kept in the clock's store.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from anabranch.columns.key_words import Mask
from anabranch.state.positions import FIRST, LAST, Ints
from anabranch.state.tables.store import ObjectStore

CONVINCING = 16
"""So many tuples in a row have no wrong date by chance."""

DOUBTED = "doubted"


class Doubted(NamedTuple):
    """Tuples of a source, one behind the other, that were doubted and agree: their times."""

    earliest: int
    latest: int
    tuples: int

    def and_also(self, time: int, near: int) -> Doubted:
        """With one more; one that is not near all of them begins anew.

        Example:
            >>> Doubted(2024, 2024, 3).and_also(2025, near=1)
            Doubted(earliest=2024, latest=2025, tuples=4)
            >>> Doubted(2024, 2025, 4).and_also(2026, near=1)
            Doubted(earliest=2026, latest=2026, tuples=1)
        """
        both = Doubted(min(self.earliest, time), max(self.latest, time), self.tuples + 1)
        return both if both.latest - both.earliest <= near else Doubted(time, time, 1)


class FarTimes:
    """Judges the times of each source.

    Args:
        store: Where the doubted ones are kept.
        lateness: How far behind the greatest time a tuple may be.
        ahead: How far beyond it.
    """

    def __init__(self, store: ObjectStore, lateness: int, ahead: int) -> None:
        """Nothing is doubted yet."""
        self._store, self._lateness, self._ahead = store, lateness, ahead
        self.leap = lateness + ahead

    def judge(self, source: int, own: Ints, told: Ints) -> tuple[Mask, Ints]:
        """Which times are believed, and what the source has passed behind each, by it alone.

        Args:
            source: Whose times they are.
            own: The times.
            told: For each, and behind the last, what the source had passed before this batch or
                says that it has passed.
        """
        if not self._any_is_far(own, told):
            if len(own):
                self.keep(source, None)
            return np.ones(len(own), np.bool_), own - self._lateness
        # Whether a time is believed depends on those before it: one after the other, this once.
        leap, near = self.leap, max(self._lateness, self._ahead)
        run, passed = self._known().get(source), FIRST
        believed, shown = [], []
        for time, known in zip(own.tolist(), told.tolist(), strict=False):
            passed = max(passed, known)
            believed.append(passed == FIRST or time <= passed + leap)
            if believed[-1]:
                run, reached = None, time - self._lateness
            else:
                run = run.and_also(time, near) if run else Doubted(time, time, 1)
                convinced = run.tuples == CONVINCING
                reached = run.latest - self._lateness if convinced else FIRST
                run = None if convinced else run
            passed = max(passed, reached)
            shown.append(reached)
        self.keep(source, run)
        return np.array(believed), np.array(shown, np.int64)

    def needed(self, own: Ints, told: Ints) -> int:
        """How much a source must have passed before for all of these times to be believed.

        Args:
            own: The times.
            told: For each, and behind the last, what the source says that it has passed.
        """
        before = self._passed_before(own, told)
        alone = own[(before == FIRST) | self._far_from(own, before)]
        return int(alone.max()) - self.leap if len(alone) else FIRST

    def keep(self, source: int, run: Doubted | None) -> None:
        """Remember which of a source's last times are doubted; None where the last is believed."""
        known = self._known()
        if known.get(source) != run:
            others = {each: kept for each, kept in known.items() if each != source}
            self._store.bucket(0)[DOUBTED] = others if run is None else {**others, source: run}
            self._store.touch(0, DOUBTED)

    def _any_is_far(self, own: Ints, told: Ints) -> bool:
        """Whether any time is too far ahead of those before it, if all of these are believed."""
        if not len(own):
            return False
        if told[0] > FIRST and not self._far_from(own.max(keepdims=True), told[:1]).any():
            return False  # near enough to what was passed before all
        before = self._passed_before(own, told)
        return bool(((before > FIRST) & self._far_from(own, before)).any())

    def _passed_before(self, own: Ints, told: Ints) -> Ints:
        """What a source has passed before each of its times, if all of these are believed."""
        shown = np.maximum.accumulate(np.r_[FIRST, own - self._lateness])[:-1]
        return np.maximum(told[:-1], shown)

    def _far_from(self, own: Ints, before: Ints) -> Mask:
        """Which times are too far ahead of what had been passed before them."""
        # Beyond `LAST`, nothing can be.
        return own > np.minimum(before, LAST - self.leap) + self.leap

    def _known(self) -> dict[int, Doubted]:
        memory: dict[Any, Any] = self._store.bucket(0)
        known: dict[int, Doubted] = memory.get(DOUBTED, {})
        return known
