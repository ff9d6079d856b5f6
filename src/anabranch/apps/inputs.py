"""The user's own files as the input of an application, row by row: a bad row harms no other.

Text, CSV and JSON lines are read as lines and parsed by a step of the flow, so what does not parse
is counted and leaves to a sink of its own. Parquet files carry their types and are read as such.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import SchemaError, UnknownNameError
from anabranch.flow import Flow, Stream
from anabranch.io import collect, files
from anabranch.io.files import Paths
from anabranch.io.formats import COMPRESSED
from anabranch.operators.parse import nullable, parse_csv, parse_json

Input = Paths | Mapping[str, Paths]
"""Files, or files by source where an application has several."""

FAR = timedelta(days=365)
"""No data have such a gap: a time so far ahead of all others is wrong, and is set aside."""

LINE = "line"
JSON_SUFFIXES = (".jsonl", ".json", ".ndjson")


def paths_of(input: Input, source: str, sources: Sequence[str]) -> Paths:
    """The files of one of several sources.

    Example:
        >>> paths_of({"trades": "t.csv", "quotes": "q.csv"}, "quotes", ["trades", "quotes"])
        'q.csv'
    """
    if isinstance(input, Mapping) and set(input) == set(sources):
        return input[source]
    if not isinstance(input, Mapping) and len(sources) == 1:
        return input
    got = sorted(input) if isinstance(input, Mapping) else "files without a name"
    raise UnknownNameError(
        "input",
        f"files for each of {list(sources)}",
        str(got),
        "give " + " ".join(f"--input {each}=FILES" for each in sources),
    )


def read_rows(flow: Flow, name: str, paths: Paths, columns: pa.Schema) -> Stream:
    """Rows of files with the wanted columns; what does not parse goes to the sink `<name>.bad`.

    Args:
        flow: Where the source `name`, and for texts the step `<name>.parse`, are added.
        name: What the source is called.
        paths: CSV (with a line of column names), JSON lines or Parquet, by the suffix.
        columns: What to read; a file may have more. A row needs a value in those that are not
            nullable.
    """
    kind = suffix(files(paths, format="text").parts()[0])
    if kind == ".parquet":
        typed = flow.source(name, files(paths, format="parquet", schema=nullable(columns)))
        parsed = typed.map(f"{name}.parse", _complete(columns), keeps="*", on_error="side")
    elif kind in JSON_SUFFIXES:
        lines = flow.source(name, files(paths, format="text"))
        parsed = lines.apply(f"{name}.parse", parse_json(LINE, columns, on_error="side"))
    else:
        lines = flow.source(name, files(paths, format="text"))
        parsed = _csv(lines, name, _first_line(paths), columns)
    parsed.errors.sink(f"{name}.bad", collect())
    if parsed.schema.names == columns.names:
        return parsed
    return parsed.map(
        f"{name}.columns",
        lambda batch: {each: batch[each] for each in columns.names},
        out=nullable(columns),
    )


def suffix(path: str) -> str:
    """The ending of a file's name, without that of its compression.

    Example:
        >>> suffix("trades.csv.gz")
        '.csv'
    """
    stem, last = os.path.splitext(path)
    return (os.path.splitext(stem)[1] if last.lower() in COMPRESSED else last).lower()


def _complete(columns: pa.Schema) -> Callable[[pa.RecordBatch], dict[str, Any]]:
    required = [field.name for field in columns if not field.nullable]

    def complete(batch: pa.RecordBatch) -> dict[str, Any]:
        for name in required:
            if batch[name].null_count:
                raise ValueError(f"no value for {name!r}")
        return {}

    return complete


def _csv(lines: Stream, name: str, header: str | None, columns: pa.Schema) -> Stream:
    found = columns.names if header is None else next(csv.reader([header], skipinitialspace=True))
    missing = [each for each in columns.names if each not in found]
    if missing:
        raise SchemaError(
            name,
            f"a first line with the columns {columns.names}",
            f"{found}, without {missing}",
            "name the columns in the first line, or write the rows as JSON lines",
        )
    # A record must be parsed as a whole; columns that nobody asked for are texts until then.
    record = pa.schema(
        [columns.field(each) if each in columns.names else (each, pa.string()) for each in found]
    )

    def is_data(batch: pa.RecordBatch) -> Any:
        return pc.not_equal(batch[LINE], header)

    rows = lines if header is None else lines.filter(f"{name}.data", is_data)
    return rows.apply(f"{name}.parse", parse_csv(LINE, record, on_error="side"))


def _first_line(paths: Paths) -> str | None:
    """The first line of the first file that has one."""
    source = files(paths, format="text")
    for part in source.parts():
        chunk = source.read(part, 0, 1)
        if chunk is not None:
            return str(chunk.batch[LINE][0])
    return None
