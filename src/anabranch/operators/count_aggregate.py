"""Aggregates over windows of a fixed number of a key's tuples.

A window leaves at the tuple that completes it. Incomplete ones leave at the end of the stream, when
they may. The table holds the incomplete window of each key.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from anabranch.operators.aggregates import taken
from anabranch.operators.aggregation import Aggregation, AggregationKernel, in_sequence
from anabranch.operators.base import Kernel, KernelContext, Outputs
from anabranch.operators.runs import Runs
from anabranch.operators.segments import Segments
from anabranch.operators.windows import CountWindow
from anabranch.state.positions import Jumbo, Root, is_end

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
