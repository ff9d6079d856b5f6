"""What a directory sink committed, as one table."""

from __future__ import annotations

import os

import pyarrow as pa

from anabranch.errors import SinkError, Subject
from anabranch.io.directory import SCHEMA_FILE, committed_files, kept_schema
from anabranch.io.formats import FORMATS, Format, Wanted
from anabranch.io.formats.csv import CsvFormat

OWN_FORMATS: dict[str, Format] = {**FORMATS, "csv": CsvFormat(unquoted_nulls=True)}


def read_back(directory: str | os.PathLike[str]) -> pa.Table:
    """Read everything that a `parquet`, `csv` or `jsonl` sink committed, in version order.

    The table has the types that were written, also where the format itself forgets them.

    Example:
        >>> import tempfile
        >>> from anabranch.io.csv import csv
        >>> batch = pa.record_batch({"n": pa.array([1, None], pa.int8())})
        >>> folder = tempfile.mkdtemp()
        >>> sink = csv(folder)
        >>> sink.open(batch.schema, version=-1)
        >>> for version in range(2):
        ...     sink.write(batch)
        ...     sink.commit(version)
        >>> read_back(folder)["n"].to_pylist(), str(read_back(folder).schema.field("n").type)
        ([1, None, 1, None], 'int8')
    """
    path = os.path.abspath(os.fspath(directory))
    schema = kept_schema(path)
    if schema is None:
        raise SinkError(
            Subject("directory", os.fspath(directory)),
            "a directory that a sink wrote",
            f"no {SCHEMA_FILE} in {path}",
            "pass the directory given to parquet(), csv() or jsonl(), or read it with files()",
        )
    wanted = Wanted(schema, exact=False)
    batches = []
    for name in committed_files(path):
        format = OWN_FORMATS[name.rpartition(".")[2]]
        batches += [batch for _, batch in format.blocks(os.path.join(path, name), wanted, 0)]
    return pa.Table.from_batches(batches, schema=schema)
