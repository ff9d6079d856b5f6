"""Columns of several applications, and what must be in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from anabranch.columns.text_parsers import Json
from anabranch.columns.times import SHOWABLE_YEARS, not_within
from anabranch.columns.type_matching import ABOUT, about
from anabranch.flow import Flow
from anabranch.graph import Role
from anabranch.operators.parsing.parse import Parse

LINES = pa.schema([("line", pa.string())])


def required(**types: pa.DataType) -> pa.Schema:
    """Columns of which none may be null, in this order.

    Example:
        >>> required(device=pa.int64()).field("device").nullable
        False
    """
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in types.items()])


def trouble_with(found: Sequence[str], columns: pa.Schema) -> str | None:
    """What is wrong with the names of a file's columns; None if those that are needed are there.

    Example:
        >>> wanted = required(device=pa.int64(), value=pa.float64())
        >>> trouble_with(["value", "other"], wanted)
        "['value', 'other'], without ['device']"
    """
    missing = [f.name for f in columns if f.name not in found and not f.nullable]
    doubled = [each for each in columns.names if found.count(each) > 1]
    if not missing and not doubled:
        return None
    problem = f"without {missing}" if missing else f"with {doubled} more than once"
    return f"{list(found)}, {problem}"


def beyond_calendar(rows: pa.RecordBatch | pa.Table) -> dict[int, str]:
    """Rows with a time in a year that Python does not have, each with what is said of it.

    They are bad: nothing could be computed with them tuple by tuple, nor be shown of them. Times
    that a clock cannot take, in the years 1 and 9999, are left to it, since a time that is not one
    of events may well be `9999-12-31`.

    Example:
        >>> beyond_calendar(pa.record_batch({"t": pa.array([0, 10**12], pa.timestamp("s"))}))
        {1: "a year outside of 1 to 9999 in 't'"}
    """
    found: dict[int, str] = {}
    for name in reversed(rows.schema.names):
        outside = not_within(SHOWABLE_YEARS, rows[name])
        if outside is not None:
            why = f"a year outside of {SHOWABLE_YEARS[0]} to {SHOWABLE_YEARS[1]} in {name!r}"
            found |= dict.fromkeys(np.flatnonzero(outside).tolist(), why)
    return found


# What an application wants of the user's own files: by source, the columns, and which it needs.

ROWS = "CSV, JSON lines or Parquet"
NESTED_ROWS = "JSON lines or Parquet"


class Column(NamedTuple):
    """A column, whether each row needs a value in it, and what more there is to say."""

    name: str
    kind: str
    required: bool
    about: str


class SourceColumns(NamedTuple):
    """What the files of a source hold; lines that are no JSON have no columns."""

    source: str
    form: str
    columns: tuple[Column, ...]


def described(columns: pa.Schema, **said: str) -> pa.Schema:
    """Columns with what users must know of some, such as the unit.

    Example:
        >>> prices = described(pa.schema([("price", pa.int32())]), price="in whole cents")
        >>> about(prices.field("price"))
        'in whole cents'
    """
    return pa.schema(
        [
            field.with_metadata({ABOUT: said[field.name]}) if field.name in said else field
            for field in columns
        ]
    )


def what_goes_in(flow: Flow) -> list[SourceColumns]:
    """What each source of an application would read, from the flow on its own data.

    Example:
        >>> from anabranch.apps import app
        >>> [(each.source, each.form) for each in what_goes_in(app("log-watch").build(rows=1))]
        [('RawLines', 'text, each line a syslog line')]
        >>> *_, value = what_goes_in(app("spike-detection").build(rows=1))[0].columns
        >>> value
        Column(name='value', kind='double', required=True, about='')
    """
    return [_of_source(flow, name) for name in flow.names(Role.SOURCE)]


def input_options(wanted: list[SourceColumns]) -> str:
    """How files are given on the command line: by source, where there are several.

    Example:
        >>> from anabranch.apps import app
        >>> input_options(what_goes_in(app("band-join").build(rows=1)))
        "--input r='your/r/*' --input s='your/s/*'"
    """
    if len(wanted) == 1:
        return "--input 'your/files/*'"
    return " ".join(f"--input {each.source}='your/{each.source}/*'" for each in wanted)


def _of_source(flow: Flow, name: str) -> SourceColumns:
    columns = flow.sources()[name].schema
    if columns.names != ["line"]:
        nested = any(pa.types.is_nested(field.type) for field in columns)
        return SourceColumns(name, NESTED_ROWS if nested else ROWS, columns_of(columns))
    parse = next(_parsers(flow, name), None)
    if parse is None:
        return SourceColumns(name, "text", ())
    found = columns_of(parse.out, parse.required) if isinstance(parse.grammar, Json) else ()
    return SourceColumns(name, f"text, each line {parse.grammar.name}", found)


def _parsers(flow: Flow, name: str) -> Iterator[Parse]:
    """The steps behind a source that parse its lines, the nearest first."""
    near = [name]
    for step in near:  # which grows meanwhile
        for behind, _ in flow.graph.successors(step):
            body = flow.graph.steps[behind].body
            if isinstance(body, Parse):
                yield body
            near.append(behind)


def columns_of(schema: pa.Schema, required: tuple[str, ...] = ()) -> tuple[Column, ...]:
    """Describe columns; `required` names those that need values though they are nullable."""
    return tuple(
        Column(f.name, str(f.type), not f.nullable or f.name in required, about(f)) for f in schema
    )
