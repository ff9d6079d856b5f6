"""A process that is killed and started again leaves what an undisturbed one would have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from anabranch.io.reading_back import read_back
from anabranch.testing.sequential import run_sequential
from tests.engines.local.counting_job import flow_of
from tests.sampling import thorough

KILLS = 4
REPOSITORY = Path(__file__).resolve().parents[3]


@thorough
@pytest.mark.timeout(300)
@pytest.mark.xdist_group("kills")
def test_kills_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    rng = Random(4)
    killed = 0
    for _ in range(KILLS):
        job = start(tmp_path)
        try:
            job.wait(1.2 + rng.random())
        except subprocess.TimeoutExpired:
            job.kill()
            killed += 1
        job.wait(60)
    last = start(tmp_path)
    assert last.wait(150) == 0
    assert killed >= 2, "the job was over before it could be killed"
    flow = flow_of(tmp_path)
    assert read_back(tmp_path / "out").to_pylist() == run_sequential(flow).rows("out")


def start(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.engines.local.counting_job", str(folder)]
    return subprocess.Popen(command, cwd=REPOSITORY)
