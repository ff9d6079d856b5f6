"""Keyed batch style: whole batches of all keys at once, against columnar state.

The author's function gets the batch and a handle on the state of exactly the keys in it: one value
per distinct key, read and written as NumPy arrays. One call per jumbo tuple, not one per bucket or
key. Writes reach the table when the function has returned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.columns.schemas import SchemaLike, schema, to_batch
from anabranch.errors import Subject
from anabranch.graph import StateKind
from anabranch.operators.base import (
    Kernel,
    KernelContext,
    OnError,
    Outputs,
    key_columns,
)
from anabranch.operators.decorator import decorator
from anabranch.operators.row_wise.map_filter_expand import (
    BatchOperator,
    attach,
    guarded,
    to_parents,
)
from anabranch.state.positions import Ints, Jumbo, Root
from anabranch.state.tables.keyed_table import KeyedTable
from anabranch.state.tables.table_store import TableStore


class KeyedState:
    """The state of the keys of one batch.

    Attributes:
        codes: For each row, the number of its key within this batch (0, 1, … by first occurrence).
        groups: How many distinct keys the batch has.
        fresh: For each distinct key, whether it was never seen before.

    `state["column"]` is one value per distinct key; assigning replaces it.
    """

    def __init__(self, table: KeyedTable, keys: Sequence[pa.Array]) -> None:
        """Find or insert the keys of a batch."""
        self._table = table
        found = table.groups(keys)
        self._slots, self.codes, self.fresh = found.slots, found.codes, found.fresh
        self.groups = len(self._slots)
        self._written: dict[str, npt.NDArray[Any]] = {}
        self._lent = False  # whether objects were handed out, which may be changed in place

    def __getitem__(self, column: str) -> npt.NDArray[Any]:
        """One value per distinct key."""
        if column in self._written:
            return self._written[column]
        values = self._table.get(column, self._slots)
        self._lent |= values.dtype.hasobject
        return values

    def __setitem__(self, column: str, values: npt.NDArray[Any]) -> None:
        """Replace the values, one per distinct key; buffered until the operator returns."""
        if np.shape(values) != (self.groups,):
            raise ValueError(
                f"state[{column!r}] takes {self.groups} values, one per distinct key, "
                f"got shape {np.shape(values)}"
            )
        kind = self._table.get(column, self._slots[:0]).dtype
        # Converted now, so that nothing can fail once the writes begin to reach the table.
        self._written[column] = np.asarray(values).astype(kind, casting="same_kind")

    def commit(self) -> None:
        """Let the writes reach the table."""
        for column, values in self._written.items():
            self._table.set(column, self._slots, values)
        if self._lent:
            self._table.touch(self._slots)

    def abandon(self) -> None:
        """Forget the writes and the keys that came only with this batch."""
        self._table.remove(self._slots[self.fresh])


KeyedFunction = Callable[[pa.RecordBatch, KeyedState], Any]


class KeyedBatch(BatchOperator[[pa.RecordBatch, KeyedState]]):
    """A function of (batch, state) with columnar state per key."""

    state = StateKind.PARTITIONED

    def __init__(
        self,
        function: KeyedFunction,
        key: str | Sequence[str],
        state: SchemaLike,
        out: SchemaLike = None,
        keeps: str | Sequence[str] = (),
        on_error: OnError | str = OnError.FAIL,
    ) -> None:
        """Describe; nothing runs."""
        super().__init__(function, out, keeps, on_error)
        about = Subject("operator", self.__name__)
        self.key = key_columns(key, about)
        self.values = schema(state, about)

    def levels(self, depth: int) -> int:
        """One more: a row may cause several."""
        return depth + 1

    def kernel(self, context: KernelContext) -> Kernel:
        """A running copy."""
        return KeyedBatchKernel(context, self)

    def call(
        self, step: str, batch: pa.RecordBatch, state: KeyedState
    ) -> tuple[pa.RecordBatch, Ints | None]:
        """Call the author's function; a tuple is (columns, parents), else rows in = rows out."""
        result = self.function(batch, state)
        if isinstance(result, tuple):
            columns = to_batch(step, result[0], self.out, None)
            return columns, to_parents(step, result[1], batch.num_rows, columns)
        return to_batch(step, result, self.out, batch.num_rows), None


class KeyedBatchKernel(Kernel):
    """Runs a keyed batch function."""

    def __init__(self, context: KernelContext, operator: KeyedBatch) -> None:
        """A running copy without state."""
        super().__init__(context)
        self._operator = operator
        self._store = TableStore(
            pa.schema([context.inputs[0].schema.field(n) for n in operator.key]),
            operator.values,
            context.buckets,
            context.routing or operator.key,
        )
        self.stores = (self._store,)

    def step(self, inputs: Sequence[Jumbo | None], frontier: Root) -> Outputs:
        """One call per jumbo tuple, more only when it raises."""
        return guarded(self._operator, self.context, inputs[0], self._run)

    def _run(self, source: Jumbo) -> Jumbo:
        operator, context = self._operator, self.context
        state = KeyedState(self._store.table, [source.batch.column(n) for n in operator.key])
        try:
            columns, parents = operator.call(context.step, source.batch, state)
        except Exception:
            state.abandon()
            raise
        state.commit()
        if parents is None:
            parents = np.arange(len(source), dtype=np.int64)
        return attach(operator, context, source, columns, parents, expands=True)


@decorator('@ab.keyed(key="column", state="name: type", out="name: type")')
def keyed(
    function: KeyedFunction,
    /,
    *,
    key: str | Sequence[str],
    state: SchemaLike,
    out: SchemaLike = None,
    keeps: str | Sequence[str] = (),
    on_error: OnError | str = OnError.FAIL,
) -> KeyedBatch:
    """Make a function of (batch, state) an operator with columnar state per key.

    Example:
        >>> @keyed(key="word", state="n: int64", out="n: int64", keeps="word")
        ... def seen_so_far(batch, state):
        ...     per_key = np.bincount(state.codes, minlength=state.groups)
        ...     before = state["n"]
        ...     state["n"] = before + per_key
        ...     return {"n": before[state.codes]}
        >>> seen_so_far.key
        ('word',)
    """
    return KeyedBatch(function, key, state, out, keeps, on_error)
