"""A flow with regions of every kind behind clocks, and plans that put its units anywhere."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa

from anabranch.flow import Flow
from anabranch.io import collect, memory
from anabranch.operators.keyed.shared import shared
from anabranch.operators.tuple_style.invocation import Invocation
from anabranch.operators.tuple_style.tuples import partitioned, stateful
from anabranch.planning.plan import Plan
from anabranch.planning.regions import RegionKind, regions
from anabranch.testing.random_plans import random_plan

COLUMNS = "k: int64, v: int64"
SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])
BIG = 1_000_003
SOURCES = ("left", "right")


@shared(out=COLUMNS, buckets=8)
def weighed(batch: pa.RecordBatch, bucket: Any) -> Any:
    """Every bucket gets every tuple, and answers those that are its own by a running sum."""
    total, keys, values, parents = bucket.state.get("total", 0), [], [], []
    for row, (k, v) in enumerate(zip(*(batch[c].to_pylist() for c in ("k", "v")), strict=True)):
        total = (total * 31 + v) % BIG
        if v % bucket.count == bucket.index:
            keys.append(k)
            values.append(total)
            parents.append(row)
    bucket.state["total"] = total
    return {"k": keys, "v": values}, parents


@partitioned(key="k", out=COLUMNS)
def chained(ctx: Invocation) -> None:
    for row in ctx.tuples():
        ctx.state["hash"] = (ctx.state.get("hash", 7) * 31 + row.v) % BIG
        ctx.emit(k=row.k, v=ctx.state["hash"])


@partitioned(key="k", out=COLUMNS)
def counted(ctx: Invocation) -> None:
    for row in ctx.tuples():
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        ctx.emit(k=row.k, v=(row.v + ctx.state["n"]) % BIG)


@stateful(out=COLUMNS)
def numbered(ctx: Invocation) -> None:
    for row in ctx.tuples():
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        ctx.emit(k=row.k, v=(row.v * ctx.state["n"]) % BIG)


def switching_flow(rows: int = 60, seed: int = 0) -> Flow:
    """Two sources with several tuples a timestamp; regions of all kinds downstream of clocks."""
    rng = Random(seed)
    flow = Flow("switching", buckets=16)
    streams = []
    for name in SOURCES:
        drawn = [
            {
                "ts": i // 6 - rng.choice((0, 0, 0, 1)),
                "k": rng.randrange(12),
                "v": rng.randrange(99),
            }
            for i in range(rows)
        ]
        streams.append(flow.source(name, memory(drawn, SCHEMA), time="ts", lateness=1))
    merged = streams[0].union("merged", streams[1])
    scaled = merged.map("scaled", lambda b: {}, keeps=["k", "v"])
    scaled.apply("numbered", numbered).sink("numbers", collect())
    weights = scaled.apply("weighed", weighed)
    chain = weights.apply("chained", chained).apply("counted", counted)
    chain.sink("chain", collect())
    return flow


def any_plan(flow: Flow, rng: Random, batch_rows: int = 4) -> Plan:
    """Any plan; about every second region has workers of its own choice."""
    plan = random_plan(flow, rng)
    for region in regions(flow):
        if region.kind is RegionKind.SOURCE:
            units = plan.source(region.name).replicas
            plan = plan.with_source(region.name, batch_rows=batch_rows)
        else:
            own = plan.region(region.name)
            units = own.replicas * len(own.pipelines)
        if rng.random() < 0.5:
            plan = plan.with_workers(region.name, *(rng.randrange(4) for _ in range(units)))
    return plan
