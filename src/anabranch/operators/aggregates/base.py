"""What all aggregating operators share: their declaration, their table, and where results stand."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.columns.hashing import hash_columns, order_prefix
from anabranch.columns.key_words import SUPPORTED, kind_of
from anabranch.columns.schemas import columns_of
from anabranch.errors import BuildError, OperatorError, SchemaError, Subject
from anabranch.graph import StateKind, StreamType
from anabranch.operators.aggregates.accumulators import Fields, TooLarge
from anabranch.operators.aggregates.functions import Accumulators, Aggregate, plain
from anabranch.operators.aggregates.windows import WINDOW_END, WINDOW_START, Window
from anabranch.operators.base import Kernel, KernelContext, Operator, key_columns
from anabranch.state.positions import LAST, Ints, Jumbo, Positions, emission_index
from anabranch.state.tables.keyed_table import KeyedTable
from anabranch.state.tables.table_store import TableStore

EVERYTHING = pa.field("everything", pa.int8())
"""The key column of a table whose operator has no key: it has one value."""


class Emit(Enum):
    """When results leave."""

    EVERY = "every"
    FINAL = "final"
    CHANGES = "changes"


class Aggregation(Operator):
    """An aggregating operator.

    Attributes:
        functions: By output column.
        emit: When results leave.
        window: What divides the stream of a key, None when nothing does.
        combine: Whether parts are combined before the shuffle; None leaves it to the flow.
        merges: Schema of the original input when what comes in has been combined, else None.
    """

    def __init__(
        self,
        key: str | Sequence[str] | None,
        emit: Emit,
        functions: Mapping[str, Aggregate],
        window: Window | None = None,
        combine: bool | None = None,
        merges: pa.Schema | None = None,
    ) -> None:
        """Describe; nothing runs."""
        self.__name__ = "aggregate"
        self.key = key_columns(key, Subject("operator", self.__name__))
        self.state = StateKind.PARTITIONED if self.key else StateKind.STATEFUL
        self.functions, self.emit, self.window = dict(functions), emit, window
        self.combine, self.merges = combine, merges
        self.needs_time = window is not None and window.timed

    def outputs(self, step: str, inputs: tuple[StreamType, ...]) -> tuple[StreamType, ...]:
        """Key columns, the window's borders, one column per function."""
        given = inputs[0]
        source = self.merges or given.schema
        self._check(step, source)
        if self.merges is not None:
            expected = self.partial_schema(step, StreamType(source, given.time))
            if not given.schema.equals(expected):
                raise SchemaError(
                    step,
                    f"partial results {expected.names}",
                    f"{given.schema.names}",
                    "connect the combining step that split() made",
                )
        if self.window is not None:
            self.window.check(step, given.time)
        if self.combine and (why := self.obstacle(given)):
            raise BuildError(
                step, "an aggregate that combines before the shuffle", why, "leave combine= out"
            )
        fields = self.key_fields(source) + self.window_fields(given.time)
        fields += [pa.field(n, f.output(step, n, source)) for n, f in self.functions.items()]
        return (StreamType(pa.schema(fields), self.out_time(given.time), self.changelog()),)

    def out_time(self, time: pa.DataType | None) -> pa.DataType | None:
        """Type of the time that orders the results."""
        return time

    def changelog(self) -> tuple[str, ...] | None:
        """Key columns when results replace each other."""
        return None

    def keeps(self, given: pa.Schema) -> frozenset[str]:
        """The key."""
        return frozenset(self.key)

    def levels(self, depth: int) -> int:
        """One more, which parts results of keys that look alike."""
        return depth + 1

    def obstacle(self, given: StreamType) -> str | None:
        """Why combining before the shuffle would change results, None when it would not."""
        if self.merges is not None:
            return "its input, which was combined already"
        if self.emit is Emit.EVERY:
            return "emit='every', which needs every tuple"
        rigid = [n for n, f in self.functions.items() if not f.combines(given.schema)]
        if rigid:
            return f"floats added up in one fixed order by {', '.join(rigid)} (exact=True)"
        return None

    def key_fields(self, source: pa.Schema) -> list[pa.Field]:
        """The key columns of what comes out."""
        return [source.field(n).with_type(plain(source.field(n).type)) for n in self.key]

    def window_fields(self, time: pa.DataType | None) -> list[pa.Field]:
        """Start and end of the window, where it has a start and an end in time."""
        if self.window is None or not self.window.timed:
            return []
        return [pa.field(WINDOW_START, time), pa.field(WINDOW_END, time)]

    def partial_schema(self, step: str, given: StreamType) -> pa.Schema:
        """Columns of partial results: key, start of the window, states."""
        states = Accumulators(self.functions, given.schema, in_order=False).schema
        start = [pa.field(WINDOW_START, pa.int64())] if self.window is not None else []
        return pa.schema([*self.key_fields(given.schema), *start, *states])

    def accumulators(self, context: KernelContext) -> Accumulators:
        """What a kernel keeps."""
        source = self.merges or context.inputs[0].schema
        return Accumulators(self.functions, source, in_order=self.merges is None)

    def _check(self, step: str, source: pa.Schema) -> None:
        columns_of(step, self.key, source)
        for field in self.key_fields(source):
            try:
                kind_of(field.type)
            except TypeError:
                raise SchemaError(
                    step,
                    f"a key of a type in [{SUPPORTED}]",
                    f"{field.name}: {field.type}",
                    "cast it with .map(…)",
                ) from None
        borders = [f.name for f in self.window_fields(pa.int64())]
        named = [*self.key, *borders, *self.functions]
        doubled = sorted({n for n in named if named.count(n) > 1})
        if doubled:
            raise SchemaError(
                step,
                "each output column named once",
                f"{doubled} twice",
                "rename the function or the key column",
            )


class AggregationStore(TableStore):
    """A table that says when its rows may have moved, so that indexes over slots are rebuilt."""

    def __init__(
        self,
        context: KernelContext,
        operator: Aggregation,
        keys: Sequence[pa.Field],
        values: Sequence[pa.Field],
    ) -> None:
        """An empty table; `keys` and `values` come in addition to the operator's own."""
        own = operator.key_fields(operator.merges or context.inputs[0].schema)
        routing = (context.routing or operator.key) if own else (EVERYTHING.name,)
        # An operator without a key is in bucket 0, whatever the number of buckets of the flow.
        buckets = context.buckets if own else 1
        super().__init__(
            pa.schema([*(own or [EVERYTHING]), *keys]), pa.schema(list(values)), buckets, routing
        )
        self._own, self._count = len(own), buckets

    def keys_of(self, operator: Aggregation, batch: pa.RecordBatch) -> list[pa.Array]:
        """The operator's key columns of a batch, as the table wants them."""
        if not self._own:
            return [pa.array(np.zeros(batch.num_rows, np.int8))]
        return [decoded_key(batch.column(n)) for n in operator.key]

    def keys_at(self, slots: Ints) -> list[pa.Array]:
        """The operator's key columns of rows; none for an operator without a key."""
        return self.table.keys(slots)[: self._own]

    def release(self, buckets: Collection[int]) -> Any:
        """Give up buckets, by reference."""
        return super().release([b for b in buckets if b < self._count])


class AggregationKernel(Kernel):
    """What the kernels of aggregating operators share."""

    def __init__(
        self,
        context: KernelContext,
        operator: Aggregation,
        keys: Sequence[pa.Field] = (),
        values: Sequence[pa.Field] = (),
    ) -> None:
        """A running copy without state; the table has these columns besides key and states."""
        super().__init__(context)
        self.operator = operator
        self.functions = operator.accumulators(context)
        self.store = AggregationStore(context, operator, keys, [*values, *self.functions.schema])
        self.stores = (self.store,)

    @property
    def table(self) -> KeyedTable:
        """The table with all state."""
        return self.store.table

    def results(self, keys: Sequence[pa.Array], state: Fields) -> list[pa.Array]:
        """One column per function, from the states of these keys."""
        try:
            return self.functions.results(state)
        except TooLarge as error:
            key = [column[error.row].as_py() for column in keys]
            function = self.operator.functions[error.name]
            where = f" for key {(key[0] if len(key) == 1 else tuple(key))!r}" if key else ""
            raise OperatorError(
                self.context.step,
                f"a total of 64 bits in {error.name} = sum({function.column!r})",
                f"{error.total}{where}",
                f"cast {function.column!r} to double before this step, as in .map(…)",
            ) from error

    def result(self, columns: Sequence[pa.Array], positions: Positions) -> Jumbo | None:
        """Results in sequential order; None when there are none."""
        if not len(positions):
            return None
        batch = pa.RecordBatch.from_arrays(list(columns), schema=self.context.outputs[0].schema)
        return in_sequence([Jumbo(batch, positions)])

    def close(self) -> Jumbo | None:
        """The result of every key that is left, at the end of the stream; nothing stays behind."""
        slots = self.table.live()
        if not len(slots):
            return None
        keys = self.store.keys_at(slots)
        results = self.results(keys, self.functions.read(self.table, slots))
        self.table.remove(slots)
        times = np.broadcast_to(np.int64(LAST), len(slots))
        return self.result([*keys, *results], self.apart(times, self.context.closing_rank, keys))

    def apart(self, times: Ints, rank: int, keys: Sequence[pa.Array]) -> Positions:
        """Positions of what stems from no tuple: by time, step and key."""
        return stand_apart(times, rank, keys, self.context.depth)


def in_sequence(parts: Sequence[Jumbo | None]) -> Jumbo | None:
    """All results in sequential order; None when there are none."""
    made = [part for part in parts if part is not None and len(part)]
    if not made:
        return None
    whole = Jumbo.concat(made)
    # Results by key hardly ever stand in order already, so it is not worth asking.
    return whole.take(whole.positions.order())


def stand_apart(times: Ints, rank: int, keys: Sequence[pa.Array], depth: int) -> Positions:
    """Positions (time, rank, order of the key, hash of the key, zeros…, number among equals)."""
    rows = len(times)
    zeros = np.broadcast_to(np.int64(0), rows)
    prefix = order_prefix(keys[0]) if keys else zeros
    mixed = hash_columns(keys).view(np.int64) if keys else zeros
    root = (times, np.broadcast_to(np.int64(rank), rows), prefix, mixed)
    return Positions(root + (zeros,) * depth).extend(_number_among_equals(root, keys))


def _number_among_equals(root: tuple[Ints, ...], keys: Sequence[pa.Array]) -> Ints:
    """0, except where different keys have one hash: those are numbered by their text."""
    rows = len(root[0])
    order = np.lexsort(root[::-1])
    same = np.ones(max(rows - 1, 0), np.bool_)
    for column in root:
        same &= np.diff(column[order]) == 0
    if not same.any():
        return np.broadcast_to(np.int64(0), rows)
    texts = [repr(values) for values in zip(*(k.to_pylist() for k in keys), strict=True)]
    order = np.array(sorted(range(rows), key=lambda r: (*(int(c[r]) for c in root), texts[r])))
    first = np.ones(rows, np.bool_)
    first[1:] = ~same
    numbers = np.empty(rows, np.int64)
    numbers[order] = emission_index(np.cumsum(first))
    return numbers


def decoded_key(column: pa.Array) -> pa.Array:
    """A key column without dictionary encoding."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
