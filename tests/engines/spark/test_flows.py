"""Flows of every kind on real Spark: what the sequential run gives, in the order it gives it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from threading import Event, Lock
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import anabranch as ab
from anabranch.events import Observed
from anabranch.flow import Flow
from anabranch.io.reading_back import read_back
from anabranch.planning.plan import Plan
from anabranch.testing.sequential import run_sequential

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

Rows = list[dict[str, Any]]


def readings(rows: int, seed: int, lateness: int = 0) -> ab.memory:
    """Rows (ts, k, v); each at most `lateness` behind the greatest time before it."""
    rng = Random(seed)
    drawn = [
        {"ts": number // 2 + rng.randint(-lateness, 0), "k": rng.choice("abcde"), "v": number}
        for number in range(rows)
    ]
    return ab.memory(drawn)


def planned(flow: Flow, batch_rows: int, **replicas: int) -> Plan:
    plan = Plan.sequential(flow)
    for source in plan.sources:
        plan = plan.with_source(source.source, batch_rows=batch_rows)
    for region, number in replicas.items():
        plan = plan.with_replicas(region, number)
    return plan


def rows_of(flow: Flow, sink: str) -> Rows:
    rows: Rows = flow.graph.steps[sink].body.sink.table().to_pylist()
    return rows


@pytest.mark.parametrize("replicas", [2, 3])
def test_a_windowed_join_of_two_sources_out_of_order(spark: SparkSession, replicas: int) -> None:
    flow = Flow("pairs", buckets=16)
    left = flow.source("left", readings(80, seed=1, lateness=4), time="ts", lateness=4)
    right = flow.source("right", readings(50, seed=2, lateness=4), time="ts", lateness=4)
    pairs = left.join("pair", right, key="k", within=3)
    pairs.sink("pairs", ab.collect())
    pairs.aggregate("per-window", key="k", window=ab.tumbling(10), n=ab.count()).sink(
        "windows", ab.collect()
    )
    expected = run_sequential(flow)
    plan = planned(flow, 25, **{"pair": replicas, "per-window": replicas})
    ab.run(flow, plan=plan, session=spark)
    assert len(expected.rows("pairs")) > 50
    assert rows_of(flow, "pairs") == expected.rows("pairs")
    assert rows_of(flow, "windows") == expected.rows("windows")


@ab.partitioned(key="k", out="k: string, v: int64")
def running(ctx: ab.Invocation) -> None:
    for row in ctx.tuples():
        ctx.state["v"] = ctx.state.get("v", 0) + row["v"]
        ctx.emit(v=ctx.state["v"])


def slim(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select(["k", "v"])


def test_a_stream_that_goes_two_ways_into_two_sinks(spark: SparkSession, tmp_path: Path) -> None:
    flow = Flow("tee", buckets=16)
    rows = flow.source("s", readings(60, seed=3)).map(
        "slim", slim, out="k: string, v: int64", keeps=["k", "v"]
    )
    totals = rows.apply("running", running)
    totals.sink("totals", ab.parquet(tmp_path / "totals"))
    rows.union("both", totals).sink("both-out", ab.csv(tmp_path / "both"))
    expected = run_sequential(flow)
    plan = planned(flow, 20, slim=2, running=3, both=2)
    ab.run(flow, plan=plan, session=spark)
    assert read_back(tmp_path / "totals").to_pylist() == expected.rows("totals")
    assert read_back(tmp_path / "both").to_pylist() == expected.rows("both-out")


@ab.partitioned(key="k", out="k: string, since: int64, at: int64", timers=True)
def silence(ctx: ab.Invocation) -> None:
    """Tells which keys nothing was heard of for six units of time."""
    if ctx.reason is ab.Reason.TIMER:
        if ctx.time - ctx.state["heard"] >= 6:
            ctx.emit(since=ctx.state["heard"], at=ctx.time)
        return
    for _ in ctx.tuples():
        ctx.state["heard"] = ctx.time
        ctx.set_timer(ctx.time + 6)


@ab.stateful(out="n: int64, sum: int64")
def overall(ctx: ab.Invocation) -> None:
    for row in ctx.tuples():
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        ctx.state["sum"] = ctx.state.get("sum", 0) + row["v"]
        ctx.emit(n=ctx.state["n"], sum=ctx.state["sum"])


@ab.shared(out="bucket: int64, seen: int64, v: int64", buckets=6)
def dealt(batch: pa.RecordBatch, bucket: Any) -> Any:
    """Each bucket numbers the rows that are its own."""
    mine = [row for row, v in enumerate(batch["v"].to_pylist()) if v % bucket.count == bucket.index]
    first = bucket.state.get("seen", 0)
    bucket.state["seen"] = first + len(mine)
    columns = {
        "bucket": [bucket.index] * len(mine),
        "seen": list(range(first, first + len(mine))),
        "v": batch["v"].take(pa.array(mine, pa.int64())),
    }
    return columns, mine


def test_timers_global_state_and_shared_buckets_across_batches(spark: SparkSession) -> None:
    flow = Flow("states", buckets=16)
    rows = flow.source("s", readings(60, seed=4, lateness=2), time="ts", lateness=2)
    rows.apply("silence", silence).sink("silent", ab.collect())
    rows.apply("overall", overall).sink("sums", ab.collect())
    rows.apply("dealt", dealt).sink("numbered", ab.collect())
    expected = run_sequential(flow)
    ab.run(flow, plan=planned(flow, 15, silence=3, dealt=3), session=spark)
    for sink in ("silent", "sums", "numbered"):
        assert expected.rows(sink), sink
        assert rows_of(flow, sink) == expected.rows(sink)


def test_running_values_and_windows_of_readers_side_by_side_keep_the_total_order(
    spark: SparkSession, tmp_path: Path
) -> None:
    for number in range(3):
        table = readings(40, seed=number).read("memory", 0, 40).batch
        pq.write_table(pa.Table.from_batches([table]), tmp_path / f"{number}.parquet")
    flow = Flow("running", buckets=16)
    rows = flow.source("s", ab.files(tmp_path / "*.parquet"))
    rows.aggregate("totals", key="k", emit="every", n=ab.count(), sum=ab.sum("v")).sink(
        "every", ab.collect()
    )
    rows.aggregate("last", key="k", emit="final", mean=ab.mean("v")).sink("final", ab.collect())
    rows.aggregate("fives", key="k", window=ab.count_window(5), most=ab.max("v")).sink(
        "fives-out", ab.collect()
    )
    expected = run_sequential(flow)
    plan = planned(flow, 50, totals=2, last=2, fives=3).with_source("s", replicas=2)
    ab.run(flow, plan=plan, session=spark)
    for sink in ("every", "final", "fives-out"):
        assert expected.rows(sink), sink
        assert rows_of(flow, sink) == expected.rows(sink)


def stopped_after(batch: int, flow: Flow, **options: Any) -> ab.run:
    """Run until a batch is done, then stop."""
    reached = Event()

    def listen(event: object) -> None:
        if isinstance(event, Observed) and event.observation.batch >= batch:
            reached.set()

    handle = ab.start(flow, listener=listen, **options)
    assert reached.wait(100)
    handle.stop()
    return handle.result()


def test_every_sink_gets_all_rows_in_order_though_the_run_is_stopped_in_the_middle(
    spark: SparkSession, tmp_path: Path
) -> None:
    calls: dict[int, Rows] = {}
    frames: dict[int, Rows] = {}
    screen = io.StringIO()
    unpicklable = Lock()  # what only the driver uses need not travel

    def called(batch: pa.RecordBatch, version: int) -> None:
        with unpicklable:
            calls[version] = batch.to_pylist()

    def framed(df: DataFrame, batch_id: int) -> None:
        assert spark.version == df.sparkSession.version
        frames[batch_id] = [row.asDict() for row in df.collect()]

    flow = Flow("sinks", buckets=16)
    totals = flow.source("s", readings(125, seed=5)).aggregate(
        "totals", key="k", emit="every", n=ab.count(), sum=ab.sum("v")
    )
    totals.sink("parquet", ab.parquet(tmp_path / "parquet"))
    totals.sink("csv", ab.csv(tmp_path / "csv"))
    totals.sink("jsonl", ab.jsonl(tmp_path / "jsonl"))
    totals.sink("collect", ab.collect())
    totals.sink("call", ab.call(called))
    totals.sink("console", ab.console(stream=screen))
    totals.sink("each-batch", ab.each_batch(framed))
    expected = run_sequential(flow).rows("collect")

    options = {"session": spark, "checkpoint": tmp_path / "checkpoint"}
    first = stopped_after(1, flow, plan=planned(flow, 25, totals=2), **options)
    seen = len(read_back(tmp_path / "parquet"))
    second = ab.run(flow, **options)

    assert not first.ended
    assert second.ended
    assert first.rows_in == seen < 125
    assert first.rows_in + second.rows_in == 125
    assert second.plan.region("totals").replicas == 2  # the plan of the checkpoint goes on
    for kind in ("parquet", "csv", "jsonl"):
        assert read_back(tmp_path / kind).to_pylist() == expected, kind
    assert rows_of(flow, "collect") == expected
    for delivered in (calls, frames):
        assert [row for version in sorted(delivered) for row in delivered[version]] == expected
    printed = [line.split() for line in screen.getvalue().splitlines()]
    values = {tuple(map(str, row.values())) for row in expected}
    assert values <= {tuple(line) for line in printed}  # at least once: the stop repeats a batch


def test_spark_is_given_the_scheme_of_a_local_checkpoint_whatever_its_default_file_system_is(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[str] = []
    option, parquet = DataStreamWriter.option, DataFrameReader.parquet

    def noted_option(writer: DataStreamWriter, name: str, value: Any) -> DataStreamWriter:
        given.append(value)
        return option(writer, name, value)

    def noted_parquet(reader: DataFrameReader, *paths: str) -> DataFrame:
        given.extend(paths)
        return parquet(reader, *paths)

    monkeypatch.setattr(DataStreamWriter, "option", noted_option)
    monkeypatch.setattr(DataFrameReader, "parquet", noted_parquet)
    frames: list[Rows] = []
    flow = Flow("scheme")
    flow.source("s", ab.memory([{"x": 1}])).sink(
        "out", ab.each_batch(lambda df, _: frames.append([row.asDict() for row in df.collect()]))
    )
    checkpoint = tmp_path / "my 100%25 sure # checkpoint"
    assert ab.run(flow, session=spark, checkpoint=checkpoint.as_uri()).ended
    assert frames == [[{"x": 1}]]
    assert len(given) == 2
    assert all(place.startswith(f"file:{checkpoint}/") for place in given)
    assert (checkpoint / "spark" / "offsets").is_dir()


def test_a_run_with_a_finished_checkpoint_has_nothing_to_do(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow = Flow("done")
    flow.source("s", readings(10, seed=6)).sink("out", ab.parquet(tmp_path / "out"))
    options = {"session": spark, "checkpoint": tmp_path / "checkpoint"}
    ab.run(flow, **options)
    again = ab.run(flow, **options)
    assert (again.rows_in, again.ended) == (0, True)
    assert len(read_back(tmp_path / "out")) == 10


def test_an_endless_paced_source_keeps_its_pace_and_ends_at_the_limit(spark: SparkSession) -> None:
    schema = pa.schema([("x", pa.int64())])
    flow = Flow("paced")
    flow.source("s", ab.generate(lambda rng, index: {"x": index}, schema, rate_per_s=150)).sink(
        "out", ab.collect()
    )
    told: list[tuple[float, int]] = []

    def listen(event: object) -> None:
        if isinstance(event, Observed):
            told.append((event.observation.at_s, event.observation.rows_in))

    result = ab.run(flow, rows=300, session=spark, listener=listen)
    assert (result.rows_in, result.ended) == (300, True)
    assert rows_of(flow, "out") == [{"x": x} for x in range(300)]
    read = 0
    for at_s, rows in told:
        read += rows
        assert read <= 150 * at_s
    assert len([rows for _, rows in told if rows]) > 1


def test_an_endless_source_runs_for_some_seconds_and_can_go_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = pa.schema([("x", pa.int64())])
    flow = Flow("endless")
    flow.source("s", ab.generate(lambda rng, index: {"x": index}, schema)).sink("out", ab.collect())
    options = {"session": spark, "checkpoint": tmp_path / "checkpoint"}
    result = stopped_after(0, flow, plan=planned(flow, 100), **options)
    assert not result.ended
    ab.run(flow, rows=result.rows_in + 50, **options)
    assert rows_of(flow, "out") == [{"x": x} for x in range(result.rows_in + 50)]


def test_a_streaming_dataframe_with_times_is_ordered_by_its_column(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20)
    stream = stream.option("startTimestamp", 1000).option("advanceMillisPerBatch", 5000)
    flow = Flow("rate", buckets=16)
    numbers = flow.source("s", ab.dataframe(stream.load(), order="value"), time="timestamp")
    numbers.apply("numbered", numbered).sink("out", ab.collect())
    result = stopped_after(2, flow, session=spark)
    got = rows_of(flow, "out")
    assert [row["value"] for row in got] == list(range(len(got)))
    assert [row["n"] for row in got] == list(range(len(got)))
    assert [row["at"] for row in got] == [(1000 + v // 20 * 5000) * 1000 for v in range(len(got))]
    assert 20 < len(got) <= result.rows_in  # a tuple waits for the next time


@ab.stateful(out="n: int64, value: int64, at: int64")
def numbered(ctx: ab.Invocation) -> None:
    for row in ctx.tuples():
        ctx.state["n"] = ctx.state.get("n", -1) + 1
        ctx.emit(n=ctx.state["n"], value=row["value"], at=ctx.time)


def ticks() -> Callable[[], int]:
    """A clock that moves by four seconds whenever somebody looks."""

    def seconds() -> Iterator[int]:
        now = 0
        while True:
            yield now * 1_000_000
            now += 4

    times = seconds()
    return lambda: next(times)


def test_arrival_times_are_decided_once_and_a_replay_goes_by_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = ab.stamped(readings(60, seed=7), ticks())
    flow = Flow("arrivals", buckets=16)
    stream = flow.source("s", source, time="arrival")
    stream.apply("silence", silence_of_arrivals).sink("silent", ab.collect())
    stream.sink("stamped", ab.collect())
    options = {"session": spark, "checkpoint": tmp_path / "checkpoint"}
    stopped_after(1, flow, plan=planned(flow, 10, silence=2), **options)
    ab.run(flow, **options)
    stamps = [row["arrival"].timestamp() for row in rows_of(flow, "stamped")]
    assert stamps == sorted(stamps)
    assert len(set(stamps)) > 3
    expected = run_sequential(flow)  # the record of the run says when rows arrived
    assert rows_of(flow, "stamped") == expected.rows("stamped")
    assert rows_of(flow, "silent") == expected.rows("silent")
    assert expected.rows("silent")


@ab.partitioned(key="k", out="k: string, at: int64", timers=True)
def silence_of_arrivals(ctx: ab.Invocation) -> None:
    if ctx.reason is ab.Reason.TIMER:
        ctx.emit(at=ctx.time)
        return
    for _ in ctx.tuples():
        ctx.set_timer(ctx.time + 5_000_000)
