"""Sinks on Spark: tasks write the rows; a function over DataFrames gets them as one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from anabranch.engines.checkpoint.locations import with_scheme
from anabranch.engines.checkpoint.manifest import Manifest, SinkWritten
from anabranch.engines.checkpoint.sinks import OUTBOX, Sinks, outbox_files, write_rows
from anabranch.engines.checkpoint.state_files import state_name
from anabranch.engines.checkpoint.storage import Storage
from anabranch.engines.spark.program import Batch, Program
from anabranch.engines.spark.station import StationRun
from anabranch.graph import Role
from anabranch.io.spark.each_batch_sink import EachBatchSink


def write_sink(
    program: Program, batch: Batch, run: StationRun, storage: Storage, attempt: str
) -> SinkWritten:
    """Write what a sink got in this task."""
    name = run.region.name
    batches = [jumbo.batch for jumbo in run.sink_rows]
    sink, schema = program.body(name).sink, program.contexts[name].inputs[0].schema
    file: str | None = state_name(batch.version, name, run.replica, batch.token, attempt)
    if isinstance(sink, EachBatchSink):
        file = _write_parquet(schema, f"{file}.parquet", batches, storage) if batches else None
    else:
        file = write_rows(sink, schema, str(file), batches, storage)
    return SinkWritten(name, sum(b.num_rows for b in batches), file)


class SparkSinks(Sinks):
    """All sinks of a flow, on the driver."""

    def __init__(self, program: Program, storage: Storage, spark: SparkSession | None) -> None:
        """Touch nothing but the outbox yet."""
        names = program.flow.names(Role.SINK)
        super().__init__(
            {name: program.body(name).sink for name in names},
            {name: program.contexts[name].inputs[0].schema for name in names},
            storage,
        )
        self._program, self._spark = program, spark

    def deliver(self, sink: Any, name: str, manifest: Manifest) -> None:
        """Hand the rows of a batch to a sink that is not files."""
        if not isinstance(sink, EachBatchSink):
            super().deliver(sink, name, manifest)
        elif (files := outbox_files(name, manifest)) and self._spark is not None:
            folder = with_scheme(self._program.checkpoint)
            paths = [f"{folder}/{file}" for file in files]
            sink.deliver(self._spark.read.parquet(*paths), manifest.version)


def _write_parquet(
    schema: pa.Schema, file: str, batches: list[pa.RecordBatch], storage: Storage
) -> str:
    content = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_batches(batches, schema=schema), content)
    storage.write(f"{OUTBOX}/{file}", content.getvalue(), durable=True)
    return file
