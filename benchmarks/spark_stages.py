"""How many stages a micro-batch of an application has on Spark, and what one without work takes.

Stages are counted under four plans: one replica of everything, what a run begins with, as many as
there are cores wherever allowed, and the best by the model for Spark from a profile.

A batch with next to nothing to read is timed beside an empty job of the same shape: as many stages,
as many tasks in each, every task in a Python worker, in `foreachBatch` of a streaming query. Both
figures are what Spark's progress calls `addBatch`. They take turns in one JVM; the first batches of
each turn warm up and do not count.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
from harness import Report, interleave, main
from pyspark.sql import DataFrame, SparkSession
from spark_baselines import CORES, spark

import anabranch as ab
from anabranch.apps import APPS
from anabranch.engines.measuring.profiling import profile_flow
from anabranch.engines.spark.job import ROW
from anabranch.engines.spark.layout import StageLayout, layout, with_ranges
from anabranch.engines.spark.model import SparkModel
from anabranch.flow import Flow
from anabranch.planning.models.spark import Slots
from anabranch.planning.plan import Plan
from anabranch.planning.starting import readers_side_by_side, side_by_side

COUNTED = (
    "word-count",
    "linear-road",
    "finance",
    "nexmark-q3",
    "nexmark-q4",
    "nexmark-q5",
    "nexmark-q8",
    "nexmark-q9",
)
TIMED = {"word-count": ("side",), "nexmark-q5": ("start", "side"), "linear-road": ("start", "side")}
"""By application, the plans under which its batches are timed."""

PROFILED_ROWS = 200_000
BATCH_ROWS = 16
WARM_UP, BATCHES = 3, 7
BAR = 1.2


def measure(quick: bool) -> Report:
    report = Report("spark_stages", "A batch takes what an empty job of as many stages takes")
    for name in COUNTED:
        flow = APPS[name].build(rows=PROFILED_ROWS)
        for plan_name, plan in plans_of(flow).items():
            stages = len(layout(flow, plan).tasks)
            report.add_figure(f"{key_of(name)}_stages_{plan_name}", stages)
    session = spark()
    try:
        for name, plan_names in TIMED.items():
            for plan_name in plan_names[-1:] if quick else plan_names:
                compare(report, session, name, plan_name, repetitions=2 if quick else 5)
    finally:
        session.stop()
    return report


def plans_of(flow: Flow) -> dict[str, Plan]:
    """Plans of a flow for Spark, by name."""
    start = readers_side_by_side(flow, CORES)
    model = SparkModel(flow, Slots(CORES, CORES))
    plans = {
        "sequential": Plan.sequential(flow),
        "start": start,
        "side": side_by_side(flow, CORES),
        "best": model.best(profile_flow(flow), with_ranges(flow, start)),
    }
    return {name: with_ranges(flow, plan) for name, plan in plans.items()}


def compare(
    report: Report, session: SparkSession, app: str, plan_name: str, repetitions: int
) -> None:
    """Time batches of an application beside empty jobs of the same stages and tasks."""
    key = f"{key_of(app)}_{plan_name}"
    with tempfile.TemporaryDirectory(prefix="stages-", ignore_cleanup_errors=True) as folder:
        turns = Turns(session, app, plan_name, Path(folder))
        samples = interleave({"ours": turns.ours, "empty": turns.empty}, repetitions)
    report.add_sample(f"{key}_batch_ms", samples["ours"])
    report.add_sample(f"{key}_empty_job_ms", samples["empty"])
    ratio = samples["ours"].median / samples["empty"].median
    report.add_bar(f"{key}_vs_empty", ratio, BAR, at_least=False)


class Turns:
    """Runs batches of either side, each time with a fresh checkpoint."""

    def __init__(self, session: SparkSession, app: str, plan_name: str, root: Path) -> None:
        self._session, self._root, self._numbers = session, root, count()
        # One batch more: Spark says nothing of the one that a query ends with.
        self._flow = APPS[app].build(rows=BATCH_ROWS * (WARM_UP + BATCHES + 1))
        plan = {"start": readers_side_by_side, "side": side_by_side}[plan_name]
        self._plan = with_ranges(self._flow, plan(self._flow, CORES, batch_rows=BATCH_ROWS))
        self._layout = layout(self._flow, self._plan, slots=CORES)

    def ours(self) -> float:
        """Milliseconds of a batch, the median of a run."""
        work = self._work()
        flow = self._flow.writing({name: ab.parquet(work / name) for name in self._flow.sinks()})
        handle = ab.start(
            flow, plan=self._plan, session=self._session, checkpoint=work / "checkpoint"
        )
        handle.await_termination()
        return median_ms(handle.engine.query)

    def empty(self) -> float:
        """Milliseconds of an empty job of the same stages, the median of a run."""
        tick = self._session.readStream.format("rate-micro-batch")
        tick = tick.option("rowsPerBatch", 1).option("numPartitions", 1)
        enough = Event()

        def on_batch(frame: DataFrame, version: int) -> None:
            if version < WARM_UP + BATCHES:
                empty_job(frame.sparkSession, self._layout)
            else:  # what came before is in Spark's progress now
                enough.set()

        writer = tick.load().writeStream.foreachBatch(on_batch)
        query = writer.option("checkpointLocation", str(self._work() / "checkpoint")).start()
        while query.isActive and not enough.wait(1.0):
            pass
        query.stop()
        return median_ms(query)

    def _work(self) -> Path:
        return self._root / str(next(self._numbers))


def median_ms(query: Any) -> float:
    """The median of what Spark's progress says of a query's warm batches."""
    told = query.recentProgress[WARM_UP : WARM_UP + BATCHES]
    if len(told) < BATCHES:
        raise AssertionError(f"{len(told)} warm batches, due were {BATCHES}")
    return statistics.median(each["durationMs"]["addBatch"] for each in told)


def empty_job(spark: SparkSession, stages: StageLayout) -> None:
    """A job of as many stages and tasks, whose tasks do nothing."""

    # Functions within functions reach the workers by value: these have no path to this file.
    def nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        return iter(())

    frame = spark.range(0, stages.tasks[0], 1, stages.tasks[0]).mapInArrow(nothing, ROW)
    for tasks in stages.tasks[1:]:
        frame = frame.repartitionById(tasks, "target").mapInArrow(nothing, ROW)
    frame.toArrow()


def key_of(app: str) -> str:
    return app.replace("-", "_")


if __name__ == "__main__":
    main(measure)
