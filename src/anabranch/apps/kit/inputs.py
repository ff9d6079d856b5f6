r"""The user's own files as the input of an application, row by row: a bad row harms no other.

Text, CSV and JSON lines are read as lines and parsed by a step of the flow, so what does not parse
is counted and leaves to a sink of its own. Parquet files carry their types; what does not fit the
wanted ones leaves in the same way.

Bytes that are no UTF-8 come as U+FFFD, the replacement character. Two keys that differ in nothing
but such bytes would become one, so a CSV or JSON line with that character is bad; a file that holds
it on purpose can write it as \ufffd in JSON.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.apps.kit.columns import beyond_calendar, trouble_with
from anabranch.columns.casting import can_fit
from anabranch.columns.text_parsers import Csv, Grammar, Json, Parsed, nullable
from anabranch.errors import SchemaError, SourceError, Subject, UnknownNameError
from anabranch.flow import Flow, Stream
from anabranch.graph import StreamType
from anabranch.io import collect, files
from anabranch.io.files_source import FilesSource, Paths
from anabranch.io.formats import COMPRESSED
from anabranch.io.formats.parquet import FittedParquetFormat
from anabranch.operators.base import Kernel, KernelContext, Outputs
from anabranch.operators.parsing.parse import Parse
from anabranch.operators.row_wise.map_filter_expand import ERROR
from anabranch.operators.row_wise.screen import Screen, screen
from anabranch.state.positions import Jumbo, Root

Input = Paths | Mapping[str, Paths]
"""Files, or files by source where an application has several."""

FAR = timedelta(days=365)
"""A time so far ahead of all others is wrong, and is set aside. Where it is the first behind such a
gap in the data, so are the next ones, until the clock believes them (`operators/far_times.py`)."""

LINE = "line"
NO_CHARACTER = "\ufffd"
KINDS = {".parquet": "Parquet", ".jsonl": "JSON", ".json": "JSON", ".ndjson": "JSON"}
"""Formats by suffix; files with any other suffix are read as CSV."""


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
        Subject("argument", "input"),
        f"files for each of {list(sources)}",
        str(got),
        "give " + " ".join(f"--input {each}=FILES" for each in sources),
    )


def read_rows(flow: Flow, name: str, paths: Paths, columns: pa.Schema) -> Stream:
    """Rows of files with the wanted columns; what does not parse goes to the sink `<name>.bad`.

    Args:
        flow: Where the source `name`, and the step `<name>.parse`, are added.
        name: What the source is called.
        paths: CSV (with a line of column names in the first file, the same in all that have one),
            JSON lines or Parquet, by the suffix.
        columns: What to read; a file may have more. A row needs a value in those that are not
            nullable; in CSV an empty string is none. A file may lack those that are, and a Parquet
            file may have other types in which such values can be written.
    """
    kind = _kind(name, files(paths, format="text").parts())
    if kind == "Parquet":
        parsed = parquet_rows(flow, name, paths, columns)
    elif kind == "JSON":
        lines = flow.source(name, text_files(paths))
        parsed = _parsed(lines, name, Json(nullable(columns)), columns)
    else:
        lines = flow.source(name, files(paths, format="text"))
        parsed = _csv(lines, name, paths, columns)
    parsed.errors.sink(f"{name}.bad", collect())
    if parsed.schema.names == columns.names:
        return parsed
    found = set(parsed.schema.names)

    def chosen(batch: pa.RecordBatch) -> dict[str, Any]:
        return {
            field.name: batch[field.name]
            if field.name in found
            else pa.nulls(batch.num_rows, field.type)
            for field in columns
        }

    return parsed.map(f"{name}.columns", chosen, out=nullable(columns))


def text_files(paths: Paths) -> FilesSource:
    """Lines of files; one that is no text is refused now, before any row is read."""
    source = files(paths, format="text")
    for part in source.parts():
        source.first_lines(part)
    return source


def _kind(name: str, parts: Sequence[str]) -> str:
    """Return the format that all files have, by their suffixes: Parquet, JSON, or else CSV."""
    kinds: dict[str, str] = {}
    for part in parts:
        kinds.setdefault(KINDS.get(suffix(part), "CSV"), part)
    if len(kinds) > 1:
        raise SourceError(
            name,
            "files of one format",
            " and ".join(f"{kind} in {part}" for kind, part in kinds.items()),
            "name the files of one format, such as 'folder/*.csv', or convert the others",
        )
    return next(iter(kinds))


def suffix(path: str) -> str:
    """The ending of a file's name, without that of its compression.

    Example:
        >>> suffix("trades.csv.gz")
        '.csv'
    """
    stem, last = os.path.splitext(path)
    return (os.path.splitext(stem)[1] if last.lower() in COMPRESSED else last).lower()


class Legible:
    """A grammar for lines; those with bytes that are no UTF-8, or beyond the calendar, are bad.

    See `beyond_calendar`.
    """

    def __init__(self, grammar: Grammar) -> None:
        """Say how the others are read."""
        self._grammar, self.name = grammar, grammar.name

    def check(self) -> None:
        """As the grammar does."""
        self._grammar.check()

    def parse(self, texts: pa.Array) -> Parsed:
        """Leave out what cannot be read."""
        broken = pc.match_substring(texts, NO_CHARACTER)
        if not broken.true_count:
            return _within_calendar(self._grammar.parse(texts))
        legible = pc.invert(broken)
        rows = np.flatnonzero(legible.to_numpy(zero_copy_only=False)).astype(np.int64)
        found = _within_calendar(self._grammar.parse(texts.filter(legible)))
        bad = [(int(rows[row]), why) for row, why in found.bad]
        unread = np.flatnonzero(broken.to_numpy(zero_copy_only=False)).tolist()
        bad += [(row, "bytes that are no UTF-8") for row in unread]
        return Parsed(found.columns, rows[found.rows], bad)


def _within_calendar(found: Parsed) -> Parsed:
    """Texts that parsed, without those of which a time cannot be shown."""
    rows = pa.concat_tables(found.columns) if found.columns else pa.table({})
    beyond = beyond_calendar(rows)
    if not beyond:
        return found
    kept = np.setdiff1d(np.arange(len(found.rows)), list(beyond))
    bad = [*found.bad, *((int(found.rows[row]), why) for row, why in beyond.items())]
    return Parsed([rows.take(pa.array(kept))], found.rows[kept], bad)


def _parsed(lines: Stream, name: str, grammar: Grammar, columns: pa.Schema) -> Stream:
    step = Parse(LINE, Legible(grammar), columns, keeps=(), on_error="side")
    return lines.apply(f"{name}.parse", step)


def _csv(lines: Stream, name: str, paths: Paths, columns: pa.Schema) -> Stream:
    headers = _headers(name, paths, columns)
    found = next(iter(headers.values()), columns.names)
    if trouble := trouble_with(found, columns):
        raise SchemaError(
            name,
            f"a first line with the columns {columns.names}",
            trouble,
            "name the columns in the first line, or write the rows as JSON lines",
        )
    # A record must be parsed as a whole; columns that nobody asked for are texts until then.
    record = pa.schema(
        [
            columns.field(each) if each in columns.names else (f"{place}: {each}", pa.string())
            for place, each in enumerate(found)
        ]
    )
    rows = lines.filter(f"{name}.data", IsData(headers)) if headers else lines
    return _parsed(rows, name, Csv(record, ","), record)


class IsData:
    """Masks the lines that are no header, so that a filter drops lines without data alone."""

    def __init__(self, headers: Iterable[str]) -> None:
        self._headers = pa.array(list(headers), pa.string())

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        return pc.invert(pc.is_in(batch[LINE], value_set=self._headers))


def _headers(name: str, paths: Paths, columns: pa.Schema) -> dict[str, list[str]]:
    """The lines of column names at the start of files, and the names, which all must have alike.

    The first file that holds anything has such a line. Of the others a first line is one if it
    names any of the columns: they may go on with rows at once.
    """
    source = files(paths, format="text")
    headers: dict[str, list[str]] = {}
    for part in source.parts():
        lines = source.first_lines(part)
        if not len(lines):
            continue
        line = str(lines[0])
        if "\r" in line:
            raise _no_names(name, part, columns, "a carriage return within the first line")
        try:
            names = next(csv.reader([line], skipinitialspace=True))
        except csv.Error as error:
            if headers:  # rows, which another reader parses
                continue
            raise _no_names(name, part, columns, str(error)) from error
        first = next(iter(headers.values()), names)
        if headers and not set(names) & set(columns.names):
            continue
        if names != first:
            raise SchemaError(
                name,
                f"the columns {first} in every file, in this order",
                f"{names} in {part}",
                "read these files apart, or give them the same columns",
            )
        headers[line] = names
    return headers


def _no_names(name: str, part: str, columns: pa.Schema, got: str) -> SchemaError:
    return SchemaError(
        name,
        f"a first line with the columns {columns.names} in {part}, and line feeds between lines",
        got,
        "write the file as CSV of UTF-8 text whose lines end with \\n or \\r\\n",
    )


# Rows of the user's Parquet files, which need not have the types that an application works with.
#
# pandas writes times in nanoseconds and numbers of 64 bits, others texts as dictionaries; columns
# that may be empty may be missing. Each file is read in its own types, so what becomes of a row
# follows from that row. A value that does not fit makes its row bad, as it would in CSV.

UNFIT = pa.field("what does not fit", pa.string())


def parquet_rows(flow: Flow, name: str, paths: Paths, columns: pa.Schema) -> Stream:
    """The source `name` and the step `<name>.parse`, by whose port `errors` bad rows leave."""
    plain = FilesSource(paths, "parquet", nullable(columns))
    found = {part: schema for part in plain.parts() if (schema := plain.columns(part)) is not None}
    for part, schema in found.items():
        _require(name, part, schema, columns)
    if all(_are_the_same(schema, columns) for schema in found.values()):
        return flow.source(name, plain).apply(f"{name}.parse", screen(lacking(columns)))
    source = FilesSource(paths, FittedParquetFormat(), nullable(columns).append(UNFIT))
    return flow.source(name, source).apply(f"{name}.parse", _Fitting(columns))


def lacking(columns: pa.Schema) -> Callable[[pa.RecordBatch], pa.Array]:
    """For `screen`: rows without a value in a column that is not nullable, or beyond the calendar.

    See `beyond_calendar`.
    """
    required = [field.name for field in columns if not field.nullable]

    def why(batch: pa.RecordBatch) -> pa.Array:
        found = pa.nulls(batch.num_rows, pa.string())
        if beyond := beyond_calendar(batch):
            found = pa.array(map(beyond.get, range(batch.num_rows)), pa.string())
        for name in reversed(required):
            if batch[name].null_count:
                found = pc.if_else(pc.is_null(batch[name]), f"no value for {name!r}", found)
        return found

    return why


def _require(name: str, part: str, found: pa.Schema, columns: pa.Schema) -> None:
    """Refuse a file without a column that is needed, or with one of which no value could fit."""
    if trouble := trouble_with(found.names, columns):
        raise SchemaError(
            name,
            f"the columns {columns.names} in {part}",
            trouble,
            "name the columns so, each once",
        )
    for field in columns:
        if field.name in found.names and not can_fit(found.field(field.name).type, field.type):
            raise SchemaError(
                name,
                f"column {field.name!r} to hold values of {field.type} in {part}",
                str(found.field(field.name).type),
                "write the column with that type",
            )


def _are_the_same(found: pa.Schema, columns: pa.Schema) -> bool:
    return all(
        field.name in found.names and found.field(field.name).type == field.type
        for field in columns
    )


class _Fitting(Screen):
    """A screen for rows of `FittedParquetFormat`, whose last column it takes away."""

    def __init__(self, columns: pa.Schema) -> None:
        lacks = lacking(columns)

        def why(batch: pa.RecordBatch) -> pa.Array:
            """What does not fit, or is missing."""
            return pc.coalesce(batch[UNFIT.name], lacks(batch))

        super().__init__(why)
        self.kept_names = columns.names

    def outputs(self, step: str, inputs: tuple[StreamType, ...]) -> tuple[StreamType, ...]:
        """Without that column, on both ports."""
        good, bad = super().outputs(step, inputs)
        return good, StreamType(good.schema.append(ERROR), bad.time, bad.changelog)

    def kernel(self, context: KernelContext) -> Kernel:
        """A running copy."""
        [given] = context.inputs
        bad = StreamType(given.schema.append(ERROR), given.time, given.changelog)
        return _FittingKernel(context, super().kernel(replace(context, outputs=(given, bad))))


class _FittingKernel(Kernel):
    """What a screen lets out, on both ports, without a column."""

    def __init__(self, context: KernelContext, screening: Kernel) -> None:
        super().__init__(context)
        self._screening = screening

    def step(self, inputs: Sequence[Jumbo | None], frontier: Root) -> Outputs:
        outputs = zip(self._screening.step(inputs, frontier), self.context.outputs, strict=True)
        return [
            None if jumbo is None else Jumbo(jumbo.batch.select(to.schema.names), jumbo.positions)
            for jumbo, to in outputs
        ]
