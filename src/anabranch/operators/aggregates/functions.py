"""Aggregate functions: what a user names, and the accumulators of a step that uses several.

Nulls are passed over, as in SQL: `count("x")` counts values, `count()` rows; a sum, mean, extreme,
first or last of nothing is null. Integers add up exactly; a sum of them that is none of 64 bits is
an error, a mean of them is a double. Floats add up in doubles, from left to right. NaN counts as
greater than any number (Spark's rule): `max` is NaN once a NaN came, `min` only when nothing else
did; both give 0.0 for -0.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa
import pyarrow.types as pt

from anabranch.columns.grouped_rows import Runs
from anabranch.columns.schemas import columns_of
from anabranch.errors import SchemaError
from anabranch.operators.aggregates.accumulators import (
    Accumulator,
    Count,
    Extreme,
    ExtremeObject,
    Fields,
    Mean,
    Pick,
    PickAnywhere,
    Sum,
    WholeMean,
    WholeSum,
)
from anabranch.state.positions import Ints, Positions
from anabranch.state.tables.keyed_table import KeyedTable
from anabranch.state.tables.values import dtype_of, from_arrow, to_arrow, zeros_of


class Function(Enum):
    """What is computed."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    MEAN = "mean"
    FIRST = "first"
    LAST = "last"


@dataclass(frozen=True)
class Aggregate:
    """One function of one column.

    Attributes:
        function: What is computed.
        column: Input column; None only for a count of rows.
        exact: Whether a floating-point sum must be added up in one fixed order.
    """

    function: Function
    column: str | None = None
    exact: bool = True

    def output(self, step: str, name: str, given: pa.Schema) -> pa.DataType:
        """Type of the result; raises when the column is missing or of a type that does not fit."""
        if self.column is None:
            return pa.int64()
        columns_of(step, (self.column,), given)
        kind = plain(given.field(self.column).type)
        if self.function is Function.COUNT:
            return pa.int64()
        if self.function in (Function.SUM, Function.MEAN):
            if not (pt.is_integer(kind) or pt.is_floating(kind)):
                raise self._misfit(step, name, "a column of integers or floats", kind)
            return pa.float64() if self.function is Function.MEAN else _total(kind)
        if self.function in (Function.MIN, Function.MAX) and not _ordered(kind):
            raise self._misfit(step, name, "numbers, texts, booleans or times", kind)
        return kind

    def combines(self, given: pa.Schema) -> bool:
        """Whether parts of the input can be aggregated apart without changing the result."""
        if self.function in (Function.SUM, Function.MEAN) and self.exact:
            return self._is_whole(given)
        return True

    def accumulator(self, name: str, given: pa.Schema, in_order: bool = True) -> Accumulator:
        """What a step keeps for this function; `in_order` says whether rows come in order."""
        out = self.output(name, name, given)
        largest = self.function is Function.MAX
        match self.function:
            case Function.COUNT:
                return Count(name, out)
            case Function.SUM:
                return (WholeSum if self._is_whole(given) else Sum)(name, out)
            case Function.MEAN:
                return (WholeMean if self._is_whole(given) else Mean)(name, out)
            case Function.MIN | Function.MAX:
                held_as_object = dtype_of(out).hasobject
                return (ExtremeObject if held_as_object else Extreme)(name, out, largest)
            case Function.FIRST | Function.LAST:
                return (Pick if in_order else PickAnywhere)(
                    name, out, self.function is Function.LAST
                )

    def _is_whole(self, given: pa.Schema) -> bool:
        return not pt.is_floating(plain(given.field(self.column).type))

    def _misfit(self, step: str, name: str, wanted: str, kind: pa.DataType) -> SchemaError:
        return SchemaError(
            step,
            f"{wanted} for {name} = {self.function.value}({self.column!r})",
            str(kind),
            "choose another column, or cast this one with .map(…)",
        )


class Accumulators:
    """All functions of one step, side by side."""

    def __init__(
        self, functions: Mapping[str, Aggregate], given: pa.Schema, in_order: bool = True
    ) -> None:
        """One accumulator per output column."""
        self._made = [f.accumulator(name, given, in_order) for name, f in functions.items()]
        self._columns = [f.column for f in functions.values()]
        self.schema = pa.schema([field for made in self._made for field in made.fields])

    def lift(self, batch: pa.RecordBatch) -> Fields:
        """One state per row of input."""
        parts: Fields = {}
        for made, name in zip(self._made, self._columns, strict=True):
            column = None if name is None else _decoded(batch.column(name))
            parts |= made.lift(column, batch.num_rows)
        return parts

    def parts_of(self, batch: pa.RecordBatch) -> Fields:
        """One state per row of states that were combined before."""
        return {
            field.name: batch.column(field.name)
            if dtype_of(field.type).hasobject
            else from_arrow(batch.column(field.name))
            for field in self.schema
        }

    def blank(self, groups: int) -> Fields:
        """States that have seen nothing."""
        return {field.name: zeros_of(field.type, groups) for field in self.schema}

    def read(self, table: KeyedTable, slots: Ints) -> Fields:
        """The states in a table."""
        return {name: table.get(name, slots) for name in self.schema.names}

    def write(self, table: KeyedTable, slots: Ints, state: Fields) -> None:
        """Put states into a table."""
        for name in self.schema.names:
            table.set(name, slots, state[name])

    def merge(self, state: Fields, codes: Ints, given: Fields) -> None:
        """Let rows flow into the states of their groups."""
        for made in self._made:
            made.merge(state, codes, given)

    def locate(self, state: Fields, codes: Ints, given: Fields, positions: Positions) -> None:
        """Merge one batch into empty states that will meet others out of order."""
        for made in self._made:
            made.locate(state, codes, given, positions)

    def scan(self, state: Fields, runs: Runs, given: Fields) -> Fields:
        """Merge, and return the state of its group after each row."""
        after: Fields = {}
        for made in self._made:
            after |= made.scan(state, runs, given)
        return after

    def results(self, state: Fields) -> list[pa.Array]:
        """One column per function."""
        return [made.finish(state) for made in self._made]

    def to_arrow(self, state: Fields) -> list[pa.Array]:
        """The states themselves as columns."""
        return [to_arrow(state[field.name], field.type) for field in self.schema]


def taken(state: Fields, rows: Ints) -> Fields:
    """The states of some groups or rows."""
    index = pa.array(rows)
    return {
        name: values.take(index if isinstance(values, pa.Array) else rows)
        for name, values in state.items()
    }


def plain(kind: pa.DataType) -> pa.DataType:
    """A type without dictionary encoding."""
    return kind.value_type if pt.is_dictionary(kind) else kind


def _decoded(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pt.is_dictionary(column.type) else column


def _total(kind: pa.DataType) -> pa.DataType:
    return pa.float64() if pt.is_floating(kind) else pa.int64()


def _ordered(kind: pa.DataType) -> bool:
    texts = pt.is_string(kind) or pt.is_large_string(kind)
    bytes_ = pt.is_binary(kind) or pt.is_large_binary(kind)
    return texts or bytes_ or pt.is_decimal(kind) or not dtype_of(kind).hasobject


def count(column: str | None = None) -> Aggregate:
    """How many rows; with a column, how many of its values are not null."""
    return Aggregate(Function.COUNT, column)


def sum(column: str, *, exact: bool = True) -> Aggregate:
    """The total; `exact=False` lets floats be added up in any order, so that they combine.

    Integers add up to an int64. Where a total is none, the run fails: cast the column to double
    before, if rounded totals will do.
    """
    return Aggregate(Function.SUM, column, exact)


def min(column: str) -> Aggregate:
    """The least value."""
    return Aggregate(Function.MIN, column)


def max(column: str) -> Aggregate:
    """The greatest value."""
    return Aggregate(Function.MAX, column)


def mean(column: str, *, exact: bool = True) -> Aggregate:
    """The total divided by the number of values, as a double."""
    return Aggregate(Function.MEAN, column, exact)


def first(column: str) -> Aggregate:
    """The first value in sequential order."""
    return Aggregate(Function.FIRST, column)


def last(column: str) -> Aggregate:
    """The last value in sequential order."""
    return Aggregate(Function.LAST, column)
