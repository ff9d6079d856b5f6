"""A case of the law on the local engine: its plans are requested as rows are given out."""

from __future__ import annotations

from random import Random

from anabranch.engines.engine import Engine
from anabranch.flow import Flow
from anabranch.planning.plan import Plan
from anabranch.testing.on_engine import run_watched
from anabranch.testing.result import RunResult

DEADLINE_S = 60.0


def run_changing(
    flow: Flow, plans: list[Plan], seed: int, workers: int, batch_rows: int | None = None
) -> tuple[RunResult, Engine]:
    """Run to the end; each plan but the first is requested at a moment drawn from the seed."""
    rng = Random(seed)
    small = [_small(plan, batch_rows or rng.choice((1, 2, 3, 8))) for plan in plans]
    result, handle = run_watched(
        flow, "local", small, seed=seed, deadline_s=DEADLINE_S, workers=workers
    )
    return result, handle.engine


def _small(plan: Plan, rows: int) -> Plan:
    for source in plan.sources:
        plan = plan.with_source(source.source, batch_rows=rows)
    return plan
