"""CSV files as a sink."""

from __future__ import annotations

import os

import pyarrow as pa
import pyarrow.csv as pa_csv

from anabranch.io.directory_sink import DirectorySink


def csv(directory: str | os.PathLike[str], overwrite: bool = False) -> DirectorySink:
    r"""Write one CSV file with a header per committed version, exactly once.

    Text is quoted, so that null (nothing) and the empty string ("") stay apart.

    Args:
        directory: A local path; made if it does not exist, refused if a fresh start finds files
            in it.
        overwrite: Whether a fresh start replaces earlier output. Only files that a sink wrote are
            ever removed.

    Example:
        >>> import pathlib, tempfile
        >>> from anabranch.io.two_phase_commit import Transactions
        >>> batch = pa.record_batch({"word": ["to", None], "n": [1, 2]})
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> out = Transactions(csv(folder))
        >>> out.open(batch.schema)
        >>> out.write(batch)
        >>> out.commit(0)
        >>> (folder / "part-00000000.csv").read_text()
        '"word","n"\n"to",1\n,2\n'
        >>> out.close()
    """
    return DirectorySink(directory, CsvEncoding(), overwrite)


class CsvEncoding:
    """CSV holds flat values that read back from their text."""

    name = "csv"
    keeps_columns = False

    def unfit(self, schema: pa.Schema) -> pa.Field | None:
        """Nested types, half floats, durations and dictionaries are left to Parquet."""
        return next((field for field in schema if not _flat(field.type)), None)

    def writer(self, path: str, schema: pa.Schema) -> CsvWriter:
        """Begin a file."""
        return CsvWriter(path, schema)


class CsvWriter:
    """Arrow's writer under our names."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        """Begin a file at `path`."""
        self._file = pa_csv.CSVWriter(path, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self._file.write_batch(batch)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _flat(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_boolean(kind)
        or types.is_integer(kind)
        or (types.is_floating(kind) and not types.is_float16(kind))
        or types.is_decimal(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_timestamp(kind)
        or types.is_date(kind)
        or types.is_time(kind)
        or types.is_null(kind)
    )
