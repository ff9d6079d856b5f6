"""Rows of the user's Parquet files, which need not have the types that an application works with.

pandas writes times in nanoseconds and numbers of 64 bits, others texts as dictionaries; columns
that may be empty may be missing. Each file is read in its own types, so what becomes of a row
follows from that row. A value that does not fit makes its row bad, as it would in CSV.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.apps.parts.columns import beyond_calendar, trouble_with
from anabranch.errors import SchemaError
from anabranch.flow import Flow, Stream
from anabranch.graph import StreamType
from anabranch.io.files_source import FilesSource, Paths
from anabranch.io.formats.parquet import FittedParquetFormat
from anabranch.operators.base import Kernel, KernelContext, Outputs
from anabranch.operators.fitting import can_fit
from anabranch.operators.grammars import nullable
from anabranch.operators.screen import Screen, screen
from anabranch.operators.shapes import ERROR
from anabranch.state.positions import Jumbo, Root

UNFIT = pa.field("what does not fit", pa.string())


def parquet_rows(flow: Flow, name: str, paths: Paths, columns: pa.Schema) -> Stream:
    """The source `name` and the step `<name>.parse`, by whose port `errors` bad rows leave."""
    plain = FilesSource(paths, "parquet", nullable(columns))
    found = {part: schema for part in plain.parts() if (schema := plain.columns(part)) is not None}
    for part, schema in found.items():
        _require(name, part, schema, columns)
    if all(_are_the_same(schema, columns) for schema in found.values()):
        return flow.source(name, plain).apply(f"{name}.parse", screen(lacking(columns)))
    source = FilesSource(paths, FittedParquetFormat(), nullable(columns).append(UNFIT))
    return flow.source(name, source).apply(f"{name}.parse", _Fitting(columns))


def lacking(columns: pa.Schema) -> Callable[[pa.RecordBatch], pa.Array]:
    """For `screen`: rows without a value in a column that is not nullable, or beyond the calendar.

    See `beyond_calendar`.
    """
    required = [field.name for field in columns if not field.nullable]

    def why(batch: pa.RecordBatch) -> pa.Array:
        found = pa.nulls(batch.num_rows, pa.string())
        if beyond := beyond_calendar(batch):
            found = pa.array(map(beyond.get, range(batch.num_rows)), pa.string())
        for name in reversed(required):
            if batch[name].null_count:
                found = pc.if_else(pc.is_null(batch[name]), f"no value for {name!r}", found)
        return found

    return why


def _require(name: str, part: str, found: pa.Schema, columns: pa.Schema) -> None:
    """Refuse a file without a column that is needed, or with one of which no value could fit."""
    if trouble := trouble_with(found.names, columns):
        raise SchemaError(
            name,
            f"the columns {columns.names} in {part}",
            trouble,
            "name the columns so, each once",
        )
    for field in columns:
        if field.name in found.names and not can_fit(found.field(field.name).type, field.type):
            raise SchemaError(
                name,
                f"column {field.name!r} to hold values of {field.type} in {part}",
                str(found.field(field.name).type),
                "write the column with that type",
            )


def _are_the_same(found: pa.Schema, columns: pa.Schema) -> bool:
    return all(
        field.name in found.names and found.field(field.name).type == field.type
        for field in columns
    )


class _Fitting(Screen):
    """A screen for rows of `FittedParquetFormat`, whose last column it takes away."""

    def __init__(self, columns: pa.Schema) -> None:
        lacks = lacking(columns)

        def why(batch: pa.RecordBatch) -> pa.Array:
            """What does not fit, or is missing."""
            return pc.coalesce(batch[UNFIT.name], lacks(batch))

        super().__init__(why)
        self.kept_names = columns.names

    def outputs(self, step: str, inputs: tuple[StreamType, ...]) -> tuple[StreamType, ...]:
        """Without that column, on both ports."""
        good, bad = super().outputs(step, inputs)
        return good, StreamType(good.schema.append(ERROR), bad.time, bad.changelog)

    def kernel(self, context: KernelContext) -> Kernel:
        """A running copy."""
        [given] = context.inputs
        bad = StreamType(given.schema.append(ERROR), given.time, given.changelog)
        return _FittingKernel(context, super().kernel(replace(context, outputs=(given, bad))))


class _FittingKernel(Kernel):
    """What a screen lets out, on both ports, without a column."""

    def __init__(self, context: KernelContext, screening: Kernel) -> None:
        super().__init__(context)
        self._screening = screening

    def step(self, inputs: Sequence[Jumbo | None], frontier: Root) -> Outputs:
        outputs = zip(self._screening.step(inputs, frontier), self.context.outputs, strict=True)
        return [
            None if jumbo is None else Jumbo(jumbo.batch.select(to.schema.names), jumbo.positions)
            for jumbo, to in outputs
        ]
