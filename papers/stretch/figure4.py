"""STRETCH's figure 4: virtual against pure shared-nothing, with work (4a) and without (4b).

A line of threads, T^I → n × T^P → T^O, runs to its end and is measured. There are three ways to
get tuples to the n threads and their results back, built for the comparisons of STRETCH (§8,
figures 4 and 5) and no part of the engine, whose workers are processes. `ByReference` is virtual
shared-nothing: gates that all threads share, as in the paper. `Copied` is pure shared-nothing: T^I
writes one copy of every jumbo tuple for each thread, every T^P thread merges what came to it by
itself, its results are copied again, and T^O does all the sorting. `Buffered` is the paper's single
thread: bounded buffers in the place of gates, for one T^P thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from threading import Thread
from time import monotonic, perf_counter, thread_time
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from anabranch.engines.jumbo_ipc import pack, unpack
from anabranch.errors import BuildError, Subject
from anabranch.flow import Flow
from anabranch.io import collect, generate
from anabranch.io.generate_source import BLOCK_ROWS
from anabranch.io.reader import SourceReader
from anabranch.operators.base import Operator
from anabranch.operators.keyed.shared import Bucket, shared
from anabranch.planning.plan import Plan
from anabranch.planning.regions import RegionKind, regions
from anabranch.runtime.channel import Channel
from anabranch.runtime.gate import Gate, Release
from anabranch.state.positions import FIRST, START, Jumbo, Root, end, is_end
from papers.claims import cores_here
from papers.stretch.between_threads import QUOTA, BoundedQueue, Closed, SharedGate
from papers.stretch.model import LineCosts, fitted, line_rate_on


class Ready(NamedTuple):
    """Tuples by port that became ready together, how far they go, when the oldest was read."""

    inputs: Sequence[Jumbo | None]
    frontier: Root
    born_s: float | None


class Way(Protocol):
    """How tuples get from T^I to n threads T^P, and what these make of them to T^O."""

    def send(self, source: int, jumbo: Jumbo | None, frontier: Root, born_s: float) -> None:
        """T^I: tuples of a source, and how far it has come; waits while others are behind."""

    def take(self, thread: int) -> Ready:
        """T^P: the next tuples, all of them, in order."""

    def deliver(self, thread: int, jumbo: Jumbo | None, frontier: Root, born_s: float) -> None:
        """T^P: what came of them."""

    def collect(self) -> Ready:
        """T^O: the next results, in order."""

    def close(self) -> None:
        """Nobody waits any longer."""


@dataclass(frozen=True)
class Shape:
    """What has to be carried.

    Attributes:
        ports: By source, the port that its tuples go to.
        schemas: By source, its columns.
        out: The columns of the results.
        threads: How many T^P threads there are.
    """

    ports: tuple[int, ...]
    schemas: tuple[pa.Schema, ...]
    out: pa.Schema
    threads: int


class ByReference:
    """Virtual shared-nothing: one gate that all threads read, one that all write to."""

    name = "V_SN"

    def __init__(self, shape: Shape) -> None:
        """Create both gates."""
        self._taken = SharedGate(shape.ports, shape.threads)
        self._made = SharedGate((0,) * shape.threads, 1)

    def send(self, source: int, jumbo: Jumbo | None, frontier: Root, born_s: float) -> None:
        """Into the gate, as it is."""
        self._taken.add(source, jumbo, frontier, born_s)

    def take(self, thread: int) -> Ready:
        """The same release for every thread."""
        return _ready(self._taken.take(thread))

    def deliver(self, thread: int, jumbo: Jumbo | None, frontier: Root, born_s: float) -> None:
        """Into the second gate, as it is."""
        self._made.add(thread, jumbo, frontier, born_s)

    def collect(self) -> Ready:
        """Out of the second gate."""
        return _ready(self._made.take(0))

    def close(self) -> None:
        """Close both gates."""
        self._taken.close()
        self._made.close()


class Copied:
    """Pure shared-nothing: a copy of everything for every thread, and queues between them."""

    name = "P_SN"

    def __init__(self, shape: Shape) -> None:
        """Queues as long as what a gate holds."""
        self._shape = shape
        self._taken: list[BoundedQueue[_Parcel]] = [
            BoundedQueue(len(shape.ports), QUOTA) for _ in range(shape.threads)
        ]
        self._made = BoundedQueue[_Parcel](shape.threads, QUOTA)
        self._sorters = [_Sorter(shape.ports) for _ in range(shape.threads)]
        self._collector = _Sorter((0,) * shape.threads)

    def send(self, source: int, jumbo: Jumbo | None, frontier: Root, born_s: float) -> None:
        """Broadcast: written once for each thread."""
        for queue in self._taken:
            queue.put(source, _Parcel.of(source, jumbo, frontier, born_s))

    def take(self, thread: int) -> Ready:
        """Read copies until something is ready."""
        sorter = self._sorters[thread]
        while not sorter.has_news():
            parcel = self._taken[thread].take(sorter.behind)
            sorter.add(parcel, parcel.opened(self._shape.schemas[parcel.sender]))
        return sorter.ready()

    def deliver(self, thread: int, jumbo: Jumbo | None, frontier: Root, born_s: float) -> None:
        """Written for T^O."""
        self._made.put(thread, _Parcel.of(thread, jumbo, frontier, born_s))

    def collect(self) -> Ready:
        """Read copies until something is ready, and sort it."""
        while not self._collector.has_news():
            parcel = self._made.take(self._collector.behind)
            self._collector.add(parcel, parcel.opened(self._shape.out))
        return self._collector.ready()

    def close(self) -> None:
        """Close every queue."""
        for queue in (*self._taken, self._made):
            queue.close()


class Buffered:
    """One T^P thread behind bounded buffers, and another buffer behind it; nothing is copied."""

    name = "single"

    def __init__(self, shape: Shape) -> None:
        """For one thread only, which merges the sources by itself."""
        if shape.threads != 1:
            raise BuildError(
                Subject("argument", "threads"),
                "one thread",
                str(shape.threads),
                "share by a gate instead",
            )
        self._taken: BoundedQueue[tuple[Jumbo | None, _Parcel]] = BoundedQueue(
            len(shape.ports), QUOTA
        )
        self._made: BoundedQueue[Ready] = BoundedQueue(1, QUOTA)
        self._sorter = _Sorter(shape.ports)

    def send(self, source: int, jumbo: Jumbo | None, frontier: Root, born_s: float) -> None:
        """Into the source's buffer, as it is."""
        self._taken.put(source, (jumbo, _Parcel(source, None, None, frontier, born_s)))

    def take(self, thread: int) -> Ready:
        """Out of the buffers, until something is ready."""
        while not self._sorter.has_news():
            jumbo, parcel = self._taken.take(self._sorter.behind)
            self._sorter.add(parcel, jumbo)
        return self._sorter.ready()

    def deliver(self, thread: int, jumbo: Jumbo | None, frontier: Root, born_s: float) -> None:
        """Into the second buffer: one thread's results are in order."""
        self._made.put(0, Ready([jumbo], frontier, born_s))

    def collect(self) -> Ready:
        """Out of the second buffer."""
        return self._made.take(0)

    def close(self) -> None:
        """Close both buffers."""
        self._taken.close()
        self._made.close()


class _Parcel(NamedTuple):
    """A copy on its way."""

    sender: int
    header: dict[str, Any] | None
    payload: pa.Buffer | None
    frontier: Root
    born_s: float

    @staticmethod
    def of(sender: int, jumbo: Jumbo | None, frontier: Root, born_s: float) -> _Parcel:
        header, payload = (None, None) if jumbo is None else pack(jumbo)
        return _Parcel(sender, header, payload, frontier, born_s)

    def opened(self, schema: pa.Schema) -> Jumbo | None:
        return None if self.header is None else unpack(self.header, self.payload, schema)


class _Sorter:
    """Merges what one thread gets from several others, on that thread."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = ports
        self._gate = Gate(max(ports) + 1)
        self._passed = [START] * len(ports)
        for sender in range(len(ports)):
            self._gate.open(sender)

    @property
    def behind(self) -> int:
        """The sender that has come least far: more of any other one would only wait here."""
        return self._passed.index(min(self._passed))

    def add(self, parcel: _Parcel, jumbo: Jumbo | None) -> None:
        port = self._ports[parcel.sender]
        self._passed[parcel.sender] = parcel.frontier
        self._gate.add(parcel.sender, port, jumbo, parcel.frontier, parcel.born_s)

    def has_news(self) -> bool:
        return self._gate.has_news()

    def ready(self) -> Ready:
        return _ready(self._gate.take(self._gate.frontier))


def _ready(release: Release) -> Ready:
    return Ready(release.inputs, release.frontier, release.born_s)


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


BUCKETS = 8
ROUNDS = 112
"""Sines per tuple of figure 4a: about 16 times what T^I spends on one, by measurement."""
TWEET_LENGTH = 140

_NUMBERED = pa.schema([("id", pa.int64()), ("x", pa.float64())])
_TWEETS = pa.schema([("id", pa.int64()), ("text", pa.string())])


def working(rows: int, rounds: int = ROUNDS) -> Flow:
    """Figure 4a: one stream; each tuple is worked on in one bucket, which counts it.

    Example:
        >>> working(1000)
        Flow 'figure-4a': tuples → work → out
    """
    flow = Flow("figure-4a")
    source = generate(_numbers, _NUMBERED, rows=rows)
    flow.source("tuples", source).apply("work", _work(rounds)).sink("out", collect())
    return flow


def forwarding(rows: int) -> Flow:
    """Figure 4b: two streams, merged and passed on; no work but to choose one's own tuples.

    Example:
        >>> forwarding(1000)
        Flow 'figure-4b': left → right → both → forward → out
    """
    flow = Flow("figure-4b")
    sources = [generate(_tweets(), _TWEETS, rows=rows // 2, seed=seed) for seed in (1, 2)]
    left = flow.source("left", sources[0])
    right = flow.source("right", sources[1])
    left.union("both", right).apply("forward", forward).sink("out", collect())
    return flow


def _own(batch: pa.RecordBatch, bucket: Bucket) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Rows of a batch that one bucket is to look at; others have the rest."""
    return np.flatnonzero(batch["id"].to_numpy() % bucket.count == bucket.index)


def _work(rounds: int) -> Operator:
    @shared(out="id: int64, nth: int64, y: double", buckets=BUCKETS)
    def work(batch: pa.RecordBatch, bucket: Bucket) -> Any:
        rows = _own(batch, bucket)
        before = bucket.state.get("seen", 0)
        bucket.state["seen"] = before + len(rows)
        y = batch["x"].to_numpy().take(rows)
        for _ in range(rounds):
            y = np.sin(y)
        nth = np.arange(before, before + len(rows))
        return {"id": batch["id"].take(pa.array(rows)), "nth": nth, "y": y}, rows

    return work


@shared(out="id: int64, text: string", buckets=BUCKETS)
def forward(batch: pa.RecordBatch, bucket: Bucket) -> Any:
    """What one bucket is to pass on."""
    rows = _own(batch, bucket)
    taken = batch.take(pa.array(rows))
    return {"id": taken["id"], "text": taken["text"]}, rows


def _numbers(rng: np.random.Generator, index: np.ndarray[Any, Any]) -> dict[str, Any]:
    return {"id": index, "x": rng.random(len(index))}


def _tweets() -> Any:
    """Tuples of a tweet's size; the texts are made once, so that T^I is fast, as in the paper."""
    letters = np.random.default_rng(0).integers(97, 123, (BLOCK_ROWS, TWEET_LENGTH), np.uint8)
    texts = pa.array([row.tobytes().decode() for row in letters])

    def tweets(rng: np.random.Generator, index: np.ndarray[Any, Any]) -> dict[str, Any]:
        return {"id": index, "text": texts}

    return tweets


WORK_ROWS = 16_384
FORWARD_ROWS = 4_096
"""Tuples in a jumbo tuple: large ones where threads have work, small ones to be prompt."""

WAYS: tuple[MakeWay, MakeWay] = (ByReference, Copied)


@dataclass(frozen=True)
class Point:
    """One way with one number of threads, the median of several runs.

    Attributes:
        way: V_SN or P_SN.
        threads: T^P threads.
        rate_per_s: Tuples taken in per second.
        latency_ms: From reading a tuple to its result, on average.
        cpu_us: Processor time per tuple of T^I, T^P and T^O.
        model_per_s: What the model of §8 says, with the costs measured here and these cores.
    """

    way: str
    threads: int
    rate_per_s: float
    latency_ms: float
    cpu_us: tuple[float, float, float]
    model_per_s: float


@dataclass(frozen=True)
class Contest:
    """One half of figure 4.

    Attributes:
        points: Both ways by number of threads.
        costs: By way, the costs of the model as fitted, in µs.
    """

    points: tuple[Point, ...]
    costs: dict[str, LineCosts]

    def of(self, way: str) -> list[Point]:
        """The points of one way."""
        return [point for point in self.points if point.way == way]


def figure_4a(rows: int, threads: Sequence[int], repeats: int) -> Contest:
    """One stream, work that is divided among the threads."""
    return contest(lambda: working(rows), threads, repeats, WORK_ROWS)


def figure_4b(rows: int, threads: Sequence[int], repeats: int) -> Contest:
    """Two streams, merged and passed on."""
    return contest(lambda: forwarding(rows), threads, repeats, FORWARD_ROWS)


def contest(
    build: Callable[[], Flow],
    threads: Sequence[int],
    repeats: int,
    batch_rows: int,
) -> Contest:
    """Both ways in turn, so that what else the machine does hits both alike."""
    runs: dict[tuple[str, int], list[LineRun]] = {}
    for _ in range(repeats):
        for count in threads:
            for way in WAYS:
                run = Line(build(), way, count, batch_rows).run()
                runs.setdefault((run.way, count), []).append(run)
    middle = {key: middle_of(several) for key, several in runs.items()}
    costs = {
        way: fitted({n: middle[way, n].cpu_us for n in threads})
        for way in sorted({way for way, _ in middle})
    }
    cores = cores_here()
    points = [
        Point(
            way,
            n,
            run.rate_per_s,
            run.latency_ms,
            run.cpu_us,
            1e6 * line_rate_on(cores, costs[way], n),
        )
        for (way, n), run in sorted(middle.items(), key=lambda item: (item[0][1], item[0][0]))
    ]
    return Contest(tuple(points), costs)
