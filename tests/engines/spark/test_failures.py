"""What Spark's own troubles look like: one sentence that helps, with the Java behind it."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import anabranch as ab
from anabranch.engines.engine import Options
from anabranch.engines.spark import batches as batches_of_a_run
from anabranch.engines.spark import engine as engine_module
from anabranch.engines.spark import workers
from anabranch.engines.spark.engine import SparkEngine
from anabranch.engines.spark.failures import essence, first_line, job_failure
from anabranch.errors import EngineError
from anabranch.flow import Flow
from anabranch.planning.plan import Plan

ROWS = [{"k": "abc"[number % 3], "v": number} for number in range(60)]

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def counted(out: Any, step: Any = None) -> Flow:
    flow = Flow("counted", buckets=8)
    rows = flow.source("s", ab.memory(ROWS))
    totals = rows.aggregate("sum", key="k", emit="every", sum=ab.sum("v"))
    (totals if step is None else totals.map("share", step, keeps="*")).sink("out", out)
    return flow


def leaves(batch: pa.RecordBatch) -> dict[str, Any]:
    os._exit(3)


def test_workers_without_a_module_are_told_how_to_get_it(spark: SparkSession) -> None:
    said = "PythonException: Traceback\nModuleNotFoundError: No module named 'anabranch'\n at java"
    told = job_failure(RuntimeError(said), spark, 3, ["count"])
    assert (str(told.subject), told.got) == ("batch 3", "none with a module 'anabranch'")
    assert "PYSPARK_PYTHON" in told.remedy


def test_a_cluster_without_the_python_that_workers_shall_run_is_refused_by_name(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "is_local", lambda _: False)
    workers.require_workers(spark.sparkContext)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "no-such-python")
    with pytest.raises(EngineError, match="expected workers that can import anabranch") as caught:
        workers.require_workers(spark.sparkContext)
    assert caught.value.got.startswith("no-such-python: ")
    assert "No such file" in caught.value.got
    assert len(str(caught.value)) < 1500


def test_a_worker_that_dies_is_told_in_one_sentence_with_its_regions_and_the_java_behind_it(
    spark: SparkSession,
) -> None:
    flow = counted(ab.collect(), leaves)
    with pytest.raises(EngineError) as caught:
        ab.run(flow, session=spark, plan=Plan.sequential(flow).with_replicas("sum", 2))
    told = str(caught.value)
    assert str(caught.value.subject) == "batch 0"
    assert "got one that ended without a word" in told
    assert "at work on sum" in told
    assert "memory" in caught.value.remedy
    assert "go on from the checkpoint" in caught.value.remedy
    assert "spark.executor.pyspark.memory" in caught.value.remedy
    assert len(told) < 800
    assert not [word for word in ("org.apache", "at java", "py4j") if word in told]
    assert isinstance(caught.value.__cause__, Exception)
    assert "Python worker exited unexpectedly" in str(caught.value.__cause__)


def java_error(spark: SparkSession) -> Exception:
    """One that PySpark leaves as it comes."""
    jvm: Any = spark.sparkContext._jvm
    with pytest.raises(Py4JJavaError) as caught:
        jvm.java.util.ArrayDeque().removeFirst()
    return caught.value


def test_any_other_error_of_java_is_told_by_its_first_line(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = java_error(spark)

    def breaks(*_: object) -> None:
        raise error

    monkeypatch.setattr(batches_of_a_run.Batches, "next", breaks)
    with pytest.raises(EngineError, match=r"got java\.util\.NoSuchElementException; see") as caught:
        ab.run(counted(ab.collect()), session=spark)
    assert caught.value.__cause__ is error
    assert len(str(caught.value).splitlines()) == 1


def test_a_start_that_fails_in_java_is_told_likewise_and_leaves_no_thread_behind(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    error = java_error(spark)
    begin = DataStreamWriter.start
    began = threading.Event()

    def starts_and_fails(writer: DataStreamWriter, *_: object, **__: object) -> Any:
        query = begin(writer)
        assert began.wait(60)
        query.stop()
        raise error

    flow = counted(ab.collect())
    engine = SparkEngine(flow, None, Options(session=spark, checkpoint=tmp_path / "checkpoint"))
    end = engine._end_query

    def ends() -> None:
        end()
        began.set()

    monkeypatch.setattr(engine_module, "STOP_S", 0.1)
    monkeypatch.setattr(DataStreamWriter, "start", starts_and_fails)
    monkeypatch.setattr(engine, "_end_query", ends)
    before = set(threading.enumerate())
    with pytest.raises(EngineError, match="NoSuchElement") as caught:
        engine.start(lambda _: None)
    assert caught.value.__cause__ is error
    for thread in set(threading.enumerate()) - before:
        if "stop" in thread.name:
            thread.join(60)
            assert not thread.is_alive()


def test_a_message_of_java_says_what_and_not_where() -> None:
    message = (
        "An error occurred while calling o42.getResult.\n"
        ": org.apache.spark.SparkException: Job aborted\n"
        "\tat org.apache.spark.Somewhere\n"
        "Caused by: java.io.IOException: No space left on device\n"
    )
    assert first_line(message) == "org.apache.spark.SparkException: Job aborted"
    assert essence(message).endswith("Caused by: java.io.IOException: No space left on device")
    assert "calling" not in essence(message)


class Closing(type(ab.collect())):  # type: ignore[misc]
    """Notes that it was closed."""

    closed = False

    def close(self) -> None:
        self.closed = True


def test_sinks_are_closed_when_the_run_does_not_start(spark: SparkSession, tmp_path: Path) -> None:
    class Unopened(Closing):
        def begin(self, schema: pa.Schema, version: int) -> None:
            raise OSError("no such place")

    sinks = Closing(), Unopened()
    flow = Flow("f")
    rows = flow.source("s", ab.memory(ROWS))
    rows.sink("first", sinks[0])
    rows.sink("second", sinks[1])
    with pytest.raises(OSError, match="no such place"):
        ab.run(flow, session=spark, checkpoint=tmp_path)
    assert all(sink.closed for sink in sinks)
