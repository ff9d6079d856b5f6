"""A line of threads, T^I → n × T^P → T^O, run to its end one way or the other, and measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from threading import Thread
from time import monotonic, perf_counter, thread_time
from typing import TypeAlias

import pyarrow as pa

from anabranch.engines.channel import Channel
from anabranch.engines.local.gate import Closed
from anabranch.flow import Flow
from anabranch.io.reader import SourceReader
from anabranch.planning.plan import Plan
from anabranch.planning.regions import RegionKind, regions
from anabranch.reproduce.stretch.sharing import Shape, Way
from anabranch.state.positions import FIRST, Jumbo, Root, end, is_end

MakeWay: TypeAlias = Callable[[Shape], Way]


@dataclass(frozen=True)
class LineRun:
    """What one run of a line showed.

    Attributes:
        way: Which way tuples took.
        threads: How many T^P threads there were.
        rows: Tuples taken in.
        seconds: From the start to the end of the last result.
        latency_ms: From reading a tuple to its result at T^O, on average over results.
        cpu_us: Processor time per tuple taken in, of all T^I, all T^P and T^O threads.
    """

    way: str
    threads: int
    rows: int
    seconds: float
    latency_ms: float
    cpu_us: tuple[float, float, float]

    @property
    def rate_per_s(self) -> float:
        """Tuples taken in per second."""
        return self.rows / self.seconds


def middle_of(runs: Sequence[LineRun]) -> LineRun:
    """The run in the middle by each figure of its own: a median of runs."""
    first = runs[0]
    cpu = [median(run.cpu_us[role] for run in runs) for role in range(3)]
    return LineRun(
        first.way,
        first.threads,
        first.rows,
        median(run.seconds for run in runs),
        median(run.latency_ms for run in runs),
        (cpu[0], cpu[1], cpu[2]),
    )


class Line:
    """The shared operator of a flow, between threads that read its sources and one that collects.

    Args:
        flow: Sources, at most a union or clocks, and one shared operator: only sources and that
            operator run here. With as many ports as sources, each source has its own.
        make_way: How tuples travel.
        threads: How many T^P threads.
        batch_rows: Tuples in a jumbo tuple.
        time: A column of every source that orders its tuples, without doubles.
        keep: Whether to keep the results.
    """

    def __init__(
        self,
        flow: Flow,
        make_way: MakeWay,
        threads: int,
        batch_rows: int,
        *,
        time: str | None = None,
        keep: bool = False,
    ) -> None:
        region = next(r for r in regions(flow) if r.kind is RegionKind.SHARED)
        plan = Plan.sequential(flow).with_replicas(region.name, threads).region(region.name)
        contexts = flow.contexts()
        self._channels = [Channel(flow, contexts, region, plan, n) for n in range(threads)]
        self._sources = list(flow.sources().values())
        self._out = contexts[region.name].outputs[0].schema
        schemas = tuple(source.schema for source in self._sources)
        several = len(contexts[region.name].inputs) == len(schemas)
        ports = tuple(range(len(schemas))) if several else (0,) * len(schemas)
        self._way = make_way(Shape(ports, schemas, self._out, threads))
        self._batch_rows, self._time, self._keep = batch_rows, time, keep
        self._rows = [0] * len(schemas)
        self._latencies: list[tuple[float, int]] = []
        self._results: list[pa.RecordBatch] = []
        self._cpu_s: dict[str, float] = {"in": 0.0, "process": 0.0, "out": 0.0}
        self._error: BaseException | None = None

    @property
    def results(self) -> pa.Table:
        """What T^O got, in order, if it was to be kept."""
        return pa.Table.from_batches(self._results, schema=self._out)

    def run(self) -> LineRun:
        """Run to the end."""
        works: list[tuple[str, Callable[[], None]]] = [("out", self._collect)]
        works += [("process", partial(self._process, n)) for n in range(len(self._channels))]
        works += [("in", partial(self._take_in, n)) for n in range(len(self._sources))]
        spent: list[tuple[str, float]] = []
        threads = [Thread(target=self._guarded, args=(*work, spent), daemon=True) for work in works]
        started_s = perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = perf_counter() - started_s
        if self._error is not None:
            raise self._error
        for role, cpu_s in spent:
            self._cpu_s[role] += cpu_s
        return self._measured(seconds)

    def _measured(self, seconds: float) -> LineRun:
        rows = sum(self._rows)
        results = sum(count for _, count in self._latencies) or 1
        cpu_us = [1e6 * self._cpu_s[role] / max(rows, 1) for role in ("in", "process", "out")]
        return LineRun(
            getattr(self._way, "name", "?"),
            len(self._channels),
            rows,
            seconds,
            sum(latency * count for latency, count in self._latencies) / results,
            (cpu_us[0], cpu_us[1], cpu_us[2]),
        )

    def _guarded(self, role: str, work: Callable[[], None], spent: list[tuple[str, float]]) -> None:
        """A thread that fails ends the others."""
        try:
            work()
        except Closed:
            pass
        except BaseException as error:
            self._error = self._error or error
            self._way.close()
        spent.append((role, thread_time()))

    def _take_in(self, number: int) -> None:
        reader = SourceReader(self._sources[number], number)
        while True:
            jumbo, frontier = reader.read(self._batch_rows)
            if reader.ended:
                break
            if jumbo is not None and len(jumbo):
                self._rows[number] += len(jumbo)
                if self._time is not None:
                    jumbo, frontier = _by_time(jumbo, self._time)
            self._way.send(number, jumbo, frontier, monotonic())
        self._way.send(number, None, end(FIRST), 0.0)

    def _process(self, number: int) -> None:
        channel, frontier = self._channels[number], None
        while frontier is None or not is_end(frontier):
            inputs, frontier, born_s = self._way.take(number)
            outputs, reached = channel.run(0, inputs, frontier)
            self._way.deliver(number, outputs[0], reached[0], born_s or 0.0)

    def _collect(self) -> None:
        frontier = None
        while frontier is None or not is_end(frontier):
            inputs, frontier, born_s = self._way.collect()
            self._note(inputs[0], born_s)

    def _note(self, jumbo: Jumbo | None, born_s: float | None) -> None:
        if jumbo is not None and len(jumbo):
            latency_ms = (monotonic() - (born_s or 0.0)) * 1000
            self._latencies.append((latency_ms, len(jumbo)))
            if self._keep:
                self._results.append(jumbo.batch)


def _by_time(jumbo: Jumbo, column: str) -> tuple[Jumbo, Root]:
    """Tuples in the order of a time, and how far that goes: what comes is later than the last."""
    times = jumbo.batch[column].cast(pa.int64()).to_numpy()
    timed = Jumbo(jumbo.batch, jumbo.positions.at_time(times))
    return timed, Root(int(times[-1]) + 1, FIRST, FIRST, FIRST)
