"""The ways to run a flow: every engine, the runner that imitates one; and plans for them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any
from zlib import crc32

import pytest

from anabranch.engines.registry import ENGINES
from anabranch.flow import Flow
from anabranch.planning.plan import Plan
from anabranch.planning.starting import side_by_side
from anabranch.testing.interleaved import run_interleaved
from anabranch.testing.on_engine import run_watched, small_batches
from anabranch.testing.random_plans import random_plan
from anabranch.testing.result import RunResult
from tests.sampling import ALL

DEADLINE_S = 100.0
SLOW = "spark"
LOCAL = "local"
IMITATED = "interleaved"


def marked(engine: str, *values: object) -> Any:
    """A case of an engine, with the marks that this engine's tests need."""
    marks = [pytest.mark.spark, pytest.mark.xdist_group(spark_group(values))]
    marks = marks if engine == SLOW else []
    return pytest.param(engine, *values, marks=marks, id="-".join(map(str, (engine, *values))))


def spark_group(values: Sequence[object]) -> str:
    """Where all cases are asked for, two workers share them, each with a session of its own."""
    return f"spark {crc32(repr(values).encode()) % 2}" if ALL else "spark"


engines = [marked(engine) for engine in ENGINES]


# --- plans ------------------------------------------------------------------------------------


def sequential(flow: Flow, seed: int) -> list[Plan]:
    return [Plan.sequential(flow)]


def wide(flow: Flow, seed: int) -> list[Plan]:
    return [side_by_side(flow, 2)]


def split(flow: Flow, seed: int) -> list[Plan]:
    """Every step a pipeline of its own."""
    plan = Plan.sequential(flow)
    for region in plan.regions:
        steps = sum(map(len, region.pipelines))
        plan = plan.with_pipelines(region.region, *[1] * steps)
    return [plan]


def at_random(flow: Flow, seed: int) -> list[Plan]:
    return [random_plan(flow, Random(seed))]


def changing(flow: Flow, seed: int) -> list[Plan]:
    """From one of everything to two, to threads for each step, to anything."""
    return [made(flow, seed)[0] for made in (sequential, wide, split, at_random)]


PLANS = {
    "sequential": sequential,
    "side by side": wide,
    "split": split,
    "random": at_random,
    "changing": changing,
}

WORKERS = {"changing": 2}
"""Worker processes of the local engine, by kind of plans; the others run in this process."""


def plans_of(kind: str, flow: Flow, rows: int, engine: str, seed: int) -> list[Plan]:
    """Plans of a kind, with batches that cut so many rows into some."""
    rng = Random(seed)
    plans = PLANS[kind](flow, seed)
    return [small_batches(plan, rows, rng, engine) for plan in plans]


# --- running ----------------------------------------------------------------------------------


def options_of(engine: str, request: pytest.FixtureRequest) -> dict[str, Any]:
    """What an engine needs to run here: one Spark session for all tests."""
    return {"session": request.getfixturevalue("spark")} if engine == SLOW else {}


def run_by(
    way: str,
    flow: Flow,
    plans: Sequence[Plan],
    seed: int,
    request: pytest.FixtureRequest,
    *,
    workers: int = 0,
) -> tuple[RunResult, int]:
    """Run to the end, on the local engine with so many workers; gives how often the plan changed."""
    if way not in ENGINES:
        batch = min(plan.batch_rows for plan in plans[0].sources)
        got = run_interleaved(
            flow, plans[0], seed, changes=plans[1:], crashes=1, max_batch=max(8, batch)
        )
        return got, len(plans) - 1
    options = options_of(way, request)
    if way == LOCAL:
        options["workers"] = workers
    got, handle = run_watched(flow, way, plans, seed=seed, deadline_s=DEADLINE_S, **options)
    assert handle.result().ended
    return got, len(handle.reconfigurations)
