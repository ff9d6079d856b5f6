"""Lookup: columns of a small table beside every tuple whose key is in it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.columns.schemas import check_key_types, column_names, columns_of
from anabranch.errors import BuildError, SchemaError, Subject, chosen
from anabranch.graph import StreamType
from anabranch.operators.base import Kernel, KernelContext, required_key
from anabranch.operators.row_wise.map_filter_expand import BatchKernel, Expand
from anabranch.state.positions import Ints
from anabranch.state.tables.row_segment import Segment, key_hashes, same_keys

_CHUNK_ROWS = 1 << 16
LOOKUP = Subject("operator", "lookup")


class How(Enum):
    """What becomes of a tuple whose key the table lacks: it is dropped, or gets nulls."""

    INNER = "inner"
    LEFT = "left"


class Lookup(Expand):
    """Match each tuple with all rows of a table that have its key; null matches nothing."""

    def __init__(
        self,
        table: Any,
        key: str | Sequence[str],
        how: How | str = How.INNER,
        columns: str | Sequence[str] | None = None,
    ) -> None:
        """Describe; the table is read when the first kernel of a process starts."""
        self.key_names = required_key(LOOKUP, key)
        self.table, self.how = table, chosen(LOOKUP, "how", how, How)
        given = _schema(table)
        check_key_types(LOOKUP, self.key_names, given)
        if columns is None:
            columns = [name for name in given.names if name not in self.key_names]
        added = column_names(columns, "columns", LOOKUP)
        columns_of(LOOKUP, added, given)
        super().__init__(self._match, pa.schema([given.field(n) for n in added]), keeps="*")
        self.__name__, self.__doc__ = "lookup", type(self).__doc__
        self._keys = pa.schema([given.field(n) for n in self.key_names])
        self._index: Segment | None = None

    def outputs(self, step: str, inputs: tuple[StreamType, ...]) -> tuple[StreamType, ...]:
        """All that came in, then the columns of the table."""
        given = inputs[0].schema
        columns_of(step, self.key_names, given)
        for name in self.key_names:
            if given.field(name).type != self._keys.field(name).type:
                raise SchemaError(
                    step,
                    f"key {name!r} of type {self._keys.field(name).type}, as in the table",
                    str(given.field(name).type),
                    "cast one of the two",
                )
        clashing = [name for name in self.out.names if name in given.names]
        if clashing:
            raise SchemaError(
                step,
                "columns of the table that the stream does not have",
                f"{clashing}",
                "choose others with columns=, or rename them in the table",
            )
        return super().outputs(step, inputs)

    def kernel(self, context: KernelContext) -> Kernel:
        """A running copy; all of them look into one table in memory."""
        loaded = copy.copy(self)
        loaded._index = context.shared.once(self._in_memory)
        loaded.function = loaded._match
        return BatchKernel(context, loaded)

    def _in_memory(self) -> Segment:
        """The table by its keys, without rows that no key can match."""
        rows = _load(self.table, [*self.key_names, *self.out.names])
        valid = np.ones(rows.num_rows, np.bool_)
        for name in self.key_names:
            valid &= pc.is_valid(rows.column(name)).to_numpy(zero_copy_only=False)
        rows = rows if valid.all() else rows.filter(pa.array(valid))
        return _indexed(rows, self.key_names)

    def _match(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Ints]:
        """All matches of each row, in the order of the table."""
        assert self._index is not None
        probe = _indexed(batch, self.key_names)
        mine, theirs = probe.candidates(self._index)
        keys = probe.columns(self.key_names, mine)
        same = same_keys(keys, self._index.columns(self.key_names, theirs))
        if same is not None:
            mine, theirs = mine[same], theirs[same]
        parents, matches = probe.rows.take(mine), self._index.rows.take(theirs)
        if self.how is How.LEFT:
            lone = np.ones(batch.num_rows, np.bool_)
            lone[parents] = False
            parents = np.concatenate([parents, np.flatnonzero(lone)])
            matches = np.concatenate([matches, np.full(np.count_nonzero(lone), -1)])
        order = np.argsort(parents, kind="stable")
        parents, matches = parents.take(order), matches.take(order)
        index = pa.array(matches, mask=matches < 0)
        found = [self._index.batch.column(name).take(index) for name in self.out.names]
        return pa.RecordBatch.from_arrays(found, schema=self.out), parents


def _indexed(batch: pa.RecordBatch, key: tuple[str, ...]) -> Segment:
    nothing = np.zeros(batch.num_rows, np.int64)
    return Segment.of(batch, key_hashes(batch, key), nothing, nothing)


def _schema(table: Any) -> pa.Schema:
    if isinstance(getattr(table, "schema", None), pa.Schema):
        if hasattr(table, "read") and hasattr(table, "parts") and not table.bounded:
            raise BuildError(
                LOOKUP, "a bounded source", f"{table!r}, which never ends", "join with it instead"
            )
        return table.schema
    if hasattr(table, "to_table"):
        return table.to_table().schema
    raise BuildError(
        LOOKUP,
        "a pyarrow.Table, a source, or something with to_table()",
        type(table).__name__,
        "pass one of those",
    )


def _load(table: Any, names: Sequence[str]) -> pa.RecordBatch:
    """The needed columns of the whole table, as one batch."""
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    elif hasattr(table, "to_table"):
        table = table.to_table()
    elif not isinstance(table, pa.Table):
        table = _read(table)
    selected = table.select(list(dict.fromkeys(names))).combine_chunks()
    batches = selected.to_batches()
    if batches:
        return pa.concat_batches(batches)
    arrays = [pa.array([], f.type) for f in selected.schema]
    return pa.RecordBatch.from_arrays(arrays, schema=selected.schema)


def _read(source: Any) -> pa.Table:
    """All parts of a bounded source, one after another."""
    batches = []
    for part in source.parts():
        start = 0
        while (chunk := source.read(part, start, _CHUNK_ROWS)) is not None:
            batches.append(chunk.batch)
            start += chunk.batch.num_rows
    return pa.Table.from_batches(batches, schema=source.schema)


def lookup(
    table: Any,
    key: str | Sequence[str],
    how: How | str = How.INNER,
    columns: str | Sequence[str] | None = None,
) -> Lookup:
    """Add columns of a table that does not change while the flow runs.

    Args:
        table: A pyarrow.Table, a bounded source, or anything with `to_table()` (a dataset).
        key: Columns of the same names in the stream and in the table. A key that the table has
            several times gives several tuples, in the order of the table.
        how: `inner` drops tuples without a match, `left` keeps them with nulls.
        columns: Which columns of the table to add; all but the key when left out.

    Example:
        >>> countries = pa.table({"code": ["fr", "no"], "country": ["France", "Norway"]})
        >>> lookup(countries, key="code").out.names
        ['country']
    """
    return Lookup(table, key, how, columns)
