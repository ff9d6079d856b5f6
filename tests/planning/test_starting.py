"""The plan that a run begins with, when nobody gives one."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.planning.starting import (
    BATCH_ROWS,
    LOCAL_BATCH_ROWS,
    one_of_everything,
    readers_side_by_side,
    side_by_side,
)

STARTS = pytest.mark.parametrize("start", [readers_side_by_side, side_by_side])


@ab.shared(out="x: int64", buckets=2)
def seen(batch, bucket):
    return batch, range(batch.num_rows)


@ab.stateful(out="n: int64")
def total(ctx):
    ctx.emit(n=0)


def flow_of(source) -> ab.Flow:
    flow = ab.Flow("start", buckets=3)
    stream = flow.source("s", source).map("m", lambda batch: batch, keeps="x")
    stream.aggregate("count", key="x", n=ab.count(), emit="every", combine=False).apply(
        "total", total
    ).sink("out", ab.collect())
    stream.apply("seen", seen).sink("copies", ab.collect())
    return flow


ROWS = ab.memory([{"x": x} for x in range(10)])


def replicas_of(plan) -> dict[str, int]:
    return {region.region: region.replicas for region in plan.regions}


def test_the_local_engine_starts_with_one_of_everything():
    flow = flow_of(ROWS)
    plan = one_of_everything(flow)
    assert plan == ab.plan(flow).with_source("s", batch_rows=LOCAL_BATCH_ROWS)
    assert set(replicas_of(plan).values()) == {plan.source("s").replicas} == {1}


def test_a_sink_of_rows_that_are_read_side_by_side_is_written_side_by_side():
    flow = ab.Flow("written")
    read = flow.source("s", ROWS)
    read.sink("copies", ab.collect())
    read.map("m", lambda batch: batch, keeps="x").sink("out", ab.collect())
    read.timed("clock", "x").sink("ordered", ab.collect())
    found = replicas_of(readers_side_by_side(flow, cores=4))
    assert (found["copies"], found["out"], found["ordered"]) == (4, 4, 1)


def test_stateless_regions_that_read_a_divided_source_are_replicated_and_no_others():
    plan = readers_side_by_side(flow_of(ROWS), cores=4)
    assert plan.source("s").replicas == 4
    assert replicas_of(plan) == {"m": 4, "count": 1, "total": 1, "seen": 1, "out": 1, "copies": 1}


def test_a_stateless_region_behind_a_state_starts_with_one_replica():
    flow = ab.Flow("chain")
    counted = flow.source("s", ROWS).aggregate(
        "count", key="x", n=ab.count(), emit="every", combine=False
    )
    counted.map("after", lambda batch: batch, keeps=("x", "n")).sink("out", ab.collect())
    regions = replicas_of(readers_side_by_side(flow, cores=4))
    assert set(regions.values()) == {1}


def test_a_stateless_region_with_a_source_that_cannot_be_divided_starts_with_one_replica(
    tmp_path,
):
    flow = ab.Flow("two")
    path = tmp_path / "one.csv"
    path.write_text("x\n1\n")
    file = flow.source("file", ab.files(path))
    merged = flow.source("rows", ROWS).union("both", file)
    merged.map("m", lambda batch: batch, keeps="x").sink("out", ab.collect())
    plan = readers_side_by_side(flow, cores=4)
    assert [plan.source(name).replicas for name in ("rows", "file")] == [4, 1]
    assert set(replicas_of(plan).values()) == {1}


def test_whatever_may_be_replicated_is_as_far_as_its_buckets_go():
    plan = side_by_side(flow_of(ROWS), cores=4)
    assert replicas_of(plan) == {"m": 4, "count": 3, "total": 1, "seen": 2, "out": 4, "copies": 4}


@pytest.mark.parametrize("cores", [1, 2, 7])
@STARTS
def test_it_is_a_valid_plan(start, cores):
    flow = flow_of(ROWS)
    start(flow, cores).validate(flow)


@STARTS
def test_on_one_core_everything_is_there_once(start):
    flow = flow_of(ROWS)
    assert start(flow, 1, batch_rows=65_536) == ab.plan(flow)


@STARTS
def test_batches_are_worth_what_they_cost(start):
    assert start(flow_of(ROWS), cores=2).source("s").batch_rows == BATCH_ROWS


@STARTS
def test_a_source_has_several_readers_only_if_it_can_be_divided(start, tmp_path):
    for number in range(3):
        (tmp_path / f"{number}.csv").write_text("x\n1\n")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "one.parquet")
    readers = {
        name: start(flow_of(source), cores=3).source("s").replicas
        for name, source in {
            "three files": ab.files(tmp_path / "*.csv"),
            "two files": ab.files([tmp_path / "0.csv", tmp_path / "1.csv"]),
            "one file that can be entered anywhere": ab.files(tmp_path / "one.parquet"),
            "arrival times": ab.stamped(ROWS, lambda: 0),
        }.items()
    }
    assert readers == {
        "three files": 3,
        "two files": 1,
        "one file that can be entered anywhere": 3,
        "arrival times": 1,
    }
