"""Parse: a column of texts, one JSON object or one CSV record each, becomes columns.

Arrow's readers parse the texts of a whole batch at once. Whether a text is good, and what it says,
must follow from that text alone and not from its neighbours: texts that could run into the next one
are sorted out first, and where a batch does not parse it is cut until the bad ones stand alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from anabranch.errors import BuildError, OperatorError, SchemaError
from anabranch.graph import StreamType
from anabranch.operators.base import Kernel, KernelContext, OnError, Outputs, describe_row
from anabranch.operators.schemas import SchemaLike, columns_of, schema
from anabranch.operators.shapes import BatchKernel, Map, attach, rejected
from anabranch.state.key_words import Mask
from anabranch.state.positions import Ints, Jumbo, Root

JSON_SPACE = " \t\r\n"
# After a brace that closes an object may come a comma, a closing bracket or the end; anything else
# is either inside a string or the start of a second document.
_AFTER_OBJECT = r"\}\s*[^\s,\]}]"
_NAMED_ROW = re.compile(r"in row (?P<zero>\d+)$|Row #(?P<one>\d+):")
_FEWEST = 64


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

    def parse(self, texts: pa.Array) -> Parsed:
        """All at once; when that fails, in pieces, until the bad ones stand alone."""
        sane = self.sane(texts)
        bad = [(int(row), f"no {self.name[2:]}") for row in np.flatnonzero(~sane)]
        rows = np.flatnonzero(sane).astype(np.int64)
        if bad:
            texts = texts.take(pa.array(rows))
        parts: list[pa.Table] = []
        good: list[Ints] = []
        start, size, suspect = 0, len(rows), -1
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
    """One record per text; an empty field is null, or the empty string in a column of strings."""

    name = "a CSV record"

    def __init__(self, out: pa.Schema, separator: str) -> None:
        """Say which columns, and what stands between fields."""
        self._out, self._separator = out, separator
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

    def read(self, texts: pa.Array) -> pa.Table:
        """All at once, in one block, so that no text is cut."""
        lines = _lines(texts)
        return pa_csv.read_csv(
            pa.BufferReader(lines),
            read_options=pa_csv.ReadOptions(
                use_threads=False, block_size=lines.size + 1, column_names=self._out.names
            ),
            parse_options=pa_csv.ParseOptions(
                delimiter=self._separator, ignore_empty_lines=False, newlines_in_values=True
            ),
            convert_options=pa_csv.ConvertOptions(
                column_types={f.name: f.type for f in self._out},
                null_values=[""],
                strings_can_be_null=False,
                quoted_strings_can_be_null=False,
            ),
        )


class Parse(Map):
    """Texts to columns; bad texts fail, are skipped, or leave by the port `errors`."""

    def __init__(
        self,
        column: str,
        grammar: Grammar,
        out: pa.Schema,
        keeps: str | Sequence[str],
        on_error: OnError | str,
    ) -> None:
        """Describe; nothing runs."""
        super().__init__(self._unused, nullable(out), keeps, on_error)
        self.column, self.grammar = column, grammar
        self.required = tuple(field.name for field in out if not field.nullable)
        self.__name__, self.__doc__ = f"parse_{type(grammar).__name__.lower()}", grammar.__doc__
        if not out.names:
            raise BuildError(
                self.__name__, "the columns to parse into", "none", "declare out='name: type, …'"
            )
        try:
            grammar.check()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SchemaError(
                self.__name__,
                f"columns that {grammar.name} can hold",
                str(error),
                "parse those columns as strings first",
            ) from error

    @staticmethod
    def _unused(batch: pa.RecordBatch) -> None:
        """The kernel parses; there is no author's function."""

    def outputs(self, step: str, inputs: tuple[StreamType, ...]) -> tuple[StreamType, ...]:
        """The text column must hold texts."""
        given = inputs[0].schema
        columns_of(step, (self.column,), given)
        kind = given.field(self.column).type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise SchemaError(step, f"{self.column!r} of type string", str(kind), "cast it first")
        return super().outputs(step, inputs)

    def kernel(self, context: KernelContext) -> Kernel:
        """A running copy."""
        return ParseKernel(context, self)


class ParseKernel(BatchKernel):
    """Parses whole batches."""

    def __init__(self, context: KernelContext, operator: Parse) -> None:
        """A running copy."""
        super().__init__(context, operator)
        self._parse = operator

    def step(self, inputs: Sequence[Jumbo | None], frontier: Root) -> Outputs:
        """Good texts become rows; bad ones follow `on_error`."""
        jumbo = inputs[0]
        if jumbo is None or not len(jumbo):
            return super().step(inputs, frontier)
        operator, context = self._parse, self.context
        parts, good, bad = self._parsed(jumbo.batch.column(operator.column))
        if bad and operator.on_error is OnError.FAIL:
            row, message = bad[0]
            raise OperatorError(
                context.step,
                f"{operator.grammar.name} in {operator.column!r}",
                f"{message} on {describe_row(jumbo.batch, row)}",
                "mend the data, or declare on_error='skip' or 'side'",
            )
        context.counters.skipped += len(bad)
        if parts:
            columns = pa.concat_tables(parts).combine_chunks().to_batches()[0]
            source = jumbo if len(good) == len(jumbo) else jumbo.take(good)
            outputs: Outputs = [attach(operator, context, source, columns, None, expands=False)]
        else:
            outputs = [None]
        if operator.on_error is OnError.SIDE:
            outputs.append(rejected(operator, context, jumbo, bad))
        return outputs

    def _parsed(self, column: pa.Array) -> Parsed:
        """What becomes of a column of texts, with nulls and rows without a needed value as bad."""
        if column.type != pa.string():
            column = column.cast(pa.string())
        present = np.flatnonzero(pc.is_valid(column).to_numpy(zero_copy_only=False))
        texts = column if len(present) == len(column) else column.drop_null()
        parts, good, bad = self._parse.grammar.parse(texts)
        if len(texts) < len(column):
            missing = np.setdiff1d(np.arange(len(column)), present).tolist()
            bad = [(int(present[row]), why) for row, why in bad]
            bad += [(row, f"no {self._parse.grammar.name[2:]}") for row in missing]
            good = present[good]
        if parts and (empty := self._without_a_value(table := pa.concat_tables(parts))):
            bad += [(int(good[row]), f"no value for {name!r}") for row, name in empty.items()]
            filled = np.setdiff1d(np.arange(len(good)), list(empty))
            parts, good = [table.take(pa.array(filled))], good[filled]
        return Parsed(parts if len(good) else [], good, sorted(bad))

    def _without_a_value(self, parsed: pa.Table) -> dict[int, str]:
        """Rows that lack what they may not, each with the first column that it lacks."""
        lacking: dict[int, str] = {}
        for name in reversed(self._parse.required):
            if parsed[name].null_count:
                missing = pc.is_null(parsed[name]).to_numpy(zero_copy_only=False)
                lacking |= dict.fromkeys(np.flatnonzero(missing).tolist(), name)
        return lacking


def nullable(columns: pa.Schema) -> pa.Schema:
    """The columns as Arrow's readers make them; what may not be null is looked at afterwards."""
    return pa.schema([field.with_nullable(True) for field in columns])


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


def parse_json(
    column: str,
    out: SchemaLike,
    on_error: OnError | str = OnError.FAIL,
    keeps: str | Sequence[str] = (),
) -> Parse:
    """Read a column of JSON objects.

    Args:
        column: The column of texts.
        out: Fields to take, with their types; a field that a text does not have is null, and if a
            field is not nullable such a text is bad.
        on_error: What happens to a text that is no object, or has a field of another type: `fail`,
            `skip`, or `side` (it leaves by the port `errors`).
        keeps: Columns to carry along, "*" for all.

    Example:
        >>> parse_json("line", out="user: string, n: int64", on_error="skip").out.names
        ['user', 'n']
    """
    made = schema(out, "parse_json")
    return Parse(column, Json(nullable(made)), made, keeps, on_error)


def parse_csv(
    column: str,
    out: SchemaLike,
    separator: str = ",",
    on_error: OnError | str = OnError.FAIL,
    keeps: str | Sequence[str] = (),
) -> Parse:
    """Read a column of CSV records; fields may be quoted with `"`, a quote inside is doubled.

    Args:
        column: The column of texts.
        out: All columns of a record, in their order. An empty field is null, or the empty string
            where the column is a string; a record without a value that is not nullable is bad.
        separator: The one character between fields.
        on_error: What happens to a text with another number of fields, or with a field of another
            type: `fail`, `skip`, or `side` (it leaves by the port `errors`).
        keeps: Columns to carry along, "*" for all.

    Example:
        >>> parse_csv("line", out="user: string, n: int64", separator=";").out.names
        ['user', 'n']
    """
    if len(separator) != 1 or separator in '"\r\n':
        raise BuildError(
            "parse_csv",
            "a separator of one character",
            repr(separator),
            "give one that is no quote and no line break",
        )
    if ord(separator) > 127:
        raise BuildError("parse_csv", "a separator in ASCII", repr(separator), "choose another")
    made = schema(out, "parse_csv")
    return Parse(column, Csv(nullable(made), separator), made, keeps, on_error)
