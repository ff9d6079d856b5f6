"""The profiler: what scripted probes come to in an observation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from anabranch.columns.hashing import hash_columns
from anabranch.engines.local.assembly import Assembly
from anabranch.engines.local.probe import Probe
from anabranch.engines.local.profiler import Profiler
from anabranch.events import HotKey
from anabranch.flow import Flow
from anabranch.io import collect, memory
from anabranch.operators.aggregates.functions import count
from anabranch.planning.plan import Plan


class Scripted(Probe):
    """A probe whose processor time a test sets."""

    spent_s = 0.0

    def cpu_s(self) -> float:
        return self.spent_s

    def work(self, step: str, rows_in: int, rows_out: int, cpu_s: float, rest_s: float = 0.0):
        self.count(step, rows_in, rows_out)
        self.cpu[step] += cpu_s
        self.spent_s += cpu_s + rest_s


@pytest.fixture
def watched() -> tuple[Profiler, Plan]:
    flow = Flow("seen", buckets=4)
    source = flow.source("rows", memory([{"k": i} for i in range(100)]))
    source.map("one", lambda b: {}, keeps="*").filter("two", lambda b: [True]).aggregate(
        "count", key="k", n=count()
    ).sink("out", collect())
    plan = Plan.sequential(flow).with_replicas("count", 2)
    parts = Assembly(flow, plan, None, False, lambda: None)
    return Profiler(parts.regions, parts.sources, parts.latencies), plan


def probe(profiler: Profiler, plan: Plan, region: str, replica: int = 0) -> Scripted:
    made = Scripted(region, plan.region(region).pipelines[0], replica)
    profiler.watch(made)
    return made


def test_a_look_tells_what_was_done_since_the_last_one(watched: Any):
    profiler, plan = watched
    replicas = [probe(profiler, plan, "count", r) for r in range(2)]
    for replica, rows in zip(replicas, (10, 30), strict=True):
        replica.work("count", rows, rows // 2, cpu_s=0.1)
    first = profiler.look(1.0, plan, written=7).step("count")
    replicas[0].work("count", 5, 5, cpu_s=0.3)
    second = profiler.look(2.0, plan, written=9)
    assert (first.rows_in, first.rows_out, first.busy_s) == (40, 20, pytest.approx(0.2))
    step = second.step("count")
    assert (step.rows_in, step.rows_out, step.busy_s) == (5, 5, pytest.approx(0.3))
    assert (second.batch, second.rows_out) == (1, 2)


def test_a_pipeline_is_as_busy_as_its_replicas_on_average(watched: Any):
    profiler, plan = watched
    replicas = [probe(profiler, plan, "count", r) for r in range(2)]
    replicas[0].work("count", 1, 1, cpu_s=0.5, rest_s=0.1)
    replicas[1].work("count", 1, 1, cpu_s=0.1, rest_s=0.1)
    seen = profiler.look(1.0, plan, written=0)
    (pipeline,) = [each for each in seen.pipelines if each.region == "count"]
    assert pipeline.busy_share == pytest.approx(0.4)
    assert pipeline.overhead_share == pytest.approx(0.1)


def test_a_replica_is_as_busy_as_its_busiest_thread(watched: Any):
    profiler, plan = watched
    first, last = plan.region("count").pipelines[0][:1], plan.region("count").pipelines[0][1:]
    for replica, spent in enumerate(((0.2, 0.5), (0.1, 0.0))):
        for steps, cpu_s in zip((first, last), spent, strict=True):
            thread = Scripted("count", steps, replica)
            profiler.watch(thread)
            thread.work(steps[0], 1, 1, cpu_s)
    seen = profiler.look(1.0, plan, written=0)
    region = next(each for each in seen.regions if each.region == "count")
    assert region.replica_busy == pytest.approx((0.5, 0.1))


def test_a_source_is_as_busy_as_its_readers_on_average(watched: Any):
    profiler, plan = watched
    plan = plan.with_source("rows", replicas=2)
    readers = [Scripted("rows", ("rows",), reader) for reader in range(2)]
    for reader, cpu_s in zip(readers, (0.7, 0.1), strict=True):
        profiler.watch(reader)
        reader.work("rows", 0, 10, cpu_s, rest_s=0.1)
    (source,) = profiler.look(1.0, plan, written=0).sources
    assert (source.rows, source.busy_share) == (20, pytest.approx(0.5))
    readers[1].work("rows", 0, 10, cpu_s=0.4)
    assert profiler.look(2.0, plan, written=0).sources[0].busy_share == pytest.approx(0.2)


def test_a_look_tells_what_came_to_each_bucket_since_the_last_one(watched: Any):
    profiler, plan = watched
    loads = next(run.loads for run in profiler._regions if run.region.name == "count")
    keys = pa.array([7] * 30 + [8] * 10)
    counts = np.array([0, 30, 10, 0])
    loads.note(counts, hash_columns([keys]), [keys])
    seen = [profiler.look(float(second), plan, written=0).regions for second in (1, 2)]
    first, second = [next(r for r in regions if r.region == "count") for regions in seen]
    assert first.bucket_rows == (0, 30, 10, 0)
    assert first.hottest_key == HotKey("k 7", 0.75)
    assert (second.bucket_rows, second.hottest_key) == ((), None)


def test_a_probe_that_has_ended_is_counted_once_more_and_then_forgotten(watched: Any):
    profiler, plan = watched
    ended = probe(profiler, plan, "count")
    ended.work("count", 4, 4, cpu_s=0.1)
    ended.ended = True
    assert profiler.look(1.0, plan, written=0).step("count").rows_in == 4
    assert profiler.look(2.0, plan, written=0).step("count").rows_in == 0
    assert not profiler._readings


def test_busy_shares_and_rates_are_those_of_the_period_alone(watched: Any):
    profiler, plan = watched
    replica = probe(profiler, plan, "count")

    def shown(at_s: float, rows: int, cpu_s: float) -> tuple[float, float]:
        replica.work(replica.steps[0], rows, rows, cpu_s)
        seen = profiler.look(at_s, plan, written=0)
        busy = next(each.busy_share for each in seen.pipelines if each.region == "count")
        return busy, next(each.rows_per_s for each in seen.regions if each.region == "count")

    assert shown(1.0, 100, cpu_s=1.0) == pytest.approx((0.5, 100.0))
    assert shown(3.0, 0, cpu_s=0.0) == (0.0, 0.0)
    assert shown(5.0, 100, cpu_s=0.4) == pytest.approx((0.1, 50.0))


def test_a_step_that_waits_is_busy_and_takes_no_processor(
    watched: Any, monkeypatch: pytest.MonkeyPatch
):
    profiler, plan = watched
    replica = probe(profiler, plan, "count")
    monkeypatch.setattr("time.process_time", lambda: profiler._process_s + 0.3)
    replica.work("count", 10, 10, cpu_s=0.1)
    replica.held["count"] += 0.9  # 0.1 at work; where others work 0.2, that is 0.025 for its turn
    seen = profiler.look(1.0, plan, written=0)
    pipeline = next(each for each in seen.pipelines if each.region == "count")
    assert seen.step("count").waited_s == pytest.approx(0.775)
    assert seen.step("count").busy_s == pytest.approx(0.875)
    assert (pipeline.busy_share, pipeline.waiting_share) == pytest.approx((0.4375, 0.3875))
    assert seen.times.compute_s == pytest.approx(0.1)


def test_a_step_that_waits_for_its_turn_alone_does_not_wait(
    watched: Any, monkeypatch: pytest.MonkeyPatch
):
    profiler, plan = watched
    replica = probe(profiler, plan, "count")
    monkeypatch.setattr("time.process_time", lambda: profiler._process_s + 2.0)
    replica.work("count", 10, 10, cpu_s=0.3)
    replica.held["count"] += 1.0
    seen = profiler.look(1.0, plan, written=0).step("count")
    assert (seen.busy_s, seen.waited_s) == pytest.approx((0.3, 0.0))


def test_a_call_under_way_counts_up_to_now(monkeypatch: pytest.MonkeyPatch):
    clock = iter([10.0, 13.0, 14.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    asked = Probe("count", ("count",), 0)
    asked.begin()
    assert asked.held_s() == {"count": 3.0}
    asked.end_step("count")
    assert asked.held_s() == {"count": 4.0}


def test_a_look_without_time_in_between_divides_by_nothing(watched: Any):
    profiler, plan = watched
    profiler.look(1.0, plan, written=0)
    assert profiler.look(1.0, plan, written=0).rows_in == 0
