"""A job that writes to a table and kills itself at a point of the second version's commit.

python -m tests.io.table_job FOLDER TABLE [POINT]
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import anabranch as ab
from anabranch.engines.checkpoint.checkpoint import Checkpoint
from anabranch.engines.local import engine as local_engine
from anabranch.io.sink import Sink
from tests.io.tables import TABLES, Table

ROWS, RATE_PER_S = 300, 1_000
VERSION = 1
POINTS = ("prepared", "published", "half-way", "committed")


def flow_of(sink: Sink, rate_per_s: float | None = None) -> ab.Flow:
    """Numbered rows with a total by key, which a lost or doubled row would shift."""
    rows = ab.generate(
        lambda rng, index: {"n": index, "k": index % 7},
        ab.schema("n: int64, k: int64"),
        rows=ROWS,
        rate_per_s=rate_per_s,
    )
    flow = ab.Flow("tables", buckets=8)
    return flow.source("rows", rows).apply("totals", totals).sink("out", sink)


@ab.partitioned(key="k", out="k: int64, n: int64, total: int64")
def totals(ctx: Any) -> None:
    for row in ctx.tuples():
        ctx.state["total"] = ctx.state.get("total", 0) + row.n
        ctx.emit(k=row.k, n=row.n, total=ctx.state["total"])


def die() -> None:
    """No exception, no clean-up: what a crash or the kernel does."""
    os.kill(os.getpid(), signal.SIGKILL)


def arm(sink: Table, point: str) -> None:
    publish, commit = Checkpoint.publish, sink.commit

    def dying_publish(checkpoint: Any, manifest: Any) -> None:
        if point == "prepared" and manifest.version == VERSION:
            die()
        publish(checkpoint, manifest)
        if point == "published" and manifest.version == VERSION:
            die()

    def dying_commit(version: int, receipts: Any, stage: Any) -> None:
        if point == "half-way" and version == VERSION:
            sink.half_way = die
        commit(version, receipts, stage)
        if point == "committed" and version == VERSION:
            die()

    Checkpoint.publish = dying_publish
    sink.commit = dying_commit


def main() -> None:
    folder, kind, *point = sys.argv[1:]
    sink = TABLES[kind](Path(folder) / "rows.db")
    if point:
        arm(sink, *point)
    local_engine.SAVE_S = 0.05
    ab.run(flow_of(sink, RATE_PER_S), engine="local", checkpoint=Path(folder) / "checkpoint")


if __name__ == "__main__":
    main()
