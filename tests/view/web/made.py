"""Flows and events for the tests of the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

import anabranch as ab
from anabranch.adapt.history import History
from anabranch.adapt.policy import Cadence, Proposal, Trial, Verdict
from anabranch.events import (
    BatchTimes,
    Decision,
    Event,
    Kind,
    Observation,
    Observed,
    PipelineMetrics,
    Reconfiguration,
    RegionMetrics,
    RunEnded,
    RunStarted,
    Shape,
    SourceMetrics,
    StepMetrics,
    StepShape,
    StreamShape,
)
from anabranch.flow import Flow
from anabranch.io import collect, generate
from anabranch.planning.plan import Plan, RegionPlan, SourcePlan

MARKUP = "<img src=x onerror=alert(1)>"


def paced_flow(rate_per_s: float = 20_000, name: str = "paced") -> Flow:
    """Numbers at a pace, in steps of all kinds: two that may be split, one by key, and an end."""

    def numbers(rng: np.random.Generator, index: np.ndarray[Any, Any]) -> dict[str, Any]:
        return {"n": index, "digit": rng.integers(0, 10, len(index))}

    schema = pa.schema([("n", pa.int64()), ("digit", pa.int64())])
    flow = Flow(name)
    (
        flow.source("numbers", generate(numbers, schema, rate_per_s=rate_per_s))
        .filter("even", lambda batch: pa.array(np.asarray(batch["n"]) % 2 == 0))
        .filter("positive", lambda batch: pa.array(np.asarray(batch["n"]) >= 0))
        .aggregate("count", key="digit", total=ab.count(), emit="changes")
        .sink("out", collect())
    )
    return flow


def failing_flow(rows: int = 20_000) -> Flow:
    """Numbers at a pace, until the source breaks."""

    def numbers(rng: np.random.Generator, index: np.ndarray[Any, Any]) -> dict[str, Any]:
        if len(index) and index[-1] > rows:
            raise ValueError("the well is dry")
        return {"n": index}

    flow = Flow("failing")
    source = generate(numbers, pa.schema([("n", pa.int64())]), rate_per_s=20_000)
    flow.source("numbers", source).sink("out", collect())
    return flow


class Content:
    """A policy that is content with every plan."""

    name = "content"
    pace = Cadence()

    def begin(self) -> None:
        """It knows nothing."""

    def decide(self, memory: None, seen: History) -> tuple[None, Proposal | None]:
        """Stay."""
        return None, None

    def judge(self, memory: None, seen: History, trial: Trial) -> tuple[None, Verdict]:
        """Nothing is ever tried."""
        raise AssertionError


def times(seconds: float = 1.0) -> BatchTimes:
    """A period in which nothing is told of where the time went."""
    return BatchTimes(seconds, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def observed(at_s: float, rows: int = 1000, **more: Any) -> Observed:
    """A period of a second."""
    return Observed(Observation(at_s, int(at_s), rows, rows // 2, times(), 1.5, 9.0, **more))


def small_plan(replicas: int = 1) -> Plan:
    """A plan of one source, one region with state by key, and a sink."""
    owners = tuple(bucket % replicas for bucket in range(4))
    count = RegionPlan("count", (("count",),), replicas, owners)
    return Plan("small", "f", (count, RegionPlan("out", (("out",),))), (SourcePlan("words"),))


def small_shape(names: tuple[str, str, str] = ("words", "count", "out")) -> Shape:
    """The shape that goes with it."""
    source, count, sink = names
    return Shape(
        (
            StepShape(source, "source", region=source),
            StepShape(count, "operator", "partitioned", ("word",), "count", count),
            StepShape(sink, "sink", region=sink),
        ),
        (StreamShape(source, "out", count), StreamShape(count, "out", sink)),
    )


def small_start() -> RunStarted:
    """A run of it begins."""
    return RunStarted("small", "local", small_plan().to_json(), -1, small_shape())


def small_change(at_s: float = 3.0) -> Reconfiguration:
    """It goes from one replica to two."""
    before, after = small_plan(), small_plan(2)
    words = tuple(before.diff(after))
    return Reconfiguration(at_s, 3, 1.25, words, 0, before.to_json(), after.to_json())


def small_seen(at_s: float = 4.0, rows: int = 1000) -> Observed:
    """What is seen of it: a key that is hot, and a step that lost rows."""
    return observed(
        at_s,
        rows,
        steps=(
            StepMetrics("count", rows, rows // 4, 0.8, keys=7, skipped=3, late=2),
            StepMetrics("out", rows // 4, rows // 4, 0.01),
        ),
        pipelines=(
            PipelineMetrics("count", ("count",), 0.8, 0.0),
            PipelineMetrics("out", ("out",), 0.01, 0.0),
        ),
        regions=(
            RegionMetrics("count", 2, rows, 0, 0.5, 12.0, (0.9, 0.7), (30, 10, 30, 10)),
            RegionMetrics("out", 1, rows / 4, replica_busy=(0.01,)),
        ),
        sources=(SourceMetrics("words", rows, rows, 55),),
    )


def marked_run() -> Iterator[Event]:
    """A run in which every name is markup."""
    step, sink = f"step {MARKUP}", f"sink {MARKUP}"
    plan = Plan(
        MARKUP,
        "f",
        (RegionPlan(step, ((step,),)), RegionPlan(sink, ((sink,),))),
        (SourcePlan("s"),),
    )
    yield RunStarted(MARKUP, MARKUP, plan.to_json(), -1, small_shape(("s", step, sink)))
    yield observed(1.0, steps=(StepMetrics(step, 10, 10, 0.5),))
    yield Decision(1.5, MARKUP, Kind.NOTED, MARKUP)
    yield Reconfiguration(2.0, 1, 0.5, (MARKUP,), 0, plan.to_json(), plan.to_json())
    yield RunEnded(3.0, 1000, 500, ended=True)


def large_run(chains: int = 20, length: int = 10, decisions: int = 10_000) -> Iterator[Event]:
    """Many operators side by side and one behind the other, and a long journal."""
    names = [[f"chain {c} step {n}" for n in range(length)] for c in range(chains)]
    steps = [StepShape("source", "source", region="source")]
    streams = []
    for chain in names:
        for before, name in zip(["source", *chain], chain, strict=False):
            steps.append(StepShape(name, "operator", "stateless", region=name))
            streams.append(StreamShape(before, "out", name))
    flat = [name for chain in names for name in chain]
    plan = Plan("large", "f", tuple(RegionPlan(n, ((n,),)) for n in flat), (SourcePlan("source"),))
    yield RunStarted("large", "local", plan.to_json(), -1, Shape(tuple(steps), tuple(streams)))
    seen = {
        "steps": tuple(StepMetrics(n, 1000 + k, 900, k / 200) for k, n in enumerate(flat)),
        "pipelines": tuple(PipelineMetrics(n, (n,), k / 200, 0.0) for k, n in enumerate(flat)),
    }
    for second in range(3_000):
        yield observed(second + 1.0, 1000 + second % 97, **seen)
    for number in range(decisions):
        at_s = number * 0.3
        yield Decision(at_s, "auto", Kind.NOTED, f"what was noted as number {number}")
        if number % 500 == 499:
            text = plan.to_json()
            yield Reconfiguration(at_s, 1, 0.5, ("the same plan",), 0, text, text)
