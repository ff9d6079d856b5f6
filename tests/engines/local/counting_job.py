"""A job that tests kill: counts words into files, from the checkpoint on if there is one."""

from __future__ import annotations

import sys
from pathlib import Path

import anabranch as ab
from anabranch.apps import word_count
from anabranch.engines.local import engine as local_engine
from anabranch.planning.plan import Plan

LINES, RATE_PER_S = 8_000, 3_000


def flow_of(folder: Path) -> ab.Flow:
    lines = word_count.zipf_lines(distinct=500)
    source = ab.generate(lines, word_count.LINES, rows=LINES, rate_per_s=RATE_PER_S)
    flow = ab.Flow("killed")
    (
        flow.source("lines", source)
        .apply("split", word_count.split)
        .aggregate("count", key="word", n=ab.count(), emit="every")
        .sink("out", ab.parquet(folder / "out"))
    )
    return flow


def main() -> None:
    folder = Path(sys.argv[1])
    local_engine.SAVE_S = 0.1
    flow = flow_of(folder)
    plan = Plan.sequential(flow).with_replicas("count", 2).with_source("lines", batch_rows=500)
    ab.run(flow, engine="local", workers=2, plan=plan, checkpoint=folder / "checkpoint")


if __name__ == "__main__":
    main()
