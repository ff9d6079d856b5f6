"""Policies on real engines: plans change while the stream flows, and results do not."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Event
from typing import Any

import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.adapt.history import History
from anabranch.adapt.policies.auto import Auto
from anabranch.adapt.policy import Cadence, Outcome, Proposal, Trial, Verdict
from anabranch.apps import word_count
from anabranch.engines.handle import Result
from anabranch.engines.measuring.busy_flows import busy_flow
from anabranch.engines.registry import Simulated
from anabranch.events import Decision
from anabranch.flow import Flow
from anabranch.graph import StateKind
from anabranch.planning.machine import Machine
from anabranch.planning.plan import Plan
from anabranch.planning.profile import OperatorProfile, chain
from anabranch.testing.sequential import run_sequential
from tests.engines.spark.conftest import spark
from tests.sampling import thorough

__all__ = ["spark"]  # a fixture: one session for all tests of a worker

ROWS = 900
HALF_S = 5.0
PATIENCE_S = 90.0

CHAIN = chain(
    [
        OperatorProfile("parse", 0.2),
        OperatorProfile("count", 0.2, state=StateKind.PARTITIONED, key=("user",)),
        OperatorProfile("number", 0.1, state=StateKind.STATEFUL),
    ],
    unit="us",
)


@dataclass(frozen=True)
class Restless:
    """Tries another plan in every period, and takes every second one back."""

    name = "restless"
    pace = Cadence(settle=0, periods=1, most=1)

    def begin(self) -> int:
        return 0

    def decide(self, memory: int, seen: History) -> tuple[int, Proposal | None]:
        region = next(r for r in seen.topology.working if r.mapped)
        whole = seen.plan.with_pipelines(region.name, len(region.steps))
        ways = [
            whole.with_replicas(region.name, 3),
            whole.with_replicas(region.name, 1).with_pipelines(region.name, 1, 1),
            whole.with_replicas(region.name, 2),
        ]
        plan = next(way for way in ways[memory % 3 :] + ways if way not in seen.barred)
        return memory + 1, Proposal(plan, f"turn {memory}")

    def judge(self, memory: int, seen: History, trial: Trial) -> tuple[int, Verdict]:
        outcome = Outcome.REVERTED if memory % 2 else Outcome.KEPT
        return memory, Verdict(outcome, "gained nothing")


@dataclass(frozen=True)
class Broken(Restless):
    """Raises whenever it is asked."""

    name = "broken"

    def decide(self, memory: int, seen: History) -> tuple[int, Proposal | None]:
        raise KeyError("a region that is not there")


@dataclass(frozen=True)
class Stillborn(Restless):
    """Cannot even begin."""

    name = "stillborn"

    def begin(self) -> int:
        raise ValueError("no memory")


class Paced:
    """A source whose rows become due ever more slowly; all of them once enough was decided."""

    def __init__(self, source: Any, enough: Event) -> None:
        self.source, self.enough = source, enough

    def __getattr__(self, name: str) -> Any:
        if name == "source":  # a copy under construction has none yet
            raise AttributeError(name)
        return getattr(self.source, name)

    def due_rows(self, elapsed_s: float) -> int:
        return ROWS if self.enough.is_set() else int(ROWS * elapsed_s / (elapsed_s + HALF_S))


def chain_of(rows: int) -> Flow:
    return busy_flow(CHAIN, rows, multiplication_ns=1.0).writing({"sink": ab.collect()})


def run_until(wanted: int, policy: Any) -> tuple[Flow, Plan, Result]:
    """Run a chain on threads until a policy has decided so often, and to its end from there."""
    enough = Event()
    flow = chain_of(ROWS)
    paced = Paced(flow.graph.steps["source"].body.source, enough)
    flow = flow.reading({"source": paced})
    start = ab.plan(flow)
    decided: list[Decision] = []

    def hear(event: object) -> None:
        if isinstance(event, Decision):
            decided.append(event)
        if len(decided) >= wanted:
            enough.set()

    run = ab.start(flow, engine="local", plan=start, policy=policy, listener=hear)
    assert run.await_termination(PATIENCE_S), decided
    return flow, start, run.result()


def rows_of(flow: Flow) -> list[dict[str, object]]:
    found: list[dict[str, object]] = flow.graph.steps["sink"].body.sink.table().to_pylist()
    return found


def test_results_on_threads_are_those_of_one_thread_whatever_a_policy_does() -> None:
    flow, _, result = run_until(4, Restless())
    assert len(result.reconfigurations) >= 2
    assert [d.outcome for d in result.decisions][:2] == ["tried", "reverted"]
    assert rows_of(flow) == run_sequential(chain_of(ROWS)).rows("sink")


@thorough
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_results_on_spark_are_those_of_one_thread_whatever_a_policy_does(
    spark: SparkSession,
) -> None:
    flow = busy_flow(CHAIN, 6_000, multiplication_ns=1.0).writing({"sink": ab.collect()})
    start = ab.plan(flow).with_source("source", batch_rows=500)
    result = ab.run(flow, plan=start, policy=Restless(), session=spark)
    assert len(result.reconfigurations) >= 4
    assert {"tried", "kept", "reverted"} <= {d.outcome for d in result.decisions}
    assert rows_of(flow) == run_sequential(flow).rows("sink")


def test_a_policy_that_raises_does_not_stop_the_stream() -> None:
    flow, start, result = run_until(1, Broken())
    assert result.ended
    assert result.plan == start
    assert [d.outcome for d in result.decisions] == ["failed"]
    assert "KeyError" in result.decisions[0].why
    assert rows_of(flow) == run_sequential(chain_of(ROWS)).rows("sink")


def test_a_policy_that_cannot_begin_does_not_stop_the_stream() -> None:
    _, _, result = run_until(1, Stillborn())
    assert result.ended
    assert [str(d.outcome) for d in result.decisions] == ["failed"]
    assert "ValueError: no memory; nobody tunes this run" in result.decisions[0].why


def test_a_plan_that_is_given_stays_unless_a_policy_is_asked_for() -> None:
    profile = chain([OperatorProfile("split", 5.0)], unit="us")
    machine = Machine.of_cores(4)

    def changes(**options: object) -> int:
        busy = busy_flow(profile, None, multiplication_ns=1.0)
        handle = ab.start(
            busy,
            engine="simulator",
            simulated=Simulated(machine, _whole(profile)),
            **options,  # type: ignore[arg-type]
        )
        handle.await_termination(30.0)
        handle.stop()
        return len(handle.reconfigurations)

    first = ab.plan(busy_flow(profile, None, multiplication_ns=1.0))
    assert changes(plan=first) == 0
    assert changes(plan=first, policy="none") == 0
    assert changes(plan=first, policy="auto") == 1


def _whole(profile):  # type: ignore[no-untyped-def]
    source = OperatorProfile("source", 0.01, state=StateKind.STATELESS)
    sink = OperatorProfile("sink", 0.01, state=StateKind.STATEFUL)
    return chain([source, *profile.operators, sink], unit="us")


def test_auto_finds_a_wider_plan_for_a_run_on_threads() -> None:
    """A small one; the benchmark `adaptation` shows what it is worth."""
    flow = word_count.build(rows=None).writing({"out": ab.call(lambda batch, number: None)})
    quick = Auto(pace=Cadence(settle=0, periods=1, most=1))
    start = Plan.sequential(flow).with_source("lines", batch_rows=16_384)
    handle = ab.start(flow, engine="local", plan=start, policy=quick)
    for _ in range(800):
        if handle.decisions or handle.await_termination(0.1):
            break
    handle.stop()
    assert handle.decisions[0].outcome in ("tried", "applied")
    assert "promises" in handle.decisions[0].why
