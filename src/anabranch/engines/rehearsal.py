"""A rehearsal: every step of a flow by itself, on one thread, on the data that it would get.

Sources are read first; then one step after another gets what the steps before it made, jumbo tuple
by jumbo tuple, through the kernels that engines run. No queue, no other thread and no other step is
at work meanwhile, so what is timed is the step. Sinks write where nobody sees it, or not at all.

A call counts with the processor time of this thread; one that waited of its own accord (for a
file, a service) with the time that passed. On a machine that others use as well this tells the
step from its neighbours.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.errors import BuildError
from anabranch.flow import Flow
from anabranch.graph import Output, Role
from anabranch.io.collect import CollectSink, collect
from anabranch.io.directory import DirectorySink
from anabranch.io.reader import SourceReader, last_word
from anabranch.io.source import is_pushed
from anabranch.operators.base import Kernel, KernelContext
from anabranch.operators.schemas import without_dictionaries
from anabranch.state.gate import Gate
from anabranch.state.hashing import hash_columns
from anabranch.state.positions import FIRST, Jumbo, Root, end

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
    """

    step: str
    calls: list[tuple[int, int]] = field(default_factory=list)
    rows_in: int = 0
    rows_out: list[int] = field(default_factory=list)
    bytes_in: int = 0
    keys: list[npt.NDArray[np.uint64]] | None = None
    note: str | None = None


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
        self._flow, self._rows, self._batch_rows = flow, rows, batch_rows
        self._watch, self._cleaning = watch, cleaning
        self._steps, self._contexts = flow.graph.steps, flow.contexts()
        self._made: dict[Output, list[Delivery]] = {}
        self._ranks = {name: rank for rank, name in enumerate(flow.names(Role.SOURCE))}

    def run(self) -> dict[str, Sample]:
        runs = {Role.SOURCE: self._read, Role.OPERATOR: self._operate, Role.SINK: self._write}
        samples: dict[str, Sample] = {}
        for name in self._flow.resolve().order:
            samples[name] = runs[self._steps[name].role](name)
            self._forget_before(name)
        return samples

    def _read(self, name: str) -> Sample:
        source = self._steps[name].body.source
        if is_pushed(source):
            raise BuildError(
                name,
                "a source that can be read here",
                "one whose rows an engine brings",
                "profile the flow with flow.reading({...}) and a sample of its rows",
            )
        sample = Sample(name, rows_out=[0])
        made: list[Delivery] = []
        reader = SourceReader(source, self._ranks[name])
        while not reader.ended and sample.rows_out[0] < self._rows:
            most = min(self._batch_rows[name], self._rows - sample.rows_out[0])
            (jumbo, frontier), spent = self._watch.time(partial(reader.read, most))
            made.append((jumbo, frontier))
            if jumbo is not None and len(jumbo):
                sample.calls.append((len(jumbo), spent))
                sample.rows_out[0] += len(jumbo)
                sample.bytes_in += jumbo.batch.nbytes
            elif not source.bounded:
                break  # it has nothing now, and nobody knows when it will
        if not reader.ended:  # the rest of a longer source is not read: its sample ends here
            schema = without_dictionaries(source.schema)
            word = last_word(schema, self._ranks[name], len(source.parts()))
            made.append((word, end(FIRST)))
        sample.rows_in = sample.rows_out[0]
        self._made[Output(name)] = made
        return sample

    def _operate(self, name: str) -> Sample:
        body, context = self._steps[name].body, self._contexts[name]
        kernel: Kernel = body.kernel(_whole(context, body))
        outputs = [Output(name, port) for port in range(len(body.out_ports))]
        sample = Sample(name, rows_out=[0] * len(outputs), keys=[] if body.key else None)
        self._made |= {output: [] for output in outputs}
        for inputs, frontier in self._rounds(name):
            _count_in(sample, inputs, body.key)
            results, spent = self._watch.time(partial(kernel.run, inputs, frontier))
            rows = sum(len(jumbo) for jumbo in inputs if jumbo is not None)
            if rows:
                sample.calls.append((rows, spent))
            for output, jumbo in zip(outputs, results, strict=True):
                sample.rows_out[output.port] += len(jumbo) if jumbo is not None else 0
                self._made[output].append((jumbo, kernel.frontier(frontier, output.port)))
        return sample

    def _write(self, name: str) -> Sample:
        sink = self._rehearsal_of(self._steps[name].body.sink)
        sample = Sample(name)
        if sink is None:
            sample.note = "its sink was not written to: what that costs is not known"
        else:
            sink.open(self._contexts[name].inputs[0].schema, -1)
        for number, (inputs, _) in enumerate(self._rounds(name)):
            jumbo = inputs[0]
            if jumbo is None or not len(jumbo):
                continue
            _count_in(sample, inputs, ())
            if sink is not None:
                write = partial(_write_and_show, sink, jumbo.batch, number)
                sample.calls.append((len(jumbo), self._watch.time(write)[1]))
        return sample

    def _rehearsal_of(self, sink: Any) -> Any:
        """A sink that costs what this one costs and leaves nothing behind; None if unknown."""
        if isinstance(sink, CollectSink):
            return collect()
        if isinstance(sink, DirectorySink):
            folder = self._cleaning.enter_context(TemporaryDirectory(prefix="rehearsal-"))
            return DirectorySink(Path(folder), sink._encoding, overwrite=True)
        make = getattr(sink, "rehearsal", None)
        return None if make is None else make()

    def _rounds(self, name: str) -> Iterator[tuple[list[Jumbo | None], Root]]:
        """What a step gets, jumbo tuple by jumbo tuple, in order over all its ports."""
        streams = [self._made[given] for given in self._steps[name].inputs if given is not None]
        gate = Gate(len(streams))
        for port in range(len(streams)):
            gate.open(port)
        for number in range(max(map(len, streams))):
            for port, stream in enumerate(streams):
                if number < len(stream):
                    gate.add(port, port, *stream[number])
            if gate.has_news():
                yield gate.ready()

    def _forget_before(self, name: str) -> None:
        """Let go of what all its readers have had: samples of long flows are large."""
        order = self._flow.resolve().order
        done = set(order[: order.index(name) + 1])
        for output in list(self._made):
            if all(step in done for step, _ in self._flow.graph.consumers(output)):
                del self._made[output]


def _write_and_show(sink: Any, batch: pa.RecordBatch, version: int) -> None:
    """One jumbo tuple into a sink, as an engine does that shows each at once."""
    sink.write(batch)
    sink.commit(version)


def _whole(context: KernelContext, body: Any) -> KernelContext:
    """The place of a kernel that owns every bucket."""
    return replace(context, owned=tuple(range(body.own_buckets or 1)))


def _count_in(sample: Sample, inputs: Sequence[Jumbo | None], key: tuple[str, ...]) -> None:
    for jumbo in inputs:
        if jumbo is None or not len(jumbo):
            continue
        sample.rows_in += len(jumbo)
        sample.bytes_in += jumbo.batch.nbytes
        if sample.keys is not None and set(key) <= set(jumbo.batch.schema.names):
            sample.keys.append(hash_columns([jumbo.batch.column(n) for n in key]))
