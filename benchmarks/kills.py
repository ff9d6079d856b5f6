"""Kills of workers and of the coordinator at random moments, with plan changes.

A job counts numbers by key with a checkpoint, on worker processes, and changes its plan all the
time. Processes of it are killed by SIGKILL: mostly a worker, after which the job goes on by itself,
sometimes the job, which is then started again. In the end every number must have been counted once,
in order, and no process may be left.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
from harness import Report, main

import anabranch as ab
from anabranch.engines.local import engine as local_engine
from anabranch.flow import Flow
from anabranch.planning.plan import Plan

KILLS, QUICK_KILLS = 200, 20
JOB_SHARE = 0.2
"""Part of the kills that hit the coordinator."""
ROWS, KEYS, ROWS_PER_S = 1_000_000, 97, 8_000
GONE_S = 2.0


@ab.partitioned(key="k", out="k: int64, n: int64, v: int64")
def numbered(ctx):
    for row in ctx.tuples():
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        ctx.emit(n=ctx.state["n"], v=row.v)


def flow_of(folder: Path, rate_per_s: float | None) -> Flow:
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    source = ab.generate(
        lambda rng, index: {"k": index % KEYS, "v": index}, schema, ROWS, rate_per_s
    )
    flow = Flow("kills", buckets=16)
    flow.source("numbers", source).apply("count", numbered).sink("out", ab.parquet(folder / "out"))
    return flow


def job(folder: Path, rate_per_s: float | None, seed: int) -> None:
    """Run to the end; while rows come at a pace, the plan changes all the time."""
    local_engine.SAVE_S, local_engine.RESTARTS = 0.2, 10**6
    flow, rng = flow_of(folder, rate_per_s), Random(seed)
    plan = Plan.sequential(flow).with_source("numbers", batch_rows=500 if rate_per_s else 10_000)
    run = ab.start(flow, engine="local", plan=plan, checkpoint=folder / "checkpoint", workers=2)
    while not run.await_termination(rng.uniform(0.05, 0.3)):
        run.reconfigure(plan.with_replicas("count", rng.randint(1, 3)))


def kill_again_and_again(kills: int, seed: int = 0) -> dict[str, float]:
    rng, killed = Random(seed), {"workers": 0, "coordinator": 0}
    left = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        process = started(folder, ROWS_PER_S, seed)
        while sum(killed.values()) < kills:
            time.sleep(rng.uniform(0.05, 0.5))
            workers = children_of(process.pid)
            if rng.random() < JOB_SHARE:
                process.kill()
                process.wait()
                killed["coordinator"] += 1
                time.sleep(GONE_S)
                left += sum(map(is_alive, workers))
                process = started(folder, ROWS_PER_S, seed + sum(killed.values()))
            elif workers:
                with suppress(ProcessLookupError):
                    os.kill(rng.choice(workers), signal.SIGKILL)
                    killed["workers"] += 1
        process.kill()
        process.wait()
        last = started(folder, None, seed)
        if last.wait(300):
            raise AssertionError("the last run has failed")
        out = pq.read_table(folder / "out")
    values, counts = out["v"].to_pylist(), out["n"].to_pylist()
    wrong = sum(n != v // KEYS + 1 for n, v in zip(counts, values, strict=True))
    return {
        **{f"kills_of_{who}": float(count) for who, count in killed.items()},
        "rows_lost": float(ROWS - len(set(values))),
        "rows_doubled": float(len(values) - len(set(values))),
        "rows_out_of_order": float(sum(a > b for a, b in pairwise(values))),
        "wrong_counts": float(wrong),
        "processes_left": float(left),
    }


def started(folder: Path, rate_per_s: float | None, seed: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, __file__, "job", str(folder), str(rate_per_s or 0), str(seed)]
    with (folder / "log.txt").open("ab") as log:
        return subprocess.Popen(command, stderr=log)


def children_of(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for listed in Path(f"/proc/{pid}/task").glob("*/children"):
            found += map(int, listed.read_text().split())
    return found


def is_alive(pid: int) -> bool:
    with suppress(OSError):
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return False


def measure(quick: bool) -> Report:
    report = Report("kills", "after kills at random moments nothing is lost, doubled or left")
    for name, value in kill_again_and_again(QUICK_KILLS if quick else KILLS).items():
        report.add_figure(name, value)
        if not name.startswith("kills"):
            report.add_bar(name, value, 0.0, at_least=False)
    return report


if __name__ == "__main__":
    if sys.argv[1:2] == ["job"]:
        job(Path(sys.argv[2]), float(sys.argv[3]) or None, int(sys.argv[4]))
    else:
        main(measure)
