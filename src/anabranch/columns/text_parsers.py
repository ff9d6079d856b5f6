"""Grammars: how texts, one JSON object or one CSV record each, become columns.

Arrow's readers parse the texts of a whole batch at once; each text is nevertheless
treated as if it were alone.
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

from anabranch.columns.casting import is_instant, to_instants
from anabranch.columns.key_words import Ints, Mask
from anabranch.columns.type_matching import (
    NO_OBJECT,
    JsonTypeMatch,
    looks_in_csv,
    no_such_value,
    shortened,
)

# What becomes of texts that a reader of Arrow takes all at once, or not at all.
#
# Whether a text is good, and what it says, must follow from that text alone and not from its
# neighbours: texts that could run into the next one are sorted out first. Where the others do not
# parse together, they are cut until the bad ones stand alone; where that takes too long, because
# there are many, each is looked at once, and what is surely bad is taken out.

_NAMED_ROW = re.compile(r" in row (?P<zero>\d+)$|Row #(?P<one>\d+): ")
_FEWEST = 64
_ATTEMPT = 512
"""So many texts could be read in the time that an attempt takes by itself."""

BLANK = "a blank text"
"""What is wrong with a text of nothing but space; a line like that can be passed over."""

Bad = list[tuple[int, str]]


class Parsed(NamedTuple):
    """What became of texts.

    Attributes:
        columns: A row for each good text, in pieces.
        rows: The number of the text that each of these rows came from, ascending.
        bad: The numbers of the other texts, each with what is wrong with it.
    """

    columns: list[pa.Table]
    rows: Ints
    bad: Bad


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

    An implementer owes: texts that `sane` admits parse together exactly as each would alone; what
    `sift` calls wrong does not parse.

    Attributes:
        name: What a text should be.
        blank: A text without any value.
        stops_at_bad: Whether the reader stops at the bad text that it names.
        patience: So many times all texts are read in vain before they are sifted; how often that
            pays depends on how much longer sifting takes than reading.
    """

    name: str
    blank: str
    stops_at_bad: bool
    patience: float

    def sane(self, texts: pa.Array) -> Mask:
        """Which texts cannot disturb others; the rest is bad."""
        raise NotImplementedError

    def complaint(self, text: str) -> str:
        """What is wrong with a text that is not sane."""
        raise NotImplementedError

    def explain(self, text: pa.Array, error: pa.ArrowInvalid) -> str:
        """What is wrong with one text that is sane and does not parse, in words of our own."""
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
        rows = np.flatnonzero(sane).astype(np.int64)
        others = np.flatnonzero(~sane).tolist()
        bad = [(row, self.complaint(texts[row].as_py())) for row in others]
        if bad:
            texts = texts.take(pa.array(rows))
        pieces = _Pieces(self, texts, rows)
        done = pieces.read(size=len(rows), patience=self.patience * len(rows))
        if done < len(rows):
            pieces.add(_sifted(self, texts.slice(done), rows[done:]))
        found = pieces.found()
        return Parsed(found.columns, found.rows, bad + found.bad)

    def read_all(self, texts: pa.Array) -> pa.Table:
        """As `read` does, and sure that there is a row for each text."""
        table = self.read(texts)
        if table.num_rows != len(texts):
            raise pa.ArrowInvalid(f"{table.num_rows} rows in {len(texts)} text(s)")
        return table


class _Pieces:
    """Texts that are read in pieces: more at a time when that goes well, fewer when it does not."""

    def __init__(self, grammar: ReadTogether, texts: pa.Array, rows: Ints) -> None:
        self._grammar, self._texts, self._rows = grammar, texts, rows
        self._columns: list[pa.Table] = []
        self._good: list[Ints] = []
        self._bad: Bad = []

    def read(self, size: int, patience: float, fewest: int = _FEWEST) -> int:
        """Read until patience is lost; how far that came.

        Args:
            size: How many to read at first.
            patience: How many may be read in vain.
            fewest: How many to try at least behind a bad one.
        """
        start, in_vain, last_bad = 0, 0, -1
        suspect, fails_by = -1, 0  # a text that was named; where a piece ends that does not parse
        while start < len(self._rows) and in_vain <= patience:
            stop = min(start + size, len(self._rows))
            if start <= suspect < stop:  # what stands before it by itself, then it by itself
                stop = suspect if start < suspect else start + 1
            elif start < fails_by:
                stop = min(stop, start + max(1, (fails_by - start) // 2))
            if stop - start == 1 and not self._read_one(start):
                in_vain += _ATTEMPT
                size, last_bad = max(fewest, 2 * (start - last_bad) - 1), start
                start, fails_by = stop, 0
                continue
            try:
                if stop - start > 1:
                    self._read_some(start, stop)
            except pa.ArrowInvalid as error:
                named = _row_of(error, stop - start)
                stopped_early = named is not None and self._grammar.stops_at_bad
                in_vain += _ATTEMPT + ((named or 0) if stopped_early else stop - start)
                suspect, fails_by = -1 if named is None else start + named, stop
            else:
                start, size = stop, 2 * size
        return start

    def add(self, found: Parsed) -> None:
        """What became of others, which stand behind those read so far."""
        self._columns += found.columns
        self._good.append(found.rows)
        self._bad += found.bad

    def found(self) -> Parsed:
        """What became of all."""
        good = self._good
        rows = good[0] if len(good) == 1 else np.concatenate([self._rows[:0], *good])
        return Parsed(self._columns, rows, self._bad)

    def _read_some(self, start: int, stop: int) -> None:
        self._columns.append(self._grammar.read_all(self._texts.slice(start, stop - start)))
        self._good.append(self._rows[start:stop])

    def _read_one(self, place: int) -> bool:
        """Whether a text is good; what is said of a bad one is the same however it was found."""
        try:
            self._read_some(place, place + 1)
        except pa.ArrowInvalid as error:
            text = self._texts.slice(place, 1)
            seen = self._grammar.sift(text).wrong
            why = seen[0] if seen else self._grammar.explain(text, error)
            self._bad.append((int(self._rows[place]), why))
            return False
        return True


def _sifted(grammar: ReadTogether, texts: pa.Array, rows: Ints) -> Parsed:
    """Each is looked at; those that look right are read together, the doubtful by themselves."""
    wrong, doubtful = grammar.sift(texts)
    bad = [(int(rows[row]), why) for row, why in wrong.items()]
    doubtful[list(wrong)] = False
    plain = ~doubtful
    plain[list(wrong)] = False
    columns: list[pa.Table] = []
    good: list[Ints] = []
    for mask, size, fewest in ((plain, len(rows), _FEWEST), (doubtful, 1, 1)):
        chosen = np.flatnonzero(mask)
        pieces = _Pieces(grammar, texts.take(pa.array(chosen)), rows[chosen])
        pieces.read(size, np.inf, fewest)
        found = pieces.found()
        columns += found.columns
        good.append(found.rows)
        bad += found.bad
    order = np.argsort(together := np.concatenate(good), kind="stable")
    if columns and len(good[1]):
        columns = [pa.concat_tables(columns).take(pa.array(order))]
    return Parsed(columns, together[order], bad)


def plain_words(error: pa.ArrowInvalid) -> str:
    """What Arrow says of a text, without where it stood among those read together."""
    return _NAMED_ROW.sub("", str(error))


def _row_of(error: pa.ArrowInvalid, rows: int) -> int | None:
    """The row that Arrow names; a hint that saves attempts, nothing depends on its being right."""
    named = _NAMED_ROW.search(str(error))
    if named is None:
        return None
    row = int(named["zero"]) if named["zero"] else int(named["one"]) - 1
    return row if 0 <= row < rows else None


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
        look_at = JsonTypeMatch(self._out).of
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
