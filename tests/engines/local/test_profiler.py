"""The profiler: what scripted reports of processes come to in an observation."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pytest

from anabranch.engines.latency import Latencies
from anabranch.engines.local.meter import Measured, StepTotals, UnitReading
from anabranch.engines.local.profiler import Profiler, turns_s
from anabranch.events import (
    HotKey,
    Observation,
    PipelineMetrics,
    RegionMetrics,
    SkippedRow,
    StepMetrics,
)
from anabranch.flow import Flow
from anabranch.io import collect, memory
from anabranch.io.source import Extent
from anabranch.operators.aggregates.functions import count
from anabranch.operators.base import Counters, SkippedAt
from anabranch.operators.keyed.shared import shared
from anabranch.planning.plan import Plan
from anabranch.runtime.bucket_loads import Loads, OftenKey
from anabranch.runtime.coordinator import Coordinator
from anabranch.runtime.layout import Topology
from anabranch.runtime.messages import Claim, Done, Finished, Surveyed, UnitId

ROWS = 100
FIRST, SECOND = UnitId("count", 0), UnitId("count", 1)
READERS = [UnitId("rows", 0), UnitId("rows", 1)]


class Process:
    """A process whose totals a test sets; nothing is reported before `report`."""

    def __init__(self, profiler: Profiler, number: int) -> None:
        self._profiler, self._number = profiler, number
        self._steps: defaultdict[UnitId, dict[str, StepTotals]] = defaultdict(dict)
        self._cpu_s: defaultdict[UnitId, float] = defaultdict(float)
        self.process_s = 0.0

    def work(
        self,
        unit: UnitId,
        step: str,
        rows_in: int = 0,
        rows_out: int = 0,
        *,
        cpu_s: float = 0.0,
        idle_s: float = 0.0,
        around_s: float = 0.0,
    ) -> None:
        """Let a unit work: in a step with and without a processor, and around its steps."""
        totals = self._steps[unit].setdefault(step, StepTotals())
        totals.rows_in += rows_in
        totals.rows_out += rows_out
        totals.cpu_s += cpu_s
        totals.held_s += cpu_s + idle_s
        self._cpu_s[unit] += cpu_s + around_s
        self.process_s += cpu_s + around_s

    def report(
        self,
        *,
        queues: Mapping[UnitId, tuple[int, int]] | None = None,
        keys: Mapping[UnitId, Mapping[str, int]] | None = None,
        counters: Mapping[UnitId, Mapping[str, Counters]] | None = None,
        loads: Mapping[str, Loads] | None = None,
        written: Mapping[str, int] | None = None,
        memory_bytes: int | None = None,
    ) -> None:
        queues, keys, counters = queues or {}, keys or {}, counters or {}
        units = {
            unit: UnitReading(
                self._steps[unit],
                self._cpu_s[unit],
                queues.get(unit, (0, 0)),
                keys.get(unit, {}),
                counters.get(unit, {}),
            )
            for unit in [*self._steps, *queues, *keys, *counters]
        }
        measured = Measured(units, loads or {}, written or {}, self.process_s, memory_bytes)
        # Reports of workers are copies; those at home go on growing.
        received = pickle.loads(pickle.dumps(measured)) if self._number else measured
        self._profiler.note(self._number, received)


class Profiled:
    """A run of three processes, of which the first one is at home."""

    def __init__(self, flow: Flow, plan: Plan) -> None:
        topology = Topology(flow)
        self.plan, self.latencies = plan, Latencies()
        self.coordinator = Coordinator(topology, plan, workers=2)
        self.profiler = Profiler(topology, self.coordinator, self.latencies)
        self.home, self.one, self.two = (Process(self.profiler, host) for host in range(3))

    def look(self, at_s: float, written: int = 0) -> Observation:
        return self.profiler.look(at_s, self.plan, written)

    def end_epoch(self, unit: UnitId, counters: Mapping[str, Counters]) -> None:
        """What a session does when a unit is done."""
        self.profiler.forget_counters(unit)
        self.coordinator.receive(Done(0, unit, counters), 0.0)


def pipeline(seen: Observation, *steps: str) -> PipelineMetrics:
    return next(each for each in seen.pipelines if each.steps == steps)


def region(seen: Observation, name: str = "count") -> RegionMetrics:
    return next(each for each in seen.regions if each.region == name)


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.engines.local.profiler.usable_cpus", lambda: {0, 1})


@pytest.fixture
def run() -> Profiled:
    """A flow rows → [one · two · count] twice → out."""
    flow = Flow("seen", buckets=4)
    source = flow.source("rows", memory([{"k": i} for i in range(ROWS)]))
    source.map("one", lambda b: {}, keeps="*").filter("two", lambda b: [True]).aggregate(
        "count", key="k", n=count()
    ).sink("out", collect())
    return Profiled(flow, Plan.sequential(flow).with_replicas("count", 2))


# --- differences --------------------------------------------------------------------------------


def test_a_look_shows_what_all_processes_did_since_the_last_one(run: Profiled):
    run.one.work(FIRST, "count", 10, 5, cpu_s=0.1)
    run.two.work(SECOND, "count", 30, 15, cpu_s=0.1)
    run.one.report()
    run.two.report()
    first = run.look(1.0, written=7)
    run.one.work(FIRST, "count", 5, 5, cpu_s=0.3)
    run.one.report()
    second = run.look(2.0, written=9)
    assert first.step("count") == StepMetrics("count", 40, 20, pytest.approx(0.2))
    assert second.step("count") == StepMetrics("count", 5, 5, pytest.approx(0.3))
    assert [(seen.batch, seen.rows_out) for seen in (first, second)] == [(0, 7), (1, 2)]


def test_of_several_reports_between_two_looks_the_newest_counts(run: Profiled):
    for _ in range(3):
        run.one.work(FIRST, "count", 10, 5, cpu_s=0.1)
        run.one.report()
    assert run.look(1.0).step("count") == StepMetrics("count", 30, 15, pytest.approx(0.3))


def test_a_process_that_reports_late_loses_nothing(run: Profiled):
    run.one.work(FIRST, "count", 10, 5)
    run.one.report()
    run.look(1.0)
    run.one.work(FIRST, "count", 7, 5)
    silent = run.look(2.0)
    run.one.report()
    assert [seen.step("count").rows_in for seen in (silent, run.look(3.0))] == [0, 7]


def test_totals_that_go_on_growing_after_a_report_are_not_counted_twice(run: Profiled):
    run.home.work(FIRST, "count", 10, 10)
    run.home.report()
    run.look(1.0)
    run.home.work(FIRST, "count", 4, 4)
    run.home.report()
    assert run.look(2.0).step("count").rows_in == 4


def test_busy_shares_and_rates_are_those_of_the_period_alone(run: Profiled):
    def shown(at_s: float, rows: int, cpu_s: float) -> tuple[float, float]:
        run.one.work(FIRST, "one", rows, rows, cpu_s=cpu_s)
        run.one.report()
        seen = run.look(at_s)
        return pipeline(seen, "one", "two", "count").busy_share, region(seen).rows_per_s

    assert shown(1.0, 100, cpu_s=1.0) == pytest.approx((0.5, 100.0))
    assert shown(3.0, 0, cpu_s=0.0) == (0.0, 0.0)
    assert shown(5.0, 100, cpu_s=0.4) == pytest.approx((0.1, 50.0))


def test_a_look_without_time_in_between_divides_by_nothing(run: Profiled):
    run.look(1.0)
    assert run.look(1.0).rows_in == 0


def test_a_run_that_ends_before_any_report_is_observed(run: Profiled):
    seen = run.look(0.5)
    assert (seen.rows_in, seen.rows_out, seen.memory_bytes) == (0, 0, None)
    assert region(seen) == RegionMetrics("count", 2, 0.0, replica_busy=(0.0, 0.0))


def test_the_last_look_shows_what_processes_report_when_they_end(run: Profiled):
    run.one.work(FIRST, "count", 10, 5, cpu_s=0.1)
    run.one.report()
    run.look(1.0)
    run.one.work(FIRST, "count", 1, 9, cpu_s=0.05)  # the end of its input
    run.one.report(counters={FIRST: {"count": Counters(late=2)}}, written={"out": 14})
    last = run.look(1.1, written=run.profiler.rows_written({}))
    assert last.step("count") == StepMetrics("count", 1, 9, pytest.approx(0.05), late=2)
    assert (last.rows_out, last.times.total_s) == (14, pytest.approx(0.1))


def test_a_session_that_follows_another_one_goes_on_with_its_looks(run: Profiled):
    run.look(3.0)
    following = Profiled(run.coordinator.layout.topology.flow, run.plan)
    following.profiler.follow(run.profiler)
    seen = following.look(4.0)
    assert (seen.batch, seen.times.total_s) == (1, pytest.approx(1.0))


# --- pipelines and replicas ---------------------------------------------------------------------


def test_a_pipeline_is_as_busy_as_its_replicas_on_average(run: Profiled):
    run.one.work(FIRST, "count", 1, 1, cpu_s=0.5, around_s=0.1)
    run.two.work(SECOND, "count", 1, 1, cpu_s=0.1, around_s=0.1)
    run.one.report()
    run.two.report()
    seen = pipeline(run.look(1.0), "one", "two", "count")
    assert (seen.busy_share, seen.overhead_share, seen.waiting_share) == pytest.approx(
        (0.4, 0.1, 0.0)
    )


def test_the_work_of_each_pipeline_of_a_replica_is_its_own(run: Profiled):
    run.plan = run.plan.with_pipelines("count", 1, 2)
    run.one.work(FIRST, "one", 1, 1, cpu_s=0.2)
    run.two.work(FIRST._replace(pipeline=1), "count", 1, 1, cpu_s=0.6, around_s=0.2)
    run.one.report()
    run.two.report()
    seen = run.look(1.0)
    upstream, downstream = pipeline(seen, "one"), pipeline(seen, "two", "count")
    assert (upstream.busy_share, upstream.overhead_share) == pytest.approx((0.1, 0.0))
    assert (downstream.busy_share, downstream.overhead_share) == pytest.approx((0.4, 0.1))


def test_a_replica_is_as_busy_as_its_busiest_unit(run: Profiled):
    run.plan = run.plan.with_pipelines("count", 1, 2)
    for replica, spent in ((FIRST, (0.2, 0.5)), (SECOND, (0.1, 0.0))):
        for number, (step, cpu_s) in enumerate(zip(("one", "two"), spent, strict=True)):
            run.one.work(replica._replace(pipeline=number), step, 1, 1, cpu_s=cpu_s)
    run.one.report()
    assert region(run.look(1.0)).replica_busy == pytest.approx((0.5, 0.1))


def test_a_unit_that_moves_to_another_process_is_counted_in_both(run: Profiled):
    run.one.work(FIRST, "count", 10, 5, cpu_s=0.2)
    run.one.report()
    run.look(1.0)
    run.one.work(FIRST, "count", 3, 3, cpu_s=0.1)  # then it leaves
    run.two.work(FIRST, "count", 4, 4, cpu_s=0.3)
    for process in (run.one, run.two):
        process.report()
    moved = run.look(2.0)
    run.two.work(FIRST, "count", 6, 6, cpu_s=0.5)
    for process in (run.one, run.two):
        process.report()
    after = run.look(3.0)
    assert moved.step("count") == StepMetrics("count", 7, 7, pytest.approx(0.4))
    assert region(moved).replica_busy == pytest.approx((0.4, 0.0))
    assert after.step("count") == StepMetrics("count", 6, 6, pytest.approx(0.5))


@pytest.fixture
def sharing() -> Profiled:
    @shared(out="k: int64", buckets=4)
    def own(batch: Any, bucket: Any) -> Any:
        return {"k": []}, []

    flow = Flow("sharing", buckets=4)
    flow.source("rows", memory([{"k": 1}])).apply("own", own).sink("out", collect())
    return Profiled(flow, Plan.sequential(flow).with_replicas("own", 2))


def test_a_tuple_that_every_replica_of_a_shared_region_gets_is_one_tuple(sharing: Profiled):
    sharing.one.work(UnitId("own", 0), "own", 10, 3, cpu_s=0.1)
    sharing.two.work(UnitId("own", 1), "own", 10, 2, cpu_s=0.2)
    sharing.one.report()
    sharing.two.report()
    seen = sharing.look(1.0)
    assert seen.step("own") == StepMetrics("own", 10, 5, pytest.approx(0.3))
    assert region(seen, "own").rows_per_s == pytest.approx(10.0)


def test_a_shared_replica_that_moves_counts_what_it_got_in_both_processes(sharing: Profiled):
    sharing.one.work(UnitId("own", 0), "own", 10)
    sharing.two.work(UnitId("own", 0), "own", 6)
    sharing.two.work(UnitId("own", 1), "own", 9)  # it is behind
    sharing.one.report()
    sharing.two.report()
    assert sharing.look(1.0).step("own").rows_in == 16


def test_replicas_of_a_shared_region_that_overtake_each_other_count_each_tuple_once(
    sharing: Profiled,
):
    counted = 0
    for at_s, first, second in ((1.0, 10, 12), (2.0, 12, 10)):
        sharing.one.work(UnitId("own", 0), "own", first)
        sharing.two.work(UnitId("own", 1), "own", second)
        sharing.one.report()
        sharing.two.report()
        counted += sharing.look(at_s).step("own").rows_in
    assert counted == 22


# --- waiting ------------------------------------------------------------------------------------


def test_a_step_that_waits_for_a_service_is_busy_and_takes_no_processor(run: Profiled):
    run.one.work(FIRST, "count", 10, 10, cpu_s=0.1, idle_s=0.8)
    run.two.process_s = 0.4  # a fifth of two cores: 0.025 s until it is the other's turn
    run.one.report()
    run.two.report()
    seen = run.look(1.0)
    shares = pipeline(seen, "one", "two", "count")
    assert seen.step("count").waited_s == pytest.approx(0.775)
    assert seen.step("count").busy_s == pytest.approx(0.875)
    assert (shares.busy_share, shares.waiting_share) == pytest.approx((0.4375, 0.3875))
    assert shares.overhead_share == pytest.approx(0.0)
    assert region(seen).replica_busy == pytest.approx((0.875, 0.0))
    assert seen.times.compute_s == pytest.approx(0.1)


def test_a_step_that_waits_for_its_turn_alone_does_not_wait(run: Profiled):
    run.one.work(FIRST, "count", 10, 10, cpu_s=0.3, idle_s=0.7)
    run.two.process_s = 2.0
    run.one.report()
    run.two.report()
    seen = run.look(1.0).step("count")
    assert (seen.busy_s, seen.waited_s) == pytest.approx((0.3, 0.0))


def test_what_a_process_waits_for_its_turn_is_spread_over_its_steps(run: Profiled):
    run.one.work(FIRST, "one", 1, 1, cpu_s=0.1, idle_s=0.2)
    run.one.work(SECOND, "two", 1, 1, cpu_s=0.1, idle_s=0.6)
    run.two.process_s = 1.0  # half of two cores: 0.2 s of the 0.8 are for its turn
    run.one.report()
    run.two.report()
    seen = run.look(1.0)
    assert [seen.step(name).waited_s for name in ("one", "two")] == pytest.approx([0.15, 0.45])


def test_what_others_worked_before_the_last_look_makes_nobody_wait(run: Profiled):
    run.two.process_s = 2.0
    run.two.report()
    run.look(1.0)
    run.one.work(FIRST, "count", 1, 1, cpu_s=0.1, idle_s=0.5)
    run.one.report()
    run.two.report()
    assert run.look(2.0).step("count").waited_s == pytest.approx(0.5)


def test_a_reader_that_waits_is_not_busy(run: Profiled):
    run.one.work(READERS[0], "rows", 0, 10, cpu_s=0.1, idle_s=0.8)
    run.one.report()
    assert run.look(1.0).sources[0].busy_share == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("own_s", "others_s", "waited_s"),
    [(0.5, 0.0, 0.0), (0.5, 1.0, 0.5), (0.01, 1.0, 0.01), (1.0, 0.5, 1 / 3), (0.25, 3.0, 3.0)],
)
def test_a_process_waits_for_its_turn_as_others_take_processors(
    own_s: float, others_s: float, waited_s: float
):
    assert turns_s(own_s, others_s, 1.0) == pytest.approx(waited_s)


# --- regions ------------------------------------------------------------------------------------


def test_queues_are_averaged_over_the_reports_of_a_process(run: Profiled):
    for queue in ((2, 20), (4, 60)):
        run.one.report(queues={FIRST: queue})
    first, second = region(run.look(1.0)), region(run.look(2.0))
    assert (first.queue_jumbos, first.queue_rows) == (3.0, 40.0)
    assert (second.queue_jumbos, second.queue_rows) == (0.0, 0.0)


def test_the_queues_of_all_replicas_wait_in_front_of_their_region(run: Profiled):
    run.one.report(queues={FIRST: (1, 10), SECOND: (2, 20)})
    run.one.report(queues={FIRST: (3, 30), SECOND: (4, 40)})
    run.two.report(queues={UnitId("count", 2): (5, 50)})
    seen = region(run.look(1.0))
    assert (seen.queue_jumbos, seen.queue_rows) == (10.0, 100.0)


def test_a_queue_between_pipelines_is_not_in_front_of_the_region(run: Profiled):
    run.one.report(queues={FIRST: (1, 10), FIRST._replace(pipeline=1): (7, 70)})
    assert region(run.look(1.0)).queue_jumbos == 1.0


def test_a_look_shows_what_came_to_each_bucket_since_the_last_one(run: Profiled):
    hot, other = OftenKey(1, "k 7", 30, 30.0), OftenKey(2, "k 8", 10, 10.0)
    run.one.report(loads={"count": Loads((0, 20, 5, 0), 30.0, (hot,))})
    run.one.report(loads={"count": Loads()})
    run.two.report(loads={"count": Loads((0, 10, 5, 0), 10.0, (other,))})
    first, second = region(run.look(1.0)), region(run.look(2.0))
    assert first.bucket_rows == (0, 30, 10, 0)
    assert first.hottest_key == HotKey("k 7", 0.75)
    assert (second.bucket_rows, second.hottest_key) == ((), None)


# --- sources ------------------------------------------------------------------------------------


def test_a_source_is_as_busy_as_its_readers_on_average(run: Profiled):
    run.plan = run.plan.with_source("rows", replicas=2)
    for process, reader, cpu_s in zip((run.one, run.two), READERS, (0.7, 0.1), strict=True):
        process.work(reader, "rows", 0, 10, cpu_s=cpu_s, around_s=0.1)
        process.report()
    seen = run.look(1.0)
    (source,) = seen.sources
    assert (source.rows, source.rate_per_s, source.busy_share) == pytest.approx((20, 20.0, 0.5))
    assert (seen.rows_in, seen.times.scan_s) == (20, pytest.approx(0.8))
    run.two.work(READERS[1], "rows", 0, 10, cpu_s=0.4)
    run.two.report()
    assert run.look(3.0).sources[0].busy_share == pytest.approx(0.1)


def test_the_backlog_of_a_source_is_what_was_not_given_out(run: Profiled):
    unknown = run.look(1.0).sources[0].backlog_rows
    run.coordinator.receive(Surveyed(READERS[0], {"memory": Extent(ROWS, exact=True)}), 0.0)
    assert (unknown, run.look(2.0).sources[0].backlog_rows) == (None, ROWS)


def test_the_lag_of_a_source_is_that_of_its_last_rows(run: Profiled):
    run.coordinator.receive(Surveyed(READERS[0], {"memory": Extent(ROWS, exact=True)}), 0.0)
    run.coordinator.tick(0.0)
    claims = [given for _, given in run.coordinator.take_outbox() if isinstance(given, Claim)]
    unknown = run.look(1.0).sources[0].lag_ms
    report = Finished(READERS[0], claims[0].number, 10, part_over=False, waited_ms=25.0)
    run.coordinator.receive(report, 0.0)
    assert (unknown, run.look(2.0).sources[0].lag_ms) == (None, 25.0)


# --- counters, keys, memory, sinks --------------------------------------------------------------


def test_counters_are_those_of_ended_epochs_and_of_the_one_under_way(run: Profiled):
    run.coordinator.counters["count"].add(Counters(late=5))
    run.one.report(counters={FIRST: {"count": Counters(late=2, most_behind=7)}})
    run.two.report(counters={SECOND: {"count": Counters(late=1, most_behind=9)}})
    seen = run.look(1.0).step("count")
    assert (seen.late, seen.most_behind) == (8, 9)


def test_an_epoch_that_ends_is_not_counted_twice(run: Profiled):
    run.one.report(counters={FIRST: {"count": Counters(late=2)}})
    before = run.look(1.0)
    run.end_epoch(FIRST, {"count": Counters(late=3)})
    ended = run.look(2.0)
    run.one.report(counters={FIRST: {"count": Counters(late=1)}})
    after = run.look(3.0)
    assert [seen.step("count").late for seen in (before, ended, after)] == [2, 3, 4]


def test_the_counters_of_a_unit_that_moves_are_not_counted_twice(run: Profiled):
    run.one.report(counters={FIRST: {"count": Counters(late=2)}})
    run.end_epoch(FIRST, {"count": Counters(late=2)})
    run.one.report()
    run.two.report(counters={FIRST: {"count": Counters(late=1)}})
    assert run.look(1.0).step("count").late == 3


def test_the_first_skipped_row_is_the_first_of_all_processes(run: Profiled):
    for process, unit, row in ((run.one, FIRST, 8), (run.two, SECOND, 3)):
        skipped = Counters(skipped=1, first=SkippedAt(0, row, "bad", f"k {row}"))
        process.report(counters={unit: {"one": skipped}})
    seen = run.look(1.0).step("one")
    assert seen.skipped == 2
    assert seen.first_skipped == SkippedRow("rows", "memory", 4, "bad", "k 3")


def test_keys_are_those_that_all_units_hold_now(run: Profiled):
    run.one.report(keys={FIRST: {"count": 3}})
    run.two.report(keys={SECOND: {"count": 4}})
    first = run.look(1.0)
    run.one.report()  # the unit has left
    run.two.report(keys={SECOND: {"count": 7}})
    assert [seen.step("count").keys for seen in (first, run.look(2.0))] == [7, 7]
    assert first.step("one").keys is None


def test_the_memory_of_all_processes_is_summed(run: Profiled):
    unknown = run.look(1.0).memory_bytes
    for process, memory_bytes in ((run.home, 100), (run.one, 20), (run.two, 3)):
        process.report(memory_bytes=memory_bytes)
    whole = run.look(2.0).memory_bytes
    run.one.report()  # memory is read less often than the rest
    run.two.report(memory_bytes=5)
    assert (unknown, whole, run.look(3.0).memory_bytes) == (None, 123, 125)


def test_rows_written_are_those_of_all_processes_and_those_at_home_as_of_now(run: Profiled):
    run.home.report(written={"out": 10})
    run.one.report(written={"out": 3})
    run.two.report(written={"out": 4})
    assert run.profiler.rows_written({"out": 12}) == 19


def test_processor_seconds_are_told_apart_by_kind_of_work(run: Profiled):
    run.one.work(READERS[0], "rows", 0, 1, cpu_s=0.1)
    run.one.work(FIRST, "one", 1, 1, cpu_s=0.2)
    run.one.work(FIRST, "count", 1, 1, cpu_s=0.3)
    run.home.work(UnitId("out", 0), "out", 1, 1, cpu_s=0.05)
    run.one.report()
    run.home.report()
    times = run.look(2.0).times
    assert (times.total_s, times.scan_s, times.compute_s, times.sink_s) == pytest.approx(
        (2.0, 0.1, 0.5, 0.05)
    )


def test_latencies_are_those_since_the_last_look(run: Profiled):
    run.latencies.note([(2.0, 90)])
    first = run.look(1.0)
    run.latencies.note([(50.0, 90)])
    second = run.look(2.0)
    found = [(seen.latency_p50_ms, seen.latency_p99_ms) for seen in (first, second)]
    assert found == [pytest.approx((2.0, 2.0), rel=0.1), pytest.approx((50.0, 50.0), rel=0.1)]
