"""Flows that read a Redis stream, on both engines: nothing is lost and nothing comes twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.adapt.policies.stepwise import Stepwise
from anabranch.adapt.policy import Cadence
from anabranch.engines.local import engine as local_engine
from anabranch.errors import SourceError
from anabranch.events import Decision, Event, Observation, Observed, Reconfiguration
from anabranch.io.reading_back import read_back
from anabranch.io.redis_client import END, StreamClient
from anabranch.io.replaying import StreamReplay
from anabranch.planning.plan import Plan
from anabranch.testing.sequential import run_sequential
from tests.engines.spark.conftest import spark
from tests.io.redis_job import COLUMNS, flow_of, plan_of
from tests.io.redis_server import RedisServer, redis_server, stream
from tests.sampling import thorough
from tests.waiting import wait_until

__all__ = ["redis_server", "spark", "stream"]

REPOSITORY = Path(__file__).resolve().parents[2]
ENGINES = [
    "local",
    pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.xdist_group("spark")]),
]


def rows_of(first: int, stop: int) -> list[dict[str, int]]:
    return [{"n": n, "key": n % 7} for n in range(first, stop)]


def add(server: RedisServer, stream: str, first: int, stop: int, *, end: bool = False) -> None:
    asked = server.client.pipeline(transaction=False)
    for row in rows_of(first, stop):
        asked.xadd(stream, row)
    if end:
        asked.xadd(stream, {END: ""})
    asked.execute()


def expected(rows: int) -> list[dict[str, Any]]:
    source = ab.memory(rows_of(0, rows), ab.schema(COLUMNS))
    return run_sequential(flow_of(source, ab.collect())).rows("out")


def options_of(engine: str, request: pytest.FixtureRequest) -> dict[str, Any]:
    session = {"session": request.getfixturevalue("spark")} if engine == "spark" else {}
    return {"engine": engine, **session}


@pytest.mark.parametrize("engine", ENGINES)
def test_what_comes_while_a_flow_runs_is_worked_on_until_the_end_comes(
    redis_server, stream, engine, request
):
    sink = ab.collect()
    flow = flow_of(ab.redis_stream(redis_server.url, stream, COLUMNS), sink)
    seen: list[Observation] = []

    def hear(event: Event) -> None:
        if isinstance(event, Observed):
            seen.append(event.observation)

    add(redis_server, stream, 0, 100)
    handle = ab.start(flow, plan=plan_of(flow, 40), listener=hear, **options_of(engine, request))
    assert handle.process_all_available()
    assert sink.table().to_pylist() == expected(100)
    add(redis_server, stream, 100, 250)
    assert handle.process_all_available()
    assert sink.table().to_pylist() == expected(250)
    add(redis_server, stream, 250, 300, end=True)
    assert handle.await_termination(60)
    assert handle.result().ended
    assert sink.table().to_pylist() == expected(300)
    assert sum(each.rows_in for each in seen) == 300
    assert seen[-1].sources[0].backlog_rows == 0
    assert all(0 <= each.lag_ms < 60_000 for each in seen)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_that_was_stopped_goes_on_where_it_was(
    redis_server, stream, engine, request, tmp_path
):
    source = ab.redis_stream(redis_server.url, stream, COLUMNS)
    flow = flow_of(source, ab.parquet(tmp_path / "out"))
    options = options_of(engine, request) | {"checkpoint": tmp_path / "checkpoint"}
    add(redis_server, stream, 0, 120)
    first = ab.start(flow, plan=plan_of(flow, 50), **options)
    assert first.process_all_available()
    first.stop()
    add(redis_server, stream, 120, 200, end=True)
    # What the checkpoint has need not be kept.
    redis_server.client.xtrim(stream, maxlen=81, approximate=False)
    again = ab.run(flow, plan=plan_of(flow, 50), **options)
    assert (again.rows_in, again.ended) == (80, True)
    assert read_back(tmp_path / "out").to_pylist() == expected(200)


def test_rows_that_are_gone_end_the_run_with_an_error_that_says_so(redis_server, stream):
    add(redis_server, stream, 0, 50)
    redis_server.client.xtrim(stream, maxlen=20, approximate=False)
    flow = flow_of(ab.redis_stream(redis_server.url, stream, COLUMNS), ab.collect())
    with pytest.raises(SourceError, match="row 30 is the first one kept"):
        ab.run(flow, engine="local", policy="none")


def test_a_run_whose_server_hangs_is_observed_meanwhile_and_goes_on_later(
    redis_server, stream, monkeypatch
):
    monkeypatch.setattr(local_engine, "PERIOD_S", 0.1)
    seen: list[Observation] = []

    def hear(event: Event) -> None:
        if isinstance(event, Observed):
            seen.append(event.observation)

    add(redis_server, stream, 0, 50)
    sink = ab.collect()
    flow = flow_of(ab.redis_stream(redis_server.url, stream, COLUMNS), sink)
    handle = ab.start(flow, plan=plan_of(flow, 40), engine="local", workers=1, listener=hear)
    try:
        assert handle.process_all_available()
        with redis_server.hanging():
            before = len(seen)
            wait_until(lambda: len(seen) >= before + 4)
        add(redis_server, stream, 50, 80, end=True)
        assert handle.await_termination(60)
    finally:
        handle.stop()
    assert sink.table().to_pylist() == expected(80)


# --- kills --------------------------------------------------------------------------------------


@contextmanager
def job(engine: str, server: RedisServer, stream: str, folder: Path) -> Iterator[Any]:
    """The job in a process group of its own, with the JVM that it may start."""
    command = [sys.executable, "-m", "tests.io.redis_job", engine, server.url, stream, folder]
    with (folder / "log.txt").open("a") as log:
        process = subprocess.Popen(
            [str(word) for word in command],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):  # it has ended
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def heard(process: Any, batches: int) -> list[str]:
    """What it says, until it has said so many times that rows were read, or has ended."""
    said: list[str] = []
    while line := process.stdout.readline().strip():
        said.append(line)
        if sum(each != "batch 0" for each in said) >= batches:
            break
    return said


KILLS = {"local": (2, 5, 3), "spark": (3,)}


@thorough
@pytest.mark.timeout(240)
@pytest.mark.xdist_group("kills")
@pytest.mark.parametrize(
    "engine", ["local", pytest.param("spark", marks=[thorough, pytest.mark.spark])]
)
def test_a_killed_reader_loses_nothing_and_doubles_nothing(redis_server, stream, engine, tmp_path):
    rows = 0
    for batches in KILLS[engine]:
        with job(engine, redis_server, stream, tmp_path) as process:
            for _ in range(batches):  # rows come while it runs
                add(redis_server, stream, rows, rows + 150)
                rows += 150
                heard(process, 1)
        add(redis_server, stream, rows, rows + 30)  # and while it does not
        rows += 30
    add(redis_server, stream, rows, rows + 10, end=True)
    with job(engine, redis_server, stream, tmp_path) as process:
        said = heard(process, 10_000)
    assert said[-1] == "ended", (tmp_path / "log.txt").read_text()[-3000:]
    assert read_back(tmp_path / "out").to_pylist() == expected(rows + 10)


# --- a rate beyond what the plan can do ---------------------------------------------------------

ROW_S = 0.001
EASY_PER_S, HARD_PER_S = 400.0, 1600.0
FEW_ROWS, MANY_ROWS = 100, 400  # what comes in a quarter of a second at either rate
MOST_ROWS = 200_000
PATIENCE_S = 60.0
FOREVER_S = 1e6


def slow(batch: Any) -> dict[str, Any]:
    """As if each row had to be looked up somewhere: one replica does a thousand a second."""
    time.sleep(ROW_S * batch.num_rows)
    return {}


class RatesUntil:
    """A pace for a replay: each rate until something is so, or for too long; then it is over."""

    def __init__(self, *steps: tuple[float, Callable[[], bool]]) -> None:
        self.points = steps
        self.in_time = [False] * len(steps)
        self._number, self._rows, self._at_s, self._began_s = 0, 0.0, 0.0, 0.0

    @property
    def over(self) -> bool:
        return self._number == len(self.points)

    def due(self, elapsed_s: float) -> int:
        rate, done = self.points[self._number]
        self._rows += rate * (elapsed_s - self._at_s)
        self._at_s = elapsed_s
        self.in_time[self._number] = done()
        if self.in_time[self._number] or elapsed_s - self._began_s > PATIENCE_S:
            self._number, self._began_s = self._number + 1, elapsed_s
        return int(self._rows)

    def number_at(self, elapsed_s: float) -> int:
        return min(self._number, len(self.points) - 1)

    def clock(self) -> float:
        return time.monotonic() + (FOREVER_S if self.over else 0.0)


class Watcher:
    """What is seen of a run."""

    def __init__(self) -> None:
        self.seen: list[Observation] = []
        self.decided: list[str] = []
        self.moved: list[str] = []

    def hear(self, event: Event) -> None:
        if isinstance(event, Observed):
            self.seen.append(event.observation)
        elif isinstance(event, Decision):
            self.decided.append(event.why)
        elif isinstance(event, Reconfiguration):
            self.moved.append(str(event.moved))

    def backlog(self) -> int | None:
        return self.seen[-1].sources[0].backlog_rows if self.seen else None

    def is_served(self) -> bool:
        """Whether rows are worked on as they come."""
        waits = self.backlog()
        return waits is not None and waits < FEW_ROWS

    def is_profiled(self) -> bool:
        """Whether the policy knows that nothing has to be done."""
        return self.is_served() and any("are served" in why for why in self.decided)

    def is_behind(self) -> bool:
        waits = self.backlog()
        return waits is not None and waits > MANY_ROWS and self.seen[-1].lag_ms > 100

    def is_recalibrated(self) -> bool:
        """Whether it noticed, by what waits or by how long that takes, whichever shows first."""
        signs = ("backlog", "latency")
        told = (why for why in self.decided if "recalibrating" in why)
        return any(sign in why for why in told for sign in signs)

    def is_widened(self) -> bool:
        return any("1 → 2 replicas of region slow" in moved for moved in self.moved)


@thorough
@pytest.mark.timeout(300)
@pytest.mark.xdist_group("kills")
def test_a_rate_above_capacity_is_answered_by_recalibration_and_the_backlog_drains(
    redis_server, stream, monkeypatch
):
    monkeypatch.setattr(local_engine, "PERIOD_S", 0.5)
    flow, sink, watcher = ab.Flow("stepped"), ab.collect(), Watcher()
    source = ab.redis_stream(redis_server.url, stream, "n: int64")
    flow.source("rows", source).map("slow", slow, keeps="*").sink("out", sink)
    numbers = ab.memory(pa.record_batch({"n": pa.array(range(MOST_ROWS), pa.int64())}))
    rates = RatesUntil(
        (EASY_PER_S, watcher.is_profiled),
        (HARD_PER_S, watcher.is_behind),
        (HARD_PER_S, watcher.is_recalibrated),
        (HARD_PER_S, watcher.is_widened),
        (EASY_PER_S / 2, watcher.is_served),
    )
    client = StreamClient(redis_server.url, stream)
    replay = StreamReplay(numbers, client, rates, clock=rates.clock)

    def generate() -> None:
        replay.run(seconds=FOREVER_S)
        replay.end()

    generator = Thread(target=generate)
    generator.start()
    handle = ab.start(
        flow,
        engine="local",
        plan=Plan.sequential(flow).with_source("rows", batch_rows=256, in_flight_limit=1024),
        policy=Stepwise(pace=Cadence(settle=1, periods=2, most=10), patience=1),
        workers=2,
        listener=watcher.hear,
    )
    generator.join()
    assert handle.await_termination(PATIENCE_S)
    assert rates.in_time == [True] * 5, (rates.in_time, watcher.decided, watcher.moved)
    sent = replay.outcome().rows
    assert sink.table()["n"].to_pylist() == list(range(sent))
    assert watcher.backlog() == 0


def rows_by_key(rows: list[dict[str, Any]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row in rows:
        assert row["before"] == len(found.setdefault(row["key"], []))
        found[row["key"]].append(row["n"])
    return found


@pytest.mark.parametrize("engine", ENGINES)
def test_several_streams_are_read_side_by_side_and_each_in_its_order(
    redis_server, engine, request, tmp_path
):
    """Of two streams from the start and a third that comes while the run is stopped."""
    stream = f"several-{engine}"
    source = ab.redis_stream(redis_server.url, f"{stream}:*", COLUMNS)
    flow = flow_of(source, ab.parquet(tmp_path / "out"))
    plan = plan_of(flow, 40).with_source("rows", replicas=2)
    options = options_of(engine, request) | {"checkpoint": tmp_path / "checkpoint"}
    add(redis_server, f"{stream}:b", 0, 120)
    add(redis_server, f"{stream}:c", 1_000, 1_050)
    first = ab.start(flow, plan=plan, **options)
    assert first.process_all_available()
    first.stop()
    before = read_back(tmp_path / "out").to_pylist()
    add(redis_server, f"{stream}:a", 2_000, 2_070, end=True)
    add(redis_server, f"{stream}:b", 120, 200, end=True)
    add(redis_server, f"{stream}:c", 1_050, 1_060, end=True)
    again = ab.run(flow, plan=plan, **options)
    rows = read_back(tmp_path / "out").to_pylist()
    assert (len(before), again.rows_in, again.ended) == (170, 160, True)
    assert rows[: len(before)] == before
    numbers = [n for found in rows_by_key(rows).values() for n in found]
    assert sorted(numbers) == [*range(200), *range(1_000, 1_060), *range(2_000, 2_070)]
    for found in rows_by_key(rows).values():
        for part in (0, 1, 2):
            mine = [n for n in found if n // 1_000 == part]
            assert mine == sorted(mine)


def test_a_stream_that_comes_while_a_run_goes_on_is_read(redis_server, stream):
    sink = ab.collect()
    flow = flow_of(ab.redis_stream(redis_server.url, f"{stream}:*", COLUMNS), sink)
    add(redis_server, f"{stream}:a", 0, 30)
    handle = ab.start(flow, engine="local", plan=plan_of(flow, 40))
    assert handle.process_all_available()
    add(redis_server, f"{stream}:b", 30, 70, end=True)
    wait_until(lambda: sink.table().num_rows == 70)
    add(redis_server, f"{stream}:a", 70, 80, end=True)
    assert handle.await_termination(60)
    assert sorted(row["n"] for row in sink.table().to_pylist()) == list(range(80))
