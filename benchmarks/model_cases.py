"""The applications and plans on which the models are compared with reality.

Word count, a chain of stateless operators, and a chain with partitioned and stateful ones, each fed
from memory. Costs of the chains are microseconds, so that what they do is measured and not what
Python takes to call them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from local_streams import zipf_lines

import anabranch as ab
from anabranch.apps.word_count import split
from anabranch.engines.measuring.busy_flows import (
    SOURCE,
    CountingSink,
    Replay,
    busy_flow,
    replaying,
)
from anabranch.flow import Flow
from anabranch.graph import StateKind
from anabranch.planning.answer import RegionChoice
from anabranch.planning.plan import Plan
from anabranch.planning.profile import OperatorProfile, Profile, chain

BUSY_ROWS, LINE_ROWS = 2_048, 16_384
SPARK_BUSY_ROWS, SPARK_LINE_ROWS = 60_000, 200_000
SPARK_JUMBOS = 10
"""Jumbo tuples of a micro-batch: pipelines of a task need several to work side by side."""
HELD_BATCHES = 16

STATELESS = chain(
    [
        OperatorProfile("parse", 4.0, selectivity=0.8),
        OperatorProfile("clean", 6.0),
        OperatorProfile("enrich", 3.0, selectivity=0.5),
        OperatorProfile("format", 2.0),
    ],
    unit="us",
)
MIXED = chain(
    [
        OperatorProfile("read", 3.0),
        OperatorProfile("count", 5.0, selectivity=0.7, state=StateKind.PARTITIONED, key=("user",)),
        OperatorProfile("rank", 3.0, state=StateKind.PARTITIONED, key=("user",)),
        OperatorProfile("number", 2.0, state=StateKind.STATEFUL),
    ],
    unit="us",
)


@dataclass(frozen=True)
class Case:
    """An application with its plans.

    Attributes:
        name: What it is called.
        flow: It.
        plans: By name.
        batch_rows: Rows of a jumbo tuple, on Spark of a micro-batch.
        jumbo_rows: Rows of a jumbo tuple.
    """

    name: str
    flow: Flow
    plans: dict[str, Plan]
    batch_rows: int
    jumbo_rows: int


def local_cases() -> list[Case]:
    """For the local engine."""
    held = HELD_BATCHES
    return [
        _case("stateless", busy(STATELESS, BUSY_ROWS, held), BUSY_ROWS, stateless_plans),
        _case("mixed", busy(MIXED, BUSY_ROWS, held), BUSY_ROWS, mixed_plans),
        _case("words", words(LINE_ROWS, held), LINE_ROWS, word_plans),
    ]


def spark_cases() -> list[Case]:
    """For Spark: fewer and larger batches, and plans that differ in stages and tasks."""
    jumbos = SPARK_JUMBOS
    busy_rows, line_rows = SPARK_BUSY_ROWS // jumbos, SPARK_LINE_ROWS // jumbos
    return [
        _case(
            "stateless",
            busy(STATELESS, busy_rows, jumbos),
            busy_rows,
            spark_stateless_plans,
            jumbos,
        ),
        _case("mixed", busy(MIXED, busy_rows, jumbos), busy_rows, spark_mixed_plans, jumbos),
        _case("words", words(line_rows, jumbos), line_rows, spark_word_plans, jumbos),
    ]


def _case(
    name: str,
    flow: Flow,
    jumbo_rows: int,
    plans: Callable[[Plan], dict[str, Plan]],
    jumbos: int = 1,
) -> Case:
    rows = jumbo_rows * jumbos
    plan = Plan.sequential(flow)
    for each in plan.sources:
        plan = plan.with_source(each.source, batch_rows=rows)
    return Case(name, flow, plans(plan), rows, jumbo_rows)


def busy(profile: Profile, jumbo_rows: int, jumbos: int) -> Flow:
    return replaying(busy_flow(profile, None), jumbo_rows * jumbos, jumbo_rows)


def words(jumbo_rows: int, jumbos: int) -> Flow:
    source = Replay(zipf_lines(jumbo_rows * jumbos), jumbo_rows)
    flow = Flow("words")
    (
        flow.source("lines", source)
        .apply("split", split)
        .aggregate("count", key="word", n=ab.count(), emit="changes")
        .sink("out", CountingSink())
    )
    return flow


def stateless_plans(plan: Plan) -> dict[str, Plan]:
    region = "parse"
    return {
        "one thread": plan,
        "2+2": plan.with_pipelines(region, 2, 2),
        "1+3": plan.with_pipelines(region, 1, 3),
        "1+1+2": plan.with_pipelines(region, 1, 1, 2),
        "x2": plan.with_replicas(region, 2),
        "x2 of 2+2": plan.with_replicas(region, 2).with_pipelines(region, 2, 2),
        "x4": plan.with_replicas(region, 4),
    }


def mixed_plans(plan: Plan) -> dict[str, Plan]:
    region = "count"
    return {
        "one thread": plan,
        "1+2": plan.with_pipelines(region, 1, 2),
        "2+1": plan.with_pipelines(region, 2, 1),
        "1+1+1": plan.with_pipelines(region, 1, 1, 1),
        "x2": plan.with_replicas(region, 2),
        "x2 of 1+2": plan.with_replicas(region, 2).with_pipelines(region, 1, 2),
        "x3": plan.with_replicas(region, 3),
    }


def word_plans(plan: Plan) -> dict[str, Plan]:
    twice = plan.with_replicas("split", 2)
    return {
        "one thread": plan,
        "1+1": plan.with_pipelines("split", 1, 1),
        "split x2": twice,
        "split x3": plan.with_replicas("split", 3),
        "count x2": plan.with_replicas("count", 2),
        "both x2": twice.with_replicas("count", 2),
        "split x2 of 1+1": twice.with_pipelines("split", 1, 1),
    }


def spark_stateless_plans(plan: Plan) -> dict[str, Plan]:
    region = "parse"
    readers = plan.with_source(SOURCE, replicas=2)
    return {
        "one task": plan,
        "2+2": plan.with_pipelines(region, 2, 2),
        "x2": plan.with_replicas(region, 2),
        "x4": plan.with_replicas(region, 4),
        "2 readers x2": readers.with_replicas(region, 2),
        "2 readers x1": readers,
    }


def spark_mixed_plans(plan: Plan) -> dict[str, Plan]:
    region = "count"
    readers = plan.with_source(SOURCE, replicas=2)
    return {
        "one task": plan,
        "1+2": plan.with_pipelines(region, 1, 2),
        "x2": plan.with_replicas(region, 2),
        "x4": plan.with_replicas(region, 4),
        "2 readers x2": readers.with_replicas(region, 2),
        "2 readers x3": readers.with_replicas(region, 3),
    }


def spark_word_plans(plan: Plan) -> dict[str, Plan]:
    readers = plan.with_source("lines", replicas=2)
    twice = readers.with_replicas("split", 2)
    return {
        "one task": plan,
        "split x2": plan.with_replicas("split", 2),
        "2 readers, split x2": twice,
        "count x2": plan.with_replicas("count", 2),
        "all x2": twice.with_replicas("count", 2),
        "2 readers, count x4": twice.with_replicas("count", 4),
    }


def choices(plan: Plan) -> tuple[RegionChoice, ...]:
    """A plan as planners and models see it: sources are regions, too."""
    sources = [RegionChoice(((each.source,),), each.replicas) for each in plan.sources]
    return (*sources, *(RegionChoice(each.pipelines, each.replicas) for each in plan.regions))
