"""Grammars: how texts, one JSON object or one CSV record each, become columns.

Arrow's readers parse the texts of a whole batch at once; `read_together.py` says how each text is
nevertheless treated as if it were alone.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from anabranch.operators.instants import is_instant, to_instants
from anabranch.operators.looks import (
    NO_OBJECT,
    JsonLooks,
    looks_in_csv,
    no_such_value,
    shortened,
)
from anabranch.operators.read_together import (
    BLANK,
    Grammar,
    Parsed,
    ReadTogether,
    Sifted,
    plain_words,
)
from anabranch.state.key_words import Mask

__all__ = ["Csv", "Grammar", "Json", "Parsed", "nullable"]

JSON_SPACE = " \t\r\n"
# After a brace that closes an object may come a comma, a closing bracket or the end; anything else
# is either inside a string or the start of a second document.
_AFTER_OBJECT = r"\}\s*[^\s,\]}]"
_NAMED_COLUMN = re.compile(r"CSV column #(\d+): ")
_NO_TIME = "Failed to convert JSON to timestamp"


class Json(ReadTogether):
    """One object per text; fields that are missing are null, fields not asked for are ignored.

    A time may tell its zone; it becomes UTC, and is taken as UTC where it tells none.
    """

    name = "a JSON object"
    blank = "{}"
    stops_at_bad = True
    patience = 1.0

    def __init__(self, out: pa.Schema) -> None:
        """Say which fields."""
        self._out = out
        self._instants = [n for n, f in enumerate(out) if is_instant(f.type)]
        self._with_texts = pa.schema(
            [f.with_type(pa.string()) if is_instant(f.type) else f for f in out]
        )

    def sane(self, texts: pa.Array) -> Mask:
        """Braces at both ends, and one document between them."""
        trimmed = pc.ascii_trim(texts, characters=JSON_SPACE)
        braced = pc.and_(pc.starts_with(trimmed, "{"), pc.ends_with(trimmed, "}"))
        sane: Mask = braced.to_numpy(zero_copy_only=False).copy()
        doubtful = pc.match_substring_regex(texts, _AFTER_OBJECT)
        for row in np.flatnonzero(doubtful.to_numpy(zero_copy_only=False)):
            sane[row] &= _is_one_document(texts[int(row)].as_py())
        return sane

    def complaint(self, text: str) -> str:
        """Whether there is anything at all."""
        begin = text.strip()[:1]
        if begin == "[":
            return f"{NO_OBJECT}, but an array or a part of one: write one object a line"
        return NO_OBJECT if begin else BLANK

    def explain(self, text: pa.Array, error: pa.ArrowInvalid) -> str:
        """Name the first field that cannot be read by itself."""
        for field in self._out if self._reads(text, pa.schema([])) else ():
            if not self._reads(text, pa.schema([field])):
                return no_such_value(field, _value_in(text[0].as_py(), field.name))
        return f"{NO_OBJECT}: {plain_words(error)}"

    def _reads(self, text: pa.Array, columns: pa.Schema) -> bool:
        try:
            Json(columns).read(text)
        except pa.ArrowInvalid:
            return False
        return True

    def sift(self, texts: pa.Array) -> Sifted:
        """By what Python reads."""
        look_at = JsonLooks(self._out).of
        looks = [look_at(text) for text in texts.to_pylist()]
        wrong = {row: why for row, why in enumerate(looks) if isinstance(why, str)}
        return Sifted(wrong, np.array([look is False for look in looks], np.bool_))

    def read(self, texts: pa.Array) -> pa.Table:
        """All at once; times as texts where Arrow takes them not as times."""
        lines = _lines(texts)
        try:
            return self._table(lines, self._out)
        except pa.ArrowInvalid as error:
            if not (self._instants and str(error).startswith(_NO_TIME)):
                raise
        table = self._table(lines, self._with_texts)
        for place in self._instants:
            field = self._out.field(place)
            column = table.column(place).combine_chunks()
            table = table.set_column(place, field, to_instants(column, field.type))
        return table

    def _table(self, lines: pa.Buffer, columns: pa.Schema) -> pa.Table:
        """In one block, so that no text is cut."""
        return pa_json.read_json(
            pa.BufferReader(lines),
            read_options=pa_json.ReadOptions(use_threads=False, block_size=lines.size + 1),
            parse_options=pa_json.ParseOptions(
                explicit_schema=columns, unexpected_field_behavior="ignore"
            ),
        ).select(columns.names)


class Csv(ReadTogether):
    """One record per text; an empty field is null, or the empty string in a column of strings.

    In a column of strings that is not nullable, an empty field is null too. A time may tell its
    zone; it becomes UTC, and is taken as UTC where it tells none.
    """

    name = "a CSV record"
    stops_at_bad = False
    patience = 1.1

    def __init__(self, out: pa.Schema, separator: str) -> None:
        """Say which columns, and what stands between fields."""
        self._out, self._separator = nullable(out), separator
        self._instants = [n for n, f in enumerate(out) if is_instant(f.type)]
        self._filled = [
            n for n, f in enumerate(out) if not f.nullable and pa.types.is_string(f.type)
        ]
        self.blank = separator * (len(out) - 1)
        stop = rf"\x{{{ord(separator):x}}}"
        cell = rf'(?:"(?:[^"]|"")*"|[^"{stop}\r\n][^{stop}\r\n]*|)'
        self._record = rf"\A{cell}(?:{stop}{cell})*\z"

    def sane(self, texts: pa.Array) -> Mask:
        """Quotes that pair, no line break outside of them, and not an empty record."""
        sane = np.ones(len(texts), np.bool_)
        if len(self._out) > 1:
            sane &= pc.greater(pc.binary_length(texts), 0).to_numpy(zero_copy_only=False)
            for row in np.flatnonzero(pc.ascii_is_space(texts).to_numpy(zero_copy_only=False)):
                sane[row] = self._separator in texts[int(row)].as_py()
        special = pc.match_substring_regex(texts, r'["\r\n]').to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(special)
        if len(rows):
            whole = pc.match_substring_regex(texts.take(pa.array(rows)), self._record)
            sane[rows] &= whole.to_numpy(zero_copy_only=False)
        return sane

    def complaint(self, text: str) -> str:
        """Of a quote that stays open, that a record is one text."""
        if not text.strip() and len(self._out) > 1:
            return BLANK
        if text.count('"') % 2:
            torn = "a quoted field that goes on in the next line is not supported"
            return f"{torn}: {shortened(text)}"
        return f"no CSV record: {shortened(text)}"

    def explain(self, text: pa.Array, error: pa.ArrowInvalid) -> str:
        """Name the field that Arrow means, or the first that should be a time and is none."""
        cells = self._table(text, dict.fromkeys(self._out.names, pa.string()))
        named = _NAMED_COLUMN.search(str(error))
        for place in self._instants if named is None else [int(named[1])]:
            field, cell = self._out.field(place), cells.column(place).combine_chunks()
            if named is not None or not _is_time(cell, field.type):
                return no_such_value(field, cell[0].as_py())
        return f"no CSV record: {plain_words(error)}"

    def sift(self, texts: pa.Array) -> Sifted:
        """By the number of fields, and by what each field looks like."""
        wrong: dict[int, str] = {}

        def pass_over(row: Any) -> str:
            wrong[row.number - 1] = f"{row.actual_columns} fields, not {row.expected_columns}"
            return "skip"

        cells = self._table(texts, dict.fromkeys(self._out.names, pa.string()), pass_over)
        doubtful = np.ones(len(texts), np.bool_)
        if cells.num_rows + len(wrong) < len(texts):  # then the numbers say nothing
            return Sifted({}, doubtful)
        rows = np.setdiff1d(np.arange(len(texts)), list(wrong))
        doubtful[rows] = False
        for field, column in zip(self._out, cells.columns, strict=True):
            looks = looks_in_csv(column, field.type)
            doubtful[rows] |= ~looks.right
            for row in np.flatnonzero(looks.wrong).tolist():
                wrong.setdefault(int(rows[row]), no_such_value(field, column[row].as_py()))
        return Sifted(wrong, doubtful)

    def read(self, texts: pa.Array) -> pa.Table:
        """All at once, in one block, so that no text is cut."""
        types = {field.name: field.type for field in self._out}
        types |= {self._out.names[place]: pa.string() for place in self._instants}
        table = self._table(texts, types)
        for place in (*self._instants, *self._filled):
            field = self._out.field(place)
            column = _without_empty(table.column(place).combine_chunks())
            if place in self._instants:
                column = to_instants(column, field.type)
            table = table.set_column(place, field, column)
        return table

    def _table(self, texts: pa.Array, types: dict[str, Any], on_bad: Any = None) -> pa.Table:
        lines = _lines(texts)
        return pa_csv.read_csv(
            pa.BufferReader(lines),
            read_options=pa_csv.ReadOptions(
                use_threads=False, block_size=lines.size + 1, column_names=self._out.names
            ),
            parse_options=pa_csv.ParseOptions(
                delimiter=self._separator,
                ignore_empty_lines=False,
                newlines_in_values=True,
                invalid_row_handler=on_bad,
            ),
            convert_options=pa_csv.ConvertOptions(
                column_types=types,
                null_values=[""],
                strings_can_be_null=False,
                quoted_strings_can_be_null=False,
            ),
        )


def nullable(columns: pa.Schema) -> pa.Schema:
    """The columns as Arrow's readers make them; what may not be null is looked at afterwards."""
    return pa.schema([field.with_nullable(True) for field in columns])


def _without_empty(texts: pa.Array) -> pa.Array:
    empty = pc.equal(texts, "")
    return pc.if_else(empty, pa.scalar(None, pa.string()), texts) if empty.true_count else texts


def _value_in(text: str, name: str) -> Any:
    """A field of a JSON object; the whole text where Python does not read it."""
    try:
        return json.loads(text, strict=False)[name]
    except (ValueError, RecursionError, KeyError):
        return text


def _is_time(text: pa.Array, kind: pa.DataType) -> bool:
    try:
        to_instants(_without_empty(text), kind)
    except pa.ArrowInvalid:
        return False
    return True


def _lines(texts: pa.Array) -> pa.Buffer:
    """The texts with a line break after each, as one buffer."""
    together = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    ended = pc.binary_join_element_wise(pc.binary_join(together, "\n"), "", "\n")
    return ended[0].as_buffer()


def _is_one_document(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
