"""Aggregates over sessions: stretches of a key's tuples with less than a gap between neighbours.

A session leaves at its last tuple's time plus the gap; a tuple at that time or later starts the
next one. The table holds the open session of each key.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from anabranch.operators.accumulators import Parts
from anabranch.operators.aggregates import taken
from anabranch.operators.aggregation import Aggregation, AggregationKernel, in_sequence
from anabranch.operators.base import Kernel, KernelContext, Outputs
from anabranch.operators.pending import Pending
from anabranch.operators.runs import Runs
from anabranch.operators.segments import Segments
from anabranch.operators.times import from_times
from anabranch.operators.windows import Session
from anabranch.state.key_words import Mask
from anabranch.state.positions import Ints, Jumbo, Root

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

    def _emit(self, slots: Ints, starts: Ints, ends: Ints, state: Parts) -> Jumbo | None:
        if not len(slots):
            return None
        keys = self.store.keys_at(slots)
        borders = [from_times(times, self._time) for times in (starts, ends)]
        positions = self.apart(ends, -self.context.rank, keys)
        return self.result([*keys, *borders, *self.results(keys, state)], positions)
