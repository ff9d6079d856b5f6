"""JSON lines as a sink."""

from __future__ import annotations

import json
import os

import pyarrow as pa

from anabranch.io.directory_sink import DirectorySink


def jsonl(directory: str | os.PathLike[str], overwrite: bool = False) -> DirectorySink:
    r"""Write one file of JSON objects, one a line, per committed version, exactly once.

    Times and decimals are written as text. NaN and infinities are written as NaN and Infinity,
    which most readers of JSON take, though the standard has no such values.

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
        >>> out = Transactions(jsonl(folder))
        >>> out.open(batch.schema)
        >>> out.write(batch)
        >>> out.commit(0)
        >>> (folder / "part-00000000.jsonl").read_text()
        '{"word": "to", "n": 1}\n{"word": null, "n": 2}\n'
        >>> out.close()
    """
    return DirectorySink(directory, JsonlEncoding(), overwrite)


class JsonlEncoding:
    """JSON holds numbers, text, lists and objects; times and decimals at the top level only."""

    name = "jsonl"
    keeps_columns = False

    def unfit(self, schema: pa.Schema) -> pa.Field | None:
        """What has no JSON form that reads back is left to Parquet."""
        return next(
            (f for f in schema if not (_as_text(f.type) or _plain(f.type))),
            None,
        )

    def writer(self, path: str, schema: pa.Schema) -> JsonlWriter:
        """Begin a file."""
        return JsonlWriter(path)


class JsonlWriter:
    """Arrow reads JSON but does not write it; Python does."""

    def __init__(self, path: str) -> None:
        """Begin a file at `path`."""
        self._file = pa.OSFile(path, "wb")

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        columns = {
            field.name: column.cast(pa.string()) if _as_text(field.type) else column
            for field, column in zip(batch.schema, batch.columns, strict=True)
        }
        lines = [json.dumps(row, ensure_ascii=False) for row in pa.table(columns).to_pylist()]
        self._file.write("".join(f"{line}\n" for line in lines).encode())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _as_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_timestamp(kind)
        or types.is_date(kind)
        or types.is_time(kind)
        or types.is_decimal128(kind)
    )


def _plain(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_list(kind):
        return _plain(kind.value_type)
    if types.is_struct(kind):
        return all(_plain(field.type) for field in kind)
    return bool(
        types.is_boolean(kind)
        or types.is_integer(kind)
        or (types.is_floating(kind) and not types.is_float16(kind))
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_null(kind)
    )
