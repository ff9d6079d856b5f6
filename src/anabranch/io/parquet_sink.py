"""Parquet files as a sink."""

from __future__ import annotations

import os

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.io.directory_sink import DirectorySink

ROW_GROUP_ROWS = 1 << 17
ROW_GROUP_BYTES = 1 << 27


def parquet(directory: str | os.PathLike[str], overwrite: bool = False) -> DirectorySink:
    """Write one Parquet file per committed version, exactly once, and one without rows.

    The folder is one table for pandas, Arrow and Spark, which has its columns even without rows.

    Args:
        directory: A local path; made if it does not exist, refused if a fresh start finds files
            in it.
        overwrite: Whether a fresh start replaces earlier output. Only files that a sink wrote are
            ever removed.

    Example:
        >>> import tempfile
        >>> from anabranch.io.reading_back import read_back
        >>> from anabranch.io.two_phase_commit import Transactions
        >>> batch = pa.record_batch({"x": [1, 2]})
        >>> folder = tempfile.mkdtemp()
        >>> out = Transactions(parquet(folder))
        >>> out.open(batch.schema)
        >>> out.write(batch)
        >>> read_back(folder).num_rows
        0
        >>> out.commit(0)
        >>> read_back(folder).num_rows
        2
        >>> out.close()
    """
    return DirectorySink(directory, ParquetEncoding(), overwrite)


class ParquetEncoding:
    """Parquet holds every type of Arrow's that streams carry."""

    name = "parquet"
    keeps_columns = True

    def unfit(self, schema: pa.Schema) -> pa.Field | None:
        """Unions are what Parquet lacks."""
        return next((field for field in schema if pa.types.is_union(field.type)), None)

    def writer(self, path: str, schema: pa.Schema) -> ParquetWriter:
        """Begin a file."""
        return ParquetWriter(path, schema)


class ParquetWriter:
    """Gathers small batches, because every write makes a row group, and those have a price."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        """Begin a file at `path`."""
        self._file = pq.ParquetWriter(path, schema)
        self._held: list[pa.RecordBatch] = []
        self._held_rows = 0
        self._held_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Hold the rows until there are enough for a row group."""
        self._held.append(batch)
        self._held_rows += batch.num_rows
        self._held_bytes += batch.nbytes
        if self._held_rows >= ROW_GROUP_ROWS or self._held_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        """Write what is held, and the footer."""
        try:
            self._flush()
        finally:
            self._file.close()

    def _flush(self) -> None:
        if self._held:
            self._file.write_table(pa.Table.from_batches(self._held))
        self._held = []
        self._held_rows = self._held_bytes = 0
