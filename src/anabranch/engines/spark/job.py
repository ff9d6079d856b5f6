"""One micro-batch as one Spark job: a chain of stages, and the rows that come out at its end."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from html import escape
from typing import Any

import pyarrow as pa
from pyspark import Broadcast
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType
from pyspark.traceback_utils import SCCallSiteSync

from anabranch.engines.spark import shuffle_rows as wire
from anabranch.engines.spark.failures import OF_SPARK, job_failure
from anabranch.engines.spark.layout import RegionStage, StageLayout
from anabranch.engines.spark.task import run_task
from anabranch.engines.spark.task_inputs import Batch, JobResult
from anabranch.engines.spark.task_report import TaskReport
from anabranch.engines.spark.workers import this_python
from anabranch.planning.regions import RegionKind

# As a type, not as text: parsing the text took longer than the rest of building a job.
ROW = StructType(
    [
        StructField("target", IntegerType()),
        StructField("header", BinaryType()),
        StructField("payload", BinaryType()),
    ]
)

LONGEST = 200


class RemoteTraceback(Exception):
    """The traceback of an error in a worker, as text."""


def run_job(
    spark: SparkSession,
    program: Broadcast[bytes],
    pushed: DataFrame | None,
    layout: StageLayout,
    batch: Batch,
) -> JobResult:
    """Run a micro-batch; one action, so that nothing runs twice."""
    packed = pickle.dumps(batch, protocol=5)
    stages = [" · ".join(regions_of(layout, stage)) for stage in range(layout.last_stage + 1)]
    names = [shortened(each) for each in stages]

    def step(stage: int) -> Any:
        task: Any = partial(run_task, program, packed, stage)
        task.__name__ = names[stage]  # on Spark's SQL page
        return task

    # Of this thread, which is the query's. Its job group stays: Spark cancels the query by that.
    spark.sparkContext.setJobDescription(escape(description(layout, batch), quote=False))
    readers = layout.tasks[0]
    with this_python(spark.sparkContext):
        frame = spark.range(0, readers, 1, readers).mapInArrow(step(0), ROW)
        if pushed is not None:
            frame = frame.unionAll(pushed.mapInArrow(step(0), ROW))
        for stage in range(1, layout.last_stage + 1):
            frame = frame.repartitionById(layout.tasks[stage], "target")
            frame = frame.mapInArrow(step(stage), ROW)
    try:
        with named_stages(spark, frame, names):
            table: pa.Table = frame.toArrow()
    except OF_SPARK as error:
        raise job_failure(error, spark, batch.version, stages) from error
    return outcome_of(table.to_batches())


def description(layout: StageLayout, batch: Batch) -> str:
    """What Spark's pages say of a job and its stages: the flow, the batch, and regions by stage.

    A bar stands where tuples are dealt out anew, which is where another stage begins. Spark has one
    description for all stages of a job; beside it stands the stage's own name.
    """
    stages = [regions_of(layout, stage) for stage in range(layout.last_stage + 1)]
    regions = " | ".join(map(" · ".join, stages))
    return shortened(f"{batch.plan.flow} batch {batch.version}: {regions}")


def shortened(text: str) -> str:
    """A text that a page has room for."""
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def regions_of(layout: StageLayout, stage: int) -> list[str]:
    """The regions that work in a stage; sources and sinks only where nothing else does."""
    here = [station for station in layout.stations.values() if station.stage == stage]
    working = [station for station in here if not _at_an_end(station)]
    return [station.region.name for station in working or here]


def _at_an_end(station: RegionStage) -> bool:
    return station.region.kind in (RegionKind.SOURCE, RegionKind.SINK)


def outcome_of(batches: Iterable[pa.RecordBatch]) -> JobResult:
    """What the rows at the end of a job say; raises the error of a task."""
    reports: list[TaskReport] = []
    for batch in batches:
        for row in wire.rows_of(batch):
            if row.kind == wire.FAILURE:
                error, trace = pickle.loads(row.payload)
                raise error from RemoteTraceback(f"\n{trace}")
            if row.kind == wire.REPORT:
                reports.append(TaskReport.from_bytes(row.payload.to_pybytes()))
    return JobResult(reports)


# Names of stages on Spark's pages: the regions that work there.
#
# Spark calls a stage after the place in the program that made its last RDD, and all of a job's RDDs
# are made in one place. So they are made here, one stage after another, each at a place with the
# stage's own name. Spark keeps what was made and runs that; nothing is computed before the job.

SHUFFLE = "Exchange"


@contextmanager
def named_stages(spark: SparkSession, frame: DataFrame, names: Sequence[str]) -> Iterator[None]:
    """Jobs inside are about this frame, with such names for its stages; where anybody can look."""
    if not _has_pages(spark):
        yield
        return
    context: Any = spark.sparkContext._jsc
    place: Any = SCCallSiteSync
    with place(spark.sparkContext):  # or PySpark would name the place that it sees
        try:
            for name, shuffle in zip(names, _shuffles(frame, len(names) - 1), strict=False):
                context.setCallSite(name)
                shuffle.execute()
            context.setCallSite(names[-1])
            yield
        finally:
            context.setCallSite(None)


def _has_pages(spark: SparkSession) -> bool:
    """Whether there are pages, or a log that a history server makes pages of."""
    logged = spark.conf.get("spark.eventLog.enabled", "false") == "true"
    return logged or spark.sparkContext.uiWebUrl is not None


def _shuffles(frame: DataFrame, expected: int) -> list[Any]:
    """The shuffles of a chain, the first one first; none where it is not the chain we know."""
    node: Any = frame._jdf.queryExecution().executedPlan()
    found: list[Any] = []
    while (children := node.children()).size() == 1:
        node = children.head()
        if node.nodeName() == SHUFFLE:
            found.insert(0, node)
    return found if len(found) == expected else []
