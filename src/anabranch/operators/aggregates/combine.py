"""Combining before the shuffle: a batch becomes one row per key, so less of it has to travel.

`split` makes two steps of an aggregate. The first has no state: it turns a batch into partial
results, one row per key (and window), each where the last of its tuples stands. The second is the
aggregate itself, which merges partial results instead of tuples. Replicas of the first may hand
over parts that interleave, so whatever depends on order (`first`, `last`) carries its position.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from anabranch.columns.key_words import KeyKind, group_codes, kind_of, text_codes, words_of
from anabranch.columns.schemas import columns_of
from anabranch.errors import BuildError, Subject
from anabranch.graph import StreamType
from anabranch.operators.aggregates.base import Aggregation, decoded_key, in_sequence
from anabranch.operators.aggregates.functions import Accumulators
from anabranch.operators.aggregates.windows import TimeWindow
from anabranch.operators.base import Kernel, KernelContext, Operator, Outputs
from anabranch.state.positions import Ints, Jumbo, Positions, Root


class Combine(Operator):
    """The partial results of each batch."""

    batch_dependent = True
    before_shuffle = True

    def __init__(self, operator: Aggregation) -> None:
        """Describe what will be aggregated; nothing runs."""
        self.__name__ = "combine"
        self.operator = operator
        self.needs_time = operator.needs_time

    def outputs(self, step: str, inputs: tuple[StreamType, ...]) -> tuple[StreamType, ...]:
        """Key columns, start of the window, states."""
        given = inputs[0]
        columns_of(step, self.operator.key, given.schema)
        return (StreamType(self.operator.partial_schema(step, given), given.time),)

    def keeps(self, given: pa.Schema) -> frozenset[str]:
        """The key."""
        return frozenset(self.operator.key)

    def levels(self, depth: int) -> int:
        """One more: a tuple may be the last one of several windows."""
        return depth + 1

    def kernel(self, context: KernelContext) -> Kernel:
        """A running copy."""
        return CombineKernel(context, self.operator)


class CombineKernel(Kernel):
    """One running copy; it remembers nothing."""

    condenses = True

    def __init__(self, context: KernelContext, operator: Aggregation) -> None:
        """A running copy."""
        super().__init__(context)
        given = context.inputs[0]
        self._operator = operator
        self._functions = Accumulators(operator.functions, given.schema, in_order=False)
        window = operator.window
        self._spans = None
        if isinstance(window, TimeWindow):
            self._spans = window.spans(context.step, given.time)

    def step(self, inputs: Sequence[Jumbo | None], frontier: Root) -> Outputs:
        """One row per key and window of the batch."""
        jumbo = inputs[0]
        if jumbo is None:
            return [None]
        parts = [
            self._combined(part, starts, number)
            for number, (part, starts) in enumerate(self._assigned(jumbo))
        ]
        return [in_sequence(parts)]

    def condense(self, parts: Sequence[Jumbo]) -> Jumbo:
        """One row per key and window of several partial results, where the last of them stood."""
        whole = Jumbo.concat(parts)
        whole = Jumbo(whole.batch, whole.positions).in_order()
        states = len(self._functions.schema)
        keys = whole.batch.columns[: whole.batch.num_columns - states]
        codes, groups = group_rows(keys, len(whole))
        if groups == len(whole):
            return whole
        last = _last_rows(codes, groups)
        state = self._functions.blank(groups)
        self._functions.merge(state, codes, self._functions.parts_of(whole.batch))
        columns = [k.take(pa.array(last)) for k in keys] + self._functions.to_arrow(state)
        batch = pa.RecordBatch.from_arrays(columns, schema=whole.batch.schema)
        return Jumbo(batch, whole.positions.take(last)).in_order()

    def _assigned(self, jumbo: Jumbo) -> Iterator[tuple[Jumbo, Ints | None]]:
        """The batch once per window that a tuple may be in, with the start of that window."""
        if not len(jumbo):
            return
        if self._spans is None:
            yield jumbo, None
            return
        for rows, starts in self._spans.assign(jumbo.positions.columns[0]):
            yield jumbo if rows is None else jumbo.take(rows), starts

    def _combined(self, jumbo: Jumbo, starts: Ints | None, number: int) -> Jumbo:
        keys = [decoded_key(jumbo.batch.column(n)) for n in self._operator.key]
        if starts is not None:
            keys.append(pa.array(starts, pa.int64()))
        positions = jumbo.positions.pad(self.context.depth)
        if starts is None:
            return self._together(jumbo, keys, positions)
        codes, groups = group_rows(keys, len(jumbo))
        last = _last_rows(codes, groups)
        state = self._functions.blank(groups)
        self._functions.locate(state, codes, self._functions.lift(jumbo.batch), positions)
        columns = [k.take(pa.array(last)) for k in keys] + self._functions.to_arrow(state)
        level = np.broadcast_to(np.int64(number), groups)
        return self._made(columns, positions.take(last).extend(level))

    def _together(self, jumbo: Jumbo, keys: list[pa.Array], positions: Positions) -> Jumbo:
        """Without windows all rows stand at the last tuple, one behind the other.

        No time asks for them before the batch is done, so that nobody can tell, and neither the
        last tuple of each key nor their order has to be found. With windows it could be told: a
        window that closes must not wait for a tuple of the next one.
        """
        codes, groups, distinct = group_keys(keys, len(jumbo))
        state = self._functions.blank(groups)
        self._functions.locate(state, codes, self._functions.lift(jumbo.batch), positions)
        last = positions.take(np.array([len(jumbo) - 1]))
        everywhere = Positions(tuple(np.broadcast_to(c[0], groups) for c in last.columns))
        columns = distinct + self._functions.to_arrow(state)
        return self._made(columns, everywhere.extend(np.arange(groups)))

    def _made(self, columns: list[pa.Array], positions: Positions) -> Jumbo:
        schema = self.context.outputs[0].schema
        return Jumbo(pa.RecordBatch.from_arrays(columns, schema=schema), positions)


def _last_rows(codes: Ints, groups: int) -> Ints:
    last = np.empty(groups, np.int64)
    last[codes] = np.arange(len(codes))  # the last assignment to a group stays
    return last


def combinable(operator: Operator, given: StreamType) -> bool:
    """Whether an operator is an aggregate that can be combined before the shuffle."""
    return isinstance(operator, Aggregation) and operator.obstacle(given) is None


def split(operator: Aggregation, given: StreamType) -> tuple[Combine, Aggregation]:
    """The combining step and the merging step that together do what an aggregate does.

    Example:
        >>> from anabranch.operators.aggregates.aggregate import aggregate
        >>> from anabranch.operators.aggregates.functions import count
        >>> given = StreamType(pa.schema([("word", pa.string())]))
        >>> first, second = split(aggregate("word", emit="final", n=count()), given)
        >>> first.types("count.combine", (given,))[0].schema.names
        ['word', 'n.count']
    """
    if (why := operator.obstacle(given)) is not None:
        raise BuildError(
            Subject("operator", operator.__name__),
            "an aggregate that combines before the shuffle",
            why,
            "leave combine= out",
        )
    merging = type(operator)(
        operator.key, operator.emit, operator.functions, operator.window, None, given.schema
    )
    return Combine(operator), merging


def group_keys(keys: list[pa.Array], rows: int) -> tuple[Ints, int, list[pa.Array]]:
    """Group number of each row, how many groups there are, and the key columns of each group."""
    if len(keys) == 1 and kind_of(keys[0].type) is KeyKind.TEXT:
        codes, texts = text_codes(keys[0])
        return codes, len(texts), [texts]
    codes, groups = group_rows(keys, rows)
    last = pa.array(_last_rows(codes, groups))
    return codes, groups, [key.take(last) for key in keys]


def group_rows(keys: list[pa.Array], rows: int) -> tuple[Ints, int]:
    """Group number of each row, and how many groups there are."""
    if not keys:
        return np.zeros(rows, np.int64), 1
    texts = [kind_of(k.type) is KeyKind.TEXT for k in keys]
    words = [k if text else words_of(k) for k, text in zip(keys, texts, strict=True)]
    return group_codes(words)
