"""Sinks on Spark: tasks prepare the rows, the driver commits them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter

from pyspark.sql import DataFrame, SparkSession

from anabranch.engines.checkpoint.sinks import OUTBOX, OutboxStage, Sinks
from anabranch.engines.checkpoint.state_files import state_name
from anabranch.engines.checkpoint.storage import Storage, with_scheme
from anabranch.engines.spark.replica import TaskReplica
from anabranch.engines.spark.task_inputs import Batch, Program
from anabranch.io.sink import PositionRange, Receipt
from anabranch.io.two_phase_commit import prepare
from anabranch.planning.plan import RegionPlan
from anabranch.runtime.ranges import Ranges
from anabranch.state.positions import Jumbo


def write_sink(
    program: Program, batch: Batch, run: TaskReplica, storage: Storage, attempt: str
) -> tuple[Receipt, ...]:
    """Prepare what a sink got in this task: rows that are apart in its order, apart."""
    name, stage = run.region.name, OutboxStage(storage)
    sink, schema = program.sinks[name], program.contexts[name].inputs[0].schema
    receipts: list[Receipt] = []
    try:
        for number, rows in enumerate(_segments(batch.plan.region(name), run)):
            attempted = attempt if number == 0 else f"{attempt}-{number}"
            prefix = state_name(batch.version, name, run.replica, batch.token, attempted)
            receipt = prepare(sink, schema, prefix, (jumbo.batch for jumbo in rows), stage)
            if receipt is not None:
                if run.ordered:
                    place = PositionRange(rows[0].positions.row(0), rows[-1].positions.row(-1))
                    receipt = replace(receipt, positions=place)
                receipts.append(receipt)
    except BaseException:
        sink.abort(receipts, stage)
        raise
    return tuple(receipts)


def _segments(plan: RegionPlan, run: TaskReplica) -> Iterable[Sequence[Jumbo]]:
    """The rows of a task; those of each range, where other tasks have the ranges between them."""
    if plan.replicas == 1 or run.station.joined:
        return [run.sink_rows]
    ranges = Ranges.of(plan)
    pieces = (piece for jumbo in run.sink_rows for piece in ranges.pieces(jumbo))
    return [[jumbo for _, jumbo in group] for _, group in groupby(pieces, key=itemgetter(0))]


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
