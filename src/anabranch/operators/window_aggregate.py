"""Aggregates over windows in time: tumbling and sliding.

State is one row per (key, start of the window). A batch flows into it whole, whatever windows it
spans; which windows the frontier has passed says an index of their ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from anabranch.operators.accumulators import Parts
from anabranch.operators.aggregates import taken
from anabranch.operators.aggregation import Aggregation, AggregationKernel
from anabranch.operators.base import Kernel, KernelContext, Outputs
from anabranch.operators.pending import Pending
from anabranch.operators.times import from_times
from anabranch.operators.windows import WINDOW_START, TimeWindow
from anabranch.state.positions import Ints, Jumbo, Root


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

    def _assigned(self, jumbo: Jumbo) -> Iterator[tuple[Ints | None, Ints, Parts]]:
        """Rows (None for all), the start of the window of each, and their states."""
        if self.operator.merges is not None:
            starts = jumbo.batch.column(WINDOW_START).to_numpy()
            yield None, starts, self.functions.parts_of(jumbo.batch)
            return
        parts = self.functions.lift(jumbo.batch)
        for rows, starts in self._spans.assign(jumbo.positions.columns[0]):
            yield rows, starts, parts if rows is None else taken(parts, rows)

    def _update(self, keys: list[pa.Array], starts: Ints, parts: Parts) -> None:
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
