"""A Spark task: the replicas (and readers) that share it, over one micro-batch.

Runs in a Python worker. Rows of the stage before come in, rows for the next ones go out, each task
ends with a report. An error that trying again cannot mend travels as a row, so that Spark does not
try; any other one is raised, and Spark runs the task again somewhere.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache

import pyarrow as pa
from pyspark import Broadcast, TaskContext

from anabranch.engines.checkpoint.sinks import OutboxStage
from anabranch.engines.jumbo_ipc import unpack
from anabranch.engines.process_memory import freeze_modules, keep_freed_memory
from anabranch.engines.spark import shuffle_rows as wire
from anabranch.engines.spark.dataframes import frontier_after, joined, read_rows
from anabranch.engines.spark.layout import Link, RegionStage
from anabranch.engines.spark.meter import Meter
from anabranch.engines.spark.replica import TaskReplica
from anabranch.engines.spark.shuffle_rows import Outbox
from anabranch.engines.spark.sinks import write_sink
from anabranch.engines.spark.state_loader import StateLoader
from anabranch.engines.spark.task_inputs import SCAN_ROWS, Batch, Program
from anabranch.engines.spark.task_report import (
    ReplicaWork,
    SourceRead,
    StateSaved,
    TaskReport,
    Work,
)
from anabranch.engines.spark.workers import end_quietly
from anabranch.errors import AnabranchError
from anabranch.io.interleaving import Arrived, RunReader
from anabranch.io.offsets import Cursor
from anabranch.io.reader import last_word
from anabranch.io.sink import Receipt
from anabranch.io.source import Source
from anabranch.io.splits import SliceReader
from anabranch.planning.regions import RegionKind
from anabranch.runtime.bucket_loads import Loads
from anabranch.runtime.channel import Channel
from anabranch.state.positions import FIRST, START, Jumbo, Root, end


def run_task(
    broadcast: Broadcast[bytes], packed: bytes, stage: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """What `mapInArrow` calls for each task of a stage."""
    end_quietly()
    keep_freed_memory()
    freeze_modules()
    batch: Batch = pickle.loads(packed)
    task = TaskContext.get()
    if task is None:
        raise RuntimeError("not in a Spark task")
    program = _program_of(broadcast.value)
    run = TaskRun(program, batch, stage, task.partitionId(), str(task.taskAttemptId()))
    yield from run.work(batches)


@lru_cache(maxsize=4)
def _program_of(packed: bytes) -> Program:
    """The program of a run, unpickled once per worker."""
    program: Program = pickle.loads(packed)
    return program


class TaskRun:
    """One task of one micro-batch."""

    def __init__(self, program: Program, batch: Batch, stage: int, task: int, attempt: str) -> None:
        """Set up the stations; nothing is read yet."""
        self._program, self._batch, self._stage, self._task = program, batch, stage, task
        self._attempt = attempt
        self._layout = program.layout(batch)
        self._meter = Meter()
        self._outbox = Outbox(self._layout, stage)
        self._sources: dict[str, SourceRead] = {}
        self._runs: dict[str, TaskReplica] = {}
        self._started = time.perf_counter()

    def work(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Everything this task sends."""
        try:
            hosted = self._layout.hosted(self._stage, self._task)
            if not hosted:  # beyond the plan's tasks: a partition of a streaming DataFrame
                yield from self._read_dataframe(batches)
                return
            self._host(hosted)
            loader = StateLoader(self._program, self._batch, self._attempt, self._meter)
            failed = False
            for row in self._take(batches):
                failed = True
                yield row
            if failed:
                return
            for run in self._runs.values():
                if run.region.kind is RegionKind.SOURCE:
                    yield from self._scan(run, run.replica)
            yield from self._finish(loader)
        except AnabranchError as error:
            self._outbox = Outbox(self._layout, self._stage)
            self._outbox.failure(error)
            yield from self._outbox.drain()
        finally:
            for each in self._runs.values():
                each.abandon()  # however it ended: the worker lives on

    def _host(self, stations: Iterable[tuple[RegionStage, int]]) -> None:
        for station, replica in stations:
            self._runs[station.region.name] = TaskReplica(
                self._program,
                self._batch,
                self._layout,
                station,
                replica,
                self._runs,
                self._outbox,
            )

    # Input

    def _scan(self, run: TaskReplica, replica: int) -> Iterator[pa.RecordBatch]:
        """Read this reader's share of the batch."""
        name = run.region.name
        source, rank = self._program.sources[name], self._program.ranks[name]
        if run.station.pushed:
            # Its rows are with other tasks; this one says for all of them how far they come.
            ended = name in self._batch.over
            schema = self._program.contexts[name].outputs[0].schema
            reached = end(FIRST) if ended else frontier_after(self._batch.version, rank)
            run.emit(last_word(schema, rank, 1) if ended else None, reached)
            return
        if source.arrivals is not None and name in self._batch.records:
            source = source.arrivals.recalling(self._batch.records[name])
        if source.interleaved:
            yield from self._scan_arrived(run, source, rank, replica)
            return
        reader = SliceReader(source, rank, self._batch.slices[name][replica])
        rows = yield from self._emit_all(run, reader)
        before = self._batch.offsets[name]
        stops = [stop.cursor for stop in reader.stops]
        furthest = max(stops, default=before.cursor)
        cursor = before.read_to(furthest).cursor  # what follows may have been read already
        if name in self._batch.over:
            cursor = Cursor(len(source.parts()), 0)
        last, reached = reader.end(cursor)
        run.emit(last, reached)
        self._sources[name] = SourceRead(rows, cursor, reader.waited_ms)

    def _scan_arrived(
        self, run: TaskReplica, source: Source, rank: int, replica: int
    ) -> Iterator[pa.RecordBatch]:
        """Read this reader's share of what has come to an interleaved source."""
        name = run.region.name
        arrived = self._batch.arrived.get(name, Arrived([], self._batch.offsets[name]))
        reader = RunReader(source, rank, arrived.runs[replica] if arrived.runs else [])
        rows = yield from self._emit_all(run, reader)
        run.emit(*reader.end(arrived.after, over=name in self._batch.over))
        self._sources[name] = SourceRead(rows, None, reader.waited_ms)

    def _emit_all(
        self, run: TaskReplica, reader: SliceReader | RunReader
    ) -> Generator[pa.RecordBatch, None, int]:
        """Emit all that a reader reads; return how many rows that is."""
        rows = 0
        for jumbo, frontier in self._meter.timed(Work.SCAN, reader.read(SCAN_ROWS)):
            rows += len(jumbo)
            run.emit(jumbo, frontier)
            yield from self._outbox.drain()
        return rows

    def _read_dataframe(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Work on a partition of the streaming DataFrames; a reader of the plan tells how far."""
        for batch in joined(self._meter.timed(Work.SCAN, batches), SCAN_ROWS):
            for name, jumbo in read_rows(self._program, self._batch, batch):
                if name not in self._runs:
                    self._host((each, self._task) for each in self._layout.grouped_with(name))
                before = self._sources.get(name, SourceRead(0))
                self._sources[name] = SourceRead(before.rows + len(jumbo))
                self._runs[name].emit(jumbo, START)
                yield from self._outbox.drain()
        if self._runs:
            loader = StateLoader(self._program, self._batch, self._attempt, self._meter)
            yield from self._finish(loader)

    def _take(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take all rows in; gives the failure of an earlier stage, if there is one.

        A task of the first stage gets a row that says nothing.
        """
        if self._stage == 0:
            for _ in batches:
                pass
            return
        links = {link.number: link for link in self._layout.links}
        for batch in self._meter.timed(Work.SHUFFLE, batches):
            for row in wire.rows_of(batch):
                if row.kind == wire.FAILURE:
                    self._outbox = Outbox(self._layout, self._stage)
                    self._outbox.broadcast(row)
                    yield from self._outbox.drain()
                    return
                if row.stage != self._stage:
                    self._outbox.forward(row)
                    continue
                link = links[row.header["link"]]
                run = self._runs[link.consumer]
                if row.kind == wire.FRONTIER:
                    run.arrive(link, row.header["producer"], Root(*row.header["frontier"]))
                else:
                    run.take(link, self._unpacked(link, row))

    def _unpacked(self, link: Link, row: wire.WireRow) -> Jumbo:
        step = self._program.regions[link.consumer].steps[0]
        schema = self._program.contexts[step].inputs[link.in_port].schema
        return unpack(row.header, row.payload, schema)

    # Output

    def _finish(self, loader: StateLoader) -> Iterator[pa.RecordBatch]:
        """Let every station work, in the order of the stream, and report."""
        stations = list(self._runs.values())
        state: list[StateSaved] = []
        sinks: dict[str, tuple[Receipt, ...]] = {}
        try:
            for station in stations:
                loader.load(station)
                with self._meter.of(Work.COMPUTE):
                    station.finish()
                station.pass_on()
                yield from self._outbox.drain()
                if station.region.kind is RegionKind.SINK:
                    with self._meter.of(Work.SINK):
                        sinks[station.region.name] = write_sink(
                            self._program, self._batch, station, loader.storage, self._attempt
                        )
                if (saved := loader.save(station)) is not None:
                    state.append(saved)
        except Exception:
            for name, receipts in sinks.items():
                with suppress(Exception):  # whatever stays is swept later
                    self._program.sinks[name].abort(receipts, OutboxStage(loader.storage))
            raise
        yield from self._outbox.drain()
        self._outbox.report(self._report(stations, tuple(state), sinks))
        yield from self._outbox.drain()

    def _report(
        self,
        stations: Sequence[TaskReplica],
        state: tuple[StateSaved, ...],
        sinks: dict[str, tuple[Receipt, ...]],
    ) -> TaskReport:
        dealt: dict[str, tuple[Loads, ...]] = {}
        for station in stations:
            for region, loads in station.dealt().items():
                dealt[region] = (*dealt.get(region, ()), loads)
        channels = {s.region.name: s.channel for s in stations if s.channel is not None}
        kernels = {step: k for each in channels.values() for step, k in each.kernels.items()}
        return TaskReport(
            self._stage,
            self._task,
            os.getpid(),
            time.perf_counter() - self._started,
            self._meter.seconds,
            self._meter.state_loaded_bytes,
            self._sources,
            steps={step: work for station in stations for step, work in station.steps().items()},
            replicas={s.region.name: ReplicaWork(s.replica, s.busy_s()) for s in stations},
            dealt=dealt,
            keys={step: keys for each in channels.values() for step, keys in each.keys().items()},
            timers={region: _next_timer(channel) for region, channel in channels.items()},
            counters={step: kernel.context.counters for step, kernel in kernels.items()},
            state=state,
            sinks=sinks,
            clocks={s.region.name: s.verdicts for s in stations if s.verdicts is not None},
        )


def _next_timer(channel: Channel) -> int | None:
    timers = [kernel.next_timer() for kernel in channel.kernels.values()]
    return min((timer for timer in timers if timer is not None), default=None)
