"""The dispenser: which reader of a source reads which rows next.

Rows are given out in the order of the source. Where reading from any row on is cheap, readers take
slices of one part in turn, so that they stay near each other; else each has a part of its own. What
is not read yet bounds what the source can promise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Condition
from typing import Any

from anabranch.engines.local.gate import Closed
from anabranch.engines.local.pace import Pace
from anabranch.engines.local.sizes import Sizes
from anabranch.io.reader import place
from anabranch.io.source import Extent, Source, unread
from anabranch.planning.plan import SourcePlan
from anabranch.state.positions import FIRST, Root, end, is_end

LINGER_S = 0.002
"""How long a paced source lets due rows gather: smaller jumbo tuples cost more than they gain."""

NAP_S = 0.01
MOST_PARTS = 256
MOST_AHEAD = 4
"""Batches that may be read of a part while an earlier one is not done: their rows have to wait."""


Offsets = dict[str, Any]
"""How far a source was read, in values that JSON gives back as they were."""


@dataclass
class Claim:
    """Rows of one part that a reader reads now: from `at` to `stop`, or to the part's end.

    Attributes:
        part: Number of the part.
        at: The next row.
        stop: The row after the last.
        due_s: When the first row was due, on the dispenser's clock; None where nothing is paced.
    """

    part: int
    at: int
    stop: int
    due_s: float | None = None


class Dispenser:
    """Gives out the rows of one source.

    Args:
        source: What is read.
        rank: Number of the source.
        plan: Readers and rows a batch.
        limit: Give out no more rows than this.
        clock: Seconds, for sources that are paced.
    """

    def __init__(
        self,
        source: Source,
        rank: int,
        plan: SourcePlan,
        limit: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rank, self._plan, self._limit, self._clock = rank, plan, limit, clock
        self._parts, self._sizes, self._pace = source.parts(), Sizes(source), Pace(source, clock)
        self._change = Condition()
        self._unopened = 0  # number of the first part that nobody has begun
        self._next: dict[int, int] = {}  # by open part, the first row that was not given out
        self._owner: dict[int, int] = {}  # by open part that is not seekable, its reader
        self._claims: dict[int, Claim] = {}  # by reader
        self._active: list[int] = []  # readers, the oldest first
        self._leaving: set[int] = set()  # readers that may have a last word to say
        self._telling: set[int] = set()  # readers whose claim is done, and not yet promised
        self._hired = self._napping = self._asking = 0
        self._given = 0
        self._closed = self._stopped = self._held = False

    @property
    def rows(self) -> int:
        """Rows given out so far, less those that were not there."""
        return self._given

    def change(self, plan: SourcePlan) -> list[int]:
        """Give out by another plan from now on; numbers of the readers that have to be started."""
        with self._change:
            self._plan = plan
            started = []
            while len(self._active) - len(self._leaving) < plan.replicas:
                started.append(self._hired)
                self._active.append(self._hired)
                self._hired += 1
            self._change.notify_all()
            return started

    def claim(self, reader: int) -> Claim | None:
        """The next rows for a reader; waits until some are due. None when it shall end."""
        asked: set[int] = set()
        since: float | None = None
        with self._change:
            while True:
                if self._closed:
                    raise Closed
                if self._held:
                    self._change.wait()
                    continue
                staying = [each for each in self._active if each not in self._leaving]
                surplus = staying.index(reader) >= self._plan.replicas
                if self._stopped or surplus or (self._over() and not self._claims):
                    self._leaving.add(reader)
                    return None
                rows, now = self._due(), self._clock()
                since = now if rows and since is None else since
                gathered = rows >= self._batch_rows() or not self._pace.is_set
                if rows and (gathered or now - (since or now) >= LINGER_S):
                    unknown = self._to_be_asked(asked)
                    if unknown:
                        asked.update(unknown)
                        self._ask(unknown)
                        continue
                    claim = self._take(reader, rows)
                    if claim is not None:
                        return claim
                self._wait_for_rows()

    def leave(self, reader: int) -> None:
        """A reader ends, having said all that it had to; its parts go to others."""
        with self._change:
            self._active.remove(reader)
            self._leaving.discard(reader)
            for part in [p for p, owner in self._owner.items() if owner == reader]:
                del self._owner[part]
            self._change.notify_all()

    def frontier_after(self, reader: int, rows: int) -> Root:
        """What the source could promise if the reader had delivered so many rows of its claim."""
        with self._change:
            claim = self._claims[reader]
            others = [c for r, c in self._claims.items() if r != reader]
            if claim.at + rows < claim.stop:
                others.append(Claim(claim.part, claim.at + rows, claim.stop))
            promise = self._frontier(others)
            # The end is told by itself, with the source's last word.
            return place(self._rank, claim.part, claim.at + rows) if is_end(promise) else promise

    def advance(self, reader: int, rows: int) -> None:
        """A reader has delivered some rows of its claim."""
        with self._change:
            self._claims[reader].at += rows

    def give_back(self, reader: int) -> bool:
        """An endless part has no more for now: the rest of the claim is given out again later.

        Not if somebody has claimed what comes behind it: then the reader has to go on with it.
        """
        with self._change:
            claim = self._claims[reader]
            if self._next.get(claim.part) != claim.stop:
                return False
            self._next[claim.part] = claim.at
            self._given -= claim.stop - claim.at
            claim.stop = claim.at
            return True

    def finish(self, reader: int, *, part_over: bool) -> Root:
        """A reader is done with its claim, and with the part if that is over; the new promise."""
        with self._change:
            claim = self._claims.pop(reader)
            self._telling.add(reader)
            self._given -= claim.stop - claim.at
            if part_over:
                self._next.pop(claim.part, None)
                self._owner.pop(claim.part, None)
            self._change.notify_all()
            return self._frontier(list(self._claims.values()))

    def told(self, reader: int) -> None:
        """What a reader could promise after its claim has been delivered, too."""
        with self._change:
            self._telling.discard(reader)

    def nap(self) -> None:
        """Wait a little before asking again for what was not there."""
        with self._change:
            self._napping += 1
            # What other readers do is no reason to ask earlier.
            self._change.wait_for(lambda: self._closed or self._stopped, NAP_S)
            self._napping -= 1
            if self._closed:
                raise Closed

    @property
    def over(self) -> bool:
        """Whether every row was read, up to the limit."""
        with self._change:
            return self._over() and not self._claims

    @property
    def expectant(self) -> bool:
        """Whether rows may come by themselves, with time."""
        return self._napping > 0

    @property
    def asking(self) -> bool:
        """Whether a reader waits for what the source tells of its parts."""
        return self._asking > 0

    def backlog(self) -> int | None:
        """How many rows are known to wait; None when nobody can say. Waits for nobody long."""
        if self.over:
            return 0  # whoever was read to the end may be gone
        due = self._pace.due(self._given)
        if due is not None:
            return max(0, due)
        if len(self._parts) > MOST_PARTS:
            return None  # looking at each of them would take longer than it is worth
        known = self._sizes.soon()
        return None if known is None else self._waiting(known)

    def grown(self) -> bool:
        """Whether rows have come to a part that grows, and were not given out; asks the source."""
        if not self._parts:
            return False
        try:
            if not self._sizes.ask(0).growing:
                return False
            return self._waiting([self._sizes.ask(n) for n in range(len(self._parts))]) != 0
        except Exception:  # nobody can say; who reads the source will say what is wrong
            return True

    def _waiting(self, known: Sequence[Extent]) -> int | None:
        """How many rows of parts of such sizes were not given out, or not read yet."""
        with self._change:
            # What a reader has claimed of a part that grows may not be there yet.
            growing = any(each.growing for each in known)
            claims = self._claims.values() if growing else ()
            claimed = sum(claim.stop - claim.at for claim in claims)
            return unread(known, self._given - claimed)

    def hold(self) -> None:
        """Give nothing out for a while."""
        with self._change:
            self._held = True

    def go_on(self) -> None:
        """Give rows out again."""
        with self._change:
            self._held = False
            self._change.notify_all()

    @property
    def at_rest(self) -> bool:
        """Whether all that was given out has been delivered, and nobody is about to say more."""
        with self._change:
            return not (self._claims or self._telling or self._leaving)

    def offsets(self) -> Offsets:
        """Where to read on, once all that was given out has been delivered."""
        with self._change:
            return {
                "open": {str(part): row for part, row in self._next.items()},
                "unopened": self._unopened,
                "rows": self._given,
            }

    def next_row(self, part: int) -> int:
        """The first row of a part that was not given out; 0 for a part that is over, too."""
        with self._change:
            return self._next.get(part, 0)

    def restore(self, offsets: Offsets) -> None:
        """Read on from there; a paced source has its pace from now on."""
        self._next = {int(part): row for part, row in offsets["open"].items()}
        self._unopened = offsets["unopened"]
        self._given = offsets["rows"]
        self._pace.go_on_behind(self._given)

    def stop(self) -> None:
        """Give nothing out any more; the stream does not end by that."""
        with self._change:
            self._stopped = True
            self._change.notify_all()

    def close(self) -> None:
        """Nobody waits any longer."""
        with self._change:
            self._closed = True
            self._change.notify_all()

    # Inside, under the lock

    def _ask(self, parts: Sequence[int]) -> None:
        """Without the lock: the source may have to wait for a server, and others go on."""
        self._asking += 1
        self._change.release()
        try:
            for part in parts:
                self._sizes.ask(part)
        finally:
            self._change.acquire()
            self._asking -= 1

    def _to_be_asked(self, asked: set[int]) -> list[int]:
        """Parts that may be given out next, and may have grown since they were asked for."""
        nearest = [*self._next, *range(self._unopened, len(self._parts))[:1]]
        return [n for n in nearest if n not in asked and not self._sizes.settled(n)]

    def _wait_for_rows(self) -> None:
        """Until time makes some due, or another reader is done."""
        if self._pace.is_set:
            self._nap(LINGER_S)
        else:
            self._change.wait()

    def _nap(self, seconds: float) -> None:
        if not self._closed:
            self._napping += 1
            self._change.wait(seconds)
            self._napping -= 1

    def _frontier(self, claims: list[Claim]) -> Root:
        """The first row that is claimed and not delivered, or not given out yet."""
        rows = [(claim.part, claim.at) for claim in claims]
        if not self._limit_reached():
            rows += self._next.items()
            if self._unopened < len(self._parts):
                rows.append((self._unopened, 0))
        return place(self._rank, *min(rows)) if rows else end(FIRST)

    def _over(self) -> bool:
        return self._limit_reached() or (self._unopened >= len(self._parts) and not self._next)

    def _limit_reached(self) -> bool:
        return self._limit is not None and self._given >= self._limit

    def _batch_rows(self) -> int:
        most = self._plan.in_flight_limit
        return self._plan.batch_rows if most is None else min(self._plan.batch_rows, most)

    def _due(self) -> int:
        """How many rows may be given out now."""
        rows = self._batch_rows()
        due = self._pace.due(self._given)
        if due is not None:
            rows = min(rows, due)
            if rows <= 0:
                # When nothing will ever be due any more, the end is still to be found.
                rows = int(self._pace.is_over())
        if self._limit is not None:
            rows = min(rows, self._limit - self._given)
        return max(rows, 0)

    def _take(self, reader: int, rows: int) -> Claim | None:
        part = self._part_for(reader)
        if part is None:
            return None
        start = self._next[part]
        known = self._sizes.known(part) or Extent()
        self._next[part] = start + rows
        if known.exact and known.rows is not None and start + rows >= known.rows:
            rows = max(1, known.rows - start)  # an empty part has to be looked at, too
            self._next.pop(part)
            self._owner.pop(part, None)
        due_s = self._pace.due_since_s(self._given) if self._pace.is_set else None
        self._given += rows
        claim = self._claims[reader] = Claim(part, start, start + rows, due_s)
        return claim

    def _part_for(self, reader: int) -> int | None:
        """The part that a reader goes on with: one to be shared, its own, or the next new one."""
        taken = {claim.part for claim in self._claims.values()}
        first = min([*taken, *self._next], default=self._unopened)
        for part in sorted(self._next):
            if part > first and self._next[part] >= MOST_AHEAD * self._batch_rows():
                continue
            known = self._sizes.known(part) or Extent()
            mine = part not in taken and self._owner.setdefault(part, reader) == reader
            if known.seekable or mine:
                return part
        # Which rows a limit leaves must not depend on the readers: part after part, then.
        in_turn = self._limit is None or not (self._next or self._claims)
        if self._unopened < len(self._parts) and in_turn:
            part = self._unopened
            self._unopened += 1
            self._next[part] = 0
            self._owner[part] = reader
            return part
        return None
