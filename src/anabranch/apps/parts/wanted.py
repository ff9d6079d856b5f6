"""What an application wants of the user's own files: by source, the columns, and which it needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from anabranch.flow import Flow
from anabranch.graph import Role
from anabranch.operators.grammars import Json
from anabranch.operators.looks import ABOUT, about
from anabranch.operators.parse import Parse

ROWS = "CSV, JSON lines or Parquet"
NESTED_ROWS = "JSON lines or Parquet"


class Column(NamedTuple):
    """A column, whether each row needs a value in it, and what more there is to say."""

    name: str
    kind: str
    required: bool
    about: str


class Wanted(NamedTuple):
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


def what_goes_in(flow: Flow) -> list[Wanted]:
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


def input_options(wanted: list[Wanted]) -> str:
    """How files are given on the command line: by source, where there are several.

    Example:
        >>> from anabranch.apps import app
        >>> input_options(what_goes_in(app("band-join").build(rows=1)))
        "--input r='your/r/*' --input s='your/s/*'"
    """
    if len(wanted) == 1:
        return "--input 'your/files/*'"
    return " ".join(f"--input {each.source}='your/{each.source}/*'" for each in wanted)


def _of_source(flow: Flow, name: str) -> Wanted:
    columns = flow.sources()[name].schema
    if columns.names != ["line"]:
        nested = any(pa.types.is_nested(field.type) for field in columns)
        return Wanted(name, NESTED_ROWS if nested else ROWS, columns_of(columns))
    parse = next(_parsers(flow, name), None)
    if parse is None:
        return Wanted(name, "text", ())
    found = columns_of(parse.out, parse.required) if isinstance(parse.grammar, Json) else ()
    return Wanted(name, f"text, each line {parse.grammar.name}", found)


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
