"""What users get wrong, and what machines do to them: each is told in one sentence that helps."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path
from threading import Event, Lock
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.engines.checkpoint.checkpoint import Checkpoint
from anabranch.engines.checkpoint.storage import LocalStorage
from anabranch.engines.spark.state_loader import remove_cache
from anabranch.errors import (
    AnabranchError,
    BuildError,
    EngineError,
    OperatorError,
    PlanError,
    SinkError,
    SourceError,
    StateError,
    UnknownNameError,
)
from anabranch.events import Observed
from anabranch.flow import Flow
from anabranch.io import directory_sink as directory_sinks
from anabranch.io.reading_back import read_back
from anabranch.io.source import Chunk, Source
from anabranch.planning.plan import Plan
from anabranch.testing.result import RunResult
from anabranch.testing.sequential import run_sequential
from tests.engines.spark.in_process import InProcess
from tests.engines.spark.short_lived import environment
from tests.sampling import thorough

ROWS = [{"k": "abc"[number % 3], "v": number} for number in range(60)]


def totals(
    out: Path, *, name: str = "totals", buckets: int = 16, source: object = None, key: str = "k"
) -> Flow:
    flow = Flow(name, buckets=buckets)
    flow.source("s", source or ab.memory(ROWS)).aggregate(
        "sum", key=key, emit="every", sum=ab.sum("v")
    ).sink("out", ab.parquet(out))
    return flow


def small_batches(flow: Flow, replicas: int = 2) -> Plan:
    return Plan.sequential(flow).with_source("s", batch_rows=20).with_replicas("sum", replicas)


class Life(InProcess):
    """One life of a run without Spark, whose sinks are files."""

    def once(self, plan: Plan) -> None:
        try:
            self._life([plan])
        finally:
            remove_cache(self._cache)

    def _resized(self, plan: Plan) -> Plan:
        return plan

    def _result(self, checkpoint: Checkpoint) -> RunResult:
        return RunResult({})


def finished(tmp_path: Path) -> Flow:
    """A flow with a checkpoint of four versions."""
    flow = totals(tmp_path / "out")
    Life(flow, tmp_path / "checkpoint", seed=0).once(small_batches(flow))
    return flow


# Said before anything runs


def test_an_unknown_engine(tmp_path):
    with pytest.raises(UnknownNameError, match=r"an engine among \['spark'.*'flink'"):
        ab.run(totals(tmp_path), engine="flink")


def test_fewer_than_no_rows(tmp_path):
    with pytest.raises(BuildError, match=r"'rows': expected rows of 0 or more, got -1"):
        ab.run(totals(tmp_path), rows=-1)


def test_a_plan_of_another_flow(tmp_path):
    plan = ab.plan(totals(tmp_path, name="others"))
    with pytest.raises(PlanError, match=r"a plan for flow 'totals' .*one for 'others'.*plan again"):
        ab.run(totals(tmp_path), plan=plan)
    assert not any(tmp_path.iterdir())


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
class TestRefusedAtTheStart:
    """The session is there, and no job has run."""

    @pytest.mark.parametrize("what", ["lock", "file"])
    def test_an_operator_that_cannot_be_sent(
        self, spark: SparkSession, tmp_path: Path, what: str
    ) -> None:
        with open(tmp_path / "file", "w") as file:
            held = {"lock": Lock(), "file": file}[what]
            flow = Flow("unsendable")
            flow.source("s", ab.memory(ROWS)).map(
                "hold", lambda batch: held and {}, keeps="*"
            ).sink("out", ab.collect())
            with pytest.raises(BuildError, match=r"sent to Spark's workers, got .*inside the func"):
                ab.run(flow, session=spark, checkpoint=tmp_path / "checkpoint")
        assert not (tmp_path / "checkpoint").exists()

    def test_a_dataframe_without_order_where_order_is_promised(self, spark: SparkSession) -> None:
        stream = spark.readStream.format("rate").load()
        with pytest.raises(BuildError, match=r"'s': .*unordered one; name an order column, or"):
            Flow("total").source("s", ab.dataframe(stream))
        Flow("by-key", order="key").source("s", ab.dataframe(stream))

    def test_a_number_of_rows_of_a_dataframe(self, spark: SparkSession) -> None:
        stream = spark.readStream.format("rate").load()
        flow = Flow("limited")
        flow.source("s", ab.dataframe(stream, order="value")).sink("out", ab.collect())
        with pytest.raises(EngineError, match=r"'s': .*with rows=, got a streaming DataFrame"):
            ab.run(flow, session=spark, rows=10)

    def test_a_dataframe_that_does_not_stream(self, spark: SparkSession) -> None:
        with pytest.raises(SourceError, match=r"streaming DataFrame.*does not stream; read files"):
            ab.dataframe(spark.range(3), order="id")

    @pytest.mark.parametrize(
        ("changes", "told"),
        [
            ({"name": "others"}, r"flow 'totals', which owns it, got flow 'others'"),
            ({"buckets": 8}, r"16 buckets \(the number of buckets is fixed.*got 8 buckets"),
            ({"key": "v"}, r"'sum'.*key \(k\), got key \(v\)"),
        ],
    )
    def test_a_checkpoint_of_another_flow(
        self, spark: SparkSession, tmp_path: Path, changes: dict[str, Any], told: str
    ) -> None:
        finished(tmp_path)
        other = totals(tmp_path / "other", **changes)
        with pytest.raises(StateError, match=told) as caught:
            ab.run(other, session=spark, checkpoint=tmp_path / "checkpoint")
        assert "start afresh in a new checkpoint directory" in str(caught.value)
        assert not (tmp_path / "other").exists()

    def test_a_damaged_manifest(self, spark: SparkSession, tmp_path: Path) -> None:
        flow = finished(tmp_path)
        newest = sorted((tmp_path / "checkpoint" / "manifests").iterdir())[-1]
        newest.write_bytes(newest.read_bytes()[:-20])
        told = rf"{newest}.*got no JSON.*can go on from version {int(newest.stem) - 1}: roll"
        with pytest.raises(StateError, match=told):
            ab.run(flow, session=spark, checkpoint=tmp_path / "checkpoint")

    def test_a_damaged_state_file(self, spark: SparkSession, tmp_path: Path) -> None:
        flow = finished(tmp_path)
        checkpoint = Checkpoint.open(tmp_path / "checkpoint", flow)
        last = checkpoint.last
        assert last is not None
        newest = max(last.state, key=lambda file: file.version)
        path = tmp_path / "checkpoint" / "state" / newest.name
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        told = rf"{path}.*state of region 'sum'.*checksum.*go on from version {newest.version - 1}:"
        with pytest.raises(StateError, match=told):
            ab.run(flow, session=spark, checkpoint=tmp_path / "checkpoint")

    def test_a_sink_directory_that_cannot_be_made(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        (tmp_path / "file").write_text("in the way")
        flow = totals(tmp_path / "file" / "out")
        with pytest.raises(SinkError, match=r"write to .*/file/out, got NotADirectory.*check perm"):
            ab.run(flow, session=spark)


# Said by workers


def breaks_at_forty(batch: pa.RecordBatch) -> dict[str, list[float]]:
    return {"share": [1 / (v - 40) for v in batch["v"].to_pylist()]}


PROGRAM = """
import anabranch as ab


def breaks_at_forty(batch):
    return {"share": [1 / (v - 40) for v in batch["v"].to_pylist()]}


flow = ab.Flow("fragile")
flow.source("s", ab.memory([{"v": v} for v in range(60)])).map(
    "share", breaks_at_forty, out="share: double"
).sink("out", ab.collect())
ab.run(flow, master="local[2]")
"""


class Faulty(Source):
    """A source of which the thirtieth row cannot be read, and nobody knows why."""

    schema, bounded, order = pa.schema([("k", pa.string()), ("v", pa.int64())]), True, "index"

    def __init__(self) -> None:
        self.rows = ab.memory(ROWS, self.schema)

    def parts(self) -> tuple[str, ...]:
        return self.rows.parts()

    def read(self, part: str, start: int, rows: int) -> Chunk | None:
        if start + rows > 30:
            raise MemoryError("the tape is torn at row 30")
        return self.rows.read(part, start, rows)


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
class TestToldByWorkers:
    """A job is under way."""

    @pytest.mark.parametrize("pipelines", [(1, 1), (2,)])
    def test_an_operator_that_raises_is_named_with_the_users_own_traceback(
        self, spark: SparkSession, tmp_path: Path, pipelines: tuple[int, ...]
    ) -> None:
        flow = Flow("fragile")
        flow.source("s", ab.memory(ROWS)).filter("some", lambda b: [True] * b.num_rows).map(
            "share", breaks_at_forty, out="share: double"
        ).sink("out", ab.parquet(tmp_path / "out"))
        plan = Plan.sequential(flow).with_source("s", batch_rows=20)
        with pytest.raises(OperatorError) as caught:
            ab.run(flow, session=spark, plan=plan.with_pipelines("some", *pipelines))
        assert caught.value.step == "share"
        assert "ZeroDivisionError" in str(caught.value)
        assert len(str(caught.value)) < 400
        trace = str(caught.value.__cause__)
        assert "in breaks_at_forty" in trace
        assert len(trace.splitlines()) < 12
        assert len(read_back(tmp_path / "out")) == 40  # what was committed before stays

    @thorough
    @pytest.mark.timeout(300)
    def test_a_program_with_such_an_operator_ends_with_one_screen_of_text(
        self, tmp_path: Path
    ) -> None:
        (tmp_path / "program.py").write_text(PROGRAM)
        command = [sys.executable, str(tmp_path / "program.py")]
        ended = subprocess.run(
            command, env=environment(), capture_output=True, text=True, timeout=250, check=False
        )
        told = (ended.stdout + ended.stderr).splitlines()
        assert ended.returncode == 1
        # Spark's daemon may still complain of a pipe that the ending driver has closed.
        expected = "OperatorError: step 'share': expected a result for every tuple"
        [last] = [number for number, line in enumerate(told) if expected in line]
        assert [line for line in told[:last] if "in breaks_at_forty" in line]
        assert last < 40, told

    def test_an_error_that_is_not_ours_is_told_in_short_after_spark_has_tried_again(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        flow = totals(tmp_path / "out", source=Faulty())
        with pytest.raises(EngineError) as caught:
            ab.run(flow, session=spark, plan=small_batches(flow))
        assert "MemoryError: the tape is torn at row 30" in str(caught.value)
        assert "start again to go on" in str(caught.value)
        assert len(str(caught.value)) < 1000
        assert not [word for word in ("org.apache", "yield", "File") if word in str(caught.value)]

    def test_a_plan_that_is_not_allowed_is_refused_and_the_run_goes_on(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        flow = totals(tmp_path / "out")
        other = ab.plan(totals(tmp_path / "other", name="others"))
        wrong = Plan.sequential(flow).with_bucket_map("sum", (0, 5) * 8)
        refused: list[AnabranchError] = []
        first = Event()

        def listen(event: object) -> None:
            if isinstance(event, Observed) and not first.is_set():
                for plan in (other, wrong):
                    with pytest.raises(PlanError) as caught:
                        handle.reconfigure(plan)
                    refused.append(caught.value)
                first.set()

        handle = ab.start(flow, session=spark, plan=small_batches(flow), listener=listen)
        assert handle.await_termination(100)
        assert len(refused) == 2
        assert "one for 'others'" in str(refused[0])
        assert str(refused[1].subject) == "region 'sum'"
        assert handle.reconfigurations == []
        assert read_back(tmp_path / "out").to_pylist() == run_sequential(flow).rows("out")

    def test_a_function_of_batches_that_raises_names_the_sink_and_gets_its_batch_again(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        got: dict[int, int] = {}
        broken = [True]

        def store(df: Any, batch_id: int) -> None:
            if batch_id == 1 and broken:
                broken.clear()
                raise ConnectionError("the database went away")
            got[batch_id] = df.count()

        flow = Flow("delivering")
        flow.source("s", ab.memory(ROWS)).sink("out", ab.each_batch(store))
        plan = Plan.sequential(flow).with_source("s", batch_rows=20)
        options = {"session": spark, "plan": plan, "checkpoint": tmp_path / "checkpoint"}
        with pytest.raises(SinkError, match=r"each_batch 'store'.*batch 1, got ConnectionError: t"):
            ab.run(flow, **options)
        ab.run(flow, **options)
        assert sum(got.values()) == 60


# A full disk, wherever it is noticed first


def full_storage(folder: str, after: int) -> Any:
    """A storage whose disk is full when the given number of files was written to a folder."""
    write = LocalStorage._write_pending
    written = []

    def writing(self: LocalStorage, path: str, data: Any, durable: bool) -> str:
        if path.startswith(folder):
            written.append(path)
            if len(written) > after:
                raise OSError(errno.ENOSPC, "No space left on device")
        return write(self, path, data, durable)

    return writing


@pytest.mark.parametrize("folder", ["state", "manifests", "batches", "outbox"])
def test_a_disk_that_is_full_ends_the_run_by_name_and_with_space_again_it_goes_on(
    tmp_path, monkeypatch, folder
):
    flow = totals(tmp_path / "out")
    if folder == "outbox":
        flow = flow.writing({"out": ab.collect()})
    life = Life(flow, tmp_path / "checkpoint", seed=0)
    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "_write_pending", full_storage(folder, after=1))
        with pytest.raises(StateError, match=rf"/{folder}/.*No space left.*free space"):
            life.once(small_batches(flow))
    life.once(small_batches(flow))
    sink = flow.graph.steps["out"].body.sink
    got = sink.table() if folder == "outbox" else read_back(tmp_path / "out")
    assert got.to_pylist() == run_sequential(flow).rows("out")


def test_a_full_disk_under_a_sink_ends_the_run_by_name_and_with_space_again_it_goes_on(
    tmp_path, monkeypatch
):
    flow = totals(tmp_path / "out")
    life = Life(flow, tmp_path / "checkpoint", seed=0)
    to_disk = directory_sinks._to_disk
    written = []

    def full(path: str) -> None:
        written.append(path)
        if len([name for name in written if "000000" in name]) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        to_disk(path)

    with monkeypatch.context() as patch:
        patch.setattr(directory_sinks, "_to_disk", full)
        with pytest.raises(SinkError, match=r"write to .*/out, got .*No space left.*free space"):
            life.once(small_batches(flow))
    life.once(small_batches(flow))
    assert read_back(tmp_path / "out").to_pylist() == run_sequential(flow).rows("out")
    assert not [file for file in (tmp_path / "out").iterdir() if "pending" in file.name]
