"""Aggregates over windows: tumbling and sliding ones, sessions, and windows of a number of tuples.

For windows in time, state is one row per (key, start of the window). A batch flows into it whole,
whatever windows it spans; an index of their ends says which windows the frontier has passed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.columns.grouped_rows import Runs
from anabranch.columns.key_words import Mask
from anabranch.columns.times import from_times
from anabranch.operators.aggregates.accumulators import Fields
from anabranch.operators.aggregates.base import (
    Aggregation,
    AggregationKernel,
    AggregationStore,
    in_sequence,
)
from anabranch.operators.aggregates.functions import taken
from anabranch.operators.aggregates.windows import (
    WINDOW_START,
    CountWindow,
    Session,
    TimeWindow,
)
from anabranch.operators.base import Kernel, KernelContext, Outputs
from anabranch.state.positions import Ints, Jumbo, Root, is_end


class WindowAggregate(Aggregation):
    """Aggregate the tuples of each key and window; results leave when the window is over."""

    window: TimeWindow

    def kernel(self, context: KernelContext) -> Kernel:
        """A running copy."""
        return WindowKernel(context, self)


class WindowKernel(AggregationKernel):
    """One running copy."""

    def __init__(self, context: KernelContext, operator: WindowAggregate) -> None:
        """A running copy without state."""
        super().__init__(context, operator, keys=[pa.field(WINDOW_START, pa.int64())])
        self._time = context.inputs[0].time
        self._spans = operator.window.spans(context.step, self._time)
        self._pending = Pending(self.store)

    def step(self, inputs: Sequence[Jumbo | None], frontier: Root) -> Outputs:
        """Let the batch flow in, then let out what is over."""
        jumbo = inputs[0]
        if jumbo is not None and len(jumbo):
            keys = self.store.keys_of(self.operator, jumbo.batch)
            for rows, starts, parts in self._assigned(jumbo):
                chosen = keys if rows is None else [k.take(pa.array(rows)) for k in keys]
                self._update(chosen, starts, parts)
        return [self._leave(self._pending.take(frontier.time))]

    def next_timer(self) -> int | None:
        """The earliest end of a window that has tuples."""
        return self._pending.earliest()

    def _assigned(self, jumbo: Jumbo) -> Iterator[tuple[Ints | None, Ints, Fields]]:
        """Rows (None for all), the start of the window of each, and their states."""
        if self.operator.merges is not None:
            starts = jumbo.batch.column(WINDOW_START).to_numpy()
            yield None, starts, self.functions.parts_of(jumbo.batch)
            return
        parts = self.functions.lift(jumbo.batch)
        for rows, starts in self._spans.assign(jumbo.positions.columns[0]):
            yield rows, starts, parts if rows is None else taken(parts, rows)

    def _update(self, keys: list[pa.Array], starts: Ints, parts: Fields) -> None:
        table = self.table
        groups = table.groups([*keys, pa.array(starts, pa.int64())])
        state = self.functions.read(table, groups.slots)
        self.functions.merge(state, groups.codes, parts)
        self.functions.write(table, groups.slots, state)
        if groups.fresh.any():
            fresh = groups.slots[groups.fresh]
            table.stamp(fresh, table.keys(fresh)[-1].to_numpy() + self._spans.size)
            self._pending.add(fresh)

    def _leave(self, slots: Ints) -> Jumbo | None:
        if not len(slots):
            return None
        keys, ends = self.store.keys_at(slots), self.table.time(slots)
        borders = [from_times(times, self._time) for times in (ends - self._spans.size, ends)]
        results = self.results(keys, self.functions.read(self.table, slots))
        self.table.remove(slots)
        positions = self.apart(ends, -self.context.rank, keys)
        return self.result([*keys, *borders, *results], positions)


# Aggregates over sessions: stretches of a key's tuples with less than a gap between neighbours.
#
# A session leaves at its last tuple's time plus the gap; a tuple at that time or later starts the
# next one. The table holds the open session of each key.

START, LATEST = "session.start", "session.latest"


class SessionAggregate(Aggregation):
    """Aggregate the tuples of each session of a key; results leave when the key was silent."""

    window: Session

    def obstacle(self, given: object) -> str | None:
        """Neighbours may be in different parts of the input."""
        return "sessions, whose borders no part of the input knows"

    def kernel(self, context: KernelContext) -> Kernel:
        """A running copy."""
        return SessionKernel(context, self)


class SessionKernel(AggregationKernel):
    """One running copy."""

    def __init__(self, context: KernelContext, operator: SessionAggregate) -> None:
        """A running copy without state."""
        borders = [pa.field(START, pa.int64()), pa.field(LATEST, pa.int64())]
        super().__init__(context, operator, values=borders)
        self._time = context.inputs[0].time
        self._gap = operator.window.length(context.step, self._time)
        self._pending = Pending(self.store)

    def step(self, inputs: Sequence[Jumbo | None], frontier: Root) -> Outputs:
        """Let the batch flow in, then let out what is over."""
        jumbo, made = inputs[0], []
        if jumbo is not None and len(jumbo):
            made.append(self._update(jumbo))
        made.append(self._leave(self._pending.take(frontier.time)))
        return [in_sequence(made)]

    def next_timer(self) -> int | None:
        """The earliest end of a session as it stands."""
        return self._pending.earliest()

    def _update(self, jumbo: Jumbo) -> Jumbo | None:
        table, times = self.table, jumbo.positions.columns[0]
        groups = table.groups(self.store.keys_of(self.operator, jumbo.batch))
        slots = groups.slots
        runs = Runs(groups.codes, len(slots))
        start, latest = table.get(START, slots), table.get(LATEST, slots)
        segments = Segments.cut(runs, self._breaks(runs, times, latest, groups.fresh))
        state = self.functions.blank(len(segments))
        for name, held in self.functions.read(table, slots).items():
            state[name][segments.oldest] = held
        self.functions.merge(state, segments.codes, self.functions.lift(jumbo.batch))

        starts, ends = np.zeros(len(segments), np.int64), np.zeros(len(segments), np.int64)
        starts[segments.codes[::-1]] = times[::-1]
        ends[segments.oldest] = latest
        ends[segments.codes] = times
        known = segments.oldest[~groups.fresh]
        starts[known] = start[~groups.fresh]
        ends += self._gap

        newest = segments.newest
        self.functions.write(table, slots, taken(state, newest))
        table.set(START, slots, starts[newest])
        table.set(LATEST, slots, ends[newest] - self._gap)
        table.stamp(slots, ends[newest])
        self._pending.add(slots[groups.fresh])
        closed = segments.closed()
        return self._emit(
            slots[segments.owner[closed]], starts[closed], ends[closed], taken(state, closed)
        )

    def _breaks(self, runs: Runs, times: Ints, latest: Ints, fresh: Mask) -> Mask:
        """Which rows start a session while their key has an older one."""
        by_key = times[runs.order]
        before = np.empty_like(by_key)
        before[1:] = by_key[:-1]
        before[runs.starts] = np.where(fresh, by_key[runs.starts], latest)
        breaks = np.empty(len(runs), np.bool_)
        breaks[runs.order] = by_key - before >= self._gap
        return breaks

    def _leave(self, slots: Ints) -> Jumbo | None:
        state = self.functions.read(self.table, slots)
        made = self._emit(slots, self.table.get(START, slots), self.table.time(slots), state)
        self.table.remove(slots)
        return made

    def _emit(self, slots: Ints, starts: Ints, ends: Ints, state: Fields) -> Jumbo | None:
        if not len(slots):
            return None
        keys = self.store.keys_at(slots)
        borders = [from_times(times, self._time) for times in (starts, ends)]
        positions = self.apart(ends, -self.context.rank, keys)
        return self.result([*keys, *borders, *self.results(keys, state)], positions)


# Aggregates over windows of a fixed number of a key's tuples.
#
# A window leaves at the tuple that completes it. Incomplete ones leave at the end of the stream,
# when they may. The table holds the incomplete window of each key.

SIZE = "window.size"


class CountAggregate(Aggregation):
    """Aggregate every n tuples of a key."""

    window: CountWindow

    def obstacle(self, given: object) -> str | None:
        """Which tuples share a window depends on all of them."""
        return "windows of a number of tuples, which no part of the input can count"

    def out_time(self, time: pa.DataType | None) -> pa.DataType | None:
        """Tuples that leave at the end of the stream have no time."""
        return None if self.window.partial else time

    def kernel(self, context: KernelContext) -> Kernel:
        """A running copy."""
        return CountKernel(context, self)


class CountKernel(AggregationKernel):
    """One running copy."""

    def __init__(self, context: KernelContext, operator: CountAggregate) -> None:
        """A running copy without state."""
        super().__init__(context, operator, values=[pa.field(SIZE, pa.int64())])
        self._window = operator.window

    def step(self, inputs: Sequence[Jumbo | None], frontier: Root) -> Outputs:
        """Let the batch flow in; at the end let out what is incomplete."""
        jumbo, made = inputs[0], []
        if jumbo is not None and len(jumbo):
            made.append(self._update(jumbo))
        if is_end(frontier):
            rest = self.close()
            made.append(rest if self._window.partial else None)
        return [in_sequence(made)]

    def _update(self, jumbo: Jumbo) -> Jumbo | None:
        table, full = self.table, self._window.count
        groups = table.groups(self.store.keys_of(self.operator, jumbo.batch))
        slots = groups.slots
        runs = Runs(groups.codes, len(slots))
        numbers = runs.ranks() + table.get(SIZE, slots)[groups.codes]
        segments = Segments.cut(runs, (numbers % full == 0) & (numbers > 0))
        state = self.functions.blank(len(segments))
        for name, held in self.functions.read(table, slots).items():
            state[name][segments.oldest] = held
        self.functions.merge(state, segments.codes, self.functions.lift(jumbo.batch))
        last_rows = np.zeros(len(segments), np.int64)
        last_rows[segments.codes] = np.arange(len(jumbo))
        sizes = numbers[last_rows] % full + 1

        complete = np.flatnonzero(sizes == full)
        rows = last_rows[complete]
        keys = [k.take(pa.array(segments.owner[complete])) for k in self.store.keys_at(slots)]
        columns = [*keys, *self.results(keys, taken(state, complete))]
        positions = jumbo.positions.pad(self.context.depth).take(rows)
        level = np.broadcast_to(np.int64(0), len(rows))

        open_ = sizes[segments.newest] < full
        kept = segments.newest[open_]
        self.functions.write(table, slots[open_], taken(state, kept))
        table.set(SIZE, slots[open_], sizes[kept])
        table.remove(slots[~open_])
        return self.result(columns, positions.extend(level))


# Which rows of a table are due when: what waits for time is found without looking at the rest.
#
# A row's due time is its stamp in the table. A stamp may move to a later time (a session that goes
# on); the table's index finds that out when the old time comes, and files the row again. The index
# is the table's, not the kernel's, so that buckets bring their part of it when they move.


class Pending:
    """Rows by the time at which they are due."""

    def __init__(self, store: AggregationStore) -> None:
        """All rows of the store that have a stamp are waited for."""
        self._store = store  # not its table, which is another one after `take_over`

    def add(self, slots: Ints) -> None:
        """Rows have got their first stamps."""
        self._store.table.file(slots)

    def take(self, until: int) -> Ints:
        """Take out the rows that are due at or before a time."""
        return self._store.table.take_due(until)

    def earliest(self) -> int | None:
        """When something is due next."""
        return self._store.table.earliest_due()


# A batch cut into stretches of one key each, the first of which continues what is in the table.


@dataclass(frozen=True)
class Segments:
    """Stretches of the keys of a batch, numbered key by key.

    Every key has at least one, its oldest, which may have no row in the batch: it stands for what
    the table holds.

    Attributes:
        codes: Segment of each row.
        owner: Key number of each segment.
        oldest: Segment of each key that continues the table's row.
        newest: Segment of each key that stays open behind the batch.
    """

    codes: Ints
    owner: Ints
    oldest: Ints
    newest: Ints

    @staticmethod
    def cut(runs: Runs, breaks: npt.NDArray[np.bool_]) -> Segments:
        """Start a new segment at each row that `breaks` names.

        Example:
            >>> made = Segments.cut(Runs(np.array([0, 1, 0]), 2), np.array([False, True, True]))
            >>> made.codes.tolist(), made.owner.tolist()
            ([0, 3, 1], [0, 0, 1, 1])
        """
        by_group = breaks[runs.order]
        cuts = np.cumsum(by_group)
        codes = np.empty(len(runs), np.int64)
        codes[runs.order] = runs.codes[runs.order] + cuts
        per_key = np.bincount(runs.codes[breaks], minlength=runs.groups) + 1
        newest = np.cumsum(per_key) - 1
        owner = np.repeat(np.arange(runs.groups), per_key)
        return Segments(codes, owner, newest - per_key + 1, newest)

    def __len__(self) -> int:
        """Number of segments."""
        return len(self.owner)

    def closed(self) -> Ints:
        """Segments that ended within the batch."""
        ended = np.ones(len(self), np.bool_)
        ended[self.newest] = False
        return np.flatnonzero(ended)
