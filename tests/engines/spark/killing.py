"""A flow to be killed, and the program that runs it; `test_kills` starts and kills it.

    python killing.py DIRECTORY BATCHES

Starts Spark, and the run once a line comes in; says when the run has started and when a batch is
done. If the line is POINT@BATCH, the program kills itself at that point, in the first batch from
the given one on that gets to it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import anabranch as ab
from anabranch.engines.spark import state_loader
from anabranch.engines.spark.session import session
from anabranch.events import Event, Observed, RunEnded, RunStarted
from anabranch.planning.plan import Plan

BATCH_ROWS, CHANGE_EVERY = 50, 3
REPLICAS = (1, 3, 2, 4)  # of the keyed regions, in turn
CLICK = pa.schema([("at", pa.int64()), ("user", pa.string()), ("page", pa.int64())])
# A JVM that lives for seconds is better off without its second compiler: half the work to start.
SHORT_LIVED = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}

Point = tuple[str, int]


def clicks(rng: np.random.Generator, index: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Clicks that come up to nine ticks after others that are later; a few come too late."""
    behind = rng.integers(0, 12, len(index))
    users = [f"user {number}" for number in rng.integers(0, 17, len(index))]
    return {"at": index - behind, "user": users, "page": rng.integers(0, 5, len(index))}


@ab.partitioned(key="user", out="visit: int64, clicks: int64, pages: int64", timers=True)
def visits(ctx: Any) -> None:
    """A visit is over 20 ticks after it began: state, and a timer that emits."""
    if ctx.reason is ab.Reason.TUPLES:
        for click in ctx.tuples():
            if "pages" not in ctx.state:
                ctx.state.update(pages=[], visit=ctx.state.get("visit", 0) + 1)
                ctx.set_timer(ctx.time + 20)
            ctx.state["pages"].append(click.page)
    else:
        pages = ctx.state.pop("pages", [])
        ctx.emit(visit=ctx.state["visit"], clicks=len(pages), pages=sum(pages))


@ab.stateful(out="number: int64, page: int64, clicks: int64")
def numbered(ctx: Any) -> None:
    """Numbers that a lost, doubled or misplaced row would shift."""
    for row in ctx.tuples():
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        ctx.emit(number=ctx.state["n"], page=row.page, clicks=row.clicks)


def build(directory: Path, batches: int, point: Point | None = None) -> ab.Flow:
    """Visits of users, and numbered counts of pages per window; both in total order."""

    def armed(batch: pa.RecordBatch) -> dict[str, Any]:
        if point is not None:
            arm_worker(point, driver, directory)
        return {}

    driver = os.getpid()
    flow = ab.Flow("kills", buckets=16)
    source = ab.generate(clicks, CLICK, batches * BATCH_ROWS, seed=11)
    found = flow.source("clicks", source, time="at", lateness=9)
    found = found.map("armed", armed, keeps=("at", "user", "page"))
    found.apply("visits", visits).sink("visitors", ab.parquet(directory / "visitors"))
    windows = found.aggregate("windows", key="page", clicks=ab.count(), window=ab.tumbling(15))
    windows.apply("numbered", numbered).sink("pages", ab.csv(directory / "pages"))
    return flow


def plan_of(flow: ab.Flow, batch: int) -> Plan:
    """Another plan for every third batch."""
    turn = batch // CHANGE_EVERY
    plan = Plan.sequential(flow).with_source("clicks", batch_rows=BATCH_ROWS)
    plan = plan.with_replicas("visits", REPLICAS[turn % len(REPLICAS)])
    return plan.with_replicas("windows", REPLICAS[(turn + 1) % len(REPLICAS)])


def versions(directory: Path, folder: str) -> list[int]:
    """The batches that have a log, or a manifest."""
    found = (directory / "checkpoint" / folder).glob("[0-9]*.json")
    return sorted(int(file.stem) for file in found)


# Where it dies


def kill(process: int) -> None:
    """No exception, no clean-up: what a crash or the kernel does."""
    os.kill(process, signal.SIGKILL)


def arm_worker(point: Point, driver: int, directory: Path) -> None:
    """In a worker: let the driver die when one state file of a batch is there, and another not."""
    kind, batch = point
    if kind not in ("state", "change") or hasattr(state_loader.write_state, "__wrapped__"):
        return
    write = state_loader.write_state

    @wraps(write)
    def dying(storage: Any, name: str, *rest: Any, **options: Any) -> tuple[int, int]:
        version = int(name.partition("-")[0])
        changed = version % CHANGE_EVERY == 0
        begun = any((directory / "checkpoint" / "state").glob(f"{version:012d}-*"))
        if version >= batch and changed == (kind == "change") and begun:
            kill(driver)
        return write(storage, name, *rest, **options)

    state_loader.write_state = dying


def arm_driver(point: Point) -> None:
    """In the driver: die right behind a step of the commit."""
    from anabranch.engines.checkpoint.checkpoint import Checkpoint
    from anabranch.engines.checkpoint.sinks import Sinks
    from anabranch.io.directory_sink import DirectorySink

    kind, batch = point
    die_behind = {
        "log": partial(wrap, Checkpoint, "write_log", lambda log: log.version),
        "manifest": partial(wrap, Checkpoint, "publish", lambda manifest: manifest.version),
        "reveal": partial(wrap, DirectorySink, "commit", lambda version, *_: version),
        "commit": partial(wrap, Sinks, "commit", lambda manifest, *_: manifest.version),
    }
    if kind in die_behind:
        die_behind[kind](batch)


def wrap(owner: type, name: str, version_of: Callable[..., int], batch: int) -> None:
    """Let a method of the driver be the last thing it does."""
    method = getattr(owner, name)

    def dying(self: Any, *given: Any) -> Any:
        result = method(self, *given)
        if version_of(*given) >= batch:
            kill(os.getpid())
        return result

    setattr(owner, name, dying)


def main(directory: Path, batches: int) -> None:
    """Go on from the checkpoint, to the end or to the point."""
    spark = session("local[2,4]", app="kills", conf=SHORT_LIVED)
    place, _, at = sys.stdin.readline().strip().partition("@")
    point = (place, int(at)) if place else None
    flow = build(directory, batches, point)
    if point is not None:
        arm_driver(point)

    def hear(event: Event) -> None:
        if isinstance(event, RunStarted):
            print("started", flush=True)
        elif isinstance(event, Observed):
            handle.reconfigure(plan_of(flow, event.observation.batch + 1))
            print("batch", event.observation.batch, flush=True)
        elif isinstance(event, RunEnded):
            print("ended", event.ended, flush=True)

    begun = max(versions(directory, "manifests"), default=-1) + 1
    handle = ab.start(
        flow,
        plan=plan_of(flow, begun),
        checkpoint=directory / "checkpoint",
        session=spark,
        listener=hear,
    )
    handle.await_termination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
