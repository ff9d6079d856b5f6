from __future__ import annotations

import pyarrow as pa
import pytest

from anabranch.errors import BuildError, PlanError
from anabranch.flow import Flow
from anabranch.io import collect, generate, memory
from anabranch.operators.tuple_style.tuples import partitioned, stateful
from anabranch.planning.plan import Plan
from anabranch.testing.interleaved import run_interleaved
from anabranch.testing.result import RunResult

ROWS = [{"ts": t, "k": t % 5} for t in range(60)]


@partitioned(key="k", out="k: int64, n: int64")
def counted(ctx):
    for _ in ctx.tuples():
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        ctx.emit(n=ctx.state["n"])


def small() -> Flow:
    flow = Flow("f", buckets=4)
    flow.source("s", memory(ROWS)).apply("count", counted).sink("out", collect())
    return flow


def plan_of(replicas: int) -> Plan:
    return Plan.sequential(small()).with_replicas("count", replicas)


EXPECTED = [{"k": t % 5, "n": t // 5 + 1} for t in range(60)]


def calls(flow: Flow, plan: Plan, seed: int) -> list[tuple]:
    """Every call of a step with what went in: the schedule, seen from outside."""
    seen: list[tuple] = []

    def tap(step, inputs, outputs):
        seen.append((step, *(None if j is None else j.batch.to_pylist() for j in inputs)))

    run_interleaved(flow, plan, seed, tap=tap)
    return seen


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_order_is_restored_behind_replicas(replicas):
    for seed in range(5):
        assert run_interleaved(small(), plan_of(replicas), seed).rows("out") == EXPECTED


def test_the_same_seed_gives_the_same_run():
    assert calls(small(), plan_of(3), 5) == calls(small(), plan_of(3), 5)


def test_another_seed_gives_another_run():
    assert calls(small(), plan_of(3), 5) != calls(small(), plan_of(3), 6)


def with_changes(crashes: int = 0) -> list[RunResult]:
    changes = [plan_of(3), plan_of(1)]
    return [
        run_interleaved(small(), plan_of(2), seed, changes=changes, crashes=crashes, max_batch=2)
        for seed in range(12)
    ]


def test_changes_of_plan_are_told_in_words():
    events = [event for result in with_changes() for event in result.events]
    assert "epoch 1: 2 → 3 replicas of region count, 1 of 4 buckets move" in events


def test_changes_of_plan_do_not_show_in_the_result():
    assert all(result.rows("out") == EXPECTED for result in with_changes())


def test_crashes_are_told():
    events = [event for result in with_changes(crashes=2) for event in result.events]
    assert [e for e in events if e.startswith("crash; going on from epoch")]


def test_a_crash_happens_at_most_as_often_as_asked():
    for result in with_changes(crashes=2):
        assert len([event for event in result.events if event.startswith("crash")]) <= 2


def test_some_crash_goes_on_from_a_checkpoint_behind_the_start():
    events = [event for result in with_changes(crashes=2) for event in result.events]
    restarts = {e for e in events if e.startswith("crash")}
    assert restarts - {"crash; going on from epoch 0"}


def test_crashes_do_not_show_in_the_result():
    assert all(result.rows("out") == EXPECTED for result in with_changes(crashes=2))


def test_the_order_of_two_sources_does_not_depend_on_who_is_faster():
    @stateful(out="seen: string")
    def diary(ctx):
        for row in ctx.tuples():
            ctx.state["seen"] = ctx.state.get("seen", "") + row.name
            ctx.emit(seen=ctx.state["seen"])

    flow = Flow("f", buckets=4)
    a, b = (
        flow.source(n, memory([{"ts": t, "name": f"{n}{t}"} for t in ts]), time="ts")
        for n, ts in (("a", (1, 2, 2)), ("b", (2, 3)))
    )
    a.union("both", b).apply("diary", diary).sink("out", collect())
    for seed in range(10):
        assert run_interleaved(flow, seed=seed).rows("out")[-1]["seen"] == "a1a2a2b2b3"


def test_late_tuples_are_counted_once_in_spite_of_a_crash():
    flow = Flow("f", buckets=4)
    rows = [{"ts": t if t % 3 else 0} for t in range(1, 40)]
    flow.source("s", memory(rows), time="ts").sink("out", collect())
    for seed in range(10):
        result = run_interleaved(flow, seed=seed, crashes=2, max_batch=3)
        assert result.counters["s.time"].late == 13


def test_an_endless_source_is_refused():
    flow = Flow("f")
    endless = generate(lambda rng, index: {"x": index}, pa.schema([("x", pa.int64())]))
    flow.source("s", endless).sink("out", collect())
    with pytest.raises(BuildError, match="step 's': expected a bounded source, got an endless one"):
        run_interleaved(flow)


@pytest.mark.parametrize("where", ["plan", "changes"])
def test_a_plan_for_another_flow_is_refused(where):
    other = Flow("other", buckets=4)
    other.source("s", memory(ROWS)).sink("out", collect())
    plan = Plan.sequential(other)
    given = {"plan": plan} if where == "plan" else {"changes": [plan]}
    with pytest.raises(PlanError, match="a plan for flow 'f'"):
        run_interleaved(small(), **given)
