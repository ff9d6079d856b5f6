"""Sinks on Spark: tasks prepare the rows, the driver commits them."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from anabranch.engines.checkpoint.sinks import OUTBOX, OutboxStage, Sinks
from anabranch.engines.checkpoint.state_files import state_name
from anabranch.engines.checkpoint.storage import Storage, with_scheme
from anabranch.engines.spark.replica import TaskReplica
from anabranch.engines.spark.task_inputs import Batch, Program
from anabranch.io.sink import Receipt
from anabranch.io.two_phase_commit import prepare


def write_sink(
    program: Program, batch: Batch, run: TaskReplica, storage: Storage, attempt: str
) -> Receipt | None:
    """Prepare what a sink got in this task."""
    name = run.region.name
    return prepare(
        program.sinks[name],
        program.contexts[name].inputs[0].schema,
        state_name(batch.version, name, run.replica, batch.token, attempt),
        (jumbo.batch for jumbo in run.sink_rows),
        OutboxStage(storage),
    )


class SparkStage(OutboxStage):
    """The outbox of a checkpoint, which Spark can read."""

    def __init__(self, storage: Storage, checkpoint: str, spark: SparkSession) -> None:
        super().__init__(storage)
        self._folder, self._spark = f"{with_scheme(checkpoint)}/{OUTBOX}", spark

    def dataframe(self, receipts: Sequence[Receipt]) -> DataFrame:
        """Return rows that are kept as Parquet; nothing passes through the driver."""
        return self._spark.read.parquet(*(f"{self._folder}/{r.name}" for r in receipts))


def spark_sinks(program: Program, storage: Storage, spark: SparkSession | None) -> Sinks:
    """Return all sinks of a flow, for the driver; without a session there are no DataFrames."""
    return Sinks(
        program.sinks,
        {name: program.contexts[name].inputs[0].schema for name in program.sinks},
        storage,
        None if spark is None else SparkStage(storage, program.checkpoint, spark),
    )
