"""Parquet files, read row group by row group."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.io.formats.format import Block, Wanted, require_columns, select
from anabranch.io.source import Extent

BLOCK_ROWS = 1 << 16


class ParquetFormat:
    """Parquet: types come with the file, and a late row is found through the footer."""

    suffixes = (".parquet",)
    seekable = True

    def infer(self, path: str) -> pa.Schema | None:
        """The schema in the footer."""
        return pq.read_schema(path)

    def extent(self, path: str) -> Extent:
        """The footer knows."""
        return Extent(pq.read_metadata(path).num_rows, exact=True, seekable=True)

    def blocks(self, path: str, wanted: Wanted, start: int) -> Iterator[Block]:
        """Blocks from the row group that holds `start`; never a whole file in memory."""
        # Mapped, pages are decoded where the system keeps them; reading would copy them first.
        with pq.ParquetFile(path, memory_map=True) as file:
            require_columns(path, file.schema_arrow, wanted)
            everything = set(file.schema_arrow.names) == set(wanted.schema.names)
            columns = None if everything else wanted.schema.names
            first = 0
            for group in range(file.num_row_groups):
                size = file.metadata.row_group(group).num_rows
                if first + size > start:
                    row = first
                    batches = file.iter_batches(BLOCK_ROWS, row_groups=[group], columns=columns)
                    for batch in batches:
                        yield row, select(batch, wanted.schema)
                        row += batch.num_rows
                first += size
