"""A real cluster: workers without the library, and a worker machine that is lost under way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from anabranch.io.reading_back import read_back
from tests.engines.spark import counting
from tests.engines.spark.bare_python import bare_python
from tests.engines.spark.cluster import cluster
from tests.sampling import thorough

pytestmark = [thorough, pytest.mark.spark, pytest.mark.xdist_group("kills")]

LINES = 900


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


@pytest.mark.timeout(300)
def test_workers_without_the_library_are_refused_and_counts_are_right_when_a_machine_is_lost(
    tmp_path: Path,
) -> None:
    expected = written(tmp_path / "text")
    bare_python(tmp_path / "bare-python")
    with cluster(tmp_path, workers=2) as running, (tmp_path / "driver.log").open("w") as log:
        program = [sys.executable, counting.__file__, running.master]
        driver = subprocess.Popen(
            [*program, str(tmp_path / "text"), str(tmp_path)],
            env=running.environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
        try:
            told, _ = driver.communicate(timeout=270)
            assert driver.returncode == 0, (tmp_path / "driver.log").read_text()[-3000:]
        finally:
            with suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)
            driver.communicate(timeout=60)
        alive = [worker.process.poll() is None for worker in running.workers]
    assert sum(alive) == 1
    assert "Lost executor" in (tmp_path / "driver.log").read_text()
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
