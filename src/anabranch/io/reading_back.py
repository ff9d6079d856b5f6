"""What a directory sink committed, as one table or batch by batch."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa

from anabranch.errors import SinkError, Subject
from anabranch.io.directory_sink import SCHEMA_FILE, committed_files, kept_schema
from anabranch.io.formats import FORMATS, Format, Listed, ReadColumns
from anabranch.io.formats.csv import CsvFormat
from anabranch.io.local_paths import local_path

OWN_FORMATS: dict[str, Format] = {**FORMATS, "csv": CsvFormat(unquoted_nulls=True)}


def read_back(directory: str | os.PathLike[str]) -> pa.Table:
    """Read everything that a `parquet`, `csv` or `jsonl` sink committed, in version order.

    The table has the types that were written, also where the format itself forgets them.

    Example:
        >>> import tempfile
        >>> from anabranch.io.csv_sink import csv
        >>> from anabranch.io.two_phase_commit import Transactions
        >>> batch = pa.record_batch({"n": pa.array([1, None], pa.int8())})
        >>> folder = tempfile.mkdtemp()
        >>> out = Transactions(csv(folder))
        >>> out.open(batch.schema)
        >>> for version in range(2):
        ...     out.write(batch)
        ...     out.commit(version)
        >>> read_back(folder)["n"].to_pylist(), str(read_back(folder).schema.field("n").type)
        ([1, None, 1, None], 'int8')
    """
    batches = list(committed_batches(directory))
    return pa.Table.from_batches(batches, schema=_schema_of(directory))


def committed_batches(directory: str | os.PathLike[str]) -> Iterator[pa.RecordBatch]:
    """Read the same, some rows at a time."""
    path, wanted = _path_of(directory), ReadColumns(_schema_of(directory), exact=False)
    for name in committed_files(path):
        format = OWN_FORMATS[name.rpartition(".")[2]]
        file = os.path.join(path, name)
        for _, batch in format.blocks(file, wanted, 0, Listed.now(file)):
            yield batch


def _schema_of(directory: str | os.PathLike[str]) -> pa.Schema:
    path = _path_of(directory)
    schema = kept_schema(path)
    if schema is None:
        raise SinkError(
            Subject("directory", os.fspath(directory)),
            "a directory that a sink wrote",
            f"no {SCHEMA_FILE} in {path}",
            "pass the directory given to parquet(), csv() or jsonl(), or read it with files()",
        )
    return schema


def _path_of(directory: str | os.PathLike[str]) -> str:
    return local_path(directory, SinkError)
