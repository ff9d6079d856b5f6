"""Stopping, from wherever and however often; requests that come at the wrong moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from anabranch.engines.local import crew as crew_module
from anabranch.engines.local import engine as engine_module
from anabranch.engines.local import session as session_module
from anabranch.errors import EngineError, PlanError
from anabranch.events import Event, Reconfiguration, RunStarted
from anabranch.flow import Flow
from anabranch.io import collect, memory
from anabranch.planning.plan import Plan
from anabranch.running import start
from tests.engines.local.failing import Doomed
from tests.engines.local.rows_to_read import Rows
from tests.processes import is_running, start_process
from tests.waiting import Side, wait_until


def is_prefix(rows: list[int]) -> bool:
    return rows == list(range(len(rows)))


def test_a_stop_finishes_what_is_under_way_and_shows_it():
    run = Doomed().start()
    wait_until(lambda: run.engine.rows[1] > 50)
    run.engine.stop()
    read, written = run.engine.rows
    assert read == written == len(run.rows)
    assert is_prefix(run.rows)
    assert run.ends == [False]
    run.assert_gone()


@pytest.mark.parametrize("raises", [False, True])
def test_a_block_that_is_left_stops_its_run(raises: bool):
    flow = Flow("endless")
    flow.source("rows", Rows([10], bounded=False)).sink("out", collect())
    with suppress(ZeroDivisionError), start(flow, engine="local") as run:
        wait_until(lambda: run.engine.rows[0] > 0)
        assert run.is_active
        if raises:
            raise ZeroDivisionError
    assert not run.is_active
    assert not run.result().ended


def test_several_stops_are_one():
    run = Doomed().start()
    stops = [Side(run.engine.stop) for _ in range(3)]
    for stop in stops:
        stop.end()
    run.engine.stop()
    assert run.ends == [False]
    run.assert_gone()


def test_a_listener_may_stop_the_run():
    def listener(event: Event) -> None:
        if isinstance(event, Reconfiguration):
            run.engine.stop()

    run = Doomed(listener=listener).start()
    run.engine.reconfigure(run.wide(2))
    assert run.engine.wait(60)
    assert run.ends == [False]
    run.assert_gone()


def test_a_listener_may_stop_the_run_as_soon_as_it_has_started():
    def listener(event: Event) -> None:
        if isinstance(event, RunStarted):
            run.engine.stop()

    run = Doomed(listener=listener)
    run.start()
    assert run.engine.wait(60)
    assert run.ends == [False]


def test_an_operator_may_stop_the_run():
    started = threading.Event()

    def step(batch: Any) -> None:
        if batch["x"][-1].as_py() > 100:
            assert started.wait(60)
            run.engine.stop()

    run = Doomed(step).start()
    started.set()
    assert run.engine.wait(60)
    assert run.ends == [False]
    assert is_prefix(run.rows)
    run.assert_gone()


class Blocked:
    """A run on two workers whose step waits for the test, with a switch that waits for the step."""

    def __init__(self, folder: Path) -> None:
        inside, self._go_on = folder / "inside", folder / "go on"

        def step(batch: Any) -> None:
            inside.touch()
            until_s = time.monotonic() + 60
            while not go_on.exists() and time.monotonic() < until_s:
                time.sleep(0.005)

        go_on = self._go_on
        self.run = Doomed(step, workers=2, placed={"rows": 0, "step": 1, "first": 0}).start()
        wait_until(inside.exists)
        self.run.engine.reconfigure(self.run.wide(3))
        wait_until(lambda: self.run.engine._session.coordinator.plan == self.run.wide(3))

    def go_on(self) -> None:
        self._go_on.touch()


def test_a_stop_in_the_middle_of_a_switch_waits_for_it(tmp_path: Path):
    blocked = Blocked(tmp_path)
    stopping = Side(blocked.run.engine.stop)
    blocked.go_on()
    stopping.end()
    run = blocked.run
    assert is_prefix(run.rows)
    assert run.engine.rows[0] == len(run.rows)
    assert run.engine.plan == run.wide(3)
    run.assert_gone()


def test_a_step_that_never_returns_is_killed_and_named_when_patience_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(engine_module, "DRAIN_S", 0.1)
    # As short as a worker that has nothing to do can end in, however busy the machine is.
    monkeypatch.setattr(session_module, "END_S", 5.0)
    monkeypatch.setattr(crew_module, "GRACE_S", 3600.0)  # nobody waits a second time for the step
    blocked = Blocked(tmp_path)
    workers = [worker.pid for worker in blocked.run.engine._session._workers]
    with pytest.raises(EngineError, match="still at work") as failure:
        blocked.run.engine.stop()
    assert failure.value.step == "step"
    assert blocked.run.ends == [False]
    assert blocked.run.engine.plan == blocked.run.plan  # the switch did not happen at all
    blocked.run.assert_gone()
    assert [is_running(pid) for pid in workers] == [True, False]


def test_a_plan_of_another_flow_is_refused_and_the_run_goes_on():
    other = Flow("other")
    other.source("rows", memory([{"x": 1}])).sink("out", collect())
    run = Doomed().start()
    for wrong in (Plan.sequential(other), run.plan.with_bucket_map("first", (0,))):
        with pytest.raises(PlanError):
            run.engine.reconfigure(wrong)
    before = run.engine.rows[1]
    wait_until(lambda: run.engine.rows[1] > before)
    run.engine.stop()
    assert run.engine.plan == run.plan
    assert run.engine.reconfigurations() == []


def test_the_newest_request_wins(tmp_path: Path):
    blocked = Blocked(tmp_path)
    for replicas in (4, 5, 2):
        blocked.run.engine.reconfigure(blocked.run.wide(replicas))
    blocked.go_on()
    wait_until(lambda: len(blocked.run.engine.reconfigurations()) == 2)
    changes = [Plan.from_json(c.after) for c in blocked.run.engine.reconfigurations()]
    blocked.run.engine.stop()
    assert changes == [blocked.run.wide(3), blocked.run.wide(2)]


def test_a_request_for_the_plan_in_force_changes_nothing():
    run = Doomed().start()
    run.engine.reconfigure(run.plan)
    wait_until(lambda: run.engine._requested is None)
    run.engine.stop()
    assert run.engine.reconfigurations() == []


def test_requests_and_stops_after_the_end_are_harmless():
    run = Doomed(rows=100).start()
    assert run.engine.wait(60)
    run.engine.reconfigure(run.wide(2))
    run.engine.stop()
    assert run.engine.wait(0)
    assert (run.engine.plan, run.ends, len(run.rows)) == (run.plan, [True], 100)
    run.assert_gone()


def test_an_endless_source_that_has_nothing_is_not_asked_all_the_time():
    source = Rows([3], bounded=False)
    flow = Flow("idle")
    flow.source("rows", source).sink("out", collect())
    engine = engine_module.LocalEngine(flow, Plan.sequential(flow), engine_module.Options())
    engine.start(lambda event: None)
    wait_until(lambda: engine.rows[1] == 3)
    before, began_s = source.reads, time.monotonic()
    wait_until(lambda: source.reads >= before + 20)
    reads, seconds = source.reads - before, time.monotonic() - began_s
    engine.stop()
    assert reads <= 200 * seconds  # a nap takes 10 ms


SCRIPT = """
import sys
import pyarrow as pa
import anabranch as ab

def numbers(rng, index):
    return {"x": index}

def show(batch, version):
    for x in batch["x"].to_pylist():
        print(x)
    sys.stdout.flush()

flow = ab.Flow("endless")
rows = ab.generate(numbers, pa.schema([("x", pa.int64())]), rate_per_s=1000)
flow.source("rows", rows).filter("all", lambda b: [True] * b.num_rows).sink("out", ab.call(show))
ab.run(flow, engine="local", workers={workers})
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_ctrl_c_ends_a_run_and_keeps_what_was_committed(tmp_path: Path, workers: int):
    script, errors = tmp_path / "endless.py", tmp_path / "errors.txt"
    script.write_text(SCRIPT.replace("{workers}", str(workers)))
    command = [sys.executable, str(script)]
    with (
        errors.open("w") as told,
        start_process(
            command, stdout=subprocess.PIPE, stderr=told, start_new_session=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            first = [int(process.stdout.readline()) for _ in range(20)]
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does, to the workers as well
            rest = Side(process.stdout.read).end()
            process.wait(60)
        finally:
            process.kill()
    assert process.returncode in (130, -signal.SIGINT)
    assert errors.read_text().count("KeyboardInterrupt\n") == 1
    assert is_prefix([*first, *map(int, rest.split())])
