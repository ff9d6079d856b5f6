"""Clocks whose tasks judge what they read: no task gets most rows, wrong verdicts are found."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.engines.checkpoint.sinks import OUTBOX
from anabranch.engines.spark import clocks
from anabranch.engines.spark.batches import Done
from anabranch.errors import AnabranchError
from anabranch.events import Event, Observed
from anabranch.flow import Flow
from anabranch.operators.timed import Facts, Judged, TimedKernel
from anabranch.planning.plan import Plan
from anabranch.runtime.early_verdicts import Checked, EarlyClock, Verdicts, check
from anabranch.state.positions import FIRST, LAST, Jumbo
from anabranch.testing.compare import difference
from anabranch.testing.random_plans import random_plan
from anabranch.testing.sequential import run_sequential
from tests.engines.spark.in_process import InProcess
from tests.engines.spark.one_by_one import OneByOne
from tests.law import operators as ops
from tests.law.flows import SCHEMA, TIMED
from tests.runtime.test_clock import timed_flow
from tests.sampling import few, in_soak, sampled

CLOCK = "rows.time"
READERS = 4
ROWS = 4_000

Patch = pytest.MonkeyPatch


def wide(flow: Flow, batch_rows: int) -> Plan:
    """Four readers, and four replicas of the clock."""
    plan = Plan.sequential(flow).with_source("rows", replicas=READERS, batch_rows=batch_rows)
    return plan.with_replicas(CLOCK, READERS)


def flow_of(times: list[int], lateness: int = 0, ahead: int | None = None) -> Flow:
    """A timed source with these times, and sinks for what is late and what is on time."""
    flow = Flow("timed", buckets=8)
    rows = ab.memory([{"ts": time, "k": number % 3} for number, time in enumerate(times)])
    stream = flow.source("rows", rows, time="ts", lateness=lateness, ahead=ahead)
    stream.late.sink("late", ab.collect())
    stream.sink("out", ab.collect())
    return flow


def to_the_end(run: OneByOne) -> list[Done]:
    done = []
    while not run.batches.ended():
        done.append(run.next())
    return done


def agrees(flow: Flow, run: OneByOne) -> bool:
    expected = run_sequential(flow)
    found = {name: flow.graph.steps[name].body.sink.table() for name in flow.sinks()}
    assert run.checkpoint.last is not None
    late = run.checkpoint.last.counters[CLOCK]["late"]
    return late == expected.counters[CLOCK].late and all(
        found[name].to_pylist() == expected.rows(name) for name in found
    )


def test_no_task_gets_most_of_the_rows_of_a_timed_source(tmp_path: Path) -> None:
    flow = timed_flow(ROWS)
    plan = wide(flow, 1_000).with_replicas("counted", READERS)
    with OneByOne(flow, tmp_path, plan) as run:
        batches = to_the_end(run)
        assert agrees(flow, run)
    reports = [report for done in batches for report in done.outcome.reports]
    for step in (CLOCK, "counted"):
        came = {(r.stage, r.task): 0 for r in reports if step in r.steps}
        for report in (r for r in reports if step in r.steps):
            came[report.stage, report.task] += report.steps[step].rows_in
        assert sum(came.values()) > 0.75 * ROWS  # late rows leave at the clock
        assert max(came.values()) <= 0.4 * ROWS
    read = [0] * READERS
    for report in (r for r in reports if r.sources):
        read[report.task] += report.sources["rows"].rows
    assert sum(read) == ROWS
    assert max(read) <= 0.4 * ROWS


def test_a_batch_is_one_job_where_times_move_on(tmp_path: Path) -> None:
    flow = flow_of([number // 2 for number in range(400)], lateness=3)
    with OneByOne(flow, tmp_path, wide(flow, 100)) as run:
        assert [done.discarded for done in to_the_end(run)] == [0] * 4
        assert agrees(flow, run)


def test_a_tuple_that_is_late_because_of_another_task_is_judged_again(tmp_path: Path) -> None:
    """The second slice begins with a time that the first one has passed."""
    flow = flow_of([1, 90, 2, 91, 92, 93, 94, 95])
    with OneByOne(flow, tmp_path, wide(flow, 8)) as run:
        first, *others = to_the_end(run)
        assert agrees(flow, run)
    assert first.discarded == 1
    assert first.layout.stations[CLOCK].replicas == READERS
    assert not any(done.discarded for done in others)


def test_batches_have_serial_clocks_where_a_second_job_would_be_usual(tmp_path: Path) -> None:
    """Of the two slices of each batch, the second begins with a time that the first has passed."""
    batches = 12
    times = [t + n * 10 for n in range(batches) for t in (1, 9, 2, 9)]
    flow = flow_of(times)
    plan = Plan.sequential(flow).with_source("rows", replicas=2, batch_rows=4)
    with OneByOne(flow, tmp_path, plan.with_replicas(CLOCK, 2)) as run:
        done = to_the_end(run)
        assert agrees(flow, run)
    tasks = [each.layout.stations[CLOCK].replicas for each in done[:batches]]
    assert [each.discarded for each in done[:batches]] == [1, 1, 0, 1, 0, 0, 1, 0, 0, 0, 0, 1]
    assert [n + 1 for n, each in enumerate(tasks) if each == 1] == [3, 5, 6, 8, 9, 10, 11]


def test_slices_are_judged_on_where_one_batch_was_an_exception(tmp_path: Path) -> None:
    usual, odd = (1, 2, 3, 4), (1, 9, 2, 9)
    times = [t + n * 10 for n in range(6) for t in (usual if n % 2 else odd)]
    flow = flow_of(times)
    plan = Plan.sequential(flow).with_source("rows", replicas=2, batch_rows=4)
    with OneByOne(flow, tmp_path, plan.with_replicas(CLOCK, 2)) as run:
        done = to_the_end(run)
        assert agrees(flow, run)
    assert [each.discarded for each in done[:6]] == [1, 0, 1, 0, 1, 0]


def test_a_clock_that_starts_in_doubt_has_one_task_for_a_batch(tmp_path: Path) -> None:
    flow = flow_of([1, 900, 2, 3, *range(4, 20)], ahead=5)
    with OneByOne(flow, tmp_path, wide(flow, 4)) as run:
        first, *others = to_the_end(run)
        assert agrees(flow, run)
    assert first.discarded == 1
    assert first.layout.stations[CLOCK].replicas == 1
    assert {done.layout.stations[CLOCK].replicas for done in others} == {READERS}


def test_rows_of_discarded_jobs_leave_nothing_in_the_outbox(tmp_path: Path) -> None:
    flow = flow_of([1, 90, 2, 91, 92, 93, 94, 95])
    plan = wide(flow, 8).with_replicas("late", READERS)
    with OneByOne(flow, tmp_path, plan) as run:
        done = run.next()
        assert done.discarded == 1
        kept = {each.name for name in flow.sinks() for each in done.manifest.receipts(name)}
        assert set(run.checkpoint.storage.entries(OUTBOX)) <= kept


@ab.stateful(out="ts: int64")
def without_two(ctx: Any) -> None:
    """Takes any time but 2."""
    for row in ctx.tuples():
        if row.ts == 2:
            raise ValueError("two")
        ctx.emit(ts=row.ts)


@pytest.mark.parametrize(("times", "fails"), [([1, 90, 2, 91], False), ([1, 1, 2, 91], True)])
def test_only_an_error_of_serial_clocks_ends_a_run(
    tmp_path: Path, times: list[int], fails: bool
) -> None:
    """After 90, time 2 is late and nobody gets it; its own task does not know that."""
    flow = Flow("strict")
    clock = flow.source("rows", ab.memory([{"ts": time} for time in times]), time="ts")
    clock.apply("without-two", without_two).sink("out", ab.collect())
    plan = wide(flow, 4).with_source("rows", replicas=2)
    with OneByOne(flow, tmp_path, plan) as run:
        if fails:
            with pytest.raises(AnabranchError, match="two"):
                run.next()
            return
        assert run.next().discarded == 1
        run.to_the_end()
    assert flow.graph.steps["out"].body.sink.table().to_pylist() == run_sequential(flow).rows("out")


def test_the_next_batch_goes_on_from_what_the_driver_has_written(tmp_path: Path) -> None:
    """With one replica or with several, of the same process or of another."""
    flow = flow_of([number + (9 if number % 7 else 0) for number in range(60)], lateness=5)
    plans = [wide(flow, 10), wide(flow, 10).with_replicas(CLOCK, 1)]
    for number in range(3):
        with OneByOne(flow, tmp_path, plans[0]) as run:
            for _ in range(2):
                done = run.next()
                assert [each.name for each in done.manifest.state if each.region == CLOCK]
                run.plan = plans[number % 2]
    with OneByOne(flow, tmp_path, plans[1]) as run:
        run.to_the_end()
        assert agrees(flow, run)


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_an_observation_counts_the_jobs_that_were_discarded(spark: SparkSession) -> None:
    flow = flow_of([*range(30), 2, *range(30, 80)], lateness=3)
    batches = []

    def listen(event: Event) -> None:
        if isinstance(event, Observed):
            batches.append(event.observation)

    plan = wide(flow, 20).with_source("rows", replicas=2)
    handle = ab.start(flow, plan=plan, session=spark, listener=listen)
    assert handle.await_termination(100)
    rows = flow.graph.steps["out"].body.sink.table().to_pylist()
    assert rows == run_sequential(flow).rows("out")
    discarded = {batch.batch: batch.times.discarded_jobs for batch in batches}
    assert [number for number, jobs in discarded.items() if jobs] == [1]


LAW = in_soak(160, share=10)


@st.composite
def clocked(draw: st.DrawFn) -> tuple[Flow, list[Plan], int, int]:
    """One timed source, read by several; rows that are late, doubted, or first of their kind."""
    flow = Flow("clocked", buckets=draw(st.sampled_from([1, 4])))
    gap = st.sampled_from([0, 0, 1, 2, 2, 7])
    jitter = st.sampled_from([0, 0, 0, 0, -1, -2, -5, -20, 2, 60])
    time, rows, size = 0, [], draw(st.integers(0, 60))
    for step, off in draw(st.lists(st.tuples(gap, jitter), min_size=size, max_size=size)):
        time += step
        rows.append({"ts": time + off, "k": len(rows) % 5, "s": "", "v": len(rows)})
    beats = None
    if rows and draw(st.booleans()):
        beats = {draw(st.integers(1, len(rows))): draw(st.integers(0, time + 5))}
    stream = flow.source("rows", ab.memory(rows, SCHEMA, heartbeats=beats))
    if draw(st.booleans()):
        stream = stream.apply("copies", ops.copies)
    lateness, ahead = draw(st.sampled_from([0, 1, 6])), draw(st.sampled_from([None, None, 4, 9]))
    clock = stream.timed(CLOCK, "ts", lateness=lateness, ahead=ahead)
    clock.late.sink("late", ab.collect())
    if draw(st.booleans()):
        clock.sink("out", ab.collect())
    narrow = clock.map("narrow", lambda batch: {}, keeps=["k", "s", "v"])
    after: dict[str, Callable[[str, Any], Any]] = {
        **TIMED,
        "running": lambda n, s: s.apply(n, ops.running("k")),
        "numbered": lambda n, s: s.apply(n, ops.numbered),
        "dealt": lambda n, s: s.apply(n, ops.dealt),
    }
    name = draw(st.sampled_from(sorted(after)))
    after[name](name, narrow).sink("after", ab.collect())
    rng = Random(draw(st.integers(0, 2**32)))
    plans = [_random(flow, rng) for _ in range(draw(st.integers(1, 4)))]
    return flow, plans, draw(st.integers(0, 2)), rng.randrange(2**32)


def _random(flow: Flow, rng: Random) -> Plan:
    """Most plans have several readers, and several replicas of the clock."""
    plan = random_plan(flow, rng).with_replicas(CLOCK, rng.choice([1, 2, 3, 4, 4]))
    return plan.with_source("rows", replicas=rng.choice([1, 2, 3, 4, 4]))


def law(number: int, examples: int, directory: Path, **more: Any) -> Any:
    @seed(number)
    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=False,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        **more,
    )
    @given(case=clocked())
    def property_(case: tuple[Flow, list[Plan], int, int]) -> None:
        flow, plans, kills, seed_ = case
        trouble = (0.0, 0.0, 0.3)[seed_ % 3]
        got = InProcess(flow, directory / "checkpoint", seed_, kills, trouble).run(plans)
        found = difference(flow, run_sequential(flow), got)
        assert found is None, f"seed {seed_}, plans {plans}\n{found}\n{got.events}"

    return property_


def accept_every_verdict(patch: Patch) -> None:
    """The driver publishes what tasks have assumed."""

    def trusting(kernel: TimedKernel, reports: Sequence[Verdicts]) -> Checked:
        found = check(kernel, reports)
        return Checked(True, [] if found is None else found.entries)

    patch.setattr(clocks, "check", trusting)


def ignore_how_long_verdicts_hold(patch: Patch) -> None:
    """A verdict counts whatever was passed before."""
    _change_judged(patch, lambda judged: judged._replace(holds=LAST))


def ignore_what_a_slice_needs(patch: Patch) -> None:
    """The first time of a slice counts as plausible whatever was passed before."""
    _change_judged(patch, lambda j: j._replace(digest=j.digest._replace(needed=FIRST)))


def ignore_what_a_slice_doubts(patch: Patch) -> None:
    """What is doubted is so whatever was passed before."""
    _change_judged(patch, lambda j: Judged(j.digest._replace(most=LAST), LAST))


def _change_judged(patch: Patch, change: Callable[[Judged], Judged]) -> None:
    judge_early = TimedKernel.judge_early

    def changed(self: TimedKernel, jumbo: Jumbo, facts: Facts) -> Any:
        outputs, memory, judged = judge_early(self, jumbo, facts)
        return outputs, memory, change(judged)

    patch.setattr(TimedKernel, "judge_early", changed)


def judge_each_slice_by_itself(patch: Patch) -> None:
    """Tasks judge as if nothing had come before, and say that this does not matter."""
    judge_early = TimedKernel.judge_early

    def blind(self: TimedKernel, jumbo: Jumbo, facts: Facts) -> Any:
        outputs, memory, judged = judge_early(self, jumbo, {})
        return outputs, memory, Judged(judged.digest._replace(needed=FIRST, most=LAST), LAST)

    patch.setattr(TimedKernel, "judge_early", blind)


def forget_the_memory_of_replica_0(patch: Patch) -> None:
    """The driver goes on as if the first slices had not been there."""

    def forgetful(kernel: TimedKernel, reports: Sequence[Verdicts]) -> Checked | None:
        first = replace(reports[0], memory=pickle.dumps({}))
        return check(kernel, [first, *reports[1:]])

    patch.setattr(clocks, "check", forgetful)


def forget_all_but_the_memory_of_replica_0(patch: Patch) -> None:
    """The driver writes what the clock remembers before the slices of the other tasks."""

    def forgetful(kernel: TimedKernel, reports: Sequence[Verdicts]) -> Checked | None:
        found = check(kernel, reports)
        if found is not None:
            check(kernel, reports[:1])
        return found

    patch.setattr(clocks, "check", forgetful)


def keep_what_the_only_task_held(patch: Patch) -> None:
    """Several tasks do not pass on what one of them held before."""
    patch.setattr(EarlyClock, "let_go", lambda self: [None, None])


MUTATIONS = (
    accept_every_verdict,
    ignore_how_long_verdicts_hold,
    ignore_what_a_slice_needs,
    ignore_what_a_slice_doubts,
    judge_each_slice_by_itself,
    forget_the_memory_of_replica_0,
    forget_all_but_the_memory_of_replica_0,
    keep_what_the_only_task_held,
)
ENOUGH = 400


@pytest.mark.parametrize("mutate", few(MUTATIONS, keep=3))
@pytest.mark.timeout(0)
def test_the_law_fails_when_verdicts_are_not_checked(
    tmp_path: Path, monkeypatch: Patch, mutate: Callable[[Patch], None]
) -> None:
    mutate(monkeypatch)
    with pytest.raises(AssertionError, match="seed"):
        law(1, ENOUGH, tmp_path, phases=[Phase.generate])()


@sampled
@pytest.mark.timeout(0)
def test_verdicts_of_tasks_give_the_sequential_result(tmp_path: Path) -> None:
    law(0, LAW, tmp_path)()
