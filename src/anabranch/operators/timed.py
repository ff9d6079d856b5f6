"""Event time: puts a stream in the order of a time column, within an allowed lateness.

Lateness is judged tuple by tuple, against the greatest time its own source has shown before it, so
batching cannot change the verdict; of a source whose parts are read side by side, each part counts
for itself. What is on time is held until no earlier tuple can come any more (STRETCH §2: it is
*ready*), then leaves in the order (time, source, sequence). What is late leaves by its own port and
is counted; so does a time too far ahead to be believed, which would make all others late
(`far_times.py`). Where such times are looked for, a source's clock starts only when a second tuple
confirms the first (`first_times.py`); until then the tuples wait here, without a verdict. A
timestamp outside of the years 2 to 9998 leaves by that port in any case: nothing that follows from
it could be shown (`times.py`).

A part that joins late, or comes back after it was idle, cannot undo what was passed without it: its
tuples are late, too, if they are older than that.

A clock has one memory, but not all rows have to pass it. Where they come in *slices*, runs of one
source's rows, each slice can be judged elsewhere: the verdicts depend on the slices before it only
through a few facts. A `Digest` describes what a slice does to the memory, which answers with the
facts that the slice is judged by, in the order of the slices. Only where a digest is not enough, as
when a clock starts or a time is doubted, the whole memory goes to the slice and comes back. The
machine that does so is `runtime/clock.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from anabranch.columns.key_words import Mask
from anabranch.columns.schemas import columns_of
from anabranch.columns.times import CLOCK_YEARS, duration, not_within, time_type, to_times
from anabranch.errors import BuildError
from anabranch.graph import StateKind, StreamType
from anabranch.operators.base import CLOSING, Counters, Kernel, KernelContext, Operator, Outputs
from anabranch.operators.clock_sources import (
    distinct_sources,
    marks_of,
    rank_of,
    source_of,
    sources_of,
)
from anabranch.operators.far_times import DOUBTED, Doubted, FarTimes
from anabranch.operators.first_times import FirstTuples
from anabranch.state.positions import (
    EVERY_PART,
    FIRST,
    IDLE,
    JOINED,
    LAST,
    Ints,
    Jumbo,
    Mark,
    Positions,
    Root,
    end,
    is_end,
)
from anabranch.state.tables.store import ObjectStore

NOTICES = (JOINED, IDLE)
"""These marks are about a part and give no time."""

Rows = Ints | slice
"""Numbers of rows, or all of them."""

NOBODY = -1
"""No source has this number."""

Facts = Mapping[str | int, Any]
"""What a clock remembers, or some of it, by name."""


class Digest(NamedTuple):
    """Describes what a slice does to a clock whose source has passed a time within two bounds.

    Attributes:
        source: The number of the source that its tuples and marks are about, or NOBODY; None where
            only its rows and marks show what it does.
        rows: How many tuples it has.
        passed: What its source has passed behind it, by the slice alone.
        last: The greatest time that it shows.
        needed: The lower bound.
        most: The upper bound.
        doubted: The times that are doubted at its end; None where the last one is believed.
    """

    source: int | None
    rows: int
    passed: int = FIRST
    last: int = FIRST
    needed: int = FIRST
    most: int = LAST
    doubted: Doubted | None = None


class Judged(NamedTuple):
    """A slice that was judged before it was known what its source has passed before.

    Attributes:
        digest: What it does to the clock.
        holds: Its verdicts and counters are right if its source has passed no more before; the
            lower bound is that of the digest.
    """

    digest: Digest
    holds: int


class Bounds(NamedTuple):
    """Up to what a source may have passed before a slice, that certain things stay the same.

    Attributes:
        verdicts: All verdicts and counters.
        plausible: Which times are believed.
    """

    verdicts: int
    plausible: int


class Timed(Operator):
    """Order a stream by event time; late tuples go to the port `late`."""

    state = StateKind.STATEFUL
    clock = True
    out_ports = ("out", "late")

    def __init__(
        self, column: str, lateness: int | timedelta = 0, ahead: int | timedelta | None = None
    ) -> None:
        """Name the time column, and how far from the greatest time seen a tuple may be."""
        self.column, self.lateness, self.ahead = column, lateness, ahead

    def outputs(self, step: str, inputs: tuple[StreamType, ...]) -> tuple[StreamType, ...]:
        """The same columns twice: in the order of time, and late in the order of arrival."""
        given = inputs[0]
        if given.time is not None:
            raise BuildError(
                step,
                "a stream ordered by number",
                f"one ordered by {given.time} already",
                "give the time once, where it is first known",
            )
        columns_of(step, (self.column,), given.schema)
        time = time_type(step, given.schema.field(self.column).type)
        duration("lateness", self.lateness, time, step)
        duration("ahead", self.ahead, time, step)
        return (StreamType(given.schema, time), StreamType(given.schema, given.time))

    def keeps(self, given: pa.Schema) -> frozenset[str]:
        """Everything."""
        return frozenset(given.names)

    def kernel(self, context: KernelContext) -> Kernel:
        """A running copy."""
        return TimedKernel(context, self)


class TimedKernel(Kernel):
    """Judges, holds and releases."""

    hears_marks = True

    def __init__(self, context: KernelContext, operator: Timed) -> None:
        """A running copy that has seen nothing."""
        super().__init__(context)
        self._column = operator.column
        time = context.outputs[0].time
        self._lateness = duration("lateness", operator.lateness, time, context.step) or 0
        self._store = ObjectStore()
        self.stores = (self._store,)
        self._operator = operator
        self._seen_arrivals = 0
        self._admitted: list[Jumbo] = []
        self._bounds: Bounds | None = None
        self._first: FirstTuples | None = None
        self._far: FarTimes | None = None
        if (ahead := duration("ahead", operator.ahead, time, context.step)) is not None:
            self._first = FirstTuples(self._store, self._times, self._lateness, ahead)
            self._far = FarTimes(self._store, self._lateness, ahead)

    def step(self, inputs: Sequence[Jumbo | None], frontier: Root) -> Outputs:
        """Judge each new tuple, then release what is ready."""
        self._drop_released()
        late = [] if inputs[0] is None else self._take_in(inputs[0])
        if is_end(frontier):
            late += self._take_in_the_rest()
        ready = self._release(self._ready(is_end(frontier)))
        return [ready, Jumbo.concat(late).in_order() if late else None]

    # Slices that are judged elsewhere

    def digest(self, jumbo: Jumbo) -> Digest:
        """Return what a slice does to the clock if all of its times are believed.

        The memory of this kernel does not matter.
        """
        jumbo, _ = self._part_off_outlandish(jumbo)
        if not (len(jumbo) or jumbo.marks):
            return Digest(NOBODY, 0)
        sources = distinct_sources(jumbo)
        if len(sources) != 1 or any(mark.passed in (*NOTICES, LAST) for mark in jumbo.marks):
            return Digest(None, len(jumbo))
        own, marked = self._times(jumbo), _marked(jumbo.positions, jumbo.marks, FIRST)
        greatest = int(own.max()) if len(own) else FIRST
        passed = max(int(marked[-1]), greatest - self._lateness if len(own) else FIRST)
        last = max([greatest, *(mark.passed for mark in jumbo.marks)])
        needed = FIRST if self._far is None else self._far.needed(own, marked)
        return Digest(sources[0], len(jumbo), passed, last, needed)

    def facts_for(self, digest: Digest) -> Facts | None:
        """Move the clock past a slice, and return the facts that the slice is judged by.

        Returns:
            None where it has to be judged by all `facts`, before the clock can move on.
        """
        source = digest.source
        if source == NOBODY:
            return {}
        if source is None or source in self._idle():
            return None
        passed, joined = self._passed(), self._joined()
        if self._first is not None and (source not in passed or self._first.concerns(source)):
            return None
        before = passed.get(source, FIRST)
        if not digest.needed <= before <= digest.most:
            return None
        facts: dict[str | int, Any] = {
            name: {source: known[source]}
            for name, known in (("passed", passed), ("joined", joined))
            if source in known
        }
        if digest.rows and self._far is not None:
            self._far.keep(source, digest.doubted)
        self._extend_to(digest.last)
        self._pass(source, max(before, digest.passed))
        return facts

    def judge(self, jumbo: Jumbo, facts: Facts) -> tuple[Outputs, Facts]:
        """Judge a slice by the facts before it; returns its outputs, and the facts after it.

        What is on time is among the outputs, whether it is ready or not.
        """
        elsewhere = self._with(facts)
        late = elsewhere._take_in(jumbo)
        return elsewhere._admitted_and(late), elsewhere.facts()

    def judge_early(self, jumbo: Jumbo, facts: Facts) -> tuple[Outputs, Facts, Judged]:
        """Judge a slice by the facts at an earlier place, and say what that is worth.

        The first time of the slice is assumed to be plausible. Returns its outputs, the facts after
        it as far as they are known, and what can be checked once the facts before it are known.
        """
        digest = self.digest(jumbo)
        source = digest.source
        if source is None or source == NOBODY:
            return *self.judge(jumbo, facts), Judged(digest, LAST)
        passed: int = facts.get("passed", {}).get(source, FIRST)
        if digest.rows and self._far is not None:
            inside, _ = self._part_off_outlandish(jumbo)
            passed = max(passed, int(self._times(inside)[0]) - self._far.leap)
        elsewhere = self._with({**facts, "passed": {source: passed}})
        elsewhere._bounds = Bounds(LAST, LAST)
        outputs = elsewhere._admitted_and(elsewhere._take_in(jumbo))
        holds, most = elsewhere._bounds
        memory = elsewhere.facts()
        digest = digest._replace(
            passed=memory["passed"][source],
            last=memory.get("last", FIRST),
            needed=passed,
            most=most,
            doubted=memory.get(DOUBTED, {}).get(source),
        )
        return outputs, memory, Judged(digest, holds)

    def _with(self, facts: Facts) -> TimedKernel:
        """Return a clock that remembers some facts."""
        made = TimedKernel(self.context, self._operator)
        made.resume(facts)
        return made

    def facts(self) -> Facts:
        """Return all that the clock remembers."""
        return {
            name: dict(known) if isinstance(known, dict) else known
            for name, known in self._memory.items()
        }

    def resume(self, facts: Facts) -> None:
        """Remember what a slice has changed."""
        for name in {*self._memory, *facts}:
            if name in facts:
                self._memory[name] = facts[name]
            else:
                del self._memory[name]
            self._store.touch(0, name)

    def close(self) -> Outputs:
        """Judge what waited for a clock to start; the stream is over."""
        return self._admitted_and(self._take_in_the_rest())

    def finish(self) -> bool:
        """Note that all sources have ended; return whether no tuple waits that leaves with that."""
        for source in self.context.sources:
            self._pass(source, LAST)
        return self._first is None or not self._first.any()

    def let_go(self) -> Outputs:
        """Release all that the clock holds; from now on its slices are judged elsewhere."""
        self._drop_released()
        self._admitted += [self._forget(number) for number in self._runs()]
        return self._admitted_and([])

    def _admitted_and(self, late: list[Jumbo]) -> Outputs:
        on_time = [each for each in self._admitted if len(each)]
        self._admitted.clear()
        parts = (on_time, [each for each in late if len(each)])
        return [Jumbo.concat(each).in_order() if each else None for each in parts]

    def _take_in(self, jumbo: Jumbo) -> list[Jumbo]:
        """Admit what is on time; what is late, in no order."""
        if not (len(jumbo) or jumbo.marks):
            return []
        jumbo, outside = self._part_off_outlandish(jumbo)
        self.context.counters.late += sum(map(len, outside))
        late = outside
        for piece in self._between_notices(jumbo):
            if self._first is not None:
                piece, waited = self._start_clocks(self._first, piece)
                late += waited
            late += self._admit(piece)
        return late

    def _take_in_the_rest(self) -> list[Jumbo]:
        """The end of the stream: nobody will confirm anything any more."""
        if self._first is None:
            return []
        for source in sorted(self._idle()):
            self._join(source)
        self._start_all(self._first)
        return self._first.leave_at_the_end(self.context.closing_rank)

    def frontier(self, frontier: Root, port: int = 0) -> Root:
        """Nothing older than the ready time can leave; late tuples stay ordered by number."""
        return self._ready(is_end(frontier)) if port == 0 else frontier

    @property
    def _memory(self) -> dict[str | int, Any]:
        return self._store.bucket(0)

    def _release(self, bound: Root) -> Jumbo | None:
        """Take out what stands before a bound, in order; hold what was admitted and does not.

        Most tuples are released in the step that they come in: those are sorted and moved once.
        """
        parts = [*self._cut(bound), *self._admitted]
        self._admitted.clear()
        if not parts:
            return None
        ready = Jumbo.concat(parts)
        before = int(np.count_nonzero(ready.positions.before(bound)))
        if ready.positions.is_sorted():
            self._hold(ready.slice(before, len(ready)))
            return ready.slice(0, before) if before else None
        order = ready.positions.order()
        self._hold(ready.take(order[before:]))
        return ready.take(order[:before]) if before else None

    def _hold(self, run: Jumbo) -> None:
        """Keep a sorted batch; those of like size are merged, so that there are few of them."""
        runs = self._runs()
        while runs and len(self._memory[runs[-1]]) <= 2 * len(run):
            run = Jumbo.concat([self._forget(runs.pop()), run]).in_order()
        if len(run):
            number = runs[-1] + 1 if runs else 0
            self._memory[number] = run
            self._store.touch(0, number)

    def _cut(self, bound: Root) -> list[Jumbo]:
        """Take out what stands before a bound: slices, no copies."""
        ready: list[Jumbo] = []
        for number in self._runs():
            run: Jumbo = self._memory[number]
            cut = int(np.count_nonzero(run.positions.before(bound)))
            ready += [run.slice(0, cut)] if cut else []
            if cut == len(run):
                self._forget(number)
            else:
                # Not told as a change: the bound says as much when the run comes back whole.
                self._memory[number] = run.slice(cut, len(run))
        return ready

    def _drop_released(self) -> None:
        """State that was restored may hold tuples that had left, as the clock it holds tells."""
        if self._seen_arrivals != self._store.arrivals:
            self._seen_arrivals = self._store.arrivals
            self._cut(self._ready(False))

    def _runs(self) -> list[int]:
        """Numbers of the sorted batches that are held, which stand beside the named facts."""
        return sorted(key for key in self._memory if isinstance(key, int))

    def _forget(self, number: int) -> Jumbo:
        self._store.touch(0, number)
        run: Jumbo = self._memory.pop(number)
        return run

    def _extend_to(self, time: int) -> None:
        """The stream has shown a time."""
        if time > self._memory.get("last", FIRST):
            self._memory["last"] = time
            self._store.touch(0, "last")

    def _passed(self) -> dict[int, int]:
        """By source: no tuple on time is older than this any more."""
        known: dict[int, int] = self._memory.setdefault("passed", {})
        return known

    def _pass(self, source: int, time: int) -> None:
        passed = self._passed()
        if passed.get(source) != time:
            passed[source] = time
            self._store.touch(0, "passed")

    def _ready(self, over: bool) -> Root:
        if over:
            return end(self._memory.get("last", FIRST))
        return Root(self._ready_time(), FIRST, FIRST, FIRST)

    def _ready_time(self) -> int:
        """No tuple on time is older than this any more, whatever comes from any source."""
        merged: int = self._memory.get("merged", FIRST)
        return max(merged, self._merged_time())

    def _merged_time(self) -> int:
        """What all have passed who are waited for, or else the one who is furthest."""
        joined = self._joined()
        reached = dict(joined)
        for source, time in self._passed().items():
            reached[source] = max(time, joined.get(source, FIRST))
        # A source that has said nothing yet may still come with anything.
        if not reached or set(self.context.sources) - {rank_of(source) for source in reached}:
            return FIRST
        open_times = {source: time for source, time in reached.items() if time < LAST}
        idle = self._idle()
        waited_for = [time for source, time in open_times.items() if source not in idle]
        if waited_for:
            return min(waited_for)
        if open_times:
            return max(open_times.values())
        # Every source has ended; the end itself is told by the frontier, not by us.
        last: int = self._memory.get("last", FIRST)
        return last

    def _joined(self) -> dict[int, int]:
        """Return the time that had been passed when each part of an interleaved source came."""
        known: dict[int, int] = self._memory.get("joined", {})
        return known

    def _idle(self) -> frozenset[int]:
        """Return the parts that are not waited for."""
        known: frozenset[int] = self._memory.get("idle", frozenset())
        return known

    def _join(self, source: int) -> None:
        """Wait for a part from now on; what has been passed without it stays passed."""
        time = max(self._joined().get(source, FIRST), self._ready_time())
        self._memory["joined"] = {**self._joined(), source: time}
        self._store.touch(0, "joined")
        self._set_idle(self._idle() - {source})

    def _note_merged(self) -> None:
        """Remember what was passed without idle sources: the only one to pass it may end."""
        time = self._ready_time()
        if self._idle() and time > self._memory.get("merged", FIRST):
            self._memory["merged"] = time
            self._store.touch(0, "merged")

    def _set_idle(self, sources: frozenset[int]) -> None:
        if sources != self._idle():
            self._memory["idle"] = sources
            self._store.touch(0, "idle")

    def _between_notices(self, jumbo: Jumbo) -> Iterator[Jumbo]:
        """Cut a batch where a part joins, ends, is idle or comes back, and note that in between."""
        marks = deque(sorted(jumbo.marks))
        if not (self._idle() or any(mark.passed in NOTICES for mark in marks)):
            yield jumbo
            return
        sources, at, held = sources_of(jumbo.positions), 0, list[Mark]()
        while at < len(jumbo) or marks or held:
            back = np.flatnonzero(np.isin(sources[at:], list(self._idle())))
            stop = at + int(back[0]) if len(back) else len(jumbo)
            while marks and (place := _rows_before(jumbo, marks[0])) <= stop:
                mark = marks.popleft()
                if mark.passed not in (*NOTICES, LAST):
                    held.append(mark)
                    continue
                yield _cut(jumbo, at, max(at, place), held)
                at, held = max(at, place), []
                if mark.passed == JOINED:
                    self._join(source_of(mark))
                elif mark.passed == IDLE:
                    self._set_idle(self._idle() | {source_of(mark)})
                else:
                    self._note_merged()
                    for source in self._ended_by(mark) & self._idle():
                        self._join(source)  # its end is the last that comes of it
                    held.append(mark)
                break
            else:
                yield _cut(jumbo, at, stop, held)
                at, held = stop, []
                if stop < len(jumbo):
                    self._join(int(sources[stop]))

    def _ended_by(self, mark: Mark) -> frozenset[int]:
        """Return the sources that a mark ends, of those that are idle."""
        if mark.part != EVERY_PART:
            return frozenset({source_of(mark)})
        return frozenset(s for s in self._idle() if rank_of(s) == mark.root.rank)

    def _part_off_outlandish(self, jumbo: Jumbo) -> tuple[Jumbo, list[Jumbo]]:
        """Take out what no clock can take; what is left, and what was taken out."""
        outside = not_within(CLOCK_YEARS, jumbo.batch.column(self._column))
        if outside is None:
            return jumbo, []
        return jumbo.where(~outside), [Jumbo(jumbo.batch, jumbo.positions).where(outside)]

    def _start_clocks(self, first: FirstTuples, jumbo: Jumbo) -> tuple[Jumbo, list[Jumbo]]:
        """Take out what waits for a clock to start; what is left, and what is late of the rest."""
        unstarted = [s for s in distinct_sources(jumbo) if s not in self._passed()]
        if not unstarted and not first.any():
            return jumbo, []
        waits = np.zeros(len(jumbo), dtype=bool)
        for source in unstarted:
            rows, start = first.take(source, jumbo)
            waits[rows] = True
            if start is not None:
                self._start(first, source, *start)
        rest = jumbo.where(~waits)
        if (rest.positions.columns[1] >= CLOSING).any():
            self._start_all(first)  # every source has ended before
        return rest, first.leave_with(rest)

    def _start_all(self, first: FirstTuples) -> None:
        for source, waited in first.take_all():
            self._start(first, source, waited, 0)

    def _start(self, first: FirstTuples, source: int, waited: Jumbo, number: int) -> None:
        """Judge what waited, from the tuple on that the clock starts with."""
        self.context.counters.add(Counters(late=number, ahead=number))
        late = [waited.slice(0, number), *self._admit(waited.slice(number, len(waited)))]
        if any(map(len, late)):
            first.set_aside(source, Jumbo.concat(late))

    def _admit(self, jumbo: Jumbo) -> list[Jumbo]:
        """Judge each tuple and admit those on time; the others, if there are any."""
        kept, late = self._judge(jumbo)
        if len(kept):
            self._admitted.append(kept)
        return [] if late is None else [late]

    def _judge(self, jumbo: Jumbo) -> tuple[Jumbo, Jumbo | None]:
        """Split a batch into what is on time (with its time as position) and what is late."""
        times = self._times(jumbo)
        on_time = np.ones(len(times), dtype=bool)
        ranks, sources = jumbo.positions.columns[1], sources_of(jumbo.positions)
        for source in distinct_sources(jumbo):
            rows = _rows_of(source, sources)
            marks = marks_of(jumbo, source)
            on_time[rows] = self._judge_source(source, jumbo, rows, times, marks)
        self._note_ends(jumbo.marks)
        at_the_end = ranks >= CLOSING
        if at_the_end.any():
            self._show(times[on_time & ~at_the_end])
            # What a step emits at the end of its stream comes after everything that has a time.
            last = self._memory.get("last", FIRST)
            on_time[at_the_end] = times[at_the_end] >= last
        self._show(times if on_time.all() else times[on_time])
        self.context.counters.late += int((~on_time).sum())
        unmarked = Jumbo(jumbo.batch, jumbo.positions)
        kept = Jumbo(jumbo.batch, jumbo.positions.at_time(times)).where(on_time)
        return kept, None if on_time.all() else unmarked.where(~on_time)

    def _note_ends(self, marks: Iterable[Mark]) -> None:
        """A source of several parts is over with all of them."""
        over = {mark.root.rank for mark in marks if mark.part == EVERY_PART}
        passed = self._passed()
        for source in passed.keys() | self._joined().keys():
            if rank_of(source) in over:
                self._pass(source, LAST)

    def _note_behind(self, distances: Ints) -> None:
        """Count tuples that are late because of their distance from the greatest time."""
        if len(distances):
            found = Counters(behind=len(distances), most_behind=int(distances.max()))
            self.context.counters.add(found)

    def _times(self, jumbo: Jumbo) -> Ints:
        return to_times(self.context.step, jumbo.batch.column(self._column))

    def _show(self, times: Ints) -> None:
        if len(times):
            self._extend_to(int(times.max()))

    def _judge_source(
        self, source: int, jumbo: Jumbo, rows: Rows, times: Ints, marks: list[Mark]
    ) -> Any:
        """Each tuple against the greatest time before it, marks standing between tuples."""
        own = times[rows]
        positions = jumbo.positions if isinstance(rows, slice) else jumbo.positions.take(rows)
        before = _marked(positions, marks, self._passed().get(source, FIRST))
        for mark in marks:
            if mark.passed < LAST:
                self._extend_to(mark.passed)
        if self._far is None:
            believed, shown = np.ones(len(own), np.bool_), own - self._lateness
        else:
            believed, shown = self._far.judge(source, own, before)
            if not believed.all():  # one that is not may have made the clock leap
                self.context.counters.ahead += int((~believed).sum())
                self._extend_to(int(shown[~believed].max()))
        before[1:] = np.maximum(before[1:], np.maximum.accumulate(shown))
        self._pass(source, int(before[-1]))
        least = np.maximum(before[:-1], self._joined().get(source, FIRST))
        behind = own < least
        if self._bounds is not None:
            leap = 0 if self._far is None else self._far.leap
            self._bounds = _bounds(own, before[:-1], believed, leap)
        self._note_behind(least[behind] - own[behind] + self._lateness)
        return believed & ~behind


def _bounds(own: Ints, before: Ints, believed: Mask, leap: int) -> Bounds:
    """Return how much more may have been passed before all of these tuples.

    A tuple on time stays so up to its own time; how far a late one is behind must not change. A
    time that is doubted must still be too far ahead.
    """
    doubted = own[~believed] - leap - 1
    plausible = int(doubted.min(initial=LAST))
    same = np.maximum(own, before)[believed]
    return Bounds(min(plausible, int(same.min(initial=LAST))), plausible)


def _rows_of(source: int, sources: Ints) -> Rows:
    """Which rows are of a source; mostly all of them are, and need no numbers then."""
    if sources.strides == (0,) and len(sources) and sources[0] == source:
        return slice(None)
    return np.flatnonzero(sources == source).astype(np.int64)


def _marked(positions: Positions, marks: Iterable[Mark], passed: int) -> Ints:
    """What a source has passed before each tuple, and after the last, by its marks alone."""
    before = np.full(len(positions) + 1, passed, np.int64)
    for mark in marks:
        # A mark stands before the first tuple that is not before its root.
        place = int(np.count_nonzero(positions.before(mark.root)))
        before[place:] = np.maximum(before[place:], mark.passed)
    return before


def _rows_before(jumbo: Jumbo, mark: Mark) -> int:
    return int(np.count_nonzero(jumbo.positions.before(mark.root)))


def _cut(jumbo: Jumbo, start: int, stop: int, marks: Sequence[Mark]) -> Jumbo:
    piece = jumbo.slice(start, stop)
    return Jumbo(piece.batch, piece.positions, tuple(marks))
