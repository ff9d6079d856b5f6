"""A real cluster: workers without the library, and a worker machine that is lost under way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.io.reading_back import read_back
from anabranch.testing import run_sequential
from tests.engines.spark import counting, minutes
from tests.engines.spark.bare_python import bare_python
from tests.engines.spark.cluster import cluster
from tests.sampling import thorough

pytestmark = [thorough, pytest.mark.spark, pytest.mark.xdist_group("kills")]

REPOSITORY = Path(__file__).parents[3]
LINES = 900
READINGS, FILES, LATE = 2_400, 4, 97


def written(folder: Path) -> Counter[str]:
    rng = Random(5)
    words = [f"w{number}" for number in range(50)]
    counted: Counter[str] = Counter()
    folder.mkdir()
    for number in range(3):
        lines = [rng.choices(words, k=8) for _ in range(LINES // 3)]
        (folder / f"{number}.txt").write_text("".join(" ".join(line) + "\n" for line in lines))
        counted.update(word for line in lines for word in line)
    return counted


def driven(program: str, given: Path, directory: Path) -> str:
    """Run a program on two machines, one of which it loses; return what it prints."""
    with cluster(directory, workers=2) as running, (directory / "driver.log").open("w") as log:
        driver = subprocess.Popen(
            [sys.executable, program, running.master, str(given), str(directory)],
            env={**running.environment, "PYTHONPATH": str(REPOSITORY)},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
        try:
            told, _ = driver.communicate(timeout=270)
            assert driver.returncode == 0, (directory / "driver.log").read_text()[-3000:]
        finally:
            with suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)
            driver.communicate(timeout=60)
        alive = [worker.process.poll() is None for worker in running.workers]
    assert sum(alive) == 1
    assert "Lost executor" in (directory / "driver.log").read_text()
    return told


@pytest.mark.timeout(300)
def test_workers_without_the_library_are_refused_and_counts_are_right_when_a_machine_is_lost(
    tmp_path: Path,
) -> None:
    expected = written(tmp_path / "text")
    bare_python(tmp_path / "bare-python")
    told = driven(counting.__file__, tmp_path / "text", tmp_path)
    refused, last = told.splitlines()
    version = ".".join(map(str, sys.version_info[:3]))
    assert "expected workers that can import anabranch" in refused
    assert f"got Python {version} at {sys.executable}: No module named" in refused
    assert "set PYSPARK_PYTHON" in refused
    assert "--archives" in refused
    ended, rows_in, changes = last.split()[1:]
    assert (ended, rows_in) == ("True", str(LINES))
    assert int(changes) >= 3
    rows = read_back(tmp_path / "out").to_pylist()
    assert {row["word"]: row["n"] for row in rows} == expected


def write_readings(folder: Path) -> None:
    """Readings of eight keys, a few seconds out of order; every 97th of them is late."""
    rng = Random(7)
    folder.mkdir()
    rows = [
        {
            "ts": number - (60 if number % LATE == 0 else rng.randrange(6)),
            "key": f"k{rng.randrange(8)}",
            "value": rng.randrange(1_000),
        }
        for number in range(100, 100 + READINGS)
    ]
    part = READINGS // FILES
    for number in range(FILES):
        table = pa.Table.from_pylist(rows[number * part : (number + 1) * part])
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=part // 4)


@pytest.mark.timeout(300)
def test_event_time_on_both_machines_gives_the_sequence_of_one_thread_when_one_is_lost(
    tmp_path: Path,
) -> None:
    write_readings(tmp_path / "readings")
    told = json.loads(driven(minutes.__file__, tmp_path / "readings", tmp_path).splitlines()[-1])
    assert (told["ended"], told["rows"]) == (True, READINGS)
    both = ["worker-0", "worker-1"]
    flow = minutes.build(tmp_path / "readings", tmp_path)
    wide = {each.region for each in minutes.plan_of(flow).regions if each.replicas > 1}
    assert {"copies", "struck", "minutes"} <= wide
    for work in ("read", "dealt", "wrote", "copies", "struck", "minutes"):
        assert told["before"].get(work) == both, (work, told)
    [left] = {machine for machines in told["after"].values() for machine in machines}
    assert left in both
    assert told["after"].keys() >= {"read", "dealt", "wrote"}
    expected = run_sequential(flow.writing({name: ab.collect() for name in flow.sinks()}))
    for sink in flow.sinks():
        rows = read_back(tmp_path / sink).to_pylist()
        assert rows == expected.rows(sink), sink
    assert len(expected.rows("late")) >= READINGS // LATE
