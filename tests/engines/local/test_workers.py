"""Runs on worker processes: what steps say there, workers that die, scripts of any shape."""

from __future__ import annotations

import gc
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.engines.local import engine as local_engine
from anabranch.engines.local.crew import shared_crew
from anabranch.engines.local.loop import Close
from anabranch.engines.local.mesh import Mesh
from anabranch.errors import EngineError, OperatorError
from anabranch.flow import Flow
from anabranch.io import collect, generate, memory, parquet, read_back
from anabranch.io.source import Chunk, Extent, Source
from anabranch.planning.plan import Plan
from anabranch.planning.starting import one_of_everything
from tests.processes import is_running
from tests.waiting import wait_until

SCHEMA = pa.schema([("x", pa.int64())])
ROWS = 2000
MODULES_HOLD = 10_000
"""Objects, at least."""


def numbers(rng: Any, index: Any) -> dict[str, Any]:
    return {"x": index}


def flow_of(step: Any, sink: Any = None, rows: int | None = ROWS) -> Flow:
    """Return a flow rows → step → seen → out of small batches."""
    flow = Flow("numbers", buckets=8)
    stream = flow.source("rows", generate(numbers, SCHEMA, rows))
    stream = stream.map("step", step, keeps="*").deduplicate("seen", key="x")
    stream.sink("out", sink or collect())
    return flow


def small(flow: Flow) -> Plan:
    return Plan.sequential(flow).with_source("rows", batch_rows=20)


def last_of(batch: pa.RecordBatch) -> int:
    return int(batch["x"][-1].as_py())


# What steps say


def test_lines_that_a_step_prints_arrive_with_its_name(capsys):
    def step(batch: pa.RecordBatch) -> dict[str, Any]:
        print(f"up to {last_of(batch)}")
        print("to the other stream", file=sys.stderr)
        return {}

    ab.run(flow_of(step, rows=20), engine="local", workers=2)
    out, err = capsys.readouterr()
    assert "step: up to 19\n" in out
    assert "step: to the other stream\n" in err


def test_log_records_of_a_step_arrive_with_its_name(caplog):
    def step(batch: pa.RecordBatch) -> dict[str, Any]:
        logging.getLogger("mine").warning("up to %d", last_of(batch))
        return {}

    ab.run(flow_of(step, rows=20), engine="local", workers=2)
    (record,) = [record for record in caplog.records if record.name == "mine"]
    assert (record.getMessage(), record.step) == ("up to 19", "step")


def test_an_error_shows_the_line_in_the_worker_that_raised_it():
    def step(batch: pa.RecordBatch) -> dict[str, Any]:
        raise ValueError("not today")

    with pytest.raises(OperatorError, match="not today") as failure:
        ab.run(flow_of(step), engine="local", workers=2)
    assert failure.value.step == "step"
    (note,) = failure.value.__notes__
    assert note.startswith("in worker 1:")
    assert 'raise ValueError("not today")' in note


# Workers that die


def dying(deaths: Path, most: int) -> Any:
    """Return a step that kills its process some times, in the middle of the stream."""

    def step(batch: pa.RecordBatch) -> dict[str, Any]:
        done = len(list(deaths.iterdir()))
        if last_of(batch) >= (done + 1) * ROWS // (most + 2) and done < most:
            (deaths / str(done)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return {}

    return step


def test_a_worker_that_is_killed_ends_a_run_by_the_names_of_step_worker_and_signal(tmp_path):
    flow = flow_of(dying(tmp_path, 1))
    with pytest.raises(EngineError, match=r"worker 1 .*killed by SIGKILL") as failure:
        ab.run(flow, engine="local", workers=2, plan=small(flow))
    assert failure.value.step == "step"


def test_a_run_with_a_checkpoint_goes_on_after_the_death_of_a_worker(tmp_path, caplog):
    (tmp_path / "deaths").mkdir()
    flow = flow_of(dying(tmp_path / "deaths", 2), parquet(tmp_path / "out"))
    plan = small(flow).with_replicas("seen", 2)
    result = ab.run(flow, engine="local", workers=2, plan=plan, checkpoint=tmp_path / "checkpoint")
    assert result.ended
    assert read_back(tmp_path / "out")["x"].to_pylist() == list(range(ROWS))
    assert (result.rows_in, result.rows_out) == (ROWS, ROWS)
    told = [r.getMessage() for r in caplog.records if "going on from" in r.getMessage()]
    assert ["(restart 1 of 3)" in told[0], "(restart 2 of 3)" in told[1]] == [True, True]
    assert [decision.why for decision in result.decisions] == told


def test_deaths_are_counted_anew_after_several_versions(tmp_path, monkeypatch):
    for name, value in {"SAVE_S": 0.0, "RESTARTS": 1, "RECOVERED": 2}.items():
        monkeypatch.setattr(local_engine, name, value)
    deaths, manifests = tmp_path / "deaths", tmp_path / "checkpoint" / "manifests"
    deaths.mkdir()

    def step(batch: pa.RecordBatch) -> dict[str, Any]:
        died = [int(file.name) for file in deaths.iterdir()]
        version = max((int(file.stem) for file in manifests.glob("0*.json")), default=-1)
        if len(died) < 2 and version >= max(died, default=-1) + 3:
            (deaths / str(version)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return {}

    flow = flow_of(step, parquet(tmp_path / "out"), rows=None)
    options = {"workers": 2, "plan": small(flow), "checkpoint": tmp_path / "checkpoint"}
    with ab.start(flow, engine="local", **options) as run:
        wait_until(lambda: len(run.decisions) == 2)
    assert all("(restart 1 of 1)" in decision.why for decision in run.decisions)
    found = read_back(tmp_path / "out")["x"].to_pylist()
    assert found == list(range(len(found)))


def test_a_worker_that_dies_is_noticed_though_a_child_of_it_lives_on():
    def step(batch: pa.RecordBatch) -> dict[str, Any]:
        if last_of(batch) > ROWS // 2:
            if os.fork() == 0:  # as a pool of processes does
                time.sleep(20)
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)
        return {}

    flow = flow_of(step)
    with pytest.raises(EngineError, match=r"worker 1 .*killed by SIGKILL"):
        ab.run(flow, engine="local", workers=1, plan=small(flow))


def test_what_a_step_prints_before_its_worker_dies_arrives(capsys):
    def step(batch: pa.RecordBatch) -> dict[str, Any]:
        print("before the end")
        os._exit(7)

    with pytest.raises(EngineError, match="exited with code 7"):
        ab.run(flow_of(step), engine="local", workers=1)
    assert "step: before the end" in capsys.readouterr().out


def test_a_worker_that_dies_at_the_end_fails_no_run_whose_rows_are_saved(tmp_path, monkeypatch):
    def killing(self: Mesh, to: Any, message: object, by_value: bool = False) -> None:
        if isinstance(message, Close):
            [worker] = shared_crew()._taken
            os.kill(worker.pid, signal.SIGKILL)
        send_all(self, to, message, by_value)

    send_all = Mesh.send_all
    monkeypatch.setattr(Mesh, "send_all", killing)
    flow = flow_of(lambda batch: {}, parquet(tmp_path / "out"))
    result = ab.run(flow, engine="local", workers=1, checkpoint=tmp_path / "checkpoint")
    assert result.ended
    assert read_back(tmp_path / "out").num_rows == ROWS


def test_a_run_fails_when_workers_die_again_and_again(tmp_path, monkeypatch):
    monkeypatch.setattr(local_engine, "RECOVERED", 1000)
    (tmp_path / "deaths").mkdir()
    flow = flow_of(dying(tmp_path / "deaths", 10))
    with pytest.raises(EngineError, match="killed by SIGKILL"):
        ab.run(
            flow, engine="local", workers=2, plan=small(flow), checkpoint=tmp_path / "checkpoint"
        )
    assert len(list((tmp_path / "deaths").iterdir())) == 4


def test_a_worker_that_died_between_runs_is_replaced(tmp_path):
    flow = flow_of(lambda batch: {}, out := collect())
    ab.run(flow, engine="local", workers=2)
    idle = list(shared_crew()._idle)
    for worker in idle:
        os.kill(worker.pid, signal.SIGKILL)
    wait_until(lambda: all(worker.returncode is not None for worker in idle))
    ab.run(flow, engine="local", workers=2)
    assert out.table().num_rows == ROWS


# What travels


def test_what_cannot_be_sent_to_a_worker_is_named_by_its_step():
    lock = threading.Lock()

    def step(batch: pa.RecordBatch) -> dict[str, Any]:
        with lock:
            return {}

    with pytest.raises(EngineError, match="lock") as failure:
        ab.run(flow_of(step), engine="local", workers=2)
    assert failure.value.step == "step"


def own_bytes(batch: pa.RecordBatch) -> dict[str, Any]:
    """Return the memory that this process does not share."""
    lines = Path("/proc/self/status").read_text().splitlines()
    own = next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))
    return {"own": pa.repeat(own, batch.num_rows)}


def test_a_table_in_memory_is_shared_by_the_workers():
    def most_bytes(rows: int) -> int:
        flow, out = Flow("shared"), collect()
        table = pa.table({"x": pa.repeat(1, rows)})
        stream = flow.source("rows", memory(table)).map("look", own_bytes, out="own: int64")
        stream.filter("one", lambda b: [n == 0 for n in range(b.num_rows)]).sink("out", out)
        ab.run(flow, engine="local", workers=2)
        return int(max(out.table()["own"].to_pylist()))

    small_bytes = max(most_bytes(1 << 17) for _ in range(2))  # what the steps themselves take
    assert most_bytes(1 << 24) - small_bytes < 64 << 20  # of 128 MB


# Plans that change


def test_a_plan_with_more_replicas_than_workers_starts_further_ones(monkeypatch):
    monkeypatch.delenv("ANABRANCH_WORKERS")
    flow = flow_of(lambda batch: {}, out := collect(), rows=None)
    with ab.start(flow, engine="local", plan=small(flow)) as run:
        wait_until(lambda: run.engine.rows[1] > 100)
        before = len(run.engine._session._workers)
        wide = small(flow).with_replicas("seen", 3)
        run.reconfigure(wide)
        wait_until(lambda: run.plan == wide)
        rows = run.engine.rows[1]
        wait_until(lambda: run.engine.rows[1] > rows + 100)
        assert (before, len(run.engine._session._workers)) == (1, 3)
    found = out.table()["x"].to_pylist()
    assert found == list(range(len(found)))


# Sources that grow


class File(Source):
    """As many rows as a file has bytes so far."""

    schema, bounded, order, one_reader = SCHEMA, False, "row", True

    def __init__(self, path: Path) -> None:
        self._path = path

    def parts(self) -> tuple[str, ...]:
        return ("file",)

    def extent(self, part: str) -> Extent:
        return Extent(self._path.stat().st_size, growing=True)

    def read(self, part: str, start: int, rows: int) -> Chunk:
        come = self._path.stat().st_size
        found = range(start, min(start + rows, come))
        return Chunk(pa.record_batch({"x": list(found)}, SCHEMA), dry=start + rows >= come)


@pytest.mark.parametrize("workers", [0, 2])
def test_all_that_has_come_can_be_waited_for(tmp_path, workers: int):
    path = tmp_path / "rows"
    path.write_bytes(b"." * 5)
    flow, out = Flow("growing"), collect()
    flow.source("rows", File(path)).map("all", lambda b: {}, keeps="*").sink("out", out)
    with ab.start(flow, engine="local", workers=workers) as run:
        for rows in (5, 9, 2000):
            with path.open("ab") as file:
                file.write(b"." * (rows - path.stat().st_size))
            assert run.process_all_available(60)
            assert out.table()["x"].to_pylist() == list(range(rows))


# Scripts

BODY = """
import anabranch as ab

class Sum:
    def __init__(self):
        self.total = 0

    def add(self, x):
        self.total += x
        return self.total

@ab.partitioned(key="k", out="k: int64, total: int64")
def sums(ctx):
    own = ctx.state.setdefault("sum", Sum())
    for row in ctx.tuples():
        ctx.emit(total=own.add(row.x))

def flow_of(rows, sink):
    flow = ab.Flow("sums", buckets=8)
    flow.source("rows", rows).apply("sums", sums).sink("out", sink)
    return flow

rows = [{"k": n % 5, "x": n} for n in range(100)]
"""
RUN = """
out = ab.collect()
ab.run(flow_of(ab.memory(rows), out), engine="local", workers=2)
print(sum(out.table()["total"].to_pylist()[-5:]))
"""
EXPECTED = f"{sum(range(100))}\n"


def run_python(*command: str, cwd: Path) -> str:
    """Return what a fresh Python process has printed."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_script_needs_no_main_guard(tmp_path):
    (tmp_path / "job.py").write_text(BODY + RUN)
    assert run_python("job.py", cwd=tmp_path) == EXPECTED


def test_a_command_on_the_command_line_of_python_runs(tmp_path):
    assert run_python("-c", BODY + RUN, cwd=tmp_path) == EXPECTED


IN_A_THREAD = """
import threading

def main():
    out = ab.collect()
    ab.run(flow_of(ab.memory(rows), out), engine="local", workers=2)
    print(sum(out.table()["total"].to_pylist()[-5:]))

threads = [threading.Thread(target=main) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_runs_in_threads_of_their_own_do_not_disturb_each_other(tmp_path):
    assert run_python("-c", BODY + IN_A_THREAD, cwd=tmp_path) == 2 * EXPECTED


CHANGING = """
from itertools import accumulate

def numbers(rng, index):
    return {"k": index % 5, "x": index}

out = ab.collect()
flow = flow_of(ab.generate(numbers, "k: int64, x: int64", rate_per_s=3000), out)
plan = ab.Plan.sequential(flow)
with ab.start(flow, engine="local", workers=2, plan=plan) as run:
    for replicas in (2, 3, 1, 2):
        wanted = plan.with_replicas("sums", replicas)
        run.reconfigure(wanted)
        while run.plan != wanted:
            run.await_termination(0.01)
table = out.table()
for k in range(5):
    totals = [row["total"] for row in table.to_pylist() if row["k"] == k]
    assert totals == list(accumulate(range(k, table.num_rows, 5))), totals
print(len(run.reconfigurations))
"""


def test_objects_of_classes_of_the_main_script_move_with_their_keys(tmp_path):
    assert run_python("-c", BODY + CHANGING, cwd=tmp_path) == "4\n"


STOPPED = """
from itertools import accumulate
from anabranch.io import read_back

def numbers(rng, index):
    return {"k": index % 5, "x": index}

flow = flow_of(ab.generate(numbers, "k: int64, x: int64", rate_per_s=3000), ab.parquet("out"))
with ab.start(flow, engine="local", workers=2, checkpoint="checkpoint") as run:
    while run.engine.rows[1] < 500:
        run.await_termination(0.01)
table = read_back("out")
for k in range(5):
    totals = [row["total"] for row in table.to_pylist() if row["k"] == k]
    assert totals == list(accumulate(range(k, table.num_rows, 5))), totals
print(run.result().resumed, table.num_rows >= 500)
"""


def test_objects_of_classes_of_the_main_script_come_back_from_a_checkpoint(tmp_path):
    (tmp_path / "job.py").write_text(BODY + STOPPED)
    told = [run_python("job.py", cwd=tmp_path) for _ in range(2)]
    assert told == ["False True\n", "True True\n"]


ENDLESS = """
def numbers(rng, index):
    return {"k": index % 5, "x": index}

def show(batch, version):
    print("at work", flush=True)

flow = flow_of(ab.generate(numbers, "k: int64, x: int64"), ab.call(show))
plan = ab.plan(flow).with_replicas("sums", 2)
ab.run(flow, engine="local", workers=2, plan=plan)
"""


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_nothing_is_left_when_the_process_of_the_user_is_killed(tmp_path):
    before = set(os.listdir("/dev/shm"))
    command = [sys.executable, "-c", BODY + ENDLESS]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "at work\n"
        workers = children(process.pid)
        process.kill()
    assert len(workers) == 2
    wait_until(lambda: not any(map(is_running, workers)))
    left = set(os.listdir("/dev/shm")) - before
    assert [name for name in left if "anabranch" in name] == []


UNSTOPPED = """
def numbers(rng, index):
    return {"k": index % 5, "x": index}

flow = flow_of(ab.generate(numbers, "k: int64, x: int64", rate_per_s=3000), ab.parquet("out"))
run = ab.start(flow, engine="local", workers=2, checkpoint="checkpoint")
while run.engine.rows[1] < 500:
    run.await_termination(0.01)
"""


def test_a_script_that_ends_without_stopping_its_run_starts_no_further_workers(tmp_path):
    command = [sys.executable, "-c", BODY + UNSTOPPED]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "restart" in done.stderr) == (0, False), done.stderr


FORKING = """
import os, time

out = ab.collect()
rows = ab.memory([{"k": n % 5, "x": n} for n in range(1000)])
children = []

def listener(event):
    if not children:
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        children.append(child)

flow = flow_of(rows, out)
plan = ab.plan(flow).with_replicas("sums", 2)  # the run ends when both workers have worked
ab.run(flow, engine="local", workers=2, plan=plan, listener=listener)
from anabranch.engines.local.crew import shared_crew
print(len(shared_crew()._idle), out.table().num_rows)
os.kill(children[0], 9)
"""


def test_workers_stay_warm_though_the_process_of_the_user_forks_during_a_run(tmp_path):
    assert run_python("-c", BODY + FORKING, cwd=tmp_path) == "2 1000\n"


KEEPING = """
import os

kept = []
counts = []
for _ in range(6):
    out = ab.collect()
    rows = ab.memory([{"k": n % 5, "x": n} for n in range(20_000)])
    ab.run(flow_of(rows, out), engine="local", workers=2)
    kept.append(out.table())
    counts.append(len(os.listdir("/proc/self/fd")))
print(counts[-1] - counts[1], sum(each.num_rows for each in kept))
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")
def test_results_that_are_kept_hold_no_shared_memory(tmp_path):
    assert run_python("-c", BODY + KEEPING, cwd=tmp_path) == "0 120000\n"


LATE = """
from anabranch.engines.local.crew import shared_crew

out = ab.collect()
run = ab.start(flow_of(ab.memory([{"k": 1, "x": 1}]), out), engine="local", workers=1)
run.stop()
print(len(shared_crew()._idle))
"""


SHORT = """
from anabranch.engines.local.crew import shared_crew

pids = []
for _ in range(2):
    out = ab.collect()
    flow = flow_of(ab.memory([{"k": 1, "x": 1}]), out)
    ab.run(flow, engine="local", workers=4)
    pids.append([worker.pid for worker in shared_crew()._idle])
print(len(pids[0]), pids[0] == pids[1])
"""


def test_no_more_workers_start_than_a_plan_needs(tmp_path):
    assert run_python("-c", BODY + SHORT, cwd=tmp_path) == "1 True\n"


def test_workers_that_still_start_are_ended_with_their_run(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, time\nif 'anabranch.engines.local.worker' in sys.orig_argv: time.sleep(100)\n"
    )
    assert run_python("-c", BODY + LATE, cwd=tmp_path) == "0\n"


def test_a_run_whose_steps_are_slow_stops_after_a_few_claims():
    def slow(batch: pa.RecordBatch) -> dict[str, Any]:
        time.sleep(0.0002 * batch.num_rows)
        return {}

    flow = flow_of(slow, rows=None)
    with ab.start(flow, engine="local", workers=1) as run:
        wait_until(lambda: run.engine.rows[0])
    assert run.result().rows_in < one_of_everything(flow).source("rows").batch_rows


@pytest.mark.parametrize("workers", [0, 2])
def test_a_listener_that_waits_for_its_own_run_is_refused(workers: int):
    def listener(event: object) -> None:
        if run and not refused:
            with pytest.raises(EngineError, match="waits for the end of its own run") as failure:
                run[0].await_termination(60)
            refused.append(failure.value)

    run: list[Any] = []
    refused: list[EngineError] = []
    flow = flow_of(lambda batch: {}, rows=None)
    with ab.start(flow, engine="local", workers=workers, listener=listener) as started:
        run.append(started)
        wait_until(lambda: refused)


@pytest.mark.parametrize("checkpoint", [True, False])
def test_a_sink_that_moves_from_worker_to_worker_shows_every_row_once(
    tmp_path, monkeypatch, checkpoint: bool
):
    monkeypatch.setattr(local_engine, "SAVE_S", 0.01)
    flow = Flow("numbers")
    rows = generate(numbers, SCHEMA, rate_per_s=2000)
    flow.source("rows", rows).sink("out", parquet(tmp_path / "out"))
    plan = small(flow)
    kept: Any = {"checkpoint": tmp_path / "checkpoint"} if checkpoint else {}
    with ab.start(flow, engine="local", plan=plan, workers=2, **kept) as run:
        for number in range(12):
            run.reconfigure(plan.with_workers("out", number % 2))
            wait_until(lambda seen=number + 1: len(run.reconfigurations) >= seen)
    shown = read_back(tmp_path / "out")["x"].to_pylist()
    assert shown == list(range(run.result().rows_in))
    assert shown


def test_garbage_collections_in_a_worker_pass_over_the_modules():
    def frozen(batch: pa.RecordBatch) -> dict[str, Any]:
        return {"frozen": [gc.get_freeze_count()] * batch.num_rows}

    flow = Flow("collections")
    rows = flow.source("rows", generate(numbers, SCHEMA, 10))
    rows.map("frozen", frozen, out="frozen: int64").sink("out", out := collect())
    for _ in range(2):  # the second run has the same worker
        ab.run(flow, engine="local", workers=1)
        assert min(out.table()["frozen"].to_pylist()) > MODULES_HOLD
