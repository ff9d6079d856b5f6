"""Parquet files, read row group by row group."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.columns.casting import fit
from anabranch.io.formats.format import (
    Block,
    Listed,
    ReadColumns,
    require_columns,
    select,
)
from anabranch.io.source import Extent

BLOCK_ROWS = 1 << 16


class ParquetFormat:
    """Parquet: types come with the file, and a late row is found through the footer."""

    suffixes = (".parquet",)
    refuses_early = False

    def infer(self, path: str) -> pa.Schema | None:
        """The schema in the footer."""
        return pq.read_schema(path)

    def extent(self, path: str, listed: Listed) -> Extent:
        """The footer knows."""
        return Extent(pq.read_metadata(path).num_rows, exact=True, seekable=True)

    def blocks(self, path: str, wanted: ReadColumns, start: int, listed: Listed) -> Iterator[Block]:
        """Blocks from the row group that holds `start`; never a whole file in memory."""
        # Mapped, pages are decoded where the system keeps them; reading would copy them first.
        with pq.ParquetFile(path, memory_map=True) as file:
            require_columns(path, file.schema_arrow, wanted)
            for row, batch in _batches(file, wanted.schema.names, start):
                yield row, select(batch, wanted.schema)


class FittedParquetFormat(ParquetFormat):
    """Parquet files of which each may have columns of other types, or none of a name.

    The last column wanted is of texts, and not in the files: it says why a value of a row, which is
    null then, does not fit the type that is wanted. Of a good row it is null.
    """

    def blocks(self, path: str, wanted: ReadColumns, start: int, listed: Listed) -> Iterator[Block]:
        """The same blocks, each column in the type that is wanted."""
        *fields, _ = wanted.schema
        with pq.ParquetFile(path, memory_map=True) as file:
            names = [field.name for field in fields if field.name in file.schema_arrow.names]
            for row, batch in _batches(file, names, start):
                yield row, _fitted(batch, fields, wanted.schema)


def _batches(file: pq.ParquetFile, names: list[str], start: int) -> Iterator[Block]:
    """Batches of some columns, from the one that holds a row on."""
    everything = set(file.schema_arrow.names) == set(names)
    first = 0
    for group in range(file.num_row_groups):
        size = file.metadata.row_group(group).num_rows
        if first + size > start:
            row = first
            columns = None if everything else names
            for batch in file.iter_batches(BLOCK_ROWS, row_groups=[group], columns=columns):
                yield row, batch
                row += batch.num_rows
        first += size


def _fitted(batch: pa.RecordBatch, fields: list[pa.Field], schema: pa.Schema) -> pa.RecordBatch:
    columns: list[pa.Array] = []
    why: dict[int, str] = {}
    for field in fields:
        if field.name in batch.schema.names:
            column, unfit = fit(batch.column(field.name), field)
            why = unfit | why
        else:
            column = pa.nulls(batch.num_rows, field.type)
        columns.append(column)
    said = pa.nulls(batch.num_rows, pa.string())
    if why:
        said = pa.array([why.get(row) for row in range(batch.num_rows)], pa.string())
    return pa.RecordBatch.from_arrays([*columns, said], schema=schema)
