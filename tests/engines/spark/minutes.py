"""Windows in event time on a cluster, as a program of its own; `test_cluster` starts it.

    python minutes.py MASTER INPUT DIRECTORY

In a task that reads, in a batch that runs after the third, a worker machine is lost. The last line
of the output says, as JSON, which machines did what, before the loss and after it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

import anabranch as ab
import anabranch.engines.spark.engine as spark_engine
from anabranch.engines.spark.layout import with_ranges
from anabranch.engines.spark.session import session
from anabranch.engines.spark.task_report import TaskReport
from anabranch.events import Event, Observed
from anabranch.flow import Flow
from anabranch.planning.plan import Plan
from anabranch.planning.starting import side_by_side
from tests.engines.spark.counting import CONF, kill_machine

BATCH_ROWS = 200
ARM_AFTER = 3
# Nothing runs before both machines are there, so a stage of two tasks has one on each. Their
# workers import what this program shares with `counting`.
BOTH = {
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "200s",
    "spark.executorEnv.PYTHONPATH": str(Path(__file__).parents[3]),
}


def build(readings: Path, directory: Path) -> Flow:
    """Readings as they come, and sums by key and minute; all in order."""
    armed = directory / "armed"

    def struck(batch: pa.RecordBatch) -> dict[str, Any]:
        if armed.exists():
            try:
                armed.rename(directory / "struck")
            except FileNotFoundError:
                return {}  # another task was first
            kill_machine()
        return {}

    flow = Flow("minutes-on-a-cluster")
    read = flow.source("readings", ab.files(f"{readings}/*.parquet")).map(
        "struck", struck, keeps="*"
    )
    read.sink("copies", ab.parquet(directory / "copies"))
    timed = read.timed("clock", "ts", lateness=10)
    sums = {"n": ab.count(), "total": ab.sum("value")}
    minutes = timed.aggregate("minutes", key="key", window=ab.tumbling(60), **sums)
    minutes.sink("sums", ab.parquet(directory / "sums"))
    timed.late.sink("late", ab.parquet(directory / "late"))
    return flow


def plan_of(flow: Flow) -> Plan:
    """Two of everything that may have two."""
    return with_ranges(flow, side_by_side(flow, 2, BATCH_ROWS))


def machines_of(reports: Iterable[TaskReport], directory: Path) -> dict[str, set[str]]:
    """Which machines read rows, dealt them out, wrote them, and ran replicas of each region.

    Executors work in a folder below that of their machine.
    """
    found: dict[str, set[str]] = {}
    for report in reports:
        with suppress(OSError):  # the machine is lost
            place = Path(f"/proc/{report.pid}/cwd").resolve(strict=True)
            machine = place.relative_to(directory).parts[0]
            did = {
                "read": any(source.rows for source in report.sources.values()),
                "dealt": any(report.dealt.values()),
                "wrote": any(each.rows for kept in report.sinks.values() for each in kept),
            }
            work = [name for name, done in did.items() if done] + list(report.replicas)
            for name in work:
                found.setdefault(name, set()).add(machine)
    return found


def main(master: str, readings: Path, directory: Path) -> None:
    flow = build(readings, directory)
    before: dict[str, set[str]] = {}
    after: dict[str, set[str]] = {}
    run_job = spark_engine.run_job

    def noted(*arguments: Any) -> Any:
        """Run a batch, and note where its tasks ran."""
        if (directory / "armed").exists():
            return run_job(*arguments)
        done = run_job(*arguments)
        into = after if (directory / "struck").exists() else before
        for name, machines in machines_of(done.reports, directory).items():
            into.setdefault(name, set()).update(machines)
        return done

    spark_engine.run_job = noted

    def hear(event: Event) -> None:
        if isinstance(event, Observed) and event.observation.batch == ARM_AFTER:
            (directory / "armed").touch()

    handle = ab.start(
        flow,
        plan=plan_of(flow),
        session=session(master, app=flow.name, conf=CONF | BOTH),
        checkpoint=directory / "checkpoint",
        listener=hear,
    )
    handle.await_termination()
    result = handle.result()
    told = {
        "ended": result.ended,
        "rows": result.rows_in,
        "before": {name: sorted(machines) for name, machines in before.items()},
        "after": {name: sorted(machines) for name, machines in after.items()},
    }
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
