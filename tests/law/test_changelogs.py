"""Changes of a key that several replicas tell arrive in order, and the law notices if not."""

from __future__ import annotations

import time
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from anabranch.flow import Flow
from anabranch.io import collect, memory
from anabranch.operators.aggregates.functions import count
from anabranch.planning.plan import Plan
from anabranch.planning.regions import needs_order, regions
from anabranch.running import run
from anabranch.runtime import layout
from anabranch.testing import interleaved
from anabranch.testing.compare import difference
from anabranch.testing.interleaved import run_interleaved
from anabranch.testing.random_plans import random_plan
from anabranch.testing.sequential import run_sequential

ROWS = pa.table({"k": [n % 2 for n in range(60)]})


def counted(told: Any) -> Flow:
    """Counts by key as changes, told as they are and behind a step without state."""
    flow = Flow("counted")
    counts = flow.source("rows", memory(ROWS)).aggregate(
        "count", key="k", n=count(), emit="changes"
    )
    counts.sink("raw", collect())
    counts.map("told", told, out="m: int64", keeps="k").sink("pretty", collect())
    return flow


def as_it_is(batch: pa.RecordBatch) -> dict[str, Any]:
    return {"m": batch["n"]}


def disagreements(seeds: range) -> int:
    flow = counted(as_it_is)
    wanted = run_sequential(flow)
    found = 0
    for seed in seeds:
        rng = Random(seed)
        plan = random_plan(flow, rng).with_replicas("told", 3)
        got = run_interleaved(flow, plan, seed=seed, changes=[random_plan(flow, rng)])
        found += difference(flow, wanted, got) is not None
    return found


def test_the_last_change_of_a_key_is_the_last_however_it_is_run():
    assert disagreements(range(12)) == 0


def test_without_order_behind_replicas_the_law_fails(monkeypatch: pytest.MonkeyPatch):
    def careless(flow: Flow, region: Any) -> bool:
        return region.ordered and region.name not in ("raw", "pretty")

    monkeypatch.setattr(layout, "needs_order", careless)
    monkeypatch.setattr(interleaved, "_slowed", lambda plan, sources: plan)
    assert disagreements(range(80)) > 0


def test_order_is_restored_only_where_replicas_could_have_lost_it():
    flow = counted(as_it_is)
    ordered = {region.name: needs_order(flow, region) for region in regions(flow)}
    assert (ordered["raw"], ordered["pretty"]) == (False, True)


def test_a_slow_replica_on_threads_does_not_bring_an_old_best_back():
    def slow_at_first(batch: pa.RecordBatch) -> dict[str, Any]:
        if batch["v"][0].as_py() < 200:
            time.sleep(0.02)
        return {"best": batch["v"]}

    flow, told = Flow("best"), collect()
    best = flow.source("rows", memory(pa.table({"v": range(400)}))).top_n(
        "top", 1, by="v", emit="changes"
    )
    best.map("told", slow_at_first, out="best: int64", keeps="rank").sink("out", told)
    plan = Plan.sequential(flow).with_replicas("told", 3).with_source("rows", batch_rows=20)
    run(flow, engine="local", plan=plan)
    assert told.table().to_pylist()[-1] == {"rank": 1, "best": 399}
