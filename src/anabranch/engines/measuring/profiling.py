"""Profiling: what each step of a flow costs and passes on, measured on its own data.

`profile_flow` rehearses every step by itself and gives a `Profile`, which planners, models and the
simulator take. Costs are microseconds per tuple that comes in (of a source: per tuple that it
reads), at the median over calls; what was warming up does not count. Sinks gather rows and write
them now and then, so theirs is the mean over all calls.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from anabranch.columns.hashing import hash_columns
from anabranch.columns.schemas import without_dictionaries
from anabranch.engines.measuring.processor import clock_ghz
from anabranch.engines.process_memory import keep_freed_memory
from anabranch.errors import BuildError, Subject
from anabranch.flow import Flow
from anabranch.graph import Output, Role, StateKind, Step
from anabranch.io.reader import SourceReader, last_word
from anabranch.io.source import Source
from anabranch.io.two_phase_commit import Transactions
from anabranch.operators.base import Kernel, KernelContext
from anabranch.planning.plan import Plan
from anabranch.planning.profile import OperatorProfile, Profile, StreamProfile
from anabranch.planning.regions import profiled_state, regions
from anabranch.runtime.gate import Gate
from anabranch.state.positions import FIRST, Jumbo, Root, end

ROWS = 200_000
FEW_CALLS = 5
BATCH_ROWS = 16_384
UNEVEN = 1.5
"""A mean above the median by this factor is told."""
WARM_UP_SHARE = 0.2
"""Part of the calls, from the first on, that do not count: caches fill, state begins."""


@dataclass(frozen=True)
class Measured:
    """A profile, and in words what it could not tell."""

    profile: Profile
    notes: tuple[str, ...] = ()


def profile_flow(flow: Flow, rows: int = ROWS, plan: Plan | None = None) -> Profile:
    """What each step of a flow costs, passes on and remembers.

    Args:
        flow: The application; its sinks are not written.
        rows: Read no more rows of each source than this.
        plan: Says how many rows a jumbo tuple has; 16384 when left out, as on the local engine.

    Example:
        >>> from anabranch.apps import word_count
        >>> profile = profile_flow(word_count.build(text="to be or not to be"))
        >>> [(o.name, o.state.value) for o in profile.operators][:2]
        [('lines', 'stateless'), ('split', 'stateless')]
        >>> profile.by_name["split"].selectivity
        6.0
    """
    return measure_flow(flow, rows, plan).profile


def measure_flow(
    flow: Flow, rows: int = ROWS, plan: Plan | None = None, watch: Stopwatch | None = None
) -> Measured:
    """The same, with what could not be measured."""
    if rows < 1:
        raise BuildError(
            Subject("argument", "rows"),
            "rows of 1 or more",
            str(rows),
            "give a sample to measure on",
        )
    sources = flow.names(Role.SOURCE)
    batch_rows = {n: plan.source(n).batch_rows if plan else BATCH_ROWS for n in sources}
    samples = rehearse(flow, rows, batch_rows, watch)
    read = sum(samples[name].rows_in for name in sources)
    if not read:
        raise BuildError(
            Subject("flow", flow.name),
            "sources with rows",
            "none",
            "give it data to be profiled on",
        )
    operators = tuple(_operator(flow, name, sample, read) for name, sample in samples.items())
    streams = _streams(flow, samples)
    moved = _with_traffic(operators, streams)
    profile = Profile(moved, streams, unit="us", ghz=clock_ghz(), app=flow.name)
    notes = [*_notes(samples.values()), *_uneven(samples), *_cut_short(samples, sources, rows)]
    return Measured(profile, tuple(notes))


def _uneven(samples: Mapping[str, Sample]) -> Iterator[str]:
    """Steps whose median hides much of their work, as where windows close now and then."""
    for name, sample in samples.items():
        counted = sample.calls[int(len(sample.calls) * WARM_UP_SHARE) :]
        rows = sum(tuples for tuples, _ in counted)
        mean = sum(spent for _, spent in counted) / rows / 1000 if rows else 0.0
        if mean > UNEVEN * cost_us(sample):
            yield f"{name}: calls differ; {mean:.4g} µs at the mean, which may be the better cost"


def _cut_short(samples: Mapping[str, Sample], sources: Sequence[str], rows: int) -> Iterator[str]:
    if len(sources) > 1 and any(samples[name].rows_in >= rows for name in sources):
        yield "sources were cut short: their rates against each other are those of the sample"


def _operator(flow: Flow, name: str, sample: Sample, read: int) -> OperatorProfile:
    step = flow.graph.steps[name]
    body = step.body
    keys, hottest = _keys(sample)
    region = next(each for each in regions(flow) if name in each.steps)
    state = profiled_state(step, region)
    is_source, is_sink = step.role is Role.SOURCE, step.role is Role.SINK
    return OperatorProfile(
        name,
        cost=cost_us(sample),
        selectivity=sum(sample.rows_out) / sample.rows_in if sample.rows_in else 0.0,
        state=state,
        key=() if is_source or is_sink else tuple(body.key),
        max_replicas=_most_replicas(flow, name, state, keys),
        tuple_bytes=sample.bytes_in / sample.rows_in if sample.rows_in else 0.0,
        rate=max(sample.rows_in, 1) / read if is_source else 1.0,
        cost_p99=costs_us(sample.calls)[1],
        keys=keys,
        hottest_key_share=hottest,
        replicas_cost=region.replicas_cost,
    )


def cost_us(sample: Sample) -> float:
    """Return microseconds per tuple: at the median, or at the mean of what gathers tuples.

    Example:
        >>> calls = [(10, 10_000), (10, 10_000), (10, 10_000), (10, 90_000)]
        >>> cost_us(Sample("parse", calls)), cost_us(Sample("file", calls, gathers=True))
        (1.0, 3.0)
    """
    if not (sample.gathers and sample.calls):
        return costs_us(sample.calls)[0]
    return sum(spent for _, spent in sample.calls) / sum(rows for rows, _ in sample.calls) / 1000


def costs_us(calls: Sequence[tuple[int, int]]) -> tuple[float, float | None]:
    """Microseconds per tuple over calls of (tuples, nanoseconds): at the median, at 99 of 100.

    Each call weighs as much as it has tuples, so that a short last one does not count for a whole.

    Example:
        >>> costs_us([(10, 90_000), (10, 10_000), (10, 20_000), (10, 30_000), (1, 99_000)])
        (2.0, 99.0)
    """
    counted = calls[int(len(calls) * WARM_UP_SHARE) :]
    if not counted:
        return 0.0, None
    each = np.array([spent / rows / 1000 for rows, spent in counted])
    order = np.argsort(each)
    weight = np.cumsum(np.array([rows for rows, _ in counted], dtype=np.float64)[order])
    median, p99 = (each[order][np.searchsorted(weight, s * weight[-1])] for s in (0.5, 0.99))
    return float(median), float(p99)


def _most_replicas(flow: Flow, name: str, state: StateKind, keys: int | None) -> int | None:
    """Where the flow or its data bound replicas: parts of a source, buckets, distinct keys."""
    step = flow.graph.steps[name]
    if step.role is Role.SINK:
        return None if state is StateKind.STATELESS else 1
    if step.role is Role.SOURCE:
        source = flow.sources()[name]
        parts = source.parts()
        if source.one_reader:
            return 1
        return None if all(source.extent(p).seekable for p in parts) else max(1, len(parts))
    if step.body.state is StateKind.PARTITIONED:
        return max(1, min(flow.buckets, keys or flow.buckets))
    if step.body.state is StateKind.SHARED:
        return int(step.body.own_buckets or flow.buckets)
    return None


def _keys(sample: Sample) -> tuple[int | None, float | None]:
    """Distinct keys, and the share of the most frequent one."""
    if not sample.keys:
        return None, None
    _, counts = np.unique(np.concatenate(sample.keys), return_counts=True)
    return len(counts), float(counts.max() / counts.sum())


def _streams(flow: Flow, samples: dict[str, Sample]) -> tuple[StreamProfile, ...]:
    """Tuples on every stream per tuple into its producer; several between two steps add up."""
    shares: dict[tuple[str, str], float] = {}
    for name, sample in samples.items():
        for port, rows in enumerate(sample.rows_out):
            for consumer, _ in flow.graph.consumers(Output(name, port)):
                share = rows / sample.rows_in if sample.rows_in else 0.0
                shares[name, consumer] = shares.get((name, consumer), 0.0) + share
    return tuple(StreamProfile(*ends, share) for ends, share in shares.items())


def _with_traffic(
    operators: Sequence[OperatorProfile], streams: Sequence[StreamProfile]
) -> tuple[OperatorProfile, ...]:
    """Operators that move at least what they read and what they write, once."""
    sizes = {operator.name: operator.tuple_bytes for operator in operators}
    written: dict[str, float] = dict.fromkeys(sizes, 0.0)
    for stream in streams:
        # A stream that several consumers read is written once; the widest of them tells its size.
        out = stream.selectivity * sizes[stream.consumer]
        written[stream.producer] = max(written[stream.producer], out)
    return tuple(replace(o, memory_bytes=o.tuple_bytes + written[o.name]) for o in operators)


def _notes(samples: Iterable[Sample]) -> Iterator[str]:
    yield "memory traffic is not read (no counters): tuples in and out stand for it"
    for sample in samples:
        if sample.note is not None:
            yield f"{sample.step}: {sample.note}"
        elif not sample.rows_in:
            yield f"{sample.step}: no tuple reached it, so its cost is not known; 0 stands for it"
        elif len(sample.calls) < FEW_CALLS:
            yield f"{sample.step}: {len(sample.calls)} call(s) only; more rows would tell more"


# A rehearsal: every step of a flow on one thread, timed by itself, on the data that it would get.
#
# Round by round the sources are read, and each step gets what the steps before it made of that,
# through the kernels that engines run. No queue, no other thread and no other step is at work while
# a step is timed. Sinks write where nobody sees it, or not at all.
#
# A call counts with the processor time of this thread; one that waited of its own accord (for a
# file, a service) with the time that passed. On a machine that others use as well this tells the
# step from its neighbours.

if sys.platform == "linux":
    import resource

Delivery = tuple[Jumbo | None, Root]
"""What a step made in one round, and how far it had come with it."""


@dataclass
class Sample:
    """What one step did.

    Attributes:
        step: Its name.
        calls: Tuples in (of a source: out) and nanoseconds of each call that had any.
        rows_in: Tuples that came in.
        rows_out: Tuples that went out, by port.
        bytes_in: Arrow buffers of what came in; of a source, of what it read.
        keys: Hashes of the keys that came; None without a key.
        note: What could not be measured, in words.
        gathers: Whether it keeps tuples of many calls and works on them at once.
    """

    step: str
    calls: list[tuple[int, int]] = field(default_factory=list)
    rows_in: int = 0
    rows_out: list[int] = field(default_factory=list)
    bytes_in: int = 0
    keys: list[npt.NDArray[np.uint64]] | None = None
    note: str | None = None
    gathers: bool = False


class Stopwatch:
    """Times calls: processor time, or the time that passed if the call waited."""

    def time(self, call: Callable[[], Any]) -> tuple[Any, int]:
        """What a call gives, and its nanoseconds."""
        switches = _switches()
        passed, worked = time.perf_counter_ns(), time.thread_time_ns()
        given = call()
        worked, passed = time.thread_time_ns() - worked, time.perf_counter_ns() - passed
        return given, passed if _switches() > switches else worked


def _switches() -> int:
    """How often this thread has given its processor away because it had to wait."""
    if sys.platform != "linux":
        return 0
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def rehearse(
    flow: Flow, rows: int, batch_rows: dict[str, int], watch: Stopwatch | None = None
) -> dict[str, Sample]:
    """Run every step by itself; what each did, upstream first.

    Args:
        flow: The application; its sinks write nothing that stays.
        rows: Read no more rows of each source than this.
        batch_rows: Rows of a jumbo tuple, by source.
        watch: Times the calls.
    """
    keep_freed_memory()  # as in the processes of the engines
    with ExitStack() as cleaning:
        return _Rehearsal(flow, rows, batch_rows, watch or Stopwatch(), cleaning).run()


class _Rehearsal:
    def __init__(
        self,
        flow: Flow,
        rows: int,
        batch_rows: dict[str, int],
        watch: Stopwatch,
        cleaning: ExitStack,
    ) -> None:
        ranks = {name: rank for rank, name in enumerate(flow.names(Role.SOURCE))}
        contexts = flow.contexts()
        self._graph, self._order = flow.graph, flow.resolve().order
        self._sources: dict[str, _Reading] = {}
        self._others: dict[str, _Step] = {}
        for name in self._order:
            step = flow.graph.steps[name]
            if step.role is Role.SOURCE:
                source = readable(name, step.body.source)
                self._sources[name] = _Reading(
                    name, source, ranks[name], rows, batch_rows[name], watch
                )
            elif step.role is Role.OPERATOR:
                self._others[name] = _Operating(step, contexts[name], watch)
            else:
                self._others[name] = _Writing(step, contexts[name], watch, cleaning)

    def run(self) -> dict[str, Sample]:
        while not all(reading.over for reading in self._sources.values()):
            made: dict[Output, Delivery] = {}
            for name in self._order:
                if name in self._sources:
                    if not self._sources[name].over:
                        made[Output(name)] = self._sources[name].read()
                    continue
                inputs = self._graph.steps[name].inputs
                came = {p: made[i] for p, i in enumerate(inputs) if i is not None and i in made}
                for port, delivery in enumerate(self._others[name].take(came)):
                    made[Output(name, port)] = delivery
        for other in self._others.values():
            other.finish()
        all_steps: dict[str, Any] = {**self._sources, **self._others}
        return {name: all_steps[name].sample for name in self._order}


def readable(name: str, source: Source) -> Source:
    """The source, unless its rows come from elsewhere."""
    if source.pushed:
        raise BuildError(
            name,
            "a source that can be read here",
            "one whose rows an engine brings",
            "profile the flow with flow.reading({...}) and a sample of its rows",
        )
    return source


class _Reading:
    """A source."""

    def __init__(
        self, name: str, source: Source, rank: int, rows: int, batch_rows: int, watch: Stopwatch
    ) -> None:
        self.sample = Sample(name, rows_out=[0])
        self._source, self._rank, self._watch = source, rank, watch
        self._reader = SourceReader(source, rank)
        self._left, self._batch_rows = rows, batch_rows
        self.over = False

    def read(self) -> Delivery:
        """The next jumbo tuple; behind the last one, the end."""
        if self._left <= 0:  # the rest of a longer source is not read: its sample ends here
            self.over = True
            schema = without_dictionaries(self._source.schema)
            return last_word(schema, self._rank, len(self._source.parts())), end(FIRST)
        most = min(self._batch_rows, self._left)
        (jumbo, frontier), spent = self._watch.time(partial(self._reader.read, most))
        self.over = self._reader.ended
        if jumbo is not None and len(jumbo):
            self.sample.calls.append((len(jumbo), spent))
            self.sample.rows_in += len(jumbo)
            self.sample.rows_out[0] += len(jumbo)
            self.sample.bytes_in += jumbo.batch.nbytes
            self._left -= len(jumbo)
        elif not self._source.bounded:
            self._left = 0  # it has nothing now, and nobody knows when it will
        return jumbo, frontier


class _Step:
    """A step behind a gate that brings its inputs into order."""

    def __init__(self, step: Step, watch: Stopwatch, out_ports: int) -> None:
        self.sample = Sample(step.name, rows_out=[0] * out_ports)
        self._watch = watch
        self._gate = Gate(len(step.inputs))
        for port in range(len(step.inputs)):
            self._gate.open(port)

    def take(self, came: dict[int, Delivery]) -> list[Delivery]:
        """What came in this round, by port; gives what it makes of that."""
        for port, (jumbo, frontier) in came.items():
            self._gate.add(port, port, jumbo, frontier)
        if not self._gate.has_news():
            return []
        inputs, frontier = self._gate.ready()
        for jumbo in inputs:
            if jumbo is not None and len(jumbo):
                self._count(jumbo)
        return self._work(inputs, frontier)

    def finish(self) -> None:
        """Do what is left to do when all tuples have come."""

    def _count(self, jumbo: Jumbo) -> None:
        self.sample.rows_in += len(jumbo)
        self.sample.bytes_in += jumbo.batch.nbytes

    def _work(self, inputs: list[Jumbo | None], frontier: Root) -> list[Delivery]:
        raise NotImplementedError


class _Operating(_Step):
    """An operator."""

    def __init__(self, step: Step, context: KernelContext, watch: Stopwatch) -> None:
        super().__init__(step, watch, len(step.body.out_ports))
        self._key: tuple[str, ...] = step.body.key
        owned = tuple(range(step.body.own_buckets or 1))
        self._kernel: Kernel = step.body.kernel(replace(context, owned=owned))
        self.sample.keys = [] if self._key else None

    def _count(self, jumbo: Jumbo) -> None:
        super()._count(jumbo)
        if self.sample.keys is not None and set(self._key) <= set(jumbo.batch.schema.names):
            self.sample.keys.append(hash_columns([jumbo.batch.column(n) for n in self._key]))

    def _work(self, inputs: list[Jumbo | None], frontier: Root) -> list[Delivery]:
        outputs, spent = self._watch.time(partial(self._kernel.run, inputs, frontier))
        rows = sum(len(jumbo) for jumbo in inputs if jumbo is not None)
        calls = self.sample.calls
        if rows:
            calls.append((rows, spent))
        elif calls:  # windows that close between two jumbo tuples are the work of the last one
            calls[-1] = (calls[-1][0], calls[-1][1] + spent)
        made: list[Delivery] = []
        for port, jumbo in enumerate(outputs):
            self.sample.rows_out[port] += len(jumbo) if jumbo is not None else 0
            made.append((jumbo, self._kernel.frontier(frontier, port)))
        return made


class _Writing(_Step):
    """A sink, or one in its place that leaves nothing behind."""

    def __init__(
        self, step: Step, context: KernelContext, watch: Stopwatch, cleaning: ExitStack
    ) -> None:
        super().__init__(step, watch, 0)
        self.sample.gathers = True
        folder = Path(cleaning.enter_context(TemporaryDirectory(prefix="rehearsal-")))
        sink = step.body.sink.rehearsal(folder)
        self._out = None if sink is None else Transactions(sink)
        self._version = self._hidden_ns = 0
        self._most_hidden_ns = 0.0 if sink is None else sink.traits.interval_s * 1e9
        if self._out is None:
            self.sample.note = "its sink was not written to: what that costs is not known"
        else:
            cleaning.callback(self._out.close)
            self._out.open(context.inputs[0].schema)

    def _work(self, inputs: list[Jumbo | None], frontier: Root) -> list[Delivery]:
        jumbo = inputs[0]
        if jumbo is not None and len(jumbo) and self._out is not None:
            spent = self._watch.time(partial(self._out.write, jumbo.batch))[1]
            self.sample.calls.append((len(jumbo), spent))
            self._hidden_ns += spent
            if self._hidden_ns >= self._most_hidden_ns:  # as engines wait from commit to commit
                self._commit(self._out)
        return []

    def finish(self) -> None:
        if self._out is not None and self._hidden_ns:
            self._commit(self._out)

    def _commit(self, out: Transactions) -> None:
        """Show what was written; that is the work of the last call."""
        rows, spent = self.sample.calls[-1]
        spent += self._watch.time(partial(out.commit, self._version))[1]
        self.sample.calls[-1] = (rows, spent)
        self._version, self._hidden_ns = self._version + 1, 0
