"""Grammars: how texts, one JSON object or one CSV record each, become columns.

Arrow's readers parse the texts of a whole batch at once. Whether a text is good, and what it says,
must follow from that text alone and not from its neighbours: texts that could run into the next one
are sorted out first. Where a batch does not parse, those that are surely bad are taken out, those
that look bad are read by themselves, and the others are cut until the bad ones stand alone.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from anabranch.operators.looks import JsonLooks, looks_in_csv, no_such_value
from anabranch.state.key_words import Mask
from anabranch.state.positions import Ints

JSON_SPACE = " \t\r\n"
# After a brace that closes an object may come a comma, a closing bracket or the end; anything else
# is either inside a string or the start of a second document.
_AFTER_OBJECT = r"\}\s*[^\s,\]}]"
_NAMED_ROW = re.compile(r"in row (?P<zero>\d+)$|Row #(?P<one>\d+):")
_FEWEST = 64
_ZONED = r"\d:\d\d.*(?:Z|[+-]\d\d(?::?\d\d)?)$"


class Parsed(NamedTuple):
    """What became of texts.

    Attributes:
        columns: A row for each good text, in pieces.
        rows: The number of the text that each of these rows came from, ascending.
        bad: The numbers of the other texts, each with what is wrong with it.
    """

    columns: list[pa.Table]
    rows: Ints
    bad: list[tuple[int, str]]


class Sifted(NamedTuple):
    """What texts look like.

    Attributes:
        wrong: The numbers of those that are surely bad, each with what is wrong with it.
        doubtful: Which of them look bad, and should be read by themselves.
    """

    wrong: dict[int, str]
    doubtful: Mask


class Grammar(Protocol):
    """How texts become columns.

    An implementer owes: what becomes of a text follows from that text alone.
    """

    name: str

    def check(self) -> None:
        """Raise pa.ArrowInvalid, or that it is not implemented, if no text could be parsed."""

    def parse(self, texts: pa.Array) -> Parsed:
        """Parse texts, of which none is null."""


class ReadTogether:
    """A grammar by one of Arrow's readers, which gives all texts or none.

    An implementer owes: texts that `sane` admits parse together exactly as each would alone.
    """

    name: str
    blank: str  # a text without any value

    def sane(self, texts: pa.Array) -> Mask:
        """Which texts cannot disturb others; the rest is bad."""
        raise NotImplementedError

    def read(self, texts: pa.Array) -> pa.Table:
        """A row for each text; raises pa.ArrowInvalid when one of them is bad."""
        raise NotImplementedError

    def check(self) -> None:
        """Read a text without a value."""
        self.read(pa.array([self.blank]))

    def sift(self, texts: pa.Array) -> Sifted:
        """Look at texts of which one is bad at least; what is said of one follows from it alone."""
        raise NotImplementedError

    def parse(self, texts: pa.Array) -> Parsed:
        """All at once; when that fails, in pieces, until the bad ones stand alone."""
        sane = self.sane(texts)
        bad = [(int(row), f"no {self.name[2:]}") for row in np.flatnonzero(~sane)]
        rows = np.flatnonzero(sane).astype(np.int64)
        if bad:
            texts = texts.take(pa.array(rows))
        try:
            return Parsed([self._read(texts)] if len(texts) else [], rows, bad)
        except pa.ArrowInvalid:
            wrong, doubtful = self.sift(texts)
        bad += [(int(rows[row]), why) for row, why in wrong.items()]
        doubtful[list(wrong)] = False
        plain = ~doubtful
        plain[list(wrong)] = False
        parts: list[pa.Table] = []
        good: list[Ints] = []
        for mask, size in ((plain, len(rows)), (doubtful, 1)):
            chosen = np.flatnonzero(mask)
            found = self._in_pieces(texts.take(pa.array(chosen)), rows[chosen], size)
            parts += found.columns
            good.append(found.rows)
            bad += found.bad
        order = np.argsort(together := np.concatenate(good), kind="stable")
        if parts and len(good[1]):
            parts = [pa.concat_tables(parts).take(pa.array(order))]
        return Parsed(parts, together[order], bad)

    def _in_pieces(self, texts: pa.Array, rows: Ints, size: int) -> Parsed:
        """Read some texts at first, more when that goes well, and fewer when it does not."""
        parts: list[pa.Table] = []
        good: list[Ints] = []
        bad: list[tuple[int, str]] = []
        start, suspect = 0, -1
        while start < len(rows):
            stop = min(start + size, len(rows))
            if start <= suspect < stop:  # what stands before it by itself, then it by itself
                stop = suspect if start < suspect else start + 1
            try:
                parts.append(self._read(texts.slice(start, stop - start)))
            except pa.ArrowInvalid as error:
                if stop - start == 1:
                    bad.append((int(rows[start]), str(error)))
                    start = stop
                elif (named := _row_of(error, stop - start)) is not None:
                    suspect, size = start + named, max(_FEWEST, 2 * named)
                else:
                    size = (stop - start) // 2
                continue
            good.append(rows[start:stop])
            start, size = stop, 2 * size
        return Parsed(parts, np.concatenate(good) if good else rows[:0], bad)

    def _read(self, texts: pa.Array) -> pa.Table:
        table = self.read(texts)
        if table.num_rows != len(texts):
            raise pa.ArrowInvalid(f"{table.num_rows} rows in {len(texts)} text(s)")
        return table


class Json(ReadTogether):
    """One object per text; fields that are missing are null, fields not asked for are ignored."""

    name = "a JSON object"
    blank = "{}"

    def __init__(self, out: pa.Schema) -> None:
        """Say which fields."""
        self._out = out

    def sane(self, texts: pa.Array) -> Mask:
        """Braces at both ends, and one document between them."""
        trimmed = pc.ascii_trim(texts, characters=JSON_SPACE)
        braced = pc.and_(pc.starts_with(trimmed, "{"), pc.ends_with(trimmed, "}"))
        sane: Mask = braced.to_numpy(zero_copy_only=False).copy()
        doubtful = pc.match_substring_regex(texts, _AFTER_OBJECT)
        for row in np.flatnonzero(doubtful.to_numpy(zero_copy_only=False)):
            sane[row] &= _is_one_document(texts[int(row)].as_py())
        return sane

    def sift(self, texts: pa.Array) -> Sifted:
        """By what Python reads."""
        look_at = JsonLooks(self._out).of
        looks = [look_at(text) for text in texts.to_pylist()]
        wrong = {row: why for row, why in enumerate(looks) if isinstance(why, str)}
        return Sifted(wrong, np.array([look is False for look in looks], np.bool_))

    def read(self, texts: pa.Array) -> pa.Table:
        """All at once, in one block, so that no text is cut."""
        lines = _lines(texts)
        return pa_json.read_json(
            pa.BufferReader(lines),
            read_options=pa_json.ReadOptions(use_threads=False, block_size=lines.size + 1),
            parse_options=pa_json.ParseOptions(
                explicit_schema=self._out, unexpected_field_behavior="ignore"
            ),
        ).select(self._out.names)


class Csv(ReadTogether):
    """One record per text; an empty field is null, or the empty string in a column of strings.

    In a column of strings that is not nullable, an empty field is null too. A time may tell its
    zone; it becomes UTC, and is taken as UTC where it tells none.
    """

    name = "a CSV record"

    def __init__(self, out: pa.Schema, separator: str) -> None:
        """Say which columns, and what stands between fields."""
        self._out, self._separator = nullable(out), separator
        self._instants = [n for n, f in enumerate(out) if _is_instant(f.type)]
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
        special = pc.match_substring_regex(texts, r'["\r\n]').to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(special)
        if len(rows):
            whole = pc.match_substring_regex(texts.take(pa.array(rows)), self._record)
            sane[rows] &= whole.to_numpy(zero_copy_only=False)
        return sane

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
                column = _to_instants(column, field.type)
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


def _is_instant(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is None


def _without_empty(texts: pa.Array) -> pa.Array:
    empty = pc.equal(texts, "")
    return pc.if_else(empty, pa.scalar(None, pa.string()), texts) if empty.true_count else texts


def _to_instants(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Times by ISO 8601, of which some may tell their distance from UTC."""
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        nothing = pa.scalar(None, pa.string())
        zoned = pc.match_substring_regex(texts, _ZONED)
        with_zone = pc.if_else(zoned, texts, nothing).cast(pa.timestamp(kind.unit, "UTC"))
        without = pc.if_else(zoned, nothing, texts).cast(kind)
        return pc.coalesce(with_zone.cast(kind), without)


def _row_of(error: pa.ArrowInvalid, rows: int) -> int | None:
    """The row that Arrow names; a hint that saves attempts, nothing depends on its being right."""
    named = _NAMED_ROW.search(str(error))
    if named is None:
        return None
    row = int(named["zero"]) if named["zero"] else int(named["one"]) - 1
    return row if 0 <= row < rows else None


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
