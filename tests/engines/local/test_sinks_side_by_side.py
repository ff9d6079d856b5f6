"""Several replicas of an ordered sink: each writes files of its own, and the order is kept."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.flow import Flow
from anabranch.io import read_back
from anabranch.planning.plan import Plan
from anabranch.testing import run_sequential

ROWS = 3_000
RANGE = 64


def flow_of(folder: Path) -> Flow:
    rows = ab.memory([{"n": n, "k": n % 7} for n in range(ROWS)])
    flow = ab.Flow("side by side", buckets=8)
    (
        flow.source("rows", rows)
        .filter("some", lambda batch: [n % 5 > 0 for n in batch["n"].to_pylist()])
        .aggregate("count", key="k", n=ab.count(), emit="every", combine=False)
        .sink("out", ab.parquet(folder))
    )
    return flow


def merged(folder: Path) -> Flow:
    """Rows of two sources with parts of other sizes, merged by their numbers."""
    flow = ab.Flow("merged")
    few = flow.source("few", ab.memory([{"n": n} for n in range(0, -ROWS // 4, -1)]))
    many = flow.source("many", ab.memory([{"n": n} for n in range(ROWS)]))
    few.union("both", many).sink("out", ab.parquet(folder))
    return flow


def plan_of(flow: Flow, replicas: int) -> Plan:
    plan = Plan.sequential(flow).with_replicas("out", replicas).with_range_rows("out", RANGE)
    return plan.with_replicas("count", 2).with_source("rows", replicas=2, batch_rows=RANGE)


def expected(tmp_path: Path) -> pa.Table:
    return run_sequential(flow_of(tmp_path / "unused")).outputs["out"]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("durable", [False, True], ids=["at once", "by versions"])
def test_files_in_the_order_of_their_names_are_the_sequence(
    tmp_path: Path, workers: int, durable: bool
) -> None:
    folder = tmp_path / "out"
    flow = flow_of(folder)
    plans = [plan_of(flow, replicas) for replicas in (2, 3, 1, 3)]
    checkpoint = tmp_path / "checkpoint" if durable else None
    with ab.start(
        flow, engine="local", plan=plans[0], workers=workers, checkpoint=checkpoint
    ) as run:
        for plan in plans[1:]:
            run.reconfigure(plan)
        run.await_termination(60)
    assert read_back(folder).equals(expected(tmp_path))


def test_every_replica_writes_its_part(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    flow = flow_of(folder)
    ab.run(flow, engine="local", plan=plan_of(flow, 3), workers=2)
    files = [pq.read_table(path) for path in sorted(folder.glob("part-0*.parquet"))]
    assert len(files) >= ROWS // RANGE
    assert max(file.num_rows for file in files) <= RANGE
    assert pa.concat_tables(files).equals(expected(tmp_path))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("durable", [False, True], ids=["at once", "by versions"])
def test_replicas_write_rows_of_several_sources_in_one_order(
    tmp_path: Path, workers: int, durable: bool
) -> None:
    folder = tmp_path / "out"
    flow = merged(folder)
    plan = Plan.sequential(flow).with_range_rows("out", RANGE).with_replicas("both", 2)
    plans = [plan.with_replicas("out", replicas) for replicas in (3, 1, 2)]
    checkpoint = tmp_path / "checkpoint" if durable else None
    with ab.start(
        flow, engine="local", plan=plans[0], workers=workers, checkpoint=checkpoint
    ) as run:
        for each in plans[1:]:
            run.reconfigure(each)
        run.await_termination(60)
    expected = run_sequential(merged(tmp_path / "unused")).outputs["out"]
    assert read_back(folder).equals(expected)
