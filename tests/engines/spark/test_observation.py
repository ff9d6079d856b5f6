"""What a run on Spark tells of itself: rows, times, rates, and how they fit together."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.engines.engine import Options
from anabranch.engines.handle import Result
from anabranch.engines.spark.engine import SparkEngine
from anabranch.events import (
    Event,
    Observation,
    Observed,
    Reconfiguration,
    RunEnded,
    RunStarted,
    StepMetrics,
)
from anabranch.flow import Flow
from anabranch.planning.plan import Plan

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

ROWS, BATCH = 3000, 600
LATE, BAD = 7, 5


@dataclass
class Told:
    """One run and all that it told."""

    result: Result
    events: list[Event] = field(default_factory=list)

    @property
    def batches(self) -> list[Observation]:
        return [event.observation for event in self.events if isinstance(event, Observed)]

    def sums(self, step: str) -> tuple[int, int]:
        """Rows in and out over all batches."""
        steps = [batch.step(step) for batch in self.batches]
        return sum(each.rows_in for each in steps), sum(each.rows_out for each in steps)

    def last(self, step: str) -> StepMetrics:
        return self.batches[-1].step(step)


def rows() -> list[dict[str, int]]:
    """Some come too late, some make the code raise."""
    drawn = [{"ts": number, "k": number % 10, "v": number} for number in range(ROWS)]
    for number in range(LATE):
        drawn[1000 + number]["ts"] = 0
    for number in range(BAD):
        drawn[2000 + number]["v"] = -1
    return drawn


@ab.map(out="ts: int64, k: int64, v: int64", keeps=["ts", "k"], on_error="skip")
def checked(batch):
    if min(batch["v"].to_pylist(), default=0) < 0:
        raise ValueError("below zero")
    return batch


def flow_of() -> Flow:
    flow = Flow("observed", buckets=16)
    timed = flow.source("s", ab.memory(rows()), time="ts", lateness=5)
    half = timed.apply("checked", checked).filter(
        "even", lambda batch: [v % 2 == 0 for v in batch["v"].to_pylist()]
    )
    half.aggregate("totals", key="k", emit="every", sum=ab.sum("v")).sink("out", ab.collect())
    timed.late.sink("late", ab.collect())
    return flow


@pytest.fixture(scope="module")
def told(spark: SparkSession) -> Told:
    flow = flow_of()
    plan = Plan.sequential(flow).with_source("s", batch_rows=BATCH).with_replicas("totals", 2)
    events: list[Event] = []

    def listen(event: Event) -> None:
        events.append(event)
        if isinstance(event, Observed) and event.observation.batch == 1:
            handle.reconfigure(plan.with_replicas("totals", 3))

    handle = ab.start(flow, plan=plan, session=spark, listener=listen)
    assert handle.await_termination(100)
    return Told(handle.result(), events)


def test_a_run_begins_and_ends_with_what_it_is_and_did(told: Told) -> None:
    first, last = told.events[0], told.events[-1]
    assert isinstance(first, RunStarted)
    assert (first.flow, first.engine, first.version) == ("observed", "spark", -1)
    assert isinstance(last, RunEnded)
    assert (last.rows_in, last.ended) == (ROWS, True)
    assert last.rows_out == sum(batch.rows_out for batch in told.batches)


def test_rows_of_batches_add_up(told: Told) -> None:
    assert sum(batch.rows_in for batch in told.batches) == ROWS
    assert [batch.batch for batch in told.batches] == list(range(len(told.batches)))
    kept = (ROWS - LATE - BAD) // 2
    assert told.result.rows_out == pytest.approx(kept + LATE, abs=BAD + LATE)
    assert told.sums("out")[0] + told.sums("late")[0] == told.result.rows_out


def test_steps_tell_rows_in_and_out_and_how_selective_they_are(told: Told) -> None:
    assert told.sums("s.time") == (ROWS, ROWS)  # late tuples leave by another port
    assert told.sums("checked") == (ROWS - LATE, ROWS - LATE - BAD)
    came, went = told.sums("even")
    assert came == ROWS - LATE - BAD
    assert told.sums("totals") == (went, went)
    full = [batch.step("even") for batch in told.batches if batch.step("even").rows_in > 100]
    assert full
    assert all(step.selectivity == pytest.approx(0.5, abs=0.02) for step in full)


def test_the_first_row_that_a_step_skips_is_known_with_its_place(told: Told) -> None:
    [part] = ab.memory(rows()).parts()
    first = told.result.first_skipped["checked"]
    assert (first.source, first.part, first.row) == ("s", part, 2001)
    assert first.why == "ValueError: below zero"
    assert "'v': -1" in first.text
    assert told.result.rows_by_step["even"] == ROWS - LATE - BAD


def test_steps_tell_how_long_they_worked(told: Told) -> None:
    for step in ("s.time", "checked", "even", "totals"):
        busy = [batch.step(step).busy_s for batch in told.batches if batch.step(step).rows_in]
        assert all(seconds > 0 for seconds in busy), step
        assert sum(busy) < told.result.seconds * 2  # two cores


def test_steps_with_state_tell_their_keys(told: Told) -> None:
    assert told.last("totals").keys == 5  # only even ones are left of ten
    assert told.last("checked").keys is None


def test_what_was_lost_on_purpose_is_counted_from_the_start(told: Told) -> None:
    clock = told.last("s.time")
    assert (clock.late, clock.behind, clock.most_behind) == (LATE, LATE, 999)
    assert told.result.most_behind == {"s.time": 999}
    assert told.last("checked").skipped == BAD
    counted = [batch.step("s.time").late for batch in told.batches]
    assert counted == sorted(counted)
    assert counted[0] == 0


def test_the_time_of_a_batch_is_told_to_its_last_part(told: Told) -> None:
    for batch in told.batches:
        times = batch.times
        parts = [times.fixed_s, times.scan_s, times.shuffle_s]
        parts += [times.compute_s, times.state_s, times.sink_s]
        assert all(seconds >= 0 for seconds in parts)
        assert sum(parts) == pytest.approx(times.total_s, rel=0.05)
        assert min(times.fixed_s, times.scan_s, times.compute_s, times.state_s) > 0


def test_pipelines_are_busy_for_a_part_of_the_time(told: Told) -> None:
    for batch in told.batches:
        assert [p.steps for p in batch.pipelines] == [
            pipeline for region in told.result.plan.regions for pipeline in region.pipelines
        ]
        assert all(0 <= p.busy_share <= 1 for p in batch.pipelines)
        assert all(0 <= p.overhead_share <= 1 for p in batch.pipelines)
    assert any(p.busy_share > 0 for p in told.batches[0].pipelines)


def test_a_region_is_as_busy_as_its_replicas(told: Told) -> None:
    for batch in told.batches:
        for region in batch.regions:
            [whole] = [p.busy_share for p in batch.pipelines if p.region == region.region]
            assert sum(region.replica_busy) / region.replicas == pytest.approx(whole)
            pairs = zip(region.replica_in_steps, region.replica_busy, strict=True)
            assert all(0 <= in_steps <= busy for in_steps, busy in pairs)
    assert any(batch.pipelines[0].busy_share > 0 for batch in told.batches)


def test_reading_is_the_work_of_the_source_and_of_no_region(told: Told) -> None:
    for batch in told.batches:
        [source], times = batch.sources, batch.times
        assert source.busy_share == pytest.approx(times.scan_s / times.total_s)
        # One reader, and steps that run one after another: together they take no longer than that.
        alone = [r.region for r in batch.regions if r.region != "totals"]
        busy = sum(p.busy_share for p in batch.pipelines if p.region in alone)
        assert source.busy_share + busy <= 1.0


def test_regions_and_sources_tell_their_throughput(told: Told) -> None:
    for batch in told.batches:
        [source] = batch.sources
        assert source.rows == batch.rows_in
        assert source.rate_per_s == pytest.approx(batch.rows_in / batch.times.total_s)
        regions = {region.region: region for region in batch.regions}
        assert regions["s.time"].rows_per_s == pytest.approx(source.rate_per_s)
        assert regions["totals"].replicas in (2, 3)


def test_regions_tell_how_evenly_replicas_and_buckets_share_the_work(told: Told) -> None:
    for batch in told.batches:
        region = next(each for each in batch.regions if each.region == "totals")
        rows = region.rows_per_s * batch.times.total_s
        assert sum(region.bucket_rows) == pytest.approx(rows)
        assert sum(1 for rows in region.bucket_rows if rows) <= 10  # keys
        assert len(region.replica_busy) == region.replicas
        assert all(0 <= share <= 1 for share in region.replica_busy)
    alone = next(each for each in told.batches[0].regions if each.region == "s.time")
    assert (alone.bucket_rows, alone.hottest_key) == ((), None)


def test_the_backlog_falls_to_nothing(told: Told) -> None:
    backlog = [batch.sources[0].backlog_rows for batch in told.batches]
    assert backlog == [max(0, ROWS - BATCH * (number + 1)) for number in range(len(backlog))]


def test_the_latency_of_a_batch_is_its_own_and_that_of_the_result_lies_among_them(
    told: Told,
) -> None:
    took_ms = [batch.times.total_s * 1000 for batch in told.batches]
    for batch, batch_ms in zip(told.batches, took_ms, strict=True):
        assert batch.latency_p50_ms == batch.latency_p99_ms == pytest.approx(batch_ms)
    assert min(took_ms) < max(took_ms)
    assert told.result.latency_p50_ms in [batch.latency_p50_ms for batch in told.batches]
    assert told.result.latency_p99_ms == pytest.approx(max(took_ms))


def test_a_batch_without_rows_tells_the_latency_of_the_rows_before_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    for number, text in enumerate(["", "1\n2\n", "", "3\n"]):
        path = tmp_path / f"{number}.txt"
        path.write_text(text)
        os.utime(path, (1000 + number, 1000 + number))
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(tmp_path))
    numbered = lines.selectExpr("cast(value as bigint) as n")
    flow = Flow("now-and-then")
    source = ab.dataframe(numbered, order="n", bounded=True)
    flow.source("s", source).sink("out", ab.collect())
    told: list[Event] = []
    ab.run(flow, session=spark, listener=told.append)
    batches = [event.observation for event in told if isinstance(event, Observed)]
    assert {0, 1, 2} == {batch.rows_in for batch in batches}
    known_ms = 0.0
    for batch in batches:
        if batch.rows_in:
            known_ms = batch.times.total_s * 1000
        assert (batch.latency_p50_ms, batch.latency_p99_ms) == pytest.approx((known_ms, known_ms))


def test_a_change_of_plan_is_told_once_with_its_cause_and_cost(told: Told) -> None:
    [change] = [event for event in told.events if isinstance(event, Reconfiguration)]
    assert change.batch == 2
    assert [line.split(",")[0] for line in change.moved] == ["2 → 3 replicas of region totals"]
    assert change.loaded_bytes > 0
    assert 0 < change.pause_ms < told.batches[2].times.total_s * 1000
    assert Plan.from_json(change.before).region("totals").replicas == 2
    assert Plan.from_json(change.after) == told.result.plan
    assert told.result.reconfigurations == (change,)


def test_a_plan_that_is_wished_for_before_the_first_batch_is_told_too(spark: SparkSession) -> None:
    flow = flow_of()
    plan = Plan.sequential(flow).with_source("s", batch_rows=BATCH)
    wished = plan.with_replicas("totals", 2)
    engine = SparkEngine(flow, plan, Options(session=spark))
    events: list[Event] = []

    def listen(event: Event) -> None:
        events.append(event)
        if isinstance(event, RunStarted):
            engine.reconfigure(wished)

    engine.start(listen)
    assert engine.wait(100)
    [change] = [event for event in events if isinstance(event, Reconfiguration)]
    assert (change.batch, Plan.from_json(change.after)) == (0, wished)
