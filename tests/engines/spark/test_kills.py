"""Exactly once on real Spark: whatever is killed, and when, the sinks hold what they should."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.io.reading_back import read_back
from anabranch.planning.plan import Plan
from anabranch.testing.sequential import run_sequential
from tests.engines.spark import killing
from tests.sampling import SOAK, thorough

pytestmark = pytest.mark.spark

CHAINS, AT_RANDOM = (5, 11) if SOAK else (1, 2)
BATCHES = 18 + 2 * AT_RANDOM  # enough for a run to be alive at its last kill
PATIENCE_S = 240

COMMITTED = {"manifest": 0, "reveal": 1, "commit": 2}
"""Points behind the manifest, and how many sinks show the batch then."""
POINTS = ("state", "change", *COMMITTED)
"""Between two state files, the same in the first batch under another plan, and those."""


@dataclass
class Driver:
    """The program to kill, in a process group of its own with its JVM."""

    process: subprocess.Popen[str]
    told: list[str] = field(default_factory=list)

    def go(self, point: str = "") -> None:
        """Let the run begin, to its end or to a point."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{point}\n")
        self.process.stdin.flush()

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

    def kill_group(self) -> None:
        with suppress(ProcessLookupError):  # all of them are gone
            os.killpg(self.process.pid, signal.SIGKILL)


def started(directory: Path) -> Driver:
    """The program, with a Spark that is on its way; it waits for a word."""
    program = [sys.executable, killing.__file__, str(directory), str(BATCHES)]
    with (directory / "log.txt").open("a") as log:
        process = subprocess.Popen(
            program,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
    return Driver(process)


@contextmanager
def drivers(directory: Path, number: int) -> Iterator[Iterator[Driver]]:
    """One after another; while one works, the next one starts Spark. Nothing is left of them."""
    begun = [started(directory)]

    def each() -> Iterator[Driver]:
        for _ in range(number - 1):
            begun.append(started(directory))
            yield begun[-2]
        yield begun[-1]

    try:
        yield each()
    finally:
        for driver in begun:
            driver.kill_group()
            driver.process.communicate(timeout=PATIENCE_S)


def kill_at_random(driver: Driver, rng: Random) -> None:
    """Kill the program somewhere in its work.

    Only Python, so that the JVM notices by itself and may do a little more, or both at once.
    """
    driver.go()
    for _ in range(rng.randint(1, 2)):
        driver.tells()
    with pytest.raises(subprocess.TimeoutExpired):  # it is alive
        driver.process.wait(rng.uniform(0.0, 1.0))
    if rng.random() < 0.5:
        driver.kill_group()
    driver.process.kill()
    assert driver.end() == -signal.SIGKILL


def finish(driver: Driver, directory: Path) -> None:
    """Let the program come to its end, and compare what the sinks hold, row by row."""
    driver.go()
    assert driver.end() == 0, (directory / "log.txt").read_text()[-2000:]
    assert driver.told[-1] == "ended True"
    expected = run_sequential(killing.build(directory / "never written", BATCHES))
    for sink in ("visitors", "pages"):
        assert read_back(directory / sink).to_pylist() == expected.rows(sink)
        hidden = [file.name for file in (directory / sink).glob(".pending-*")]
        assert not hidden


def visible(directory: Path, sink: str, batch: int) -> bool:
    return any((directory / sink).glob(f"part-{batch:08d}*"))


def state_files(directory: Path, batch: int) -> int:
    return len(list((directory / "checkpoint" / "state").glob(f"{batch:012d}-*")))


def kill_at(point: str, driver: Driver, directory: Path) -> None:
    """Let the program kill itself at a point, and see that it was there."""
    begun = max(killing.versions(directory, "manifests"), default=-1) + 1
    driver.go(f"{point}@{max(1, begun)}")
    assert driver.end() == -signal.SIGKILL, (directory / "log.txt").read_text()[-2000:]
    batch = max(killing.versions(directory, "batches"))
    shown = [visible(directory, sink, batch) for sink in ("visitors", "pages")]
    assert (batch in killing.versions(directory, "manifests")) == (point in COMMITTED)
    assert sum(shown) == COMMITTED.get(point, 0)
    assert not (directory / "checkpoint" / "spark" / "commits" / str(batch)).exists()
    if point in ("state", "change"):
        assert state_files(directory, batch) > 0
        assert (batch % killing.CHANGE_EVERY == 0) == (point == "change")


@thorough
@pytest.mark.timeout(0 if SOAK else 600)
@pytest.mark.xdist_group("kills")
@pytest.mark.parametrize("seed", range(CHAINS))
def test_a_driver_killed_again_and_again_goes_on_exactly_once(seed: int, tmp_path: Path) -> None:
    rng = Random(seed)
    kills = [*POINTS, *["random"] * AT_RANDOM]
    rng.shuffle(kills)
    with drivers(tmp_path, len(kills) + 1) as following:
        for point in kills:
            if point == "random":
                kill_at_random(next(following), rng)
            else:
                kill_at(point, next(following), tmp_path)
        finish(next(following), tmp_path)


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
