"""Rows in memory as a source, with heartbeats where a test wants them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from anabranch.columns.schemas import SchemaLike
from anabranch.columns.schemas import schema as as_schema
from anabranch.errors import SourceError, Subject
from anabranch.io.source import Chunk, Extent, Source

PART = "memory"
LONGEST = 80

Rows: TypeAlias = "Sequence[Mapping[str, Any]] | pa.Table | pa.RecordBatch"


def memory(
    rows: Rows, schema: SchemaLike = None, heartbeats: Mapping[int, int] | None = None
) -> MemorySource:
    """Read rows that are already here.

    Args:
        rows: A list of dicts (a column that a row leaves out is null), a table or a record batch.
        schema: The columns, as an Arrow schema or as text ("a: int64, b: string"); by default
            those of the rows.
        heartbeats: For a row's index, the time that the source says has passed before that row is
            read; the number of rows as index means after the last one. No chunk crosses one, so
            each stands at its row however the source is read. Index 0 has nothing before it that
            could carry a heartbeat: that one comes with row 0, in a chunk of its own.

    Example:
        >>> source = memory([{"t": 1}, {"t": 2}, {"t": 9}], heartbeats={2: 8})
        >>> chunk = source.read("memory", start=0, rows=10)
        >>> chunk.batch.to_pylist(), chunk.passed
        ([{'t': 1}, {'t': 2}], 8)
        >>> source.read("memory", start=2, rows=10).passed is None
        True
    """
    return MemorySource(rows, schema, heartbeats)


class MemorySource(Source):
    """See `memory`."""

    def __init__(
        self, rows: Rows, schema: SchemaLike, heartbeats: Mapping[int, int] | None
    ) -> None:
        """Turn the rows into one batch, and check that they fit."""
        wanted = None if schema is None else as_schema(schema, Subject("source", "memory"))
        self._batch = self._one_batch(rows, wanted)
        self._heartbeats = dict(sorted((heartbeats or {}).items()))
        self._check_heartbeats()
        if 0 in self._heartbeats:
            # A chunk that ends at row 0 is empty: an engine that keeps offsets would ask again for
            # row 0 forever. After row 0, which cannot be older, the heartbeat is still true.
            before_all = self._heartbeats.pop(0)
            self._heartbeats.setdefault(1, before_all)
        self._cuts = sorted(self._heartbeats)

    def __repr__(self) -> str:
        """The description that errors use."""
        return "memory"

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return self._batch.schema

    @property
    def bounded(self) -> bool:
        """There are as many rows as were given."""
        return True

    @property
    def order(self) -> str:
        """Rows are ordered as given."""
        return "index"

    def parts(self) -> tuple[str, ...]:
        """One part."""
        return (PART,)

    def read(self, part: str, start: int, rows: int) -> Chunk | None:
        """At most `rows` rows from row `start` on, up to the next heartbeat; None at the end."""
        if start >= self._batch.num_rows:
            return None
        end = min(start + rows, self._batch.num_rows)
        next_cut = bisect_right(self._cuts, start)
        if next_cut < len(self._cuts):
            end = min(end, self._cuts[next_cut])
        return Chunk(self._batch.slice(start, end - start), self._heartbeats.get(end))

    def extent(self, part: str) -> Extent:
        """Every row is at hand."""
        return Extent(self._batch.num_rows, exact=True, seekable=True)

    def _one_batch(self, rows: Rows, schema: pa.Schema | None) -> pa.RecordBatch:
        if isinstance(rows, pa.RecordBatch):
            table = pa.Table.from_batches([rows])
        elif isinstance(rows, pa.Table):
            table = rows
        else:
            return self._from_dicts(list(rows), schema)
        if schema is not None:
            columns = [self._cast(table, field) for field in schema]
            table = pa.Table.from_arrays(columns, schema=schema)
        return _combined(table)

    def _cast(self, table: pa.Table, field: pa.Field) -> pa.ChunkedArray:
        if field.name not in table.column_names:
            raise self._error(
                f"a column {field.name!r}", str(table.column_names), "leave it out of the schema"
            )
        try:
            return table.column(field.name).cast(field.type)
        except pa.ArrowException as error:
            expected = f"a column {field.name!r} of {field.type}"
            raise self._error(expected, str(error), "repair the rows, or the schema") from error

    def _from_dicts(
        self, rows: list[Mapping[str, Any]], schema: pa.Schema | None
    ) -> pa.RecordBatch:
        for number, row in enumerate(rows):
            if not isinstance(row, Mapping):
                raise self._error(
                    "rows as dicts, a table or a record batch",
                    f"{row!r} as row {number}",
                    "wrap it",
                )
        # Arrow takes the columns from the first row alone, and would drop what only others have.
        names = list(dict.fromkeys(name for row in rows for name in row))
        if schema is None:
            if not names:
                raise self._error("rows, or schema=", "neither", "pass schema=")
            return _combined(pa.table({name: self._column(rows, name) for name in names}))
        if unknown := [name for name in names if name not in schema.names]:
            raise self._error(
                f"columns {schema.names}", f"{unknown[0]!r}", "leave it out or add it to the schema"
            )
        columns = [self._column(rows, field.name, field.type) for field in schema]
        return _combined(pa.Table.from_arrays(columns, schema=schema))

    def _column(
        self, rows: Sequence[Mapping[str, Any]], name: str, kind: pa.DataType | None = None
    ) -> pa.Array:
        values = [row.get(name) for row in rows]
        try:
            return pa.array(values, kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            # Rows before the first bad one are fine together, and no longer with it.
            bad = bisect_left(
                range(1, len(values)), True, key=lambda n: not _fits(values[:n], kind)
            )
            if kind is not None:
                expected, behind, remedy = f"values of {kind}", "", "repair the rows, or the schema"
            else:
                before = f" behind {pa.array(values[:bad]).type}" if bad else ""
                expected, behind, remedy = "values of one type", before, "repair the rows"
            raise self._error(
                f"{expected} in column {name!r}",
                f"{shortened(values[bad])} in row {bad}{behind}",
                remedy,
            ) from error

    def _check_heartbeats(self) -> None:
        rows = self._batch.num_rows
        earlier = None
        for index, passed in self._heartbeats.items():
            if not 0 <= index <= rows:
                raise self._error(
                    f"heartbeats at 0 to {rows}", f"one at {index}", "move it to a row that exists"
                )
            if earlier is not None and passed < earlier:
                raise self._error(
                    "heartbeats that never go back",
                    f"{passed} at {index} after {earlier}",
                    "make them non-decreasing",
                )
            earlier = passed

    def _error(self, expected: str, got: str, remedy: str) -> SourceError:
        return SourceError(Subject("source", repr(self)), expected, got, remedy)


def shortened(value: Any) -> str:
    """A value in words that fit a line."""
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _fits(values: Sequence[Any], kind: pa.DataType | None) -> bool:
    try:
        pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False
    return True


def _combined(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if batches:
        return pa.concat_batches(batches)
    arrays = [pa.array([], field.type) for field in table.schema]
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema)
