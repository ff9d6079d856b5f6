"""With which of its tuples a source's clock starts, where one wrong time must not decide for all.

A clock that refuses times too far ahead of what it knows is at the mercy of the first one: had that
a wrong date, all others would be refused, or late. So the first tuples wait until one of them is
confirmed, and the clock starts with the earliest that is. The rule looks at one source's tuples one
after the other, so batching cannot change what it says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from anabranch.operators.clock_sources import PARTS, marks_of, sources_of
from anabranch.state.positions import FIRST, LAST, ROOT_WIDTH, Ints, Jumbo, Mark, Positions, Root
from anabranch.state.tables.store import ObjectStore

MOST_WAITING = 16
"""Where so many tuples all contradict each other, the first is believed."""


class Start(NamedTuple):
    """How a source's clock starts.

    Attributes:
        first: Number of the tuple that it starts with; those before it are set aside.
        waited: How many tuples stand before the event that decided it.
    """

    first: int
    waited: int


def start_by_tuple(times: Sequence[int], near: int) -> Start | None:
    """The start, as soon as one of a source's first times confirms an earlier one.

    Args:
        times: The times of a source, from its first tuple on.
        near: How far apart two times may be that confirm each other.

    Example:
        >>> start_by_tuple([1970, 2024], near=1) is None
        True
        >>> start_by_tuple([1970, 2024, 2023, 2022], near=1)
        Start(first=1, waited=2)
    """
    for number, time in enumerate(times[:MOST_WAITING]):
        for earlier in range(number):
            if abs(times[earlier] - time) <= near:
                return Start(earlier, number)
    return Start(0, MOST_WAITING - 1) if len(times) >= MOST_WAITING else None


def start_by_word(times: Sequence[int], lateness: int, ahead: int, passed: int) -> Start:
    """The start, where a source says what time it has passed, or that it has ended.

    Example:
        >>> start_by_word([1970, 2024], lateness=0, ahead=1, passed=2023)
        Start(first=1, waited=2)
        >>> start_by_word([1970, 2024], lateness=0, ahead=1, passed=LAST)
        Start(first=0, waited=2)
    """
    if passed == LAST:  # nobody will confirm anything any more
        return Start(0, len(times))
    # What has been passed is `lateness` behind the greatest time that the source knows.
    earliest, latest = passed - max(lateness, ahead), passed + lateness + ahead
    near = (number for number, time in enumerate(times) if earliest <= time <= latest)
    return Start(next(near, len(times)), len(times))


class FirstTuples:
    """Of each source, the tuples that wait for its clock to start, and those set aside then.

    Args:
        store: Where they are kept.
        times: The times of tuples.
        lateness: How far behind a tuple may be.
        ahead: How far ahead.
    """

    def __init__(
        self, store: ObjectStore, times: Callable[[Jumbo], Ints], lateness: int, ahead: int
    ) -> None:
        """Nothing waits yet."""
        self._store, self._times = store, times
        self._lateness, self._ahead = lateness, ahead

    def any(self) -> bool:
        """Whether there are any."""
        return bool(self._known("waiting") or self._known("aside"))

    def concerns(self, source: int) -> bool:
        """Whether there are any of a source."""
        return source in self._known("waiting") or source in self._known("aside")

    def take(self, source: int, jumbo: Jumbo) -> tuple[Ints, tuple[Jumbo, int] | None]:
        """Show a batch to a source whose clock stands.

        Returns:
            The rows that wait from now on, or did until the clock started; and if it did, all that
            waited, with the number of the tuple that the clock starts with.
        """
        rows = np.flatnonzero(sources_of(jumbo.positions) == source).astype(np.int64)
        given = sorted(marks_of(jumbo, source))
        marks = [mark for mark in given if mark.passed > FIRST][:1]
        before = [int(jumbo.positions.take(rows).before(mark.root).sum()) for mark in marks]
        waiting = self._known("waiting").get(source, jumbo.slice(0, 0))
        rows = rows[: min([MOST_WAITING - len(waiting), *before])]
        bare = Jumbo(jumbo.batch, jumbo.positions)
        together = Jumbo.concat([waiting, bare.take(rows)])
        start = self._start(self._times(together).tolist(), marks)
        if start is None:
            if len(rows):
                self._put("waiting", source, together)
            return rows, None
        moved = rows[: start.waited - len(waiting)]
        if len(waiting):
            self._pop("waiting", source)
        return moved, (together.slice(0, start.waited), start.first)

    def take_all(self) -> list[tuple[int, Jumbo]]:
        """All that wait, by source: nobody will confirm anything any more."""
        return [(each, self._pop("waiting", each)) for each in sorted(self._known("waiting"))]

    def set_aside(self, source: int, late: Jumbo) -> None:
        """Keep late tuples until there is something that they can leave with."""
        self._put("aside", source, late)

    def leave_with(self, jumbo: Jumbo) -> list[Jumbo]:
        """Those set aside whose source has a tuple in a batch, placed behind the first of these."""
        sources = sources_of(jumbo.positions)
        leaving = []
        for source in sorted(self._known("aside")):
            if len(rows := np.flatnonzero(sources == source)):
                place = (int(c[rows[0]]) for c in jumbo.positions.columns[:ROOT_WIDTH])
                leaving.append(_behind(Root(*place), self._pop("aside", source)))
        return leaving

    def leave_at_the_end(self, rank: int) -> list[Jumbo]:
        """All that were set aside, placed as what a step of this rank emits at the end."""
        return [
            _behind(Root(LAST, rank, source, 0), self._pop("aside", source))
            for source in sorted(self._known("aside"))
        ]

    def _start(self, times: list[int], marks: list[Mark]) -> Start | None:
        start = start_by_tuple(times, max(self._lateness, self._ahead))
        if start is None and marks:
            return start_by_word(times, self._lateness, self._ahead, marks[0].passed)
        return start

    @property
    def _memory(self) -> dict[Any, Any]:
        return self._store.bucket(0)

    def _known(self, what: str) -> dict[int, Jumbo]:
        known: dict[int, Jumbo] = self._memory.get(what, {})
        return known

    def _put(self, what: str, source: int, jumbo: Jumbo) -> None:
        self._memory[what] = {**self._known(what), source: jumbo}
        self._store.touch(0, what)

    def _pop(self, what: str, source: int) -> Jumbo:
        known = self._known(what)
        self._memory[what] = {each: jumbo for each, jumbo in known.items() if each != source}
        self._store.touch(0, what)
        return known[source]


def _behind(root: Root, waited: Jumbo) -> Jumbo:
    """Tuples that waited, placed right behind the event that they leave with.

    Their own place has been passed while they waited, and nothing may come out before a frontier.
    They stay tuples of the same part, for another clock.
    """
    subs = root.sub + PARTS * np.arange(1, len(waited) + 1, dtype=np.int64)
    constants = (np.broadcast_to(np.int64(each), len(waited)) for each in root[:3])
    levels = waited.positions.columns[ROOT_WIDTH:]
    return Jumbo(waited.batch, Positions((*constants, subs, *levels)))
