"""What a listener may do to a run, and what others may do to its session: nobody waits for ever."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.engines.handle import Run
from anabranch.events import Observed, RunEnded
from anabranch.flow import Flow
from anabranch.planning.plan import Plan
from tests.engines.spark.short_lived import environment
from tests.sampling import thorough

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def counting(rows: int | None) -> Flow:
    schema = pa.schema([("x", pa.int64())])
    flow = Flow("counting")
    source = ab.generate(lambda rng, index: {"x": index}, schema, rows)
    flow.source("numbers", source).sink("out", ab.collect())
    return flow


def collected(flow: Flow) -> list[int]:
    found: list[int] = flow.graph.steps["out"].body.sink.table()["x"].to_pylist()
    return found


def small_batches(flow: Flow) -> Plan:
    return Plan.sequential(flow).with_source("numbers", batch_rows=10)


def test_a_listener_may_stop_the_run_and_is_not_made_to_wait_for_it(spark: SparkSession) -> None:
    flow = counting(None)
    there, returned = Event(), Event()
    handles: list[Run] = []

    def hear(event: object) -> None:
        if isinstance(event, Observed):
            assert there.wait(60)
            handles[0].stop()
            returned.set()

    handles.append(ab.start(flow, plan=small_batches(flow), session=spark, listener=hear))
    there.set()
    assert handles[0].await_termination(60)
    assert returned.is_set()
    result = handles[0].result()
    assert not result.ended
    assert collected(flow) == list(range(result.rows_in))


def test_a_listener_may_stop_a_run_that_has_just_ended(spark: SparkSession) -> None:
    flow = counting(10)
    there = Event()
    handles: list[Run] = []

    def hear(event: object) -> None:
        if isinstance(event, RunEnded):
            assert there.wait(60)
            handles[0].stop()

    handles.append(ab.start(flow, session=spark, listener=hear))
    there.set()
    assert handles[0].await_termination(60)
    assert handles[0].result().ended


@pytest.mark.parametrize("kind", [Observed, RunEnded])
def test_what_a_listener_raises_is_noted_and_the_run_goes_on(
    spark: SparkSession, kind: type
) -> None:
    flow = counting(30)

    def hear(event: object) -> None:
        if isinstance(event, kind):
            raise ValueError("the listener is broken")

    result = ab.run(flow, plan=small_batches(flow), session=spark, listener=hear)
    assert result.ended
    assert ["the listener is broken" in each.why for each in result.decisions] == [True]
    assert collected(flow) == list(range(30))


STOPPED_UNDERNEATH = """
import faulthandler
from threading import Event

import pyarrow as pa

import anabranch as ab
from anabranch.engines.spark.session import session
from anabranch.errors import EngineError
from anabranch.events import Observed

faulthandler.dump_traceback_later(250, exit=True)  # says where, should anything hang
begun = Event()
flow = ab.Flow("cut-off")
source = ab.generate(lambda rng, index: {"x": index}, pa.schema([("x", pa.int64())]))
flow.source("numbers", source).sink("out", ab.collect())
plan = ab.Plan.sequential(flow).with_source("numbers", batch_rows=10)
spark = session("local[2]", app="cut-off")
hear = lambda event: begun.set() if isinstance(event, Observed) else None
handle = ab.start(flow, plan=plan, session=spark, listener=hear)
begun.wait()
spark.stop()
try:
    print("waited:", handle.await_termination(90))
except EngineError as error:
    print("EngineError:", error)
print("active:", handle.is_active)
"""


@thorough
@pytest.mark.timeout(300)
def test_stopping_the_session_under_a_run_ends_it_with_an_error(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(STOPPED_UNDERNEATH)
    command = [sys.executable, str(tmp_path / "program.py")]
    ended = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=270, check=False
    )
    assert "EngineError: " in ended.stdout, ended.stdout + ended.stderr
    assert "start again to go on" in ended.stdout
    assert "active: False" in ended.stdout
    assert ended.returncode == 0
