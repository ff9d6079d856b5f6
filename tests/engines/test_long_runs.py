"""The memory of a run that goes on for minutes is flat; only `make soak` has the time to see it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from anabranch.engines.spark.state_cache import cache_directory

SECONDS = float(os.environ.get("ANABRANCH_SOAK_SECONDS", "600"))
WARM_UP = 1 / 3
"""The share of a run in which queues and caches fill, and Java compiles what runs often."""
EVERY_S = 1.0
MOST_KB_PER_S = 100.0
"""Far below what was ever wrong: rows that were kept made 35,000, batches in cycles 750. Above
what is no leak: Spark's Java still compiles after minutes, which made 89 within 300 s, and 5 within
600; the local engine made less than 0."""
WHOLE_HEAP = "-Xms512m -XX:+AlwaysPreTouch"
"""Java takes all of its heap at the start, and not bit by bit; what leaks inside ends the run."""
PROC = Path("/proc")


class Sample(NamedTuple):
    """What a run occupies at one moment."""

    at_s: float
    kb: float


@pytest.mark.soak
@pytest.mark.skipif(not (PROC / "self" / "smaps_rollup").exists(), reason="needs Linux's /proc")
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("engine", "app", "written"),
    [
        ("local", "spike-detection", False),
        ("local", "spike-detection", True),
        ("spark", "word-count", False),
    ],
)
def test_memory_is_flat_after_the_warm_up(
    engine: str, app: str, written: bool, tmp_path: Path
) -> None:
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    command = [sys.executable, "-m", "anabranch.cli", "run", app, "--engine", engine]
    # No policy: a plan that it tries may take more memory than the one before, and is no leak.
    command += ["--seconds", str(SECONDS), "--policy", "none"]
    if engine == "spark":  # it makes a checkpoint anyway; state in shared memory goes by its name
        command += ["--checkpoint", str(checkpoint), "--conf", "spark.driver.memory=512m"]
        command += ["--conf", f"spark.driver.extraJavaOptions={WHOLE_HEAP}"]
    if written:
        command += ["--out", str(out)]
    with open(tmp_path / "said", "w+b") as said:
        run = subprocess.Popen(command, stdout=said, stderr=said)
        try:
            samples = list(watched(run, cache_directory(str(checkpoint))))
        finally:
            run.kill()
            run.wait()
            shutil.rmtree(out, ignore_errors=True)  # gigabytes, which pytest would keep
        said.seek(0)
        assert run.returncode == 0, said.read().decode()
    warm_s = samples[-1].at_s - (1 - WARM_UP) * SECONDS
    warm = [sample for sample in samples if sample.at_s >= warm_s]
    growth_kb_per_s = slope(warm)
    # A process that was counted between fork and exec is there twice: percentiles leave it out.
    least, most = np.percentile([sample.kb / 1024 for sample in warm], [5, 95])
    found = f"{least:.0f} to {most:.0f} MB, {growth_kb_per_s:+.1f} kB/s"
    how = f"{engine} with --out" if written else engine
    print(f"{app} on {how}, after {WARM_UP:.0%} of {SECONDS:.0f} s: {found}")
    assert growth_kb_per_s < MOST_KB_PER_S, found


def slope(samples: Sequence[Sample]) -> float:
    """Kilobytes a second: the median over all pairs, to which the last seconds of a run, when it
    lets go of everything, and other exceptions make no difference (Theil and Sen)."""
    at_s, kb = map(np.array, zip(*samples, strict=True))
    one, other = np.triu_indices(len(samples), 1)
    return float(np.median((kb[other] - kb[one]) / (at_s[other] - at_s[one])))


def watched(run: subprocess.Popen[bytes], lot: Path) -> Iterator[Sample]:
    """What a process and all its descendants occupy, until it ends."""
    began = time.monotonic()
    while run.poll() is None:
        kb = sum(map(private_kb, family(run.pid))) + folder_kb(lot)
        yield Sample(time.monotonic() - began, kb)
        time.sleep(EVERY_S)


def family(root: int) -> list[int]:
    """A process and its descendants."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for folder in PROC.iterdir():
        if folder.name.isdecimal():
            try:
                after_name = (folder / "stat").read_text().rpartition(")")[2]
            except OSError:  # it has ended
                continue
            children[int(after_name.split()[1])].append(int(folder.name))
    found = [root]
    for pid in found:
        found += children[pid]
    return found


def private_kb(pid: int) -> int:
    """The resident memory of a process; of pages that several have, its share of each.

    Pages of shared memory are left out: they are files, which `folder_kb` counts, mapped or not.
    """
    try:
        lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()[1:]
    except OSError:  # it has ended
        return 0
    fields = {name: int(rest.split()[0]) for name, _, rest in (x.partition(":") for x in lines)}
    return fields.get("Pss", 0) - fields.get("Pss_Shmem", 0)


def folder_kb(folder: Path) -> float:
    """The files of a folder in shared memory."""
    blocks = 0
    for path in folder.rglob("*"):
        try:
            blocks += path.stat().st_blocks
        except OSError:  # it has gone
            continue
    return blocks / 2
