"""Parse: a column of texts, one JSON object or one CSV record each, becomes columns.

`columns/text_parsers.py` reads the texts; here are the step that does it, and the treatment of bad
ones. Where a text is all that a row has, as in the lines of a file, one that its grammar calls
blank is no bad row but none: it is passed over, as readers of such files do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.columns.schemas import SchemaLike, columns_of, schema
from anabranch.columns.text_parsers import BLANK, Csv, Grammar, Json, Parsed, nullable
from anabranch.errors import BuildError, OperatorError, SchemaError, Subject
from anabranch.graph import StreamType
from anabranch.operators.base import (
    Kernel,
    KernelContext,
    OnError,
    Outputs,
    describe_row,
    on_error_of,
)
from anabranch.operators.row_wise.map_filter_expand import BatchKernel, Map, attach, rejected
from anabranch.state.positions import Jumbo, Root

PARSE_CSV = Subject("operator", "parse_csv")


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
        name = f"parse_{type(grammar).__name__.lower()}"
        about = Subject("operator", name)
        if not out.names:
            raise BuildError(
                about, "the columns to parse into", "none", "declare out='name: type, …'"
            )
        plain = pa.schema([field.remove_metadata() for field in nullable(out)])
        super().__init__(self._unused, plain, keeps, on_error_of(about, on_error))
        self.column, self.grammar = column, grammar
        self.required = tuple(field.name for field in out if not field.nullable)
        self.__name__, self.__doc__ = name, grammar.__doc__
        try:
            grammar.check()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SchemaError(
                about,
                f"columns that {grammar.name} can hold",
                str(error),
                "parse those columns as strings first",
            ) from error

    @staticmethod
    def _unused(batch: pa.RecordBatch) -> None:
        raise NotImplementedError("the kernel parses; there is no author's function")

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
        self._of_lines = len(context.inputs[0].schema) == 1

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
        context.counters.skip(jumbo, bad)
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
        required = self._parse.required
        if parts and (empty := rows_lacking(table := pa.concat_tables(parts), required)):
            bad += [(int(good[row]), why) for row, why in empty.items()]
            filled = np.setdiff1d(np.arange(len(good)), list(empty))
            parts, good = [table.take(pa.array(filled))], good[filled]
        if self._of_lines:
            bad = [(row, why) for row, why in bad if why != BLANK]
        return Parsed(parts if len(good) else [], good, sorted(bad))


def rows_lacking(rows: pa.RecordBatch | pa.Table, required: Sequence[str]) -> dict[int, str]:
    """Rows that lack a value they need, each with what is said of the first that it lacks.

    Example:
        >>> rows_lacking(pa.table({"a": [1, None], "b": [None, None]}), ["a", "b"])
        {0: "no value for 'b'", 1: "no value for 'a'"}
    """
    lacking: dict[int, str] = {}
    for name in reversed(required):
        if rows[name].null_count:
            missing = pc.is_null(rows[name]).to_numpy(zero_copy_only=False)
            lacking |= dict.fromkeys(np.flatnonzero(missing).tolist(), f"no value for {name!r}")
    return lacking


def parse_json(
    column: str,
    out: SchemaLike = None,
    on_error: OnError | str = OnError.FAIL,
    keeps: str | Sequence[str] = (),
) -> Parse:
    """Read a column of JSON objects; blank lines are passed over if there is no other column.

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
    made = schema(out, Subject("operator", "parse_json"))
    return Parse(column, Json(nullable(made)), made, keeps, on_error)


def parse_csv(
    column: str,
    out: SchemaLike = None,
    separator: str = ",",
    on_error: OnError | str = OnError.FAIL,
    keeps: str | Sequence[str] = (),
) -> Parse:
    """Read a column of CSV records; fields may be quoted with `"`, a quote inside is doubled.

    Each text is a record. A quoted field may hold a line break only if its text does: where the
    texts are the lines of a file, such a record is torn into two bad ones, and the reason of the
    first says so. Blank lines are passed over if there is no other column.

    Args:
        column: The column of texts.
        out: All columns of a record, in their order. An empty field is null, or the empty string
            where the column is a string that may be null; a record without a value that is not
            nullable is bad. Times are by ISO 8601, and in UTC unless they tell another zone.
        separator: The one character between fields.
        on_error: What happens to a text with another number of fields, or with a field of another
            type: `fail`, `skip`, or `side` (it leaves by the port `errors`).
        keeps: Columns to carry along, "*" for all.

    Example:
        >>> parse_csv("line", out="user: string, n: int64", separator=";").out.names
        ['user', 'n']
    """
    if type(separator) is not str or len(separator) != 1 or separator in '"\r\n':
        raise BuildError(
            PARSE_CSV,
            "a separator of one character",
            repr(separator),
            "give one that is no quote and no line break",
        )
    if ord(separator) > 127:
        raise BuildError(PARSE_CSV, "a separator in ASCII", repr(separator), "choose another")
    made = schema(out, PARSE_CSV)
    return Parse(column, Csv(made, separator), made, keeps, on_error)
