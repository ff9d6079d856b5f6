"""Word count on a cluster, as a program of its own; `test_cluster` starts it.

    python counting.py MASTER INPUT DIRECTORY

At first the workers run DIRECTORY/bare-python, which lacks the library, and `start` refuses them.
Then the plan changes every third batch. In the middle of a task of a batch that runs after the
fourth, a worker machine is lost: all its processes are killed.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.apps import word_count
from anabranch.engines.spark.session import session
from anabranch.errors import EngineError
from anabranch.events import Event, Observed
from anabranch.flow import Flow
from anabranch.planning.plan import Plan

REPLICAS = (2, 4, 1, 3)
# One machine plays several: all talk over loopback, and nobody waits long for one that is gone.
CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.shuffle.io.retryWait": "100ms",
    "spark.locality.wait": "0s",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def plan_of(flow: Flow, batch: int) -> Plan:
    plan = Plan.sequential(flow).with_source("lines", batch_rows=60, replicas=2)
    return plan.with_replicas("count", REPLICAS[batch // 3 % len(REPLICAS)])


def kill_machine() -> None:
    """In a task: kill the executor, and the worker that started it, which is its group."""
    daemon = os.getppid()
    executor = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
    os.killpg(os.getpgid(executor), signal.SIGKILL)


def build(text: Path, directory: Path) -> Flow:
    armed = directory / "armed"

    def struck(batch: pa.RecordBatch) -> dict[str, Any]:
        if armed.exists():
            try:
                armed.rename(directory / "struck")
            except FileNotFoundError:
                return {}  # another task was first
            kill_machine()
        return {}

    flow = Flow("count-on-a-cluster")
    words = flow.source("lines", ab.files(f"{text}/*.txt")).apply("split", word_count.split)
    words = words.map("struck", struck, keeps="word")
    counted = words.aggregate("count", key="word", n=ab.count(), emit="changes", combine=False)
    counted.sink("out", ab.parquet(directory / "out"))
    return flow


def refused(flow: Flow, spark: SparkSession, python: Path) -> str:
    """What a start says whose workers run another Python."""
    context = spark.sparkContext
    before, context.pythonExec = context.pythonExec, str(python)
    try:
        ab.start(flow, session=spark)
    except EngineError as error:
        return str(error)
    finally:
        context.pythonExec = before
    return "nothing"


def main(master: str, text: Path, directory: Path) -> None:
    flow = build(text, directory)
    spark = session(master, app=flow.name, conf=CONF)
    print("refused", refused(flow, spark, directory / "bare-python"))

    def hear(event: Event) -> None:
        if isinstance(event, Observed):
            handle.reconfigure(plan_of(flow, event.observation.batch + 1))
            if event.observation.batch == 3:
                (directory / "armed").touch()

    handle = ab.start(
        flow,
        plan=plan_of(flow, 0),
        session=spark,
        checkpoint=directory / "checkpoint",
        listener=hear,
    )
    handle.await_termination()
    result = handle.result()
    print("ended", result.ended, result.rows_in, len(result.reconfigurations), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
