"""A job that tests kill: counts rows of a Redis stream by key, from the checkpoint on.

    python -m tests.io.redis_job ENGINE URL STREAM FOLDER

Says `batch` for every observation, so that whoever kills it knows that it is at work.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anabranch as ab
from anabranch.engines.local import engine as local_engine
from anabranch.events import Event, Observed
from anabranch.planning.plan import Plan

COLUMNS = "n: int64, key: int64"


@ab.partitioned(key="key", out="key: int64, n: int64, before: int64")
def counted(ctx: Any) -> None:
    """How many rows of the key came before: a lost or doubled row shifts all that follow."""
    for row in ctx.tuples():
        before = ctx.state.get("rows", 0)
        ctx.state["rows"] = before + 1
        ctx.emit(n=row.n, before=before)


def flow_of(source: Any, sink: Any) -> ab.Flow:
    flow = ab.Flow("from-redis", buckets=16)
    flow.source("rows", source).apply("counted", counted).sink("out", sink)
    return flow


def plan_of(flow: ab.Flow, batch_rows: int) -> Plan:
    return Plan.sequential(flow).with_replicas("counted", 2).with_source(
        "rows", batch_rows=batch_rows
    )  # fmt: skip


def main(engine: str, url: str, stream: str, folder: Path) -> None:
    local_engine.SAVE_S = 0.05
    local_engine.PERIOD_S = 0.1
    flow = flow_of(ab.redis_stream(url, stream, COLUMNS), ab.parquet(folder / "out"))

    def hear(event: Event) -> None:
        if isinstance(event, Observed):
            print("batch", event.observation.rows_in, flush=True)

    options: dict[str, Any] = {}
    if engine == "spark":
        from tests.engines.spark.killing import SHORT_LIVED

        options = {"master": "local[2,4]", "conf": SHORT_LIVED}
    handle = ab.start(
        flow,
        engine=engine,
        plan=plan_of(flow, 100),
        checkpoint=folder / "checkpoint",
        listener=hear,
        **options,
    )
    handle.await_termination()
    print("ended", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
