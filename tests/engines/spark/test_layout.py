"""Which regions share a task, and which stage each of them runs in."""

from __future__ import annotations

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.engines.spark.dataframes import dataframe_sources
from anabranch.engines.spark.layout import StageLayout, layout, with_ranges
from anabranch.engines.spark.task_inputs import Program
from anabranch.errors import BuildError
from anabranch.flow import Flow
from anabranch.io.source import Chunk, Source
from anabranch.planning.plan import Plan
from anabranch.planning.regions import needs_order, regions

ROWS = ab.memory([{"k": 1, "v": 1}])


class Pushed(Source):
    """Stands for a streaming DataFrame: its rows come by themselves."""

    pushed, bounded, order = True, False, "v"
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])

    def parts(self) -> tuple[str, ...]:
        return ("pushed",)

    def read(self, part: str, start: int, rows: int) -> Chunk | None:
        raise AssertionError("nobody reads it")


def chain(source: object = ROWS, order: str = "total") -> Flow:
    """s → scale → count → out."""
    flow = Flow("chain", buckets=8, order=order)
    flow.source("s", source).map("scale", lambda b: {"v": b["v"]}, out="k: int64, v: int64").apply(
        "count", counted
    ).sink("out", ab.collect())
    return flow


@ab.partitioned(key="k", out="k: int64, n: int64")
def counted(ctx):
    for _ in ctx.tuples():
        ctx.emit(n=1)


def where(found: StageLayout) -> dict[str, tuple[int, int, int]]:
    """Stage, first task and replicas of each region."""
    return {n: (s.stage, s.first_task, s.replicas) for n, s in found.stations.items()}


def joined(found: StageLayout) -> set[str]:
    return {name for name, station in found.stations.items() if station.joined}


def test_rows_that_are_read_side_by_side_are_written_in_the_tasks_that_read_them():
    flow = Flow("copied")
    flow.source("s", ROWS).map("m", lambda b: b, keeps="*").sink("out", ab.collect())
    plan = Plan.sequential(flow).with_source("s", replicas=3)
    plan = plan.with_replicas("m", 3).with_replicas("out", 3)
    found = layout(flow, plan)
    assert found.tasks == (3,)
    assert joined(found) == {"m", "out"}
    assert layout(flow, plan.with_replicas("out", 2)).tasks == (3, 2)


def test_a_sink_at_which_tuples_wait_is_a_stage_of_its_own():
    flow = Flow("copied")
    flow.source("s", ROWS).sink("out", ab.collect())
    plan = Plan.sequential(flow).with_source("s", replicas=2).with_replicas("out", 2)
    assert layout(flow, plan).tasks == (2,)
    assert layout(flow, plan, {"s"}).tasks == (2,)
    assert layout(flow, plan, {"out"}).tasks == (2, 2)
    assert layout(flow, Plan.sequential(flow), {"out"}).tasks == (1,)


@pytest.mark.parametrize(("rows", "limit", "size"), [(100_000, None, 16_384), (100_000, 7, 1)])
def test_each_batch_has_ranges_for_every_replica_of_a_sink(rows, limit, size):
    flow = chain()
    plan = Plan.sequential(flow).with_source("s", batch_rows=rows, in_flight_limit=limit)
    ranged = with_ranges(flow, plan.with_replicas("out", 3))
    assert ranged == plan.with_replicas("out", 3).with_range_rows("out", size)
    assert with_ranges(flow, ranged) == ranged


def merged() -> Flow:
    flow = Flow("merged")
    flow.source("s", ROWS).union("both", flow.source("t", ROWS)).sink("out", ab.collect())
    return flow


def test_ranges_divide_what_all_sources_of_a_batch_have_passed():
    flow = merged()
    plan = Plan.sequential(flow).with_source("s", batch_rows=100_000)
    plan = plan.with_source("t", batch_rows=1_000).with_replicas("out", 2)
    assert with_ranges(flow, plan).region("out").range_rows == 128


@pytest.mark.parametrize("readers", [1, 2])
def test_replicas_of_a_sink_of_several_sources_do_not_write_where_these_are_read(readers):
    flow = merged()
    plan = Plan.sequential(flow).with_replicas("both", readers).with_replicas("out", 2)
    for source in ("s", "t"):
        plan = plan.with_source(source, replicas=readers)
    assert "out" not in joined(layout(flow, plan))


def test_sinks_that_are_no_stage_of_their_own_keep_their_ranges():
    flow = Flow("copied")
    flow.source("s", ROWS).sink("out", ab.collect())
    once = Plan.sequential(flow).with_source("s", batch_rows=100)
    for plan in (once, once.with_source("s", replicas=2).with_replicas("out", 2)):
        assert with_ranges(flow, plan) == plan


def test_a_plan_with_one_replica_of_everything_is_one_task_without_a_shuffle():
    flow = chain()
    found = layout(flow, Plan.sequential(flow))
    assert found.tasks == (1,)
    assert joined(found) == {"scale", "count", "out"}
    assert all(link.local for link in found.links)


def test_replicas_of_a_keyed_region_stand_behind_a_shuffle_and_the_ordered_sink_behind_another():
    flow = chain()
    found = layout(flow, Plan.sequential(flow).with_replicas("count", 3))
    assert found.tasks == (1, 3, 1)
    assert joined(found) == {"scale"}
    assert where(found)["out"] == (2, 0, 1)


def test_a_sink_that_need_not_restore_order_writes_in_the_tasks_that_made_the_rows():
    flow = chain(order="key")
    found = layout(flow, Plan.sequential(flow).with_replicas("count", 3))
    assert found.tasks == (1, 3)
    assert joined(found) == {"scale", "out"}


@pytest.mark.parametrize(("readers", "replicas", "same_task"), [(2, 2, True), (2, 3, False)])
def test_stateless_replicas_join_as_many_readers(readers, replicas, same_task):
    flow = chain()
    plan = Plan.sequential(flow).with_source("s", replicas=readers)
    found = layout(flow, plan.with_replicas("scale", replicas))
    assert ("scale" in joined(found)) is same_task
    assert found.stations["scale"].sliced is same_task


def test_a_changelog_needs_no_order_in_front_of_its_sink():
    flow = Flow("changes", buckets=8)
    flow.source("s", ROWS).aggregate("count", key="k", n=ab.count(), emit="changes").sink(
        "out", ab.collect()
    )
    [sink] = [region for region in regions(flow) if region.name == "out"]
    assert not needs_order(flow, sink)
    found = layout(flow, Plan.sequential(flow).with_replicas("count", 2))
    assert "out" in joined(found)


def test_a_join_of_a_short_and_a_long_way_waits_for_the_long_one():
    flow = tee()
    found = layout(flow, Plan.sequential(flow).with_replicas("count", 2).with_replicas("both", 3))
    stages = {name: stage for name, (stage, _, _) in where(found).items()}
    assert stages == {"s": 0, "count": 1, "both": 2, "out": 3}
    short = next(link for link in found.into("both") if link.producer == "s")
    assert found.stations["both"].stage - found.stations[short.producer].stage > 1


def tee() -> Flow:
    """s → both, and s → count → both; both → out."""
    flow = Flow("tee", buckets=8)
    rows = flow.source("s", ROWS)
    long_way = rows.apply("count", counted).map(
        "back", lambda b: {"v": b["n"]}, out="k: int64, v: int64"
    )
    rows.union("both", long_way).sink("out", ab.collect())
    return flow


def test_a_region_that_joins_one_of_its_producers_gets_the_rest_from_earlier_stages():
    flow = tee()
    found = layout(flow, Plan.sequential(flow).with_replicas("count", 2).with_replicas("both", 2))
    assert where(found)["both"] == where(found)["count"] == (1, 0, 2)
    assert {link.producer: link.local for link in found.into("both")} == {"s": False, "count": True}
    assert "both" not in joined(found)


def test_regions_of_one_stage_have_tasks_of_their_own():
    flow = Flow("two", buckets=8)
    rows = flow.source("s", ROWS)
    rows.apply("left", counted).sink("a", ab.collect())
    rows.apply("right", counted).sink("b", ab.collect())
    plan = Plan.sequential(flow).with_replicas("left", 2).with_replicas("right", 3)
    found = layout(flow, plan)
    assert found.tasks == (1, 5, 2)
    tasks = [found.hosted(1, task) for task in range(5)]
    assert [(s.region.name, replica) for [(s, replica)] in tasks] == [
        ("left", 0),
        ("left", 1),
        ("right", 0),
        ("right", 1),
        ("right", 2),
    ]
    assert found.hosted(1, 5) == []


def three(**replicas: int) -> tuple[Flow, Plan]:
    """s → a, s → b and s → c: keyed regions of one stage."""
    flow = Flow("three", buckets=8, order="key")
    rows = flow.source("s", ROWS)
    for name in "abc":
        rows.apply(name, counted).sink(f"out-{name}", ab.collect())
    return flow, wide(flow, **replicas)


@pytest.mark.parametrize(
    ("slots", "first_tasks"),
    [(None, [0, 2, 4]), (6, [0, 2, 4]), (5, [0, 2, 0]), (4, [0, 2, 0]), (2, [0, 0, 0])],
)
def test_regions_share_tasks_where_those_would_wait_for_each_other(slots, first_tasks):
    found = layout(*three(a=2, b=2, c=2), slots=slots)
    assert [found.stations[name].first_task for name in "abc"] == first_tasks
    assert found.tasks == (1, max(first_tasks) + 2)
    assert not any(link.local for link in found.links if link.producer == "s")


def test_regions_of_fewer_replicas_share_the_tasks_of_one_with_more():
    found = layout(*three(a=3, b=2, c=2), slots=2)
    assert [where(found)[name] for name in "abc"] == [(1, 0, 3), (1, 0, 2), (1, 0, 2)]
    hosted = [[(s.region.name, n) for s, n in found.hosted(1, task)] for task in range(3)]
    assert hosted[0] == [(name, 0) for name in ("a", "out-a", "b", "out-b", "c", "out-c")]
    assert hosted[2] == [("a", 2), ("out-a", 2)]


def test_a_region_joins_all_of_its_producers_where_they_share_a_task():
    flow = tee()
    found = layout(flow, Plan.sequential(flow))
    assert found.tasks == (1,)
    assert [station.region.name for station, _ in found.hosted(0, 0)] == [
        "s",
        "count",
        "both",
        "out",
    ]


def diamond(readers: int) -> tuple[Flow, Plan]:
    """s → left → both and s → right → both; both → out: all of it as wide as there are readers."""
    flow = Flow("diamond")
    rows = flow.source("s", ROWS)
    left = rows.map("left", lambda b: {}, keeps="*")
    left.union("both", rows.map("right", lambda b: {}, keeps="*")).sink("out", ab.collect())
    plan = Plan.sequential(flow).with_source("s", replicas=readers)
    for name in ("left", "right", "both", "out"):
        plan = plan.with_replicas(name, readers)
    return flow, plan


def test_two_ways_of_the_rows_of_one_source_meet_in_the_tasks_that_read_them():
    assert layout(*diamond(3)).tasks == (3,)


def two_sources(readers: int) -> tuple[Flow, Plan]:
    """a and b → both → out."""
    flow = Flow("two", buckets=8)
    flow.source("a", ROWS).union("both", flow.source("b", ROWS)).sink("out", ab.collect())
    plan = Plan.sequential(flow).with_source("a", replicas=readers)
    return flow, plan.with_source("b", replicas=readers).with_replicas("both", readers)


def test_sources_that_one_task_reads_whole_meet_in_it():
    assert layout(*two_sources(1)).tasks == (1,)


def test_slices_of_two_sources_meet_behind_a_shuffle():
    """No task knows how far the other slices of both sources come."""
    found = layout(*two_sources(2))
    assert where(found) == {"a": (0, 0, 2), "b": (0, 2, 2), "both": (1, 0, 2), "out": (2, 0, 1)}


def two_keyed(keeps: str = "") -> Flow:
    """s → one → both and s → other → both; both → last: `one` and `last` are keyed by k."""
    flow = Flow("keyed", buckets=8)
    rows = flow.source("s", ROWS)
    names = ("n",) if keeps else ("k", "n")
    made = ", ".join(f"{name}: int64" for name in names)
    other = rows.map("other", lambda b: dict.fromkeys(names, b["k"]), out=made, keeps=keeps or ())
    both = rows.apply("one", counted).union("both", other)
    both.apply("last", counted).sink("out", ab.collect())
    return flow


def wide(flow: Flow, **replicas: int) -> Plan:
    plan = Plan.sequential(flow)
    for name, number in replicas.items():
        plan = plan.with_replicas(name, number)
    return plan


def test_a_region_of_the_same_key_and_buckets_runs_where_its_tuples_are_dealt_out_already():
    """Rows of `other` could be worked on anywhere: they are dealt out by the key of `last`."""
    flow = two_keyed(keeps="k")
    found = layout(flow, wide(flow, one=2, other=2, last=2))
    assert found.tasks == (1, 2, 1)
    assert {where(found)[name] for name in ("one", "other", "last")} == {(1, 0, 2)}
    dealt = {link.consumer: found.dealt_for(link).name for link in found.links if not link.local}
    assert dealt == {"one": "one", "other": "last", "out": "out"}


def test_a_key_that_is_not_carried_is_dealt_out_anew():
    flow = two_keyed()
    found = layout(flow, wide(flow, one=2, other=2, last=2))
    assert found.tasks == (1, 4, 2, 1)
    assert found.dealt_for(found.into("other")[0]).name == "other"


def test_other_owners_of_the_buckets_are_dealt_out_anew():
    flow = two_keyed(keeps="k")
    plan = wide(flow, one=2, other=2, last=2)
    swapped = tuple(1 - owner for owner in plan.region("last").bucket_map)
    assert layout(flow, plan.with_bucket_map("last", swapped)).tasks == (1, 4, 2, 1)


def test_another_number_of_replicas_is_dealt_out_anew():
    flow = two_keyed(keeps="k")
    assert layout(flow, wide(flow, one=2, other=2, last=3)).tasks == (1, 4, 3, 1)


def test_what_only_combines_before_a_deal_runs_where_the_rows_are():
    flow = Flow("combined", buckets=8)
    timed = flow.source("s", ROWS).timed("clock", "v")
    timed.aggregate("sum", key="k", window=ab.tumbling(10), n=ab.count()).sink("out", ab.collect())
    plan = wide(flow, **{"sum.combine": 2, "sum": 2})
    found = layout(flow, plan)
    assert found.tasks == (1, 2, 1)
    assert "sum.combine" in joined(found)


def clocked(source: object = ROWS) -> Flow:
    """s → kept → clock → count → out, and what is late → late."""
    flow = Flow("clocked", buckets=8)
    kept = flow.source("s", source).filter("kept", lambda batch: [True] * len(batch["k"]))
    clock = kept.timed("clock", "v")
    clock.late.sink("late", ab.collect())
    clock.apply("count", counted).sink("out", ab.collect())
    return flow


def read_by_four(flow: Flow, **replicas: int) -> Plan:
    return wide(flow, kept=4, **replicas).with_source("s", replicas=4)


def test_a_clock_with_several_replicas_is_judged_in_the_tasks_of_its_readers():
    flow = clocked()
    found = layout(flow, read_by_four(flow, clock=2, count=3, late=4))
    assert found.tasks == (4, 3, 1)
    assert joined(found) == {"kept", "clock", "late"}
    assert found.stations["clock"].judges_slices
    assert found.stations["clock"].sliced  # the furthest task says how far event time has come


@pytest.mark.parametrize("late", [1, 2])
def test_late_rows_of_several_tasks_are_dealt_out_to_another_number_of_sinks(late):
    flow = clocked()
    found = layout(flow, read_by_four(flow, clock=4, late=late))
    assert where(found)["late"][2] == late
    assert "late" not in joined(found)


class Interleaved(Pushed):
    """Stands for several streams that are read side by side."""

    pushed, interleaved, order = False, True, "arrival"


def test_a_clock_has_one_task_where_no_task_can_judge_alone():
    flow = clocked()
    plan = read_by_four(flow, clock=4)
    one_reader = wide(flow, clock=4)
    elsewhere = plan.with_replicas("kept", 2)
    interleaved = clocked(Interleaved())
    for found in (
        layout(flow, plan, serial_clocks=True),
        layout(flow, plan, waiting={"clock"}),
        layout(flow, plan.with_replicas("clock", 1)),
        layout(flow, one_reader),
        layout(flow, elsewhere),
        layout(interleaved, read_by_four(interleaved, clock=4)),
    ):
        assert found.stations["clock"].replicas == 1
        assert found.clocks_in_slices() == []


def test_sources_are_side_by_side_in_the_first_stage():
    flow = Flow("two", buckets=8)
    flow.source("a", ROWS).union("both", flow.source("b", ROWS)).sink("out", ab.collect())
    plan = Plan.sequential(flow).with_source("a", replicas=2)
    found = layout(flow, plan)
    assert where(found) == {"a": (0, 0, 2), "b": (0, 2, 1), "both": (1, 0, 1), "out": (1, 0, 1)}
    assert "out" in joined(found)


def test_a_pushed_source_is_one_task_that_speaks_for_it_whatever_the_plan_says():
    flow = chain(Pushed())
    plan = Plan.sequential(flow).with_source("s", replicas=4)
    found = layout(flow, plan)
    assert found.stations["s"].pushed
    assert found.tasks[0] == 1


def test_behind_a_pushed_source_stateless_work_is_done_where_the_rows_are_and_state_is_not():
    flow = chain(Pushed())
    found = layout(flow, Plan.sequential(flow))
    assert "scale" in joined(found)
    assert "count" not in joined(found)
    assert found.tasks == (1, 1)


def test_links_are_numbered_as_the_flow_numbers_them_whatever_the_plan():
    flow = chain()
    plans = [Plan.sequential(flow), Plan.sequential(flow).with_replicas("count", 3)]
    ends = [
        [(link.number, link.producer, link.consumer) for link in layout(flow, plan).links]
        for plan in plans
    ]
    assert ends[0] == ends[1]
    assert [number for number, _, _ in ends[0]] == [0, 1, 2]


def test_spark_brings_the_rows_of_dataframes_alone():
    program = Program(chain(Pushed()), "", "")
    with pytest.raises(BuildError, match=r"step 's'.*a streaming DataFrame.*Pushed"):
        dataframe_sources(program)
