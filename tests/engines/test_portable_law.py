"""The law across engines: a run that goes from engine to engine gives the sequential result.

The batches of the Spark engine run without Spark here; `test_portable_checkpoints.py` has it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from random import Random
from shutil import rmtree
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, seed, settings

import anabranch as ab
from anabranch.engines.checkpoint.checkpoint import Checkpoint
from anabranch.engines.checkpoint.manifest import Manifest
from anabranch.engines.checkpoint.state_files import GATE
from anabranch.engines.engine import Options
from anabranch.engines.local import engine as local_engine
from anabranch.engines.local.engine import LocalEngine
from anabranch.flow import Flow
from anabranch.graph import Role
from anabranch.io import collect
from anabranch.io.offsets import SourceOffsets
from anabranch.io.source import Chunk, Extent, Source
from anabranch.operators.base import Counters
from anabranch.planning.plan import Plan
from anabranch.runtime.dispenser import Dispenser
from anabranch.runtime.messages import Promise
from anabranch.testing.compare import difference
from anabranch.testing.result import RunResult
from anabranch.testing.sequential import run_sequential
from tests.engines.spark.in_process import Killed
from tests.engines.spark.one_by_one import OneByOne
from tests.law.flows import Case, cases
from tests.sampling import SOAK, in_soak, sampled

SHARDS = 2
CASES = in_soak(120, share=10)
DEADLINE_S = 20.0
MOST_LEGS = 8
EQUAL = {"0": 12, "1": 12, "2": 12, "3": 12, "4": 12}
LONG_FIRST = {**EQUAL, "0": 40}
PAIRS = "k: int64, v: int64"


class Stopping(LocalEngine):
    """A run that is stopped between two turns, at a moment drawn from a seed."""

    def __init__(self, flow: Flow, plan: Plan, directory: Path, rng: Random, share: float) -> None:
        super().__init__(flow, plan, Options(checkpoint=directory, workers=0))
        self._rng, self._share = rng, share

    def _turn(self) -> None:
        if self._rng.random() < self._share:
            self.stop()
        super()._turn()


class Journey:
    """Runs a flow leg by leg, each on an engine and under a plan drawn from a seed."""

    def __init__(self, flow: Flow, plans: list[Plan], directory: Path, rng: Random) -> None:
        self._flow, self._plans, self._directory, self._rng = flow, plans, directory, rng
        self.legs: list[str] = []

    def run(self) -> RunResult:
        for leg in range(MOST_LEGS):
            to_the_end = leg == MOST_LEGS - 1
            go = self._rng.choice((self._on_local, self._on_spark))
            go(self._plan(), to_the_end)
            last = self._last()
            if last is not None and last.ended:
                return self._result()
        raise AssertionError("it never ended")

    def _plan(self) -> Plan:
        plan, rows = self._rng.choice(self._plans), self._rng.choice((1, 2, 3))
        for source in plan.sources:
            plan = plan.with_source(source.source, batch_rows=rows)
        return plan

    def _on_local(self, plan: Plan, to_the_end: bool) -> None:
        share = 0.0 if to_the_end else self._rng.choice((0.01, 0.05, 0.2))
        engine = Stopping(self._flow, plan, self._directory, self._rng, share)
        engine.start(lambda event: None)
        assert engine.wait(DEADLINE_S), f"the run did not end: {self.legs}"
        self._note("local")

    def _on_spark(self, plan: Plan, to_the_end: bool) -> None:
        with OneByOne(self._flow, self._directory, plan) as run:
            if to_the_end:
                run.to_the_end()
            for _ in range(self._rng.randint(0, 3)):
                if not run.batches.ended():
                    run.next()
            if not run.batches.ended() and self._rng.random() < 0.3:
                run.job = self._dying  # type: ignore[method-assign]
                with pytest.raises(Killed):
                    run.next()
        self._note("spark")

    def _dying(self, *_: object) -> Any:
        raise Killed("between the log and the manifest")

    def _last(self) -> Manifest | None:
        return Checkpoint.open(self._directory, self._flow).last

    def _note(self, engine: str) -> None:
        last = self._last()
        self.legs.append(f"{engine}: {last and (last.version, dict(last.offsets))}")

    def _result(self) -> RunResult:
        steps, last = self._flow.graph.steps, self._last()
        assert last is not None
        return RunResult(
            {name: steps[name].body.sink.table() for name in self._flow.names(Role.SINK)},
            {
                name: Counters.of(last.counters.get(name, {}))
                for name in self._flow.names(Role.OPERATOR)
            },
        )


def holds(case: Case, directory: Path) -> None:
    rmtree(directory, ignore_errors=True)
    expected = run_sequential(case.flow)
    journey = Journey(case.flow, [case.plan, *case.changes], directory, Random(case.seed))
    found = difference(case.flow, expected, journey.run())
    assert found is None, f"{case}\n{found}\n" + "\n".join(journey.legs)


@pytest.fixture
def saving_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_engine, "SAVE_S", 0.0)
    monkeypatch.setattr(local_engine, "TICK_S", 0.001)


@sampled
@pytest.mark.timeout(0)
@pytest.mark.usefixtures("saving_all_the_time")
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_run_that_goes_from_engine_to_engine_gives_the_sequential_result(
    shard: int, tmp_path: Path
) -> None:
    law(None if SOAK else shard, CASES // SHARDS, tmp_path / "checkpoint")()


def law(number: int | None, examples: int, directory: Path) -> Any:
    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=False,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases())
    def property_(case: Case) -> None:
        holds(case, directory)

    return property_ if number is None else seed(number)(property_)


# What the law draws seldom


class Scrolls(Source):
    """Parts that have to be read from their beginning: each has a reader of its own."""

    schema, bounded, order = pa.schema([("k", pa.int64()), ("v", pa.int64())]), True, "part and row"

    def __init__(self, rows: dict[str, int] = EQUAL) -> None:
        self._rows = rows

    def parts(self) -> tuple[str, ...]:
        return tuple(self._rows)

    def read(self, part: str, start: int, rows: int) -> Chunk | None:
        numbers = list(range(start, min(start + rows, self._rows[part])))
        if not numbers:
            return None
        return Chunk(pa.record_batch({"k": [n % 3 for n in numbers], "v": numbers}, self.schema))

    def extent(self, part: str) -> Extent:
        return Extent(self._rows[part], exact=True, seekable=False)


@ab.partitioned(key="k", out="k: int64, total: int64")
def totals(ctx: ab.Invocation) -> None:
    for row in ctx.tuples():
        ctx.state["total"] = ctx.state.get("total", 0) + row.v
        ctx.emit(total=ctx.state["total"])


@pytest.mark.usefixtures("saving_all_the_time")
def test_spark_goes_on_though_several_parts_are_open(
    tmp_path: Path,
) -> None:
    flow = Flow("scrolls", buckets=4)
    flow.source("rows", Scrolls()).apply("totals", totals).sink("out", collect())
    plan = Plan.sequential(flow).with_source("rows", batch_rows=2, replicas=3)

    def several_are_open(last: Manifest) -> bool:
        return len(last.offsets["rows"].open) > 1

    directory = stopped(flow, plan, tmp_path, several_are_open)
    with OneByOne(flow, directory, plan.with_replicas("totals", 2)) as run:
        run.to_the_end()
    assert flow.graph.steps["out"].body.sink.table().to_pylist() == run_sequential(flow).rows("out")


def stopped(flow: Flow, plan: Plan, folder: Path, when: Callable[[Manifest], bool]) -> Path:
    """A checkpoint of a run of the local engine that was stopped when it was like that."""
    for attempt in range(100):
        directory = folder / str(attempt)
        engine = Stopping(flow, plan, directory, Random(attempt), share=0.05)
        engine.start(lambda event: None)
        assert engine.wait(DEADLINE_S)
        last = Checkpoint.open(directory, flow).last
        if last is not None and not last.ended and when(last):
            return directory
    raise AssertionError("it was never like that")


def straight() -> Flow:
    """Rows come to the sink as they are read."""
    flow = Flow("straight")
    flow.source("rows", Scrolls(LONG_FIRST)).sink("out", collect())
    return flow


def two_ways() -> Flow:
    """Rows come to the sink as they are read, and once more by a way on which they wait."""
    flow = Flow("two ways", buckets=4)
    rows = flow.source("rows", Scrolls(LONG_FIRST))
    added = rows.apply("totals", totals)
    alike = added.map("alike", lambda batch: {"k": batch["k"], "v": batch["total"]}, out=PAIRS)
    rows.union("both", alike).sink("out", collect())
    return flow


def to_the_end_on_local(flow: Flow, directory: Path, plans: list[Plan]) -> None:
    engine = LocalEngine(flow, plans[0], Options(checkpoint=directory, workers=0))
    engine.start(lambda event: None)
    assert engine.wait(DEADLINE_S)


def to_the_end_on_spark(flow: Flow, directory: Path, plans: list[Plan]) -> None:
    """Every batch under another plan."""
    with OneByOne(flow, directory, plans[0]) as run:
        for plan in cycle(plans):
            if run.batches.ended():
                return
            run.plan = plan
            run.next()


@pytest.mark.usefixtures("saving_all_the_time")
@pytest.mark.parametrize("of", [straight, two_ways])
@pytest.mark.parametrize(
    ("go_on", "batch_rows", "replicas"),
    [
        (to_the_end_on_local, 2, (2,)),
        (to_the_end_on_local, 2, (3,)),
        (to_the_end_on_spark, 2, (3,)),
        (to_the_end_on_spark, 9, (2,)),
        (to_the_end_on_spark, 40, (2,)),
        (to_the_end_on_spark, 5, (3, 1, 2, 4)),
    ],
)
def test_rows_that_wait_at_a_sink_go_to_the_replicas_of_their_ranges(
    tmp_path: Path,
    of: Callable[[], Flow],
    go_on: Callable[[Flow, Path, list[Plan]], None],
    batch_rows: int,
    replicas: tuple[int, ...],
) -> None:
    flow = of()
    plan = Plan.sequential(flow).with_source("rows", batch_rows=2, replicas=3)
    plan = plan.with_replicas("out", 2).with_range_rows("out", 4)

    def rows_wait(last: Manifest) -> bool:
        held = any(file.region == "out" + GATE for file in last.state)
        return held and len(last.offsets["rows"].open) > 2

    directory = stopped(flow, plan, tmp_path, rows_wait)
    # Two readers and two replicas of a sink: Spark could write where it reads.
    plan = plan.with_source("rows", batch_rows=batch_rows, replicas=2)
    go_on(flow, directory, [plan.with_replicas("out", number) for number in replicas])
    assert flow.graph.steps["out"].body.sink.table().to_pylist() == run_sequential(flow).rows("out")


def test_spark_reads_what_is_left_where_a_part_was_done_before_an_earlier_one(
    tmp_path: Path,
) -> None:
    flow = Flow("scrolls")
    flow.source("rows", Scrolls()).sink("out", collect())
    plan = Plan.sequential(flow).with_source("rows", batch_rows=5, replicas=2)
    with OneByOne(flow, tmp_path, plan) as run:
        run.batches.intake.restore({"rows": SourceOffsets({0: 4, 2: 2}, unopened=5)})
        run.to_the_end()
    rows = flow.graph.steps["out"].body.sink.table().to_pylist()
    assert [row["v"] for row in rows] == [*range(4, 12), *range(2, 12)]


def test_a_source_that_is_over_is_not_read_on_without_the_limit_that_ended_it() -> None:
    dispenser = Dispenser("rows", Scrolls(), 0)
    dispenser.restore(SourceOffsets({0: 2}, unopened=1, rows=2, over=True))
    assert dispenser.over
    (promise,) = dispenser.give(now_s=0.0)
    assert isinstance(promise, Promise)
