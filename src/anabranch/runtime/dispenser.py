"""The dispenser of a source: decides who reads which rows, and what readers may promise.

Rows are given out in claims, in the order of positions. A part whose length is known, and which can
be read from any row at no extra cost, is shared by all readers; any other part belongs to the
reader that began it. Claims are bounded: a source has so many of them under way, from being given
out until nothing that stems from them waits anywhere. That is the back-pressure of a run.

Which rows a reader gets depends on time and speed, and no result depends on it. Only an interleaved
source has no order but that in which its rows are claimed: a claim takes the next numbers, and the
dispenser records which rows got them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from anabranch.io.interleaving import Silences
from anabranch.io.offsets import Run, SourceOffsets
from anabranch.io.reader import numbered, sequence_number
from anabranch.io.source import Extent, Source, unread
from anabranch.planning.plan import SourcePlan
from anabranch.runtime.messages import (
    Acks,
    Claim,
    Finished,
    Promise,
    Survey,
    Surveyed,
    UnitId,
)
from anabranch.runtime.pace import Pace
from anabranch.state.positions import FIRST, IDLE, JOINED, LAST, START, Root, end

MOST_PARTS = 1000
"""Of more parts the backlog is not computed: it would take longer than it is worth."""
MOST_AHEAD = 4
"""Batches that may be read of a part while an earlier one is not done: their rows have to wait."""
FIRST_ROWS = 8192
"""Rows of the first claims at most. Nobody knows yet how long a step takes for each."""
MOST_GROWTH = 16
"""How many times as large claims become at once."""
SOON_S = 1.0
"""Claims become larger while all that stems from them is done within this time."""
QUEUED = 2
"""Claims that a reader has at once, so that it need not wait for the next one."""
LINGER_S = 0.002
"""How long rows that are due are gathered for a larger batch."""
FEW_ROWS = 64
"""As many rows at least are claimed of an interleaved source, however few there were last time."""
NAP_S = 0.01
"""How long a part that had no more rows is not asked again."""
PAUSE_S = 0.2
"""So long they are not asked while it is found out whether all that has come was read."""
LOOK_S = 1.0
"""An interleaved source is asked so often for further parts."""


class Dispenser:
    """Gives out the rows of one source.

    Args:
        name: Name of the source.
        source: The source.
        rank: Its number.
        limit: Gives out no more rows than this.
        now_s: The time at the start, for sources that have a pace.
        claim_rows: Chooses the rows of a claim, given how many it may have at most.
    """

    def __init__(
        self,
        name: str,
        source: Source,
        rank: int,
        limit: int | None = None,
        now_s: float = 0.0,
        claim_rows: Callable[[int], int] = int,
    ) -> None:
        self.name, self._source, self._rank, self._limit = name, source, rank, limit
        self._claim_rows = claim_rows
        self._interleaved = source.interleaved  # for good, whatever parts come
        self._notices: list[tuple[int, int]] = []  # what clocks have to know: part, and what
        self._silences = Silences(source.idle_after_s)
        self._parts: list[str] = []
        self._numbers: dict[str, int] = {}
        self._add_parts(source.parts())
        self._pace = Pace(source, now_s)
        self._extents: dict[int, Extent] = {}
        self._asked: set[int] = set()
        self._unopened = 0  # number of the first part that nobody has begun
        self._next: dict[int, int] = {}  # by open part, the first row that was not given out
        self._given = self._before = self._saved = 0
        self._number = 0
        self._flying: dict[int, int] = {}  # by claim, deliveries under way because of it
        self._most_rows = FIRST_ROWS  # of a claim, for now
        self._began_s: dict[int, float] = {}  # by claim of so many rows that is under way
        self._extra = 0  # claims beyond the window, after a standstill
        self._not_before: dict[int, float] = {}  # by part that had no more rows
        self._paused_s = now_s  # until then they are not asked again
        self._due_since: float | None = None
        self._stamp: int | None = None
        self.lag_ms: float | None = None
        self._stopped = self._closed = False
        self.runs: list[Run] = []  # of an interleaved source, since the version before
        self._ordinal = 0
        self._looks = self._looked = False  # for further parts; looked: since the last part ended
        self._look_s = now_s + LOOK_S
        self._latest: dict[int, int] = {}  # by part, its latest claim
        self._found: dict[int, int] = {}  # by part, the rows of the claim that was finished last
        self.begin(0, SourcePlan(name))

    def begin(self, epoch: int, plan: SourcePlan) -> None:
        """Give out to other readers; all claims of the earlier ones are finished."""
        self._epoch, self._plan = epoch, plan
        self._readers = [UnitId(self.name, reader) for reader in range(plan.replicas)]
        self._claims: dict[UnitId, deque[Claim]] = {reader: deque() for reader in self._readers}
        self._claimed = 0  # rows of the claims that readers have not finished
        self._owner: dict[int, UnitId] = {}
        self._promised: dict[UnitId, Root] = dict.fromkeys(self._readers, START)
        self._asked.clear()

    # What the coordinator asks

    @property
    def rows(self) -> int:
        """Return how many rows were given out so far, without those that were not there."""
        return self._given

    @property
    def at_rest(self) -> bool:
        """Return whether every claim is finished, and every question answered."""
        return not (self.asking or any(self._claims.values()))

    @property
    def over(self) -> bool:
        """Return whether every row was read, up to the limit."""
        return self.at_rest and self._exhausted()

    @property
    def asking(self) -> bool:
        """Return whether a question has not been answered."""
        return bool(self._asked) or self._looks

    @property
    def held_up(self) -> bool:
        """Return whether there are rows to give out, and too many claims are under way for that."""
        full = len(self._flying) >= self._window() and self.at_rest
        return full and not (self._stopped or self._exhausted())

    @property
    def rows_read(self) -> int:
        """Return about how many rows were read since the start: claims count as a whole."""
        return self._given - self._before - self._claimed

    @property
    def rows_saved(self) -> int:
        """Return how many rows since the start are before the offsets that were saved last."""
        return max(0, self._saved - self._before)

    def is_read(self, now_s: float) -> bool:
        """Return whether all that has come was read, as far as the extents show."""
        if self.over:
            return True
        return self.at_rest and self.expectant and not self._pace.is_set and not self.backlog(now_s)

    def pause(self, now_s: float) -> None:
        """Do not read parts of which all rows were read for a moment: then all come to rest."""
        self._paused_s = now_s + PAUSE_S

    def stop(self) -> None:
        """Give nothing out any more; the stream does not end by that."""
        self._stopped = True

    def offsets(self) -> SourceOffsets:
        """Return where to read on, once all claims are finished."""
        arrivals = self._source.arrivals
        stamp = None if arrivals is None else arrivals.latest or self._stamp
        offsets = SourceOffsets(dict(self._next), self._unopened, self._given, self.over, stamp)
        if not self._interleaved:
            return offsets
        return replace(
            offsets,
            names=tuple(self._parts),
            ordinal=self._ordinal,
            runs=tuple(self.runs),
            notices=tuple(self._notices),
        )

    def note_saved(self, offsets: SourceOffsets) -> None:
        """Note that a version with these offsets is safe."""
        self._saved = offsets.rows
        del self.runs[: len(offsets.runs)]

    def restore(self, offsets: SourceOffsets) -> None:
        """Read on from there; a source with a pace keeps it from now on."""
        if self._interleaved:
            self._parts, self._numbers, self._ordinal = [], {}, offsets.ordinal
            self._add_parts(offsets.names)
            self._notices = list(offsets.notices)
            self._add_parts(self._source.parts())
        self._next, self._unopened = dict(offsets.open), offsets.unopened
        self._given = self._before = self._saved = offsets.rows
        self._closed, self._stamp = offsets.over, offsets.stamp
        self._pace.go_on_behind(self._given)

    def forget_runs(self) -> None:
        """Forget the order of all rows so far: no version will hold it."""
        self.runs.clear()

    def forget_arrivals(self) -> None:
        """Forget when the rows before the offsets arrived: nobody reads them again."""
        if (arrivals := self._source.arrivals) is not None:
            for part, row in self._next.items():
                arrivals.let_go(self._parts[part], row)

    def backlog(self, now_s: float) -> int | None:
        """Return how many rows are known to wait; None when nobody can say."""
        if self.over:
            return 0
        due = self._pace.due(self._given, now_s)
        if due is not None:
            return max(0, due)
        parts = self._surveyed_parts()
        known = [self._extents.get(part) for part in parts]
        if len(parts) > MOST_PARTS or not all(known):
            return None
        extents = [extent for extent in known if extent is not None]
        if self._interleaved:
            read = sum(self._next.get(part, 0) for part in parts) - self._claimed
            return unread(extents, max(0, read))
        growing = any(extent.growing for extent in extents)
        return unread(extents, self._given - (self._claimed if growing else 0))

    def survey_backlog(self) -> list[Survey]:
        """Ask for what `backlog` has to know: parts that were never asked for, or that grow."""
        parts = self._surveyed_parts()
        if self.asking or self.over or self._pace.is_set or len(parts) > MOST_PARTS:
            return []
        known = {part: self._extents.get(part) for part in parts}
        return self._questions([n for n, each in known.items() if each is None or each.growing])

    def survey_all(self) -> list[Survey]:
        """Ask for the extents of all parts that may have grown, or were never asked for."""
        if self.over:
            return []  # nothing waits, and a server may be gone
        return self._questions(
            [
                part
                for part in self._surveyed_parts()[:MOST_PARTS]
                if part not in self._extents or not self._extents[part].exact
            ]
        )

    def _surveyed_parts(self) -> list[int]:
        """Return all parts; of an interleaved source only those that are not done."""
        parts = range(len(self._parts))
        if not self._interleaved:
            return list(parts)
        return [part for part in parts if part in self._next or part >= self._unopened]

    def _questions(self, parts: Sequence[int]) -> list[Survey]:
        """Ask the first reader about some parts."""
        self._asked.update(parts)
        names = tuple(self._parts[part] for part in parts)
        return [Survey(self._epoch, self._readers[0], names)] if parts else []

    # What readers report

    def finished(self, report: Finished, now_s: float) -> None:
        """Note that a claim is finished."""
        claim = self._claims[report.reader].popleft()
        self._claimed -= claim.stop - claim.start
        part = self._numbers[claim.part]
        stop = claim.start + report.rows
        if self._interleaved:
            self.runs += _runs(claim, report)
        if claim.passed is not None:
            return
        self._given -= claim.stop - stop
        if report.part_over:
            self._next.pop(part, None)
            self._owner.pop(part, None)
            self._looked = False
        elif stop == claim.stop:
            self._not_before.pop(part, None)
        else:
            self._next[part] = stop  # nobody has claimed what follows: see `_part_for`
            self._not_before[part] = now_s + NAP_S
        if self._interleaved:
            if part in self._next:
                self._found[part] = report.rows
                self._silences.note(part, report.rows, now_s)
            else:
                self._silences.forget(part)
                self._extents.pop(part, None)
                self._latest.pop(part, None)
                self._found.pop(part, None)
                self._not_before.pop(part, None)
                self._notices.append((part, LAST))
        if report.waited_ms is not None:
            self.lag_ms = report.waited_ms
        arrivals = self._source.arrivals
        if claim.record is not None and arrivals is not None and stop < claim.stop:
            arrivals.forget(claim.part, stop)

    def surveyed(self, report: Surveyed) -> None:
        """Note extents, and all parts if that was asked."""
        extents = {self._numbers[part]: extent for part, extent in report.extents.items()}
        self._extents.update(extents)
        self._asked.difference_update(extents)
        if report.parts is not None:
            self._looks, self._looked = False, True
            self._add_parts(report.parts)

    def acknowledged(self, number: int, change: int) -> None:
        """Note that more or fewer deliveries of a claim are under way."""
        count = self._flying.get(number, 0) + change
        if count:
            self._flying[number] = count
        else:
            self._flying.pop(number, None)
            self._extra = 0 if len(self._flying) <= self._window() // 2 else self._extra

    def relax(self, most: int | None = None) -> None:
        """Let more claims be under way, twice as many each time: everything waits for rows."""
        extra = max(1, 2 * self._extra)
        self._extra = extra if most is None else min(extra, most)

    # Giving out

    def give(self, now_s: float) -> list[Claim | Promise | Survey]:
        """Return what readers read now, and what those without a claim may promise."""
        self._grow(now_s)
        given: list[Claim | Promise | Survey] = []
        if self._should_look(now_s):
            self._looks, self._look_s = True, now_s + LOOK_S
            given.append(Survey(self._epoch, self._readers[0], (), look=True))
        given += self._give_notices()
        while (claim := self._next_claim(now_s, given)) is not None:
            given.append(claim)
        for reader in self._readers:
            free = self._free_for(reader)
            if not self._claims[reader] and free > self._promised[reader]:
                self._promised[reader] = free
                given.append(Promise(self._epoch, reader, free))
        return given

    def wake_s(self, now_s: float) -> float | None:
        """Return when to call `give` again though nothing is reported; None: not by itself."""
        if self._stopped or self._exhausted():
            return None
        if self._pace.is_set:
            return now_s + LINGER_S
        dry = [(part, when) for part, when in self._not_before.items() if part in self._next]
        waits = [max(when, self._paused_s) if self._is_done(part) else when for part, when in dry]
        if self._interleaved:
            waits.append(self._look_s)
        return min((when for when in waits if when > now_s), default=None)

    def _grow(self, now_s: float) -> None:
        """Let claims have more rows once one of the present size is done soon.

        A step that takes long for each row holds up a plan change, a save or the end of a run for
        a claim. So claims are as large as the plan says only where that is quick.
        """
        done = [number for number in self._began_s if number not in self._flying]
        took_s = min((now_s - self._began_s.pop(number) for number in done), default=SOON_S)
        if took_s < SOON_S:
            self._most_rows = int(self._most_rows * min(MOST_GROWTH, SOON_S / max(took_s, 1e-9)))
            self._began_s.clear()

    @property
    def expectant(self) -> bool:
        """Return whether rows may come by themselves, with time."""
        if self._interleaved and not self._parts:
            return True
        return self._pace.is_set or any(part in self._next for part in self._not_before)

    def _give_notices(self) -> list[Claim | Promise | Survey]:
        """Let clocks know of parts that have come or ended, or have had no rows for long."""
        if self._stopped or self._closed or self._limit_reached():
            return []
        notices, self._notices = self._notices, []
        notices += [(part, IDLE) for part in self._silences.take_idle()]
        return [self._notice(part, passed) for part, passed in notices]

    def _notice(self, part: int, passed: int) -> Claim:
        """Return a claim without rows, for the reader that has least to do."""
        reader = min(self._readers, key=lambda each: len(self._claims[each]))
        first, self._ordinal = self._ordinal, self._ordinal + 1
        free = numbered(self._rank, self._ordinal)
        claim = Claim(
            self._epoch,
            reader,
            self._number,
            self._parts[part],
            0,
            0,
            first,
            free,
            lane=part,
            passed=passed,
        )
        self._began(claim)
        return claim

    def _began(self, claim: Claim) -> None:
        """Note that a claim is under way."""
        self._promised[claim.reader] = max(self._promised[claim.reader], claim.free)
        self._claims[claim.reader].append(claim)
        self._claimed += claim.stop - claim.start
        self._flying[claim.number] = 1
        self._number += 1

    def _taken(self) -> set[int]:
        """Return the parts of which a reader has a claim."""
        claims = [claim for each in self._claims.values() for claim in each]
        return {self._numbers[claim.part] for claim in claims if claim.passed is None}

    def _should_look(self, now_s: float) -> bool:
        """Return whether to ask an interleaved source for further parts."""
        if not self._interleaved or self._looks or self._stopped or self._exhausted():
            return False
        done = self._unopened >= len(self._parts) and not self._next
        return now_s >= self._look_s or (done and bool(self._parts) and not self._looked)

    def _add_parts(self, names: Iterable[str]) -> None:
        """Number the parts that were not known."""
        for name in names:
            if name not in self._numbers:
                self._numbers[name] = len(self._parts)
                if self._interleaved:
                    self._notices.append((len(self._parts), JOINED))
                self._parts.append(name)

    def _next_claim(self, now_s: float, given: list[Claim | Promise | Survey]) -> Claim | None:
        if self._stopped or self._exhausted() or len(self._flying) >= self._window():
            return None
        rows = self._due(now_s)
        if rows <= 0:
            return None
        # The reader that has least to do comes first; the others keep their turn.
        for reader in sorted(self._readers, key=lambda each: len(self._claims[each])):
            if len(self._claims[reader]) >= QUEUED:
                continue
            part = self._part_for(reader, now_s)
            if part is None:
                continue
            if part in self._extents:
                return self._claim(reader, part, rows, now_s)
            if part not in self._asked:
                self._asked.add(part)
                given.append(Survey(self._epoch, reader, (self._parts[part],)))
        return None

    def _claim(self, reader: UnitId, part: int, rows: int, now_s: float) -> Claim:
        known = self._extents[part]
        start = self._next.get(part, 0)
        if self._interleaved and part in self._found:
            # Numbers that are left over take ranges, and so files, from the replicas of a sink.
            come = 0 if known.rows is None else known.rows - start
            rows = min(rows, max(FEW_ROWS, 2 * self._found[part], come))
        if part == self._unopened:
            self._unopened += 1
        if not self._shared(known):
            self._owner[part] = reader
        self._next[part] = start + rows
        if known.exact and known.rows is not None and start + rows >= known.rows:
            rows = max(1, known.rows - start)  # an empty part has to be looked at, too
            del self._next[part]
            self._owner.pop(part, None)
            self._looked = False
        due_s = self._pace.due_since_s(self._given, now_s) if self._pace.is_set else None
        self._given += rows
        self._due_since = None
        record = None
        if (arrivals := self._source.arrivals) is not None:
            name = self._parts[part]
            record = arrivals.stamp(name, start, start + rows, self._stamp)
        first = sequence_number(part, start)
        if self._interleaved:
            first, self._ordinal = self._ordinal, self._ordinal + rows
        self._latest[part] = self._number
        if self._most_rows <= rows < self._batch_rows():
            self._began_s[self._number] = now_s
        claim = Claim(
            self._epoch,
            reader,
            self._number,
            self._parts[part],
            start,
            start + rows,
            first,
            self._free_for(reader, rows),
            due_s,
            record,
            part if self._interleaved else 0,
        )
        self._began(claim)
        return claim

    def _free_for(self, reader: UnitId, claiming: int = 0) -> Root:
        """Return what is before all rows that a reader may get after a claim of so many."""
        rows: list[int] = []
        # A claim may turn out shorter: only what was read for certain brings the limit near.
        read = self._given - self._claimed - claiming
        if not self._closed and (self._limit is None or read < self._limit):
            rows = [
                sequence_number(part, row)
                for part, row in self._next.items()
                if self._owner.get(part, reader) == reader
            ]
            if self._unopened < len(self._parts):
                rows.append(sequence_number(self._unopened, 0))
            if self._interleaved:
                under_way = claiming or any(self._claims.values())
                rows = [self._ordinal] if under_way or not self._all_read() else []
        return numbered(self._rank, min(rows)) if rows else end(FIRST)

    def _part_for(self, reader: UnitId, now_s: float) -> int | None:
        """Return the part that a reader goes on with: a shared one, its own, or the next one."""
        taken = self._taken()
        if self._interleaved:
            return self._part_in_turn(reader, now_s, taken)
        first = min([*taken, *self._next], default=self._unopened)
        for part in sorted(self._next):
            if part > first and self._next[part] >= MOST_AHEAD * self._batch_rows():
                continue
            known = self._extents.get(part)
            if known is None or self._shared(known):
                return part
            if self._owner.get(part, reader) != reader:
                continue
            # What was claimed may not be there: only when it is read is it known where to go on.
            endless = known.growing or not self._source.bounded
            if endless and (part in taken or self._sleeps(part, now_s)):
                continue
            return part
        # Which rows a limit leaves must not depend on the readers: part after part, then.
        in_turn = self._limit is None or not (self._next or taken)
        if self._unopened < len(self._parts) and in_turn:
            return self._unopened
        return None

    def _part_in_turn(self, reader: UnitId, now_s: float, taken: set[int]) -> int | None:
        """Return the part of an interleaved source whose rows were claimed the longest ago."""
        new = [self._unopened] if self._unopened < len(self._parts) else []
        free = [
            part
            for part in (*new, *self._next)
            if part not in taken
            and self._owner.get(part, reader) == reader
            and not self._sleeps(part, now_s)
        ]
        return min(free, key=lambda part: self._latest.get(part, -1), default=None)

    def _sleeps(self, part: int, now_s: float) -> bool:
        """Return whether a part had no more rows a moment ago."""
        when = self._not_before.get(part)
        if when is None:
            return False
        return when > now_s or (self._paused_s > now_s and self._is_done(part))

    def _is_done(self, part: int) -> bool:
        """Return whether a part is known to have no more rows for now."""
        rows = self._extents[part].rows
        return rows is not None and rows <= self._next[part]

    def _shared(self, known: Extent) -> bool:
        """Return whether all readers may read a part; otherwise one reader of an epoch reads it.

        Where rows may be missing for now, nobody can read what follows them.
        """
        complete = self._source.bounded or known.exact
        return known.seekable and complete and not known.growing

    def _exhausted(self) -> bool:
        """Return whether nothing is left to give out."""
        if self._closed or self._limit_reached():
            return True
        return self._all_read()

    def _all_read(self) -> bool:
        """Return whether every part was read to its end, or is being read to it."""
        if self._interleaved:
            sure = self._parts and self._looked and not (self._looks or self._notices)
            if not sure:  # there may be further parts
                return False
        return self._unopened >= len(self._parts) and not self._next

    def _limit_reached(self) -> bool:
        return self._limit is not None and self._given >= self._limit

    def _batch_rows(self) -> int:
        return self._plan.most_rows

    def _window(self) -> int:
        """Return how many claims may be under way."""
        window = QUEUED * (len(self._readers) + 1)
        if (limit := self._plan.in_flight_limit) is not None:
            window = max(1, min(window, limit // self._batch_rows()))
        return window + self._extra

    def _due(self, now_s: float) -> int:
        """Return how many rows may be given out now."""
        rows = self._claim_rows(min(self._batch_rows(), self._most_rows))
        due = self._pace.due(self._given, now_s)
        if due is not None:
            if due <= 0:
                # When nothing will ever be due any more, the end is still to be found.
                return int(self._pace.is_over(now_s))
            if due < rows:
                # What is due is gathered for a moment, so that batches are worth their cost.
                self._due_since = now_s if self._due_since is None else self._due_since
                if now_s - self._due_since < LINGER_S:
                    return 0
                rows = due
        if self._limit is not None:
            rows = min(rows, self._limit - self._given)
        return max(rows, 0)


def _runs(claim: Claim, report: Finished) -> Iterator[Run]:
    """Record a claim of an interleaved source: its rows, and the marks before and behind them."""
    if claim.passed is not None:
        yield Run(claim.first, claim.lane, claim.part, claim.start, 0, claim.passed)
        return
    at, stop = claim.start, claim.start + report.rows
    for row, passed in (*report.heartbeats, (stop, None)):
        first = claim.first - claim.start
        if row > at:
            yield Run(first + at, claim.lane, claim.part, at, row - at)
        if passed is not None:
            yield Run(first + row, claim.lane, claim.part, row, 0, passed)
        at = row


def acknowledge(dispensers: dict[str, Dispenser], acks: Acks) -> None:
    """Pass acknowledgements on to the sources that they are about."""
    for (source, number), change in acks.changes.items():
        dispensers[source].acknowledged(number, change)
