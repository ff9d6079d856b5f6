"""Keyed aggregates: running values, changes, or final values; the way into windows too."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from anabranch.columns.grouped_rows import Runs
from anabranch.errors import BuildError, Subject, chosen
from anabranch.operators.aggregates.base import (
    Aggregation,
    AggregationKernel,
    Emit,
    decoded_key,
)
from anabranch.operators.aggregates.functions import Aggregate
from anabranch.operators.aggregates.window_kernels import (
    CountAggregate,
    SessionAggregate,
    WindowAggregate,
)
from anabranch.operators.aggregates.windows import (
    CountWindow,
    Session,
    TimeWindow,
    Window,
)
from anabranch.operators.base import Kernel, KernelContext, Outputs
from anabranch.state.positions import Jumbo, Root, is_end

AGGREGATE = Subject("operator", "aggregate")


class KeyedAggregate(Aggregation):
    """Aggregate all tuples of each key, from the start of the stream."""

    def out_time(self, time: pa.DataType | None) -> pa.DataType | None:
        """What leaves at the end of the stream has no time."""
        return None if self.emit is Emit.FINAL else time

    def changelog(self) -> tuple[str, ...] | None:
        """Changes replace what the key had before."""
        return self.key if self.emit is Emit.CHANGES else None

    def levels(self, depth: int) -> int:
        """Running values and changes stand where their tuple stands."""
        return depth + 1 if self.emit is Emit.FINAL else depth

    def kernel(self, context: KernelContext) -> Kernel:
        """A running copy."""
        if self.emit is Emit.EVERY:
            return EveryKernel(context, self)
        return (
            ChangesKernel(context, self)
            if self.emit is Emit.CHANGES
            else FinalKernel(context, self)
        )


class EveryKernel(AggregationKernel):
    """The value after each tuple, where that tuple stands."""

    def step(self, inputs: Sequence[Jumbo | None], frontier: Root) -> Outputs:
        """One result per tuple."""
        jumbo = inputs[0]
        if jumbo is None or not len(jumbo):
            return [None]
        batch = jumbo.batch
        groups = self.table.groups(self.store.keys_of(self.operator, batch))
        state = self.functions.read(self.table, groups.slots)
        runs = Runs(groups.codes, len(groups.slots))
        after = self.functions.scan(state, runs, self.functions.lift(batch))
        self.functions.write(self.table, groups.slots, state)
        keys = [decoded_key(batch.column(n)) for n in self.operator.key]
        columns = [*keys, *self.results(keys, after)]
        made = pa.RecordBatch.from_arrays(columns, schema=self.context.outputs[0].schema)
        return [Jumbo(made, jumbo.positions.pad(self.context.depth))]


class FinalKernel(AggregationKernel):
    """The value of each key at the end of the stream."""

    def step(self, inputs: Sequence[Jumbo | None], frontier: Root) -> Outputs:
        """Let the batch flow in; let all keys out at the end."""
        jumbo = inputs[0]
        if jumbo is not None and len(jumbo):
            flow_in(self, jumbo)
        return [self.close() if is_end(frontier) else None]


class ChangesKernel(AggregationKernel):
    """The value of each key that a batch touched, where its last tuple of the batch stands."""

    def step(self, inputs: Sequence[Jumbo | None], frontier: Root) -> Outputs:
        """One result per key of the batch."""
        jumbo = inputs[0]
        if jumbo is None or not len(jumbo):
            return [None]
        slots, codes = flow_in(self, jumbo)
        last = np.empty(len(slots), np.int64)
        last[codes] = np.arange(len(jumbo))  # the last assignment to a key stays
        keys = [decoded_key(jumbo.batch.column(n)).take(pa.array(last)) for n in self.operator.key]
        results = self.results(keys, self.functions.read(self.table, slots))
        positions = jumbo.positions.pad(self.context.depth).take(last)
        return [self.result([*keys, *results], positions)]


def flow_in(kernel: AggregationKernel, jumbo: Jumbo) -> tuple[np.ndarray, np.ndarray]:
    """Let a batch of tuples or partial results into the table; its slots and codes."""
    table, functions = kernel.table, kernel.functions
    groups = table.groups(kernel.store.keys_of(kernel.operator, jumbo.batch))
    combined = kernel.operator.merges is not None
    state = functions.read(table, groups.slots)
    parts = functions.parts_of(jumbo.batch) if combined else functions.lift(jumbo.batch)
    functions.merge(state, groups.codes, parts)
    functions.write(table, groups.slots, state)
    return groups.slots, groups.codes


def aggregate(
    key: str | Sequence[str] | None = None,
    *,
    emit: Emit | str | None = None,
    window: Window | None = None,
    combine: bool | None = None,
    **functions: Aggregate,
) -> Aggregation:
    """Aggregate by key; without one, over everything.

    Args:
        key: Key columns.
        emit: `every` tuple's running value (the default), `changes` (the new value of each key
            that a batch touched) or `final` (at the end of the stream, or of the window: the
            default and the only choice where there is a window).
        window: What divides the stream of a key.
        combine: Whether parts are combined before the shuffle; None: where that is legal.
        functions: One per output column.

    Example:
        >>> from anabranch.operators.aggregates.functions import count, mean
        >>> operator = aggregate("word", emit="changes", n=count(), length=mean("length"))
        >>> operator.key, operator.emit.value
        (('word',), 'changes')
    """
    leaving = _emit_of(emit, window)
    if not functions:
        raise BuildError(AGGREGATE, "at least one function", "none", "add one, as in n=count()")
    for name, function in functions.items():
        if not isinstance(function, Aggregate):
            raise BuildError(
                AGGREGATE,
                f"an aggregate function as {name}=",
                repr(function),
                "use count(), sum(…), min(…), max(…), mean(…), first(…) or last(…)",
            )
    match window:
        case None:
            kind: type[Aggregation] = KeyedAggregate
        case TimeWindow():
            kind = WindowAggregate
        case Session():
            kind = SessionAggregate
        case CountWindow():
            kind = CountAggregate
        case _:
            raise BuildError(
                AGGREGATE,
                "a window",
                repr(window),
                "use tumbling(…), sliding(…), session(…) or count_window(…)",
            )
    return kind(key, leaving, functions, window, combine)


def _emit_of(emit: Emit | str | None, window: Window | None) -> Emit:
    if emit is None:
        return Emit.EVERY if window is None else Emit.FINAL
    found = chosen(AGGREGATE, "emit", emit, Emit)
    if window is not None and found is not Emit.FINAL:
        raise BuildError(
            AGGREGATE,
            "emit='final' with a window, which has one result, when it is over",
            repr(found.value),
            "leave emit= out, or the window",
        )
    return found
