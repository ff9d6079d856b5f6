"""Going back to an earlier version, and sinks that are not files: each row once, none lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.engines.checkpoint.manifest import Manifest
from anabranch.flow import Flow
from anabranch.io.reading_back import read_back
from anabranch.planning.plan import Plan
from anabranch.testing.sequential import run_sequential
from tests.engines.spark.in_process import Killed
from tests.engines.spark.one_by_one import OneByOne

ROWS = [{"k": "abcd"[number % 4], "v": number} for number in range(100)]

Rows = list[dict[str, Any]]


@ab.partitioned(key="k", out="k: string, total: int64")
def totals(ctx: ab.Invocation) -> None:
    for row in ctx.tuples():
        ctx.state["total"] = ctx.state.get("total", 0) + row.v
        ctx.emit(total=ctx.state["total"])


class Called:
    """A function of a user, which remembers the versions that it has seen."""

    def __init__(self) -> None:
        self.versions: list[int] = []
        self.rows: dict[int, Rows] = {}

    def __call__(self, batch: pa.RecordBatch, version: int) -> None:
        self.versions.append(version)
        self.rows[version] = batch.to_pylist()

    def all_rows(self) -> Rows:
        return [row for version in sorted(self.rows) for row in self.rows[version]]


@pytest.fixture
def called() -> Called:
    return Called()


@pytest.fixture
def flow(tmp_path: Path, called: Called) -> Flow:
    """One stream into every kind of sink."""
    made = Flow("rollback", buckets=8)
    added = made.source("rows", ab.memory(ROWS)).apply("totals", totals)
    added.sink("collected", ab.collect())
    added.sink("called", ab.call(called))
    added.sink("written", ab.parquet(tmp_path / "written"))
    return made


@pytest.fixture
def started(flow: Flow, tmp_path: Path) -> Callable[[], OneByOne]:
    plan = Plan.sequential(flow).with_source("rows", batch_rows=10).with_replicas("totals", 2)
    return lambda: OneByOne(flow, tmp_path / "checkpoint", plan)


@pytest.fixture
def expected(flow: Flow) -> Rows:
    """What the sequential run gives; it leaves the sinks of the flow alone."""
    return run_sequential(flow).rows("collected")


def collected(flow: Flow) -> Rows:
    rows: Rows = flow.graph.steps["collected"].body.sink.table().to_pylist()
    return rows


def die_before_delivery(run: OneByOne, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next batch gets its manifest, and nobody hears of it."""

    def dying(manifest: Manifest, require_owned: object) -> None:
        raise Killed(f"before version {manifest.version} is delivered")

    with monkeypatch.context() as patch:
        patch.setattr(run.sinks, "commit", dying)
        with pytest.raises(Killed):
            run.next()


@pytest.mark.parametrize(("batches", "version"), [(4, 1), (4, 3), (8, 1), (10, 6)])
def test_a_run_goes_on_from_the_version_that_it_was_rolled_back_to(
    started: Callable[[], OneByOne],
    flow: Flow,
    called: Called,
    expected: Rows,
    tmp_path: Path,
    batches: int,
    version: int,
) -> None:
    with started() as run:
        for _ in range(batches):
            run.next()
    ab.rollback(flow, tmp_path / "checkpoint", version)
    with started() as run:
        assert run.checkpoint.last is not None
        assert run.checkpoint.last.version == version
        kept = (version + 1) * 10
        assert collected(flow) == expected[:kept]
        assert read_back(tmp_path / "written").to_pylist() == expected[:kept]
        run.to_the_end()
    assert collected(flow) == expected
    assert read_back(tmp_path / "written").to_pylist() == expected
    assert called.all_rows() == expected


def test_rows_are_delivered_after_every_kill_though_later_versions_were_before_going_back(
    started: Callable[[], OneByOne],
    flow: Flow,
    called: Called,
    expected: Rows,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with started() as run:
        for _ in range(5):
            run.next()
    ab.rollback(flow, tmp_path / "checkpoint", 1)
    called.rows = {version: rows for version, rows in called.rows.items() if version <= 1}
    for _ in range(3):
        with started() as run:
            die_before_delivery(run, monkeypatch)
    with started() as run:
        run.to_the_end()
    assert called.all_rows() == expected
    assert collected(flow) == expected


def test_a_function_is_not_called_again_after_a_stop_or_an_end(
    started: Callable[[], OneByOne], called: Called, expected: Rows
) -> None:
    with started() as run:
        run.next()
        run.next()
    assert called.versions == [0, 1]
    started().close()
    assert called.versions == [0, 1]
    with started() as run:
        run.to_the_end()
    told = list(called.versions)
    started().close()
    assert called.versions == told == list(range(len(told)))
    assert called.all_rows() == expected


def test_a_function_is_called_once_after_a_kill_between_manifest_and_delivery(
    started: Callable[[], OneByOne],
    called: Called,
    expected: Rows,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with started() as run:
        run.next()
        die_before_delivery(run, monkeypatch)
    assert called.versions == [0]
    started().close()
    assert called.versions == [0, 1]
    with started() as run:
        run.to_the_end()
    assert called.versions == list(range(len(called.versions)))
    assert called.all_rows() == expected


def test_a_function_is_called_again_after_a_kill_in_the_middle_of_delivery(
    started: Callable[[], OneByOne], called: Called, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dying(path: str, data: bytes, *, durable: bool = False) -> None:
        raise Killed("before it is noted that the rows were delivered")

    with started() as run:
        monkeypatch.setattr(run.checkpoint.storage, "write", dying)
        with pytest.raises(Killed):
            run.next()
    started().close()
    assert called.versions == [0, 0]
