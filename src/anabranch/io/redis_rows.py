"""Entries of a Redis stream as rows, and rows as entries.

`fields`: each column is a field of that name, written as text; a field that is missing is null.
`json`: one field holds a JSON object.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Protocol

import pyarrow as pa

from anabranch.columns.text_parsers import Json
from anabranch.errors import SchemaError, Subject
from anabranch.io.redis_client import Entry

FORMATS = ("fields", "json")
FIELD = "data"
"""Where JSON objects are, unless somebody says otherwise."""


class BadEntry(Exception):
    """An entry is no row; the source knows where it stands."""

    def __init__(self, number: int, expected: str, got: str) -> None:
        """Say which of the entries given, what was expected, and what came."""
        self.number, self.expected, self.got = number, expected, got
        super().__init__(f"expected {expected}, got {got}")


class Codec(Protocol):
    """How rows are written into entries and read from them."""

    def decode(self, entries: Sequence[Entry]) -> pa.RecordBatch:
        """A row for each entry; raises BadEntry."""

    def encode(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        """The fields of an entry for each row."""


class FieldsCodec:
    """A field per column.

    Example:
        >>> codec = FieldsCodec(pa.schema([("word", pa.string()), ("n", pa.int64())]))
        >>> codec.decode([(b"1-0", {b"word": b"to", b"n": b"2"}), (b"1-1", {})]).to_pylist()
        [{'word': 'to', 'n': 2}, {'word': None, 'n': None}]
        >>> codec.encode(pa.record_batch({"word": ["to"], "n": [None]}))
        [{'word': b'to'}]
    """

    def __init__(self, schema: pa.Schema) -> None:
        """Say which columns; each must have a form as text that reads back."""
        self._schema = schema
        for field in schema:
            try:
                pa.array([], pa.string()).cast(field.type)
                pa.array([], field.type).cast(pa.binary() if _raw(field) else pa.string())
            except pa.ArrowNotImplementedError as error:
                raise SchemaError(
                    Subject("source", "redis_stream"),
                    "columns that a field of text can hold",
                    f"{field.name!r} of type {field.type}",
                    "use format='json'",
                ) from error

    def decode(self, entries: Sequence[Entry]) -> pa.RecordBatch:
        """Column by column; an entry that does not fit is looked for when one of them fails."""
        columns = []
        for field in self._schema:
            key = field.name.encode()
            values = [fields.get(key) for _, fields in entries]
            try:
                columns.append(_typed(values, field))
            except pa.ArrowInvalid:
                raise _first_bad(values, field) from None
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def encode(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        """Nulls are left out; a row of nothing but nulls has one empty field, as Redis wants."""
        texts = {
            field.name: (column if _raw(field) else column.cast(pa.string()).cast(pa.binary()))
            for field, column in zip(batch.schema, batch.columns, strict=True)
        }
        rows = pa.table(texts).to_pylist()
        return [{k: v for k, v in row.items() if v is not None} or {"": b""} for row in rows]


class JsonCodec:
    """A JSON object in one field.

    Example:
        >>> codec = JsonCodec(pa.schema([("n", pa.int64())]), field="data")
        >>> codec.decode([(b"1-0", {b"data": b'{"n": 2, "more": "is ignored"}'})]).to_pylist()
        [{'n': 2}]
    """

    def __init__(self, schema: pa.Schema, field: str) -> None:
        """Say which columns to take of the objects, and where they are."""
        self._schema, self._field = schema, field
        self._grammar = Json(pa.schema([each.with_nullable(True) for each in schema]))
        try:
            self._grammar.read(pa.array([self._grammar.blank]))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SchemaError(
                Subject("source", "redis_stream"),
                "columns that a JSON object can hold",
                str(error),
                "read those columns as strings first",
            ) from error

    def decode(self, entries: Sequence[Entry]) -> pa.RecordBatch:
        """All at once; an entry that does not fit is looked for when that fails."""
        key = self._field.encode()
        values = [fields.get(key) for _, fields in entries]
        try:
            return self._parsed(values)
        except ValueError:  # pa.ArrowInvalid, or nulls where none may be
            return self._named_bad(values)

    def encode(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        """As it is read: timestamps and decimals as text, dates and times of day as numbers."""
        columns = {
            field.name: _for_json(column)
            for field, column in zip(batch.schema, batch.columns, strict=True)
        }
        rows = pa.table(columns).to_pylist()
        return [{self._field: json.dumps(row, ensure_ascii=False, default=_nested)} for row in rows]

    def _parsed(self, values: Sequence[bytes | None]) -> pa.RecordBatch:
        texts = pa.array(values, pa.binary()).cast(pa.string())
        if texts.null_count or not self._grammar.sane(texts).all():
            raise pa.ArrowInvalid("no JSON object")
        table = self._grammar.read(texts)
        if table.num_rows != len(values):
            raise pa.ArrowInvalid("no JSON object")
        return table.cast(self._schema).combine_chunks().to_batches()[0]

    def _named_bad(self, values: Sequence[bytes | None]) -> pa.RecordBatch:
        """Name the first entry that is bad by itself; whether it is never depends on others."""
        parsed = []
        for number, value in enumerate(values):
            try:
                parsed.append(self._parsed([value]))
            except ValueError as error:
                raise BadEntry(
                    number,
                    f"a JSON object in field {self._field!r}, with columns {self._schema.names}",
                    f"{_shown(value)} ({error})",
                ) from error
        return pa.concat_batches(parsed)


def codec_of(format: str, schema: pa.Schema, field: str) -> Codec:
    """The way that a user names."""
    return JsonCodec(schema, field) if format == "json" else FieldsCodec(schema)


def _typed(values: Sequence[bytes | None], field: pa.Field) -> pa.Array:
    raw = pa.array(values, pa.binary())
    column = raw.cast(field.type) if _raw(field) else raw.cast(pa.string()).cast(field.type)
    if column.null_count and not field.nullable:
        raise pa.ArrowInvalid("null")
    return column


def _first_bad(values: Sequence[bytes | None], field: pa.Field) -> BadEntry:
    expected = f"field {field.name!r} to be {field.type}"
    for number, value in enumerate(values):
        try:
            _typed([value], field)
        except pa.ArrowInvalid:
            return BadEntry(number, expected, _shown(value))
    return BadEntry(0, expected, "values that do not fit together")


def _shown(value: bytes | None) -> str:
    return "no such field" if value is None else repr(value[:200].decode(errors="replace"))


def _raw(field: pa.Field) -> bool:
    return bool(pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type))


def _for_json(column: pa.Array) -> pa.Array:
    """What Arrow reads back from JSON as the same column."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.string())
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    return column


def _nested(value: object) -> str:
    """A value inside a list or a struct, where columns cannot be cast."""
    if isinstance(value, datetime):
        at = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return at.isoformat(" ") + ("Z" if value.tzinfo else "")
    if isinstance(value, Decimal):
        return str(value)
    raise SchemaError(
        Subject("source", "redis_stream"),
        "values that a JSON object can hold",
        f"a value of type {type(value).__name__}",
        "write such columns as strings, or with format='fields'",
    )
