"""Two phases: what was prepared and not committed never shows, what has a manifest always does."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from itertools import product
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.engines.checkpoint.manifest import Manifest
from anabranch.engines.checkpoint.sinks import OUTBOX, OutboxStage, Sinks
from anabranch.engines.checkpoint.storage import LocalStorage
from anabranch.errors import BuildError, SinkError
from anabranch.io import read_back
from anabranch.io.directory_sink import OF_TASK, PENDING
from anabranch.io.sink import Form, PositionRange, Receipt
from anabranch.io.staged import MemoryStage
from anabranch.io.two_phase_commit import Transactions, prepare
from anabranch.planning.plan import Plan
from anabranch.testing.sequential import run_sequential
from tests.engines.spark.in_process import InProcess
from tests.engines.spark.one_by_one import OneByOne
from tests.io import table_job
from tests.io.tables import SCHEMA, TABLES, PreparedTable, UpsertedTable, VersionedTable
from tests.sampling import few

REPOSITORY = Path(__file__).resolve().parents[2]


def batch(*numbers):
    return pa.record_batch({name: list(numbers) for name in SCHEMA.names}, schema=SCHEMA)


KINDS = {"parquet": lambda folder: ab.parquet(folder / "out"), "collect": lambda _: ab.collect()}
KINDS |= {name: lambda folder, kind=kind: kind(folder / "rows.db") for name, kind in TABLES.items()}


@pytest.fixture(params=KINDS)
def case(request, tmp_path):
    """A sink that can be looked into, and how to: the numbers that are visible."""
    sink = KINDS[request.param](tmp_path)

    def visible():
        table = read_back(tmp_path / "out") if request.param == "parquet" else sink.table()
        return table["n"].to_pylist()

    return sink, visible


@pytest.fixture
def storage(tmp_path):
    storage = LocalStorage(str(tmp_path / "checkpoint"))
    storage.make(OUTBOX)
    return storage


def attempt(version, number):
    return f"{version:012d}-out-{number}"


def manifest(version, *receipts):
    return Manifest(version, "1-ab", "{}", sinks={"out": receipts})


def test_only_what_is_committed_is_visible_in_the_order_of_the_receipts(case, storage):
    sink, visible = case
    stage = OutboxStage(storage)
    sink.open(SCHEMA)
    late, early, lost = (
        prepare(sink, SCHEMA, attempt(0, number), [batch(number)], stage) for number in (2, 1, 9)
    )
    assert lost is not None
    assert visible() == []
    for _ in range(2):  # doing it again changes nothing
        sink.commit(0, [early, late], stage)
        assert visible() == [1, 2]


def test_a_version_that_has_its_manifest_is_committed_when_the_run_goes_on(case, storage):
    sink, visible = case
    driver = Sinks({"out": sink}, {"out": SCHEMA}, storage)
    driver.open(None)
    for version in range(2):
        receipt = prepare(sink, SCHEMA, attempt(version, 0), [batch(version)], driver.stage)
        if version == 0:
            driver.commit(manifest(0, receipt))
    assert visible() == [0]
    for _ in range(2):  # killed between manifest and commit, and once more right after
        again = Sinks({"out": sink}, {"out": SCHEMA}, storage)
        again.open(manifest(1, receipt))
        assert visible() == [0, 1]


@pytest.mark.parametrize(  # in a table of upserts it stays until the replay has replaced it
    "case", [kind for kind in KINDS if kind != "UpsertedTable"], indirect=True
)
def test_what_comes_after_the_version_to_go_on_from_is_forgotten(case, storage):
    sink, visible = case
    driver = Sinks({"out": sink}, {"out": SCHEMA}, storage)
    driver.open(None)
    made = []
    for version in range(3):
        made.append(prepare(sink, SCHEMA, attempt(version, 0), [batch(version)], driver.stage))
        driver.commit(manifest(version, made[-1]))
    assert visible() == [0, 1, 2]
    Sinks({"out": sink}, {"out": SCHEMA}, storage).open(manifest(0, made[0]))
    assert visible() == [0]


@pytest.fixture
def calls():
    return []


@pytest.fixture
def called(calls, storage):
    """Makes a driver whose only sink is a function that notes its versions."""
    sink = ab.call(lambda batch, version: calls.append(version))
    return lambda: Sinks({"out": sink}, {"out": SCHEMA}, storage)


def told(driver, version):
    """Prepare a version for a sink that is called; the manifest of it."""
    row, name = pa.Table.from_batches([batch(version)]), attempt(version, 0)
    return manifest(version, driver.stage.put(name, row))


def test_a_function_is_not_called_again_by_a_start_that_finds_all_done(called, calls):
    driver = called()
    driver.open(None)
    last = told(driver, 0)
    driver.commit(last)
    called().open(last)
    assert calls == [0]


def test_a_function_is_called_for_a_version_that_was_rolled_back_and_made_again(called, calls):
    driver = called()
    driver.open(None)
    manifests = [told(driver, version) for version in range(3)]
    for each in manifests:
        driver.commit(each)
    back = called()
    back.open(manifests[0])
    again = told(back, 1)  # killed between the manifest and its commit
    called().open(again)
    assert calls == [0, 1, 2, 1]


def left(tmp_path, storage):
    """Whatever has been prepared, and is neither committed nor gone."""
    out = tmp_path / "out"
    hidden = [n for n in os.listdir(out) if "pending" in n] if out.exists() else []
    return [*hidden, *storage.entries(OUTBOX)]


@pytest.mark.parametrize("rows", [1, 300_000], ids=["small", "large"])
def test_an_attempt_that_fails_leaves_nothing(tmp_path, storage, rows):
    wrong = pa.record_batch({"x": [1]})
    for sink in (ab.parquet(tmp_path / "out"), ab.collect()):
        sink.open(SCHEMA)
        with pytest.raises(SinkError, match="column 'k' of type int64"):
            prepare(sink, SCHEMA, attempt(0, 0), [batch(*range(rows)), wrong], OutboxStage(storage))
    assert left(tmp_path, storage) == []


def test_why_an_attempt_failed_is_told_whatever_its_abort_does():
    class Unabortable(type(ab.collect())):
        def writer(self, schema, name, stage):
            writer = super().writer(schema, name, stage)
            writer.abort = lambda: 1 / 0
            return writer

    with pytest.raises(SinkError, match="column 'k' of type int64"):
        prepare(Unabortable(), SCHEMA, "a", [pa.record_batch({"x": [1]})], MemoryStage())


def test_what_is_aborted_leaves_nothing(tmp_path, storage):
    stage = OutboxStage(storage)
    table = PreparedTable(tmp_path / "rows.db")
    for sink in (ab.parquet(tmp_path / "out"), ab.collect(), table):
        sink.open(SCHEMA)
        receipt = prepare(sink, SCHEMA, attempt(0, 0), [batch(1)], stage)
        sink.abort([receipt], stage)
    assert left(tmp_path, storage) == []
    with table.transaction() as database:
        assert database.execute("SELECT * FROM prepared").fetchall() == []


def test_what_killed_attempts_left_is_swept_once_their_version_is_committed(tmp_path, storage):
    sink = ab.parquet(tmp_path / "out")
    stage = OutboxStage(storage)
    sink.open(SCHEMA)
    for version in (0, 1, 2):
        prepare(sink, SCHEMA, attempt(version, 0), [batch(version)], stage)
    sink.sweep(1)
    assert left(tmp_path, storage) == [f".pending-{attempt(2, 0)}.parquet"]


def test_rows_that_nobody_wrote_need_no_receipt(case, storage):
    sink, visible = case
    sink.open(SCHEMA)
    assert prepare(sink, SCHEMA, attempt(0, 0), [batch()], OutboxStage(storage)) is None
    assert visible() == []


@pytest.mark.parametrize("form", Form)
def test_the_outbox_gives_rows_back_as_they_were(storage, form):
    stage = OutboxStage(storage)
    table = pa.table({"x": [1, 2], "at": pa.array([0, None], pa.timestamp("us"))})
    receipts = [stage.put(f"{n:012d}-a", table, form) for n in range(2)]
    assert pa.Table.from_batches(stage.rows(receipts)) == pa.concat_tables([table, table])
    stage.discard(receipts)
    assert storage.entries(OUTBOX) == {}


def test_committed_rows_do_not_stay_in_memory():
    stage_of = []

    class Looking(type(ab.call(print))):
        def commit(self, version, receipts, stage):
            stage_of[:] = [stage]
            super().commit(version, receipts, stage)

    out = Transactions(Looking(lambda batch, version: None))
    out.open(SCHEMA)
    out.write(batch(1))
    out.commit(0)
    [stage] = stage_of
    assert isinstance(stage, MemoryStage)
    assert stage._tables == {}


class Unclosable(type(ab.collect())):
    """Notes that it was closed, and raises."""

    closed = False

    def close(self):
        self.closed = True
        raise OSError("the connection is gone")


def test_every_sink_is_closed_though_one_of_them_raises(storage):
    sinks = {name: Unclosable() for name in "abc"}
    with pytest.raises(OSError, match="the connection is gone"):
        Sinks(sinks, dict.fromkeys(sinks, SCHEMA), storage).close()
    assert all(sink.closed for sink in sinks.values())


def test_a_sink_is_closed_though_what_it_holds_cannot_be_aborted():
    class Unabortable(Unclosable):
        def abort(self, receipts, stage):
            raise OSError("it is held by another one")

    sink = Unabortable()
    with pytest.raises(OSError, match="gone"):
        Transactions(sink).close()
    assert sink.closed


def test_names_of_attempts_without_a_checkpoint_can_be_swept():
    names = []

    class Naming(type(ab.collect())):
        def commit(self, version, receipts, stage):
            names.extend(receipt.name for receipt in receipts)
            super().commit(version, receipts, stage)

    flow = ab.Flow("f")
    flow.source("rows", ab.memory([{"x": n} for n in range(30)])).sink("out", Naming())
    ab.run(flow, engine="local")
    assert names
    assert all(OF_TASK.fullmatch(f"{PENDING}{name}.parquet") for name in names)


def test_the_positions_of_a_receipt_survive_a_manifest_and_a_report():
    positions = PositionRange((2**62, -(2**32), 0, 2**63 - 1, 3), (2**62, 0, 0, 0))
    receipt = Receipt("a", 7, positions=positions)
    data = manifest(3, receipt).to_json()
    assert Manifest.from_json(data, "m").receipts("out") == (receipt,)
    packed = msgspec.msgpack.encode(receipt)
    assert msgspec.msgpack.decode(packed, type=Receipt) == receipt


def test_a_sink_of_four_methods_is_refused_and_told_what_is_missing():
    class Old:
        def open(self, schema, version): ...
        def write(self, batch): ...
        def commit(self, version): ...
        def close(self): ...

    rows = ab.Flow("f").source("rows", ab.memory([{"x": 1}]))
    with pytest.raises(BuildError, match="a sink, got Old without traits, recover, writer, abort"):
        rows.sink("out", Old())


def test_a_class_in_place_of_a_sink_or_a_source_is_refused():
    flow = ab.Flow("f")
    with pytest.raises(BuildError, match="a sink, got the class VersionedTable; call it"):
        flow.source("rows", ab.memory([{"x": 1}])).sink("out", VersionedTable)
    with pytest.raises(BuildError, match="a source, got the class MemorySource; call it"):
        flow.source("more", type(ab.memory([{"x": 1}])))


@pytest.mark.parametrize("kind", [ab.call, ab.each_batch])
def test_errors_of_workers_name_the_function_that_stays_in_the_driver(kind):
    sink = kind(print)
    assert repr(pickle.loads(pickle.dumps(sink))) == repr(sink) == f"{kind.__name__} 'print'"


def test_rows_that_differ_in_what_may_be_null_are_refused_with_their_fields():
    sink, other = ab.collect(), pa.schema([pa.field("x", pa.int64(), nullable=False)])
    rows = pa.record_batch({"x": [1]})
    with pytest.raises(SinkError, match="columns x: int64 not null, got x: int64;"):
        prepare(sink, other, "a", [rows], MemoryStage())


def test_the_start_of_a_run_tells_what_its_sinks_guarantee():
    flow = ab.Flow("f")
    rows = flow.source("rows", ab.memory([{"x": 1}]))
    rows.sink("kept", ab.collect())
    rows.sink("told", ab.call(lambda batch, version: None))
    heard = []
    ab.run(flow, engine="local", listener=heard.append)
    what = {step.step: step.what for step in heard[0].shape.steps}
    assert what["kept"] == "CollectSink, transactional → x: int64"
    assert what["told"] == "CallSink, at least once → x: int64"


# Tables, killed


@pytest.mark.parametrize("kill", few(product(TABLES, table_job.POINTS), keep=4), ids="-".join)
def test_a_table_loses_and_doubles_nothing_when_its_process_is_killed(tmp_path, kill):
    kind, point = kill
    command = [sys.executable, "-m", "tests.io.table_job", str(tmp_path), kind]
    killed = subprocess.run([*command, point], cwd=REPOSITORY, check=False)
    assert killed.returncode == -signal.SIGKILL
    subprocess.run(command, cwd=REPOSITORY, check=True)
    sink = TABLES[kind](tmp_path / "rows.db")
    assert sink.rows() == run_sequential(table_job.flow_of(ab.collect())).rows("out")


@pytest.mark.parametrize("kind", [VersionedTable, UpsertedTable, PreparedTable])
@pytest.mark.parametrize("seed", range(3))
def test_a_table_loses_and_doubles_nothing_on_spark_when_the_driver_is_killed(tmp_path, kind, seed):
    flow = table_job.flow_of(kind(tmp_path / "rows.db"))
    plan = Plan.sequential(flow).with_replicas("totals", 3)
    run = InProcess(flow, tmp_path / "checkpoint", seed, kills=6, trouble=0.2)
    got = run.run([plan, Plan.sequential(flow)])
    assert "killed" in run.events
    assert got.rows("out") == run_sequential(flow).rows("out")


def test_a_task_of_spark_that_fails_leaves_nothing_of_what_it_has_prepared(tmp_path):
    class Full(type(ab.collect())):
        def writer(self, schema, name, stage):
            raise SinkError("second", "space", "none", "make some")

    flow = ab.Flow("f")
    rows = flow.source("rows", ab.memory([{"x": 1}]))
    rows.sink("first", ab.parquet(tmp_path / "out"))
    rows.sink("second", ab.collect())
    rows.sink("third", Full())
    with OneByOne(flow, tmp_path / "checkpoint", Plan.sequential(flow)) as run:
        with pytest.raises(SinkError, match="make some"):
            run.next()
        assert left(tmp_path, run.checkpoint.storage) == []


def test_why_a_task_of_spark_failed_is_told_whatever_its_sinks_do_when_they_abort(tmp_path):
    class Unabortable(type(ab.collect())):
        def abort(self, receipts, stage):
            raise ZeroDivisionError

    class Full(type(ab.collect())):
        def writer(self, schema, name, stage):
            raise SinkError("second", "space", "none", "make some")

    flow = ab.Flow("f")
    rows = flow.source("rows", ab.memory([{"x": 1}]))
    rows.sink("first", Unabortable())
    rows.sink("second", Full())
    with (
        OneByOne(flow, tmp_path / "checkpoint", Plan.sequential(flow)) as run,
        pytest.raises(SinkError, match="make some"),
    ):
        run.next()
