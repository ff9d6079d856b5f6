"""Streaming DataFrames as sources: one DataFrame for Spark, tuples with positions for tasks.

Rows of several sources travel in one DataFrame: the number of the source, and a struct column per
source that is null in the rows of the others. A tuple's position is (micro-batch, source, order
columns): Spark's checkpoint keeps which rows are in which micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from anabranch.engines.spark.task_inputs import Batch, Program
from anabranch.errors import BuildError, SourceError
from anabranch.io.spark.dataframe_source import DataFrameSource
from anabranch.state.positions import FIRST, Ints, Jumbo, Positions, Root

TAG = "source"


def dataframe_sources(program: Program) -> dict[str, DataFrameSource]:
    """Return the sources whose rows Spark brings, by name.

    This is the one place that asks for a class: Spark can push the rows of a DataFrame, and of
    nothing else.
    """
    found: dict[str, DataFrameSource] = {}
    for name, source in program.sources.items():
        if not source.pushed:
            continue
        if not isinstance(source, DataFrameSource):
            raise BuildError(
                name,
                "a streaming DataFrame, whose rows Spark can bring",
                repr(source),
                "give ab.dataframe(…) itself to the flow, or a source that can be read",
            )
        found[name] = source
    return found


def stream(spark: SparkSession, program: Program) -> DataFrame:
    """What the streaming query reads: a tick per micro-batch, and every streaming DataFrame."""
    found = dataframe_sources(program)
    types: dict[str, StructType] = {n: s.df.schema for n, s in found.items() if s.df is not None}
    tick = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1)
    frames = [_tagged(tick.option("numPartitions", 1).load(), -1, None, types)]
    for name, source in found.items():
        if source.df is not None:
            frames.append(_tagged(source.df, program.ranks[name], name, types))
    return reduce(DataFrame.unionAll, frames)


def _tagged(df: DataFrame, tag: int, own: str | None, types: dict[str, StructType]) -> DataFrame:
    columns = [
        F.struct(*[F.col(f"`{c}`") for c in df.columns]).alias(name)
        if name == own
        else F.lit(None).cast(kind).alias(name)
        for name, kind in types.items()
    ]
    return df.select(F.lit(tag).alias(TAG), *columns)


def frontier_after(version: int, rank: int) -> Root:
    """How far a streaming DataFrame has come with a micro-batch."""
    return Root(version + 1, rank, FIRST, FIRST)


def joined(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of about `rows`: those that Spark sends may be small."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(each.num_rows for each in held) >= rows:
            yield pa.concat_batches(held)
            held = []
    if held:
        yield pa.concat_batches(held)


def require_one_order(program: Program) -> None:
    """Refuse to merge by number what is numbered in different ways."""
    pushed = {program.ranks[name] for name in dataframe_sources(program)}
    for name, context in program.contexts.items():
        mixed = pushed.intersection(context.sources) and set(context.sources) - pushed
        if len(context.inputs) > 1 and mixed and context.inputs[0].time is None:
            raise BuildError(
                name,
                "streams that have one order",
                "a streaming DataFrame, numbered by micro-batch, and a source numbered by row",
                "order both by event time: give their sources time=…",
            )


def read_rows(program: Program, batch: Batch, rows: pa.RecordBatch) -> Iterator[tuple[str, Jumbo]]:
    """The tuples of each source in an Arrow batch of the streaming query."""
    tags = rows.column(0).to_numpy()
    for name, source in dataframe_sources(program).items():
        mine = np.flatnonzero(tags == program.ranks[name])
        if not len(mine):
            continue
        struct = rows.column(rows.schema.get_field_index(name))
        if len(mine) < len(tags):
            struct = struct.take(pa.array(mine))
        data = pa.RecordBatch.from_struct_array(struct)
        schema = program.contexts[name].outputs[0].schema
        if not data.schema.equals(schema):
            data = data.cast(schema)
        order = [_order(name, data, column) for column in source.order_columns]
        nothing = np.broadcast_to(np.int64(0), len(mine))
        first, second = [*order, nothing, nothing][:2]
        time = np.broadcast_to(np.int64(batch.version), len(mine))
        rank = np.broadcast_to(np.int64(program.ranks[name]), len(mine))
        yield name, Jumbo(data, Positions((time, rank, first, second))).in_order()


def _order(name: str, data: pa.RecordBatch, column: str) -> Ints:
    values = data.column(column)
    if values.null_count:
        raise SourceError(
            name,
            f"a value in order column {column!r} of every row",
            f"{values.null_count} nulls",
            "filter those rows out of the DataFrame, or name another order column",
        )
    if pa.types.is_temporal(values.type):
        bits = pa.int32() if values.type.bit_width == 32 else pa.int64()
        values = values.cast(bits)
    numbers: Ints = values.cast(pa.int64()).to_numpy()
    return numbers
