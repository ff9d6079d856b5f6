"""The parts of `benchmarks/speedup.py`: plans, measurements in bound processes, bars."""

import json
import os
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from anabranch.apps import app
from anabranch.planning.plan import Plan

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import speedup
from speedup import QUICK_PART
from speedup_data import ANY_PAIR, CASES, FILES, TUPLES, rows_of
from speedup_plans import (
    IMBALANCE,
    MOST_PLANS,
    NamedPlan,
    apart_by_cost,
    balanced,
    batch_sizes,
    plans_for_one,
    plans_for_two,
    replicate_busiest,
    spark_plans_for_one,
    spark_plans_for_two,
)
from speedup_report import BARS, BaselineDiffers, Row, compared, judge
from speedup_run import BoundProcess, MeasurementFailed, Task, in_child

ROWS = 4_000


@pytest.mark.parametrize("name", ["word-count", "linear-road", "nexmark-q0", "band-join"])
def test_plans_for_two_cores_are_few_different_and_valid(name):
    flow = app(name).build()
    plans = plans_for_two(flow, 2, [100, 200, 400], 200, {})
    assert 3 <= len(plans) < MOST_PLANS
    assert len({each.name for each in plans}) == len(plans)
    assert len({each.plan.to_json() for each in plans}) == len(plans)
    for each in plans:
        each.plan.validate(flow)


def test_the_last_plan_is_the_best_one_with_buckets_owned_by_load():
    flow = app("word-count").build()
    best = NamedPlan("replicas", Plan.sequential(flow).with_replicas("count", 2))
    assert balanced(best, {"count": [1] * 256}) is None
    even = balanced(best, {"count": [300, *[1] * 255]})
    owners = even.plan.region("count").bucket_map
    rows = [300, *[1] * 255]
    loads = [sum(n for n, owner in zip(rows, owners, strict=True) if owner == r) for r in (0, 1)]
    assert max(loads) <= 300 * (1 + IMBALANCE)


def test_the_worker_that_has_the_other_regions_gets_fewer_buckets_of_the_busiest():
    flow = app("word-count").build()
    costs = {"lines": 1.0, "count": 7.0}
    plan = replicate_busiest(flow, Plan.sequential(flow), 2, costs, by_work=True)
    shares = [plan.region("count").bucket_map.count(replica) / 256 for replica in (0, 1)]
    assert [7 * shares[0] + 1, 7 * shares[1]] == pytest.approx([4, 4], abs=0.02)


@pytest.mark.parametrize(
    ("costs", "upstream"),
    [
        ({"lines": 1.0, "split": 2.0, "count": 3.0, "out": 0.5}, ["lines", "split"]),
        ({"lines": 4.0, "split": 1.0, "count": 1.0, "out": 1.0}, ["lines"]),
        ({"lines": 1.0, "split": 1.0, "count": 1.0, "out": 4.0}, ["lines", "split", "count"]),
    ],
)
def test_regions_are_cut_apart_where_both_workers_have_as_much_to_do(costs, upstream):
    flow = app("word-count").build()
    plan = apart_by_cost(flow, Plan.sequential(flow), costs)
    workers = {each.region: each.workers for each in plan.regions} | {
        each.source: each.workers for each in plan.sources
    }
    assert set(workers.values()) == {(0,), (1,)}
    assert {name for name, given in workers.items() if given == (0,)} == set(upstream)
    plan.validate(flow)


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [
        (10_000_000, [16_384, 65_536, 262_144]),
        (800_000, [16_384, 50_000]),
        (28_800, [450, 1_800]),
        (8, [1]),
    ],
)
def test_batches_leave_something_to_do_side_by_side(rows, sizes):
    assert batch_sizes({"small": 1, "large": rows}) == sizes


def test_a_batch_of_spark_has_the_same_share_of_every_source():
    flow = app("nexmark-q9").build()
    plans = spark_plans_for_one(flow, {"auction": 600, "bid": 9_201})
    read = [[source.batch_rows for source in each.plan.sources] for each in plans]
    assert read == [[75, 1_151], [150, 2_301]]


@pytest.mark.parametrize("name", ["word-count", "linear-road", "nexmark-q0", "nexmark-q9"])
def test_plans_of_spark_for_two_cores_differ_are_valid_and_keep_the_batches(name):
    flow = app(name).build()
    best = Plan.sequential(flow)
    for source in best.sources:
        best = best.with_source(source.source, batch_rows=300)
    plans = spark_plans_for_two(flow, 2, best, {})
    assert 2 <= len(plans) < MOST_PLANS
    assert len({each.plan.to_json() for each in plans}) == len(plans)
    for each in plans:
        each.plan.validate(flow)
        assert all(source.batch_rows == 300 for source in each.plan.sources)


def test_every_busy_region_gets_replicas_on_spark():
    flow = app("word-count").build()
    plans = spark_plans_for_two(flow, 2, Plan.sequential(flow), {"split": 1.0, "count": 8.0})
    [busy] = [each.plan for each in plans if each.name == "readers and busiest"]
    assert {each.region for each in busy.regions if each.replicas > 1} == {"split", "count"}


@pytest.mark.parametrize("name", ["finance", TUPLES, ANY_PAIR])
def test_files_hold_what_the_case_generates(name, tmp_path):
    case = CASES[name]
    flow = case.flow(case.write(tmp_path, ROWS), tmp_path / "out")
    assert rows_of(flow) == dict.fromkeys(flow.sources(), ROWS)
    for name, stored in flow.sources().items():
        generated = case.build(rows=ROWS).sources()[name]
        expected = generated.read(generated.parts()[0], ROWS // FILES, 10).batch
        assert len(stored.parts()) == FILES
        assert stored.read(stored.parts()[1], 0, 10).batch.to_pylist() == expected.to_pylist()


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("name", ["word-count", TUPLES, ANY_PAIR])
def test_a_measurement_is_bound_to_its_cores_and_reads_every_row(name, cores, tmp_path):
    if len(os.sched_getaffinity(0)) < cores:
        pytest.skip(f"needs {cores} cores")
    case = CASES[name]
    folder = case.write(tmp_path, ROWS)
    flow = case.flow(folder, tmp_path / "out")
    [plan] = plans_for_one(flow, [500])
    found = in_child(Task(name, str(folder), FILES, cores, "local", plan.plan.to_json()))
    assert found.cores == cores
    assert found.rows == sum(rows_of(flow).values())
    assert found.rows_per_s > 0
    assert found.switches_per_s > 0
    assert 0 <= found.kernel_share < 1
    assert not list(tmp_path.glob("speedup-out-*"))


@pytest.mark.timeout(300)
@pytest.mark.spark
def test_one_process_measures_several_plans_on_spark_and_leaves_nothing(tmp_path, monkeypatch):
    scratch = Path(tempfile.mkdtemp())  # `tmp_path` is too long for sockets
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    case = CASES["nexmark-q5"]
    folder = case.write(tmp_path, 2 * ROWS)
    flow = case.flow(folder, tmp_path / "out")
    with BoundProcess(1) as process:
        for plan in spark_plans_for_one(flow, rows_of(flow)):
            task = Task(case.name, str(folder), FILES, 1, "spark", plan.plan.to_json())
            found = process.measure(task)
            assert (found.cores, found.rows) == (1, sum(rows_of(flow).values()))
            assert found.rows_per_s > 0
            assert found.busy_s["count"] > 0
    scratch.rmdir()  # refused if anything is left


def test_a_measurement_that_fails_says_why(tmp_path):
    with pytest.raises(MeasurementFailed, match="no case"):
        in_child(Task("no case", str(tmp_path / "none"), FILES))


def test_one_core_alone_is_compared_with_a_baseline_and_stored(tmp_path, monkeypatch):
    case = CASES["word-count"]
    monkeypatch.setitem(speedup.CASES, case.name, replace(case, rows=QUICK_PART * ROWS))
    monkeypatch.setattr(speedup, "TRIES", 1)
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    before.write_text(json.dumps({"figures": {case.name: asdict(replace(row(1.0), rows=ROWS))}}))
    options = ["--apps", case.name, "--quick", "--only-one-core"]
    speedup.main([*options, "--baseline", str(before), "--json", str(after)])
    stored = json.loads(after.read_text())
    found = Row(**stored["figures"][case.name])
    assert stored["name"] == "after"
    assert found.rows == ROWS
    assert found.speedup is None
    assert found == compared(found, asdict(replace(row(1.0), rows=ROWS)))


@pytest.mark.parametrize(("disturbed", "ratio"), [(0.0, 0.5), (0.3, 2.0)])
def test_a_disturbed_run_is_compared_by_processor_time(disturbed, ratio):
    before = asdict(row(1.0))
    now = replace(
        row(1.0),
        one_core_best_rows_per_s=0.5e5,
        one_core_rows_per_cpu_s=2e5,
        one_core_disturbed_share=disturbed,
    )
    assert compared(now, before).over_baseline == pytest.approx(ratio)


def test_a_baseline_of_other_rows_is_refused():
    with pytest.raises(BaselineDiffers, match="the baseline read 1 rows, not 2"):
        compared(replace(row(1.0), rows=2), asdict(row(1.0)))


def row(up, over=None):
    return Row(1, 1e5, 1e5, 1e5, "", 0.1, 1.0, 0.1, 0.0, over, up * 1e5, "", up)


def test_bars_hold_where_every_application_gains():
    found = {"a": row(1.2), "b": row(1.6, over=1.0), "c": row(1.9)}
    found |= {TUPLES: row(1.7), ANY_PAIR: row(1.6)}
    bars = judge(found, 8e4, [], BARS["local"]).bars
    assert {key: bar.value for key, bar in bars.items()} == pytest.approx(
        {
            "median_speedup": 1.6,
            "least_speedup": 1.2,
            "tuple_word_count_speedup": 1.7,
            "band_join_any_speedup": 1.6,
            "tuple_word_count_over_bytewax": 1.7e5 / 8e4,
            "least_one_core_over_baseline": 1.0,
        }
    )
    assert all(bar.holds for bar in bars.values())


def test_an_application_that_loses_or_fails_breaks_a_bar():
    bars = BARS["local"]
    lost = judge({"a": row(0.9), "b": row(2.0)}, None, [], bars)
    assert not lost.bars["least_speedup"].holds
    assert not judge({"a": row(2.0)}, None, ["b"], bars).bars["least_speedup"].holds
    slower = judge({"a": row(2.0, over=0.8)}, None, [], bars)
    assert not slower.bars["least_one_core_over_baseline"].holds


def test_on_spark_each_timed_application_is_held_against_a_bar():
    timed = {name: replace(row(up), timed=True) for name, up in (("a", 1.3), ("b", 1.9))}
    bars = judge({**timed, "c": row(1.1), "d": row(1.9)}, None, [], BARS["spark"]).bars
    values = {key: bar.value for key, bar in bars.items()}
    assert values == pytest.approx({"median_speedup": 1.6, "least_timed_speedup": 1.3})
    assert all(bar.holds for bar in bars.values())
    failed = judge(timed, None, ["c"], BARS["spark"]).bars
    assert not failed["least_timed_speedup"].holds
