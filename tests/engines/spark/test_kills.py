"""Exactly once on real Spark: whatever is killed, and when, the sinks hold what they should."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.io.read_back import read_back
from anabranch.plan.plan import Plan
from anabranch.testing.sequential import run_sequential
from tests.engines.spark import killing

pytestmark = pytest.mark.spark

SOAKING = "ANABRANCH_SOAK" in os.environ
CHAINS, KILLS = (10, 6) if SOAKING else (1, 2)
PATIENCE_S = 240


@dataclass
class Driver:
    """The program to kill, in a process group of its own with its JVM."""

    process: subprocess.Popen[str]
    told: list[str] = field(default_factory=list)

    def tells(self) -> str | None:
        """The next thing it says; None when it has died."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        self.told += [line] if line else []
        return line or None

    def end(self) -> int:
        """Let it come to its end, whatever that is."""
        while self.tells() is not None:
            pass
        return self.process.wait(PATIENCE_S)


@contextmanager
def driver(directory: Path, *point: str) -> Iterator[Driver]:
    """Start the program; nothing of it is left afterwards."""
    program = [sys.executable, killing.__file__, str(directory), *point]
    with (directory / "log.txt").open("a") as log:
        process = subprocess.Popen(
            program, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        )
    try:
        yield Driver(process)
    finally:
        kill_group(process)
        process.communicate(timeout=PATIENCE_S)


def kill_group(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # all of them are gone


def kill_at_random(directory: Path, rng: Random) -> bool:
    """Kill the program somewhere in its work; whether it lived long enough for that.

    Only Python, so that the JVM notices by itself and may do a little more, or both at once.
    """
    with driver(directory) as running:
        for _ in range(rng.randint(1, 3)):
            running.tells()
        try:
            running.process.wait(rng.uniform(0.0, 1.0))
        except subprocess.TimeoutExpired:
            if rng.random() < 0.5:
                kill_group(running.process)
            running.process.kill()
        return running.end() == -signal.SIGKILL


def finish(directory: Path) -> None:
    """Let the program come to its end, and compare what the sinks hold, row by row."""
    with driver(directory) as running:
        assert running.end() == 0, (directory / "log.txt").read_text()[-2000:]
    assert running.told[-1] == "ended True"
    expected = run_sequential(killing.build(directory / "never written"))
    for sink in ("visitors", "pages"):
        assert read_back(directory / sink).to_pylist() == expected.rows(sink)
        hidden = [file.name for file in (directory / sink).glob(".pending-*")]
        assert not hidden


def visible(directory: Path, sink: str, batch: int) -> bool:
    return any((directory / sink).glob(f"part-{batch:08d}*"))


def state_files(directory: Path, batch: int) -> int:
    return len(list((directory / "checkpoint" / "state").glob(f"{batch:012d}-*")))


def killed_at(point: str, directory: Path) -> int:
    """Let the program kill itself at a point; gives the batch that was under way."""
    with driver(directory, point) as running:
        assert running.end() == -signal.SIGKILL, (directory / "log.txt").read_text()[-2000:]
    return max(killing.versions(directory, "batches"))


@pytest.mark.timeout(600)
@pytest.mark.xdist_group("kills")
def test_a_driver_killed_at_every_step_of_a_batch_goes_on_exactly_once(tmp_path: Path) -> None:
    batch = killed_at("state@1", tmp_path)
    assert state_files(tmp_path, batch) > 0
    assert batch not in killing.versions(tmp_path, "manifests")

    batch = killed_at("change@3", tmp_path)  # the first batch under another plan
    assert batch % killing.CHANGE_EVERY == 0
    assert state_files(tmp_path, batch) > 0
    assert batch not in killing.versions(tmp_path, "manifests")

    batch = killed_at("manifest@5", tmp_path)
    assert batch in killing.versions(tmp_path, "manifests")
    assert not visible(tmp_path, "visitors", batch)

    batch = killed_at("reveal@7", tmp_path)  # one sink shows the batch, the other not yet
    assert batch in killing.versions(tmp_path, "manifests")
    assert visible(tmp_path, "visitors", batch) != visible(tmp_path, "pages", batch)

    batch = killed_at("commit@9", tmp_path)  # Spark does not know yet
    assert visible(tmp_path, "visitors", batch) and visible(tmp_path, "pages", batch)
    assert not (tmp_path / "checkpoint" / "spark" / "commits" / str(batch)).exists()

    finish(tmp_path)


@pytest.mark.timeout(0 if SOAKING else 600)
@pytest.mark.xdist_group("kills")
@pytest.mark.parametrize("seed", range(CHAINS))
def test_a_driver_killed_at_random_moments_goes_on_exactly_once(seed: int, tmp_path: Path) -> None:
    rng = Random(seed)
    kills = sum(kill_at_random(tmp_path, rng) for _ in range(KILLS))
    assert kills > 0
    print(f"chain {seed}: {kills} kills")
    finish(tmp_path)


@pytest.mark.xdist_group("spark")
def test_a_worker_killed_in_the_middle_of_a_task_is_replaced(
    spark: SparkSession, tmp_path: Path
) -> None:
    marker = tmp_path / "killed"
    words = [{"word": f"w{number % 7}"} for number in range(120)]

    @ab.partitioned(key="word", out="n: int64")
    def running_count(ctx: ab.Invocation) -> None:
        for _ in ctx.tuples():
            ctx.state["n"] = ctx.state.get("n", 0) + 1
            if ctx.state["n"] == 9 and not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            ctx.emit(n=ctx.state["n"])

    def build(out: Path) -> ab.Flow:
        flow = ab.Flow("worker-killed", buckets=16)
        counted = flow.source("words", ab.memory(words)).apply("count", running_count)
        counted.sink("out", ab.parquet(out))
        return flow

    flow = build(tmp_path / "out")
    plan = Plan.sequential(flow).with_source("words", batch_rows=30).with_replicas("count", 2)
    result = ab.run(flow, plan=plan, session=spark, checkpoint=tmp_path / "checkpoint")
    assert marker.exists()
    assert result.ended
    expected = run_sequential(build(tmp_path / "never written")).rows("out")
    assert read_back(tmp_path / "out").to_pylist() == expected
