"""The command `anabranch data`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import typer

from anabranch.cli.finding import AppName, Settings, find_flow
from anabranch.columns.rows import python_rows
from anabranch.errors import SinkError, Subject, UnknownNameError
from anabranch.graph import Role
from anabranch.io.local_paths import local_option
from anabranch.io.source import Source


def register(cli: typer.Typer) -> None:
    """Add the command to a command line."""
    cli.command("data")(write_data)


def write_data(
    name: AppName,
    out: Annotated[
        Path,
        typer.Option(
            help=f"A file; its ending says the format: {', '.join(WRITERS)}.", callback=local_option
        ),
    ],
    rows: Annotated[int, typer.Option(min=0, help="How many rows of the source.")] = 100_000,
    source: Annotated[
        str | None, typer.Option(help="Which source, where the application has several.")
    ] = None,
    settings: Settings = None,
) -> None:
    """Write the data that an application generates to a file.

    The file is for `--input`, or for other programs. Your own files need the same columns,
    which `anabranch apps APP` lists.
    """
    flow = find_flow(name, settings=settings, endless=True)
    sources = flow.names(Role.SOURCE)
    if source is None and len(sources) == 1:
        source = sources[0]
    if source not in sources:
        raise UnknownNameError(
            Subject("application", name),
            f"--source with one of {list(sources)}",
            str(source),
            "name one of them",
        )
    if out.suffix not in WRITERS:
        raise UnknownNameError(
            Subject("file", str(out)),
            f"a file that ends with one of {list(WRITERS)}",
            out.name,
            "name it so",
        )
    written = save(flow.sources()[source], out, rows)
    typer.echo(f"{written:,} rows of {source!r} are in {out}")


# A source's rows as one file, in a format that users have.

AT_ONCE = 1 << 16

Batches = Iterator[pa.RecordBatch]


def save(source: Source, path: Path, rows: int) -> int:
    """Write at most `rows` rows of a source; how many there were.

    Example:
        >>> import tempfile
        >>> from anabranch.io import memory
        >>> file = Path(tempfile.mkdtemp(), "rows.csv")
        >>> save(memory([{"x": 1}, {"x": 2}]), file, rows=10)
        2
        >>> print(file.read_text().splitlines())
        ['"x"', '1', '2']
    """
    written = 0

    def counted() -> Batches:
        nonlocal written
        for part in source.parts():
            start = 0
            while written < rows:
                chunk = source.read(part, start, min(AT_ONCE, rows - written))
                if chunk is None:
                    break
                start += chunk.batch.num_rows
                written += chunk.batch.num_rows
                yield chunk.batch

    lines = len(source.schema) == 1 and pa.types.is_string(source.schema.field(0).type)
    # Lines are written as lines, which is how they are read; Parquet knows nothing of lines.
    write = _text if lines and path.suffix != ".parquet" else WRITERS[path.suffix]
    try:
        write(path, source.schema, counted())
    except OSError as error:
        raise SinkError(
            Subject("file", str(path)),
            "a file that can be written",
            error.strerror or str(error),
            "name another",
        ) from error
    return written


def _parquet(path: Path, schema: pa.Schema, batches: Batches) -> None:
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _csv(path: Path, schema: pa.Schema, batches: Batches) -> None:
    nested = [field.name for field in schema if pa.types.is_nested(field.type)]
    if nested:
        raise SinkError(
            Subject("file", str(path)),
            "columns of single values",
            f"{nested}, which hold several",
            "write .jsonl or .parquet",
        )
    with pyarrow.csv.CSVWriter(path, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _jsonl(path: Path, schema: pa.Schema, batches: Batches) -> None:
    with path.open("w", encoding="utf-8") as file:
        for batch in batches:
            # Arrow writes times as it reads them, with as many digits as their unit has.
            columns = [c.cast(pa.string()) if pa.types.is_temporal(c.type) else c for c in batch]
            texts = pa.table(columns, names=batch.schema.names)
            file.writelines(
                json.dumps(row, ensure_ascii=False) + "\n" for row in python_rows(texts)
            )


def _text(path: Path, schema: pa.Schema, batches: Batches) -> None:
    if len(schema) != 1:
        raise SinkError(
            Subject("file", str(path)),
            "one column of texts",
            f"{schema.names}",
            "write .csv, .jsonl or .parquet",
        )
    with path.open("w", encoding="utf-8") as file:
        for batch in batches:
            file.writelines(f"{line}\n" for line in batch.column(0).to_pylist())


WRITERS: dict[str, Callable[[Path, pa.Schema, Batches], None]] = {
    ".parquet": _parquet,
    ".csv": _csv,
    ".jsonl": _jsonl,
    ".txt": _text,
    ".log": _text,
}
"""How a file is written, by the ending of its name."""
