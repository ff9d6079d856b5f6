"""A plan's stages and tasks with their work, against sums worked out by hand."""

from dataclasses import replace

import pytest

from anabranch.apps import word_count
from anabranch.engines.measuring.busy_flows import busy_flow
from anabranch.engines.spark.layout import layout
from anabranch.engines.spark.model import SparkModel, predicted_batch_s, stages_of
from anabranch.flow import Flow
from anabranch.graph import StateKind
from anabranch.io import collect, memory, parquet
from anabranch.planning.models.spark import Slots, SparkCosts
from anabranch.planning.plan import Plan
from anabranch.planning.profile import OperatorProfile, Profile, StreamProfile, chain

FREE = SparkCosts(0.0)


def keyed_flow():
    made = chain(
        [
            OperatorProfile("clean", 1.0),
            OperatorProfile("count", 1.0, state=StateKind.PARTITIONED, key=("user",)),
        ]
    )
    return busy_flow(made, rows=None, multiplication_ns=1.0)


def profile(count_cost=4.0, keys=100):
    """Source, operators, sink; microseconds."""
    operators = [
        OperatorProfile("source", 0.5, tuple_bytes=16),
        OperatorProfile("clean", 2.0, 0.5, tuple_bytes=16),
        OperatorProfile(
            "count",
            count_cost,
            state=StateKind.PARTITIONED,
            key=("user",),
            tuple_bytes=16,
            keys=keys,
        ),
        OperatorProfile("sink", 0.1, 0.0, StateKind.STATEFUL, tuple_bytes=16),
    ]
    return chain(operators, unit="us")


def test_one_replica_of_everything_is_one_task():
    flow = keyed_flow()
    [[task]] = stages_of(flow, Plan.sequential(flow), profile(), FREE, rows=1_000_000)
    # 0.5 s to read, 2 s to clean, half of the tuples counted and written.
    assert task.work_s == pytest.approx(0.5 + 2 + 2 + 0.05)
    assert task.shuffled_rows == 0


def test_replicas_share_work_and_are_fed_by_a_shuffle():
    flow = keyed_flow()
    plan = Plan.sequential(flow).with_replicas("count", 2)
    readers, counters, sink = stages_of(flow, plan, profile(), FREE, rows=1_000_000)
    assert [round(t.work_s, 6) for t in readers] == [0.5]
    assert [round(t.work_s, 6) for t in counters] == [2.0, 2.0]
    assert [t.shuffled_rows for t in counters] == [500_000, 500_000]
    assert [t.shuffled_rows for t in sink] == [500_000]


def test_a_replica_works_for_the_buckets_it_owns():
    flow = keyed_flow()
    plan = Plan.sequential(flow).with_replicas("count", 2)
    plan = plan.with_bucket_map("count", (0,) * 64 + (1,) * 192)
    _, counters, _ = stages_of(flow, plan, profile(), FREE, rows=1_000_000)
    assert [round(t.work_s, 6) for t in counters] == [1.0, 3.0]


def written(sink_cost):
    """The same flow, whose sink takes longer than anything else."""
    costs = profile()
    operators = (*costs.operators[:-1], replace(costs.operators[-1], cost=sink_cost))
    return replace(costs, operators=operators)


@pytest.mark.parametrize(
    ("range_rows", "shares"), [(1 << 18, [1.0, 0.0]), (1 << 15, [0.5, 0.5]), (1 << 16, [1.0, 0.0])]
)
def test_replicas_of_a_sink_work_on_the_ranges_of_a_batch(range_rows, shares):
    flow = keyed_flow()
    plan = Plan.sequential(flow).with_replicas("sink", 2).with_range_rows("sink", range_rows)
    *_, sink = stages_of(flow, plan, written(2.0), FREE, rows=1 << 16)
    assert [t.work_s for t in sink] == pytest.approx([2.0 * (1 << 15) / 1e6 * s for s in shares])


def test_a_batch_has_the_ranges_that_all_sources_have_passed():
    flow = Flow("merged")
    slow = flow.source("slow", memory([{"n": 1}]))
    slow.union("both", flow.source("fast", memory([{"n": 1}]))).sink("sink", collect())
    plan = Plan.sequential(flow).with_replicas("sink", 2).with_range_rows("sink", 1024)
    operators = [
        OperatorProfile("slow", 0.0, rate=0.01),
        OperatorProfile("fast", 0.0, rate=0.99),
        OperatorProfile("both", 0.0),
        OperatorProfile("sink", 1.0),
    ]
    streams = [("slow", "both"), ("fast", "both"), ("both", "sink")]
    known = Profile(
        tuple(operators), tuple(StreamProfile(*each, 1.0) for each in streams), unit="us"
    )
    *_, sink = stages_of(flow, plan, known, FREE, rows=100_000)
    assert [t.work_s for t in sink] == pytest.approx([0.1, 0.0])


def test_a_plan_that_gives_a_sink_several_replicas_gives_each_of_them_work():
    flow = keyed_flow()
    plan = Plan.sequential(flow)
    best = SparkModel(flow, Slots(2)).best(written(20.0), plan)
    sink, rows = best.region("sink"), best.source("source").batch_rows
    assert sink.replicas > 1
    assert sink.range_rows <= rows / (2 * sink.replicas)


def stateless_flow():
    made = chain([OperatorProfile("parse", 1.0), OperatorProfile("clean", 1.0)])
    return busy_flow(made, rows=None, multiplication_ns=1.0)


def test_pipelines_work_at_the_same_time_on_different_jumbo_tuples():
    flow = stateless_flow()
    operators = [OperatorProfile("source", 0.0), OperatorProfile("parse", 2.0)]
    operators += [OperatorProfile("clean", 2.0), OperatorProfile("sink", 0.0)]
    whole = Plan.sequential(flow)
    cut = whole.with_pipelines("parse", 1, 1)
    seconds = [
        predicted_batch_s(
            flow, plan, chain(operators, unit="us"), FREE, Slots(2), 1_000_000, rows_at_once
        )
        for plan, rows_at_once in ((whole, 1000), (cut, 1000), (cut, 250_000), (cut, 1_000_000))
    ]
    # Two equal halves; the more jumbo tuples, the more of one is done beside the other.
    assert seconds == pytest.approx([4.0, 2.0, 2.5, 4.0], abs=0.01)


def test_what_is_brought_into_order_first_leaves_pipelines_little_to_overlap():
    flow = keyed_flow()
    whole = Plan.sequential(flow)
    cut = whole.with_pipelines("count", 1, 1)
    rows = 1_000_000  # released as one jumbo tuple
    whole_s, cut_s = (
        predicted_batch_s(flow, plan, profile(), FREE, Slots(2), rows, 1000)
        for plan in (whole, cut)
    )
    assert cut_s == pytest.approx(whole_s)


def test_fixed_costs_come_with_stages_and_tasks():
    flow = keyed_flow()
    costs = SparkCosts(0.1, 0.05, 0.01)
    plan = Plan.sequential(flow)
    one = predicted_batch_s(flow, plan, profile(), costs, Slots(2), 0)
    three = predicted_batch_s(flow, plan.with_replicas("count", 4), profile(), costs, Slots(2), 0)
    assert one == pytest.approx(0.16)
    assert three == pytest.approx(0.1 + 3 * 0.05 + 4 * 0.01)


def test_only_sinks_that_are_not_files_go_by_way_of_the_driver(tmp_path):
    flow = keyed_flow()
    plan = Plan.sequential(flow)
    costs = SparkCosts(0.0, sink_byte_ns=10.0)
    through = predicted_batch_s(flow, plan, profile(), costs, Slots(2), 1_000_000)
    files = flow.writing({"sink": parquet(tmp_path)})
    assert through - predicted_batch_s(
        files, plan, profile(), costs, Slots(2), 1_000_000
    ) == pytest.approx(500_000 * 16 * 10e-9)


def word_profile():
    operators = (
        OperatorProfile("lines", 0.0),
        OperatorProfile("split", 0.3, 10.0),
        OperatorProfile("count.combine", 0.02, 0.06),
        OperatorProfile("count", 0.3, state=StateKind.PARTITIONED, key=("word",), keys=1000),
        OperatorProfile("out", 0.0, 0.0, StateKind.STATEFUL),
    )
    names = [operator.name for operator in operators]
    shares = [1.0, 10.0, 0.06, 1.0]
    streams = tuple(
        StreamProfile(a, b, s) for a, b, s in zip(names, names[1:], shares, strict=False)
    )
    return Profile(operators, streams, unit="us")


@pytest.mark.parametrize("readers", [1, 2])
def test_what_combines_passes_on_each_key_once_for_each_task(readers):
    flow = word_count.build(rows=None)
    plan = Plan.sequential(flow).with_source("lines", replicas=readers)
    plan = plan.with_replicas("split", readers).with_replicas("count", 2)
    _, counters = stages_of(flow, plan, word_profile(), FREE, rows=100_000)
    assert sum(t.shuffled_rows for t in counters) == 1000 * readers


def test_few_tuples_are_passed_on_as_they_are():
    flow = word_count.build(rows=None)
    plan = Plan.sequential(flow).with_replicas("count", 2)
    _, counters = stages_of(flow, plan, word_profile(), FREE, rows=100)
    assert sum(t.shuffled_rows for t in counters) == pytest.approx(60)


def test_a_clock_that_takes_most_of_the_time_is_judged_in_the_tasks_of_its_readers():
    flow = Flow("timed")
    rows = memory([{"ts": number} for number in range(8)])
    flow.source("rows", rows).timed("clock", "ts").sink("out", collect())
    operators = [
        OperatorProfile("rows", 1.0, tuple_bytes=16),
        OperatorProfile("clock", 8.0, tuple_bytes=16, replicas_cost=0.25),
        OperatorProfile("out", 0.1, 0.0, StateKind.STATEFUL, tuple_bytes=16),
    ]
    best = SparkModel(flow, Slots(4, 4)).best(chain(operators, unit="us"), Plan.sequential(flow))
    assert layout(flow, best).stations["clock"].replicas == best.source("rows").replicas == 4
