"""Schemas written as text, and the checks that turn what an operator returned into a batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from anabranch.columns.key_words import SUPPORTED, kind_of
from anabranch.columns.python_values import exact_array
from anabranch.errors import About, OperatorError, SchemaError, Subject, nearest

SchemaLike: TypeAlias = pa.Schema | str | Mapping[str, pa.DataType] | None

_PARAMETRIC = {
    "timestamp[s]": pa.timestamp("s"),
    "timestamp[ms]": pa.timestamp("ms"),
    "timestamp[us]": pa.timestamp("us"),
    "timestamp[ns]": pa.timestamp("ns"),
    "timestamp": pa.timestamp("us"),
    "int": pa.int64(),
    "float": pa.float64(),
    "str": pa.string(),
}


SCHEMA = Subject("argument", "schema")


def schema(text: SchemaLike, about: About = SCHEMA) -> pa.Schema:
    """An Arrow schema from `"name: type, name: type"`, a mapping, or a schema.

    Example:
        >>> schema("word: string, n: int64").names
        ['word', 'n']
        >>> schema("tags: list<string>").field("tags").type
        ListType(list<item: string>)
    """
    if text is None:
        return pa.schema([])
    if isinstance(text, pa.Schema):
        return text
    if isinstance(text, Mapping):
        try:
            return pa.schema(list(text.items()))
        except (TypeError, ValueError) as error:
            raise _unreadable(text, about) from error
    if not isinstance(text, str):
        raise _unreadable(text, about)
    fields = []
    for part in filter(None, (p.strip() for p in _split(text))):
        name, colon, kind = part.partition(":")
        if not colon or not name.strip():
            raise SchemaError(about, "columns as 'name: type'", repr(part), "write name: type, …")
        fields.append(pa.field(name.strip(), _type(kind.strip(), about)))
    names = [f.name for f in fields]
    if len(set(names)) < len(names):
        raise SchemaError(about, "each column named once", repr(text), "rename the doubled column")
    return pa.schema(fields)


def _unreadable(given: object, about: About) -> SchemaError:
    return SchemaError(
        about,
        "columns as 'name: type, …', a mapping of names to Arrow types, or a pyarrow.Schema",
        repr(given),
        "write 'name: type, …'",
    )


def _split(text: str) -> list[str]:
    """Split at commas that are not inside list<…>."""
    parts, depth = [""], 0
    for char in text:
        depth += (char == "<") - (char == ">")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts


def _type(name: str, about: About) -> pa.DataType:
    if name.startswith("list<") and name.endswith(">"):
        return pa.list_(_type(name[5:-1].strip(), about))
    if name in _PARAMETRIC:
        return _PARAMETRIC[name]
    try:
        return pa.type_for_alias(name)
    except ValueError as error:
        raise SchemaError(
            about,
            "an Arrow type such as int64, double, string, bool, timestamp[us], list<string>",
            repr(name),
            "use one of those or pass a pyarrow.Schema",
        ) from error


def without_dictionaries(given: pa.Schema) -> pa.Schema:
    """The schema as streams carry it: what is encoded in a file is plain in a stream."""
    return pa.schema(
        [f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in given]
    )


def column_names(given: str | Iterable[str], argument: str, about: About) -> tuple[str, ...]:
    """Return the columns that an argument names: one, or several.

    Example:
        >>> column_names("word", "key", "count"), column_names(["a", "b"], "key", "count")
        (('word',), ('a', 'b'))
    """
    names = (given,) if isinstance(given, str) or not isinstance(given, Iterable) else tuple(given)
    if not all(isinstance(name, str) for name in names):
        raise SchemaError(
            about,
            f"the name of a column in {argument}=, or several",
            repr(given),
            f"write {argument}='column' or {argument}=['column', …]",
        )
    return names


def columns_of(about: About, names: tuple[str, ...], given: pa.Schema) -> None:
    """Check that columns exist."""
    missing = [n for n in names if n not in given.names]
    if missing:
        raise SchemaError(
            about,
            f"columns among {given.names}",
            ", ".join(map(repr, missing)),
            nearest(missing[0], given.names, "use a column that the input has"),
        )


def check_key_types(about: About, key: Sequence[str], given: pa.Schema) -> None:
    """Key columns must exist and be of a type whose values can be hashed and compared."""
    columns_of(about, tuple(key), given)
    for name in key:
        try:
            kind_of(given.field(name).type)
        except TypeError:
            raise SchemaError(
                about,
                f"key {name!r} of a type among: {SUPPORTED}",
                str(given.field(name).type),
                "cast the column",
            ) from None


def to_batch(step: str, values: Any, wanted: pa.Schema, rows: int | None) -> pa.RecordBatch:
    """What a batch operator returned, as a batch of the schema it promised.

    NumPy arrays and Python lists are converted, and none of their values is cut to fit; Arrow
    arrays must have the promised type, since a silent cast would hide a mistake.
    """
    if isinstance(values, pa.RecordBatch | pa.Table):
        values = dict(zip(values.schema.names, values.columns, strict=True))
    if not isinstance(values, Mapping):
        raise OperatorError(
            step,
            "a mapping of columns or a RecordBatch",
            type(values).__name__,
            "return {'column': array, …}",
        )
    if set(values) != set(wanted.names):
        raise OperatorError(
            step,
            f"the columns {wanted.names}",
            f"{sorted(values)}",
            "return the columns that out= declares",
        )
    arrays = [_to_array(step, f, values[f.name]) for f in wanted]
    lengths = {len(a) for a in arrays}
    if len(lengths) > 1:
        raise OperatorError(
            step,
            "columns of one length",
            ", ".join(f"{f.name}: {len(a)}" for f, a in zip(wanted, arrays, strict=True)),
            "return the same number of rows in every column",
        )
    if rows is not None and lengths and lengths != {rows}:
        raise OperatorError(
            step,
            f"{rows} rows, as many as came in",
            f"{lengths.pop()} rows",
            "use filter or expand when the number changes",
        )
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _to_array(step: str, field: pa.Field, column: Any) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.Array):
        if column.type != field.type:
            raise OperatorError(
                step,
                f"column {field.name!r} of type {field.type}",
                str(column.type),
                f"cast it, or declare {field.name}: {column.type} in out=",
            )
        return column
    return exact_array(step, field, column)
