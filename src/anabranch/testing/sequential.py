"""The sequential run: one tuple at a time, in the order of positions. The meaning of every other.

It shares with the engines what operators do (kernels) and nothing of how they are run: no queue, no
gate, no bucket map, no epoch. Events wait in a heap ordered by root position; the smallest is
taken, shown to the steps it concerns in topological order, and what comes out is put back.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

from anabranch.errors import BuildError
from anabranch.flow import Flow
from anabranch.graph import Output, Role
from anabranch.io.interleaving import RunReader
from anabranch.io.offsets import Run, SourceOffsets
from anabranch.io.reader import SourceReader
from anabranch.io.source import Source
from anabranch.operators.base import Kernel, Outputs
from anabranch.operators.timed import TimedKernel
from anabranch.state.positions import (
    FIRST,
    LAST,
    ROOT_WIDTH,
    Jumbo,
    Root,
    after,
    end,
)
from anabranch.testing.result import Collected, RunResult, Tap


def run_sequential(
    flow: Flow,
    *,
    tap: Tap | None = None,
    interleavings: Mapping[str, Sequence[Run]] | None = None,
) -> RunResult:
    """Run a bounded flow one tuple at a time; sinks are not written, their rows are returned.

    Args:
        flow: The application.
        tap: Called after every call of a kernel.
        interleavings: The order in which another run has read the interleaved sources, by source.

    Example:
        >>> from anabranch.apps import word_count
        >>> ran = run_sequential(word_count.build(text="a b a"))
        >>> max(ran.rows("out"), key=lambda row: row["n"])
        {'word': 'a', 'n': 2}
    """
    return _Sequential(flow, tap, interleavings or {}).run()


class _Domain:
    """Events of one order: by number before a clock, by event time behind it."""

    def __init__(self) -> None:
        self.heap: list[tuple[Root, int, int, int, Jumbo]] = []
        self._ticket = count()

    def push(self, root: Root, rank: int, port: int, jumbo: Jumbo) -> None:
        heapq.heappush(self.heap, (root, rank, port, next(self._ticket), jumbo))

    def pop_step(self, ports: dict[int, int]) -> tuple[Root, int, list[Jumbo | None]]:
        """Return the smallest event and the first step it concerns, with all of its inputs."""
        root, rank = self.heap[0][:2]
        inputs: list[Jumbo | None] = [None] * ports[rank]
        while self.heap and self.heap[0][:2] == (root, rank):
            _, _, port, _, jumbo = heapq.heappop(self.heap)
            known = inputs[port]
            inputs[port] = jumbo if known is None else Jumbo.concat([known, jumbo])
        return root, rank, inputs


class _Sequential:
    def __init__(
        self, flow: Flow, tap: Tap | None, interleavings: Mapping[str, Sequence[Run]]
    ) -> None:
        self.flow, self.tap, self.interleavings = flow, tap, interleavings
        self.contexts = flow.contexts()
        self.steps = flow.graph.steps
        self.order = [n for n in flow.resolve().order if self.steps[n].role is not Role.SOURCE]
        self.ranks = {self.contexts[n].rank: n for n in self.contexts}
        self.ports = {self.contexts[n].rank: len(self.steps[n].inputs) for n in self.contexts}
        self.by_number, self.by_time = _Domain(), _Domain()
        self.sinks = {
            n: Collected(self.contexts[n].inputs[0].schema) for n in flow.names(Role.SINK)
        }
        self.kernels: dict[str, Kernel] = {}
        for name in flow.names(Role.OPERATOR):
            body = self.steps[name].body
            owned = tuple(range(body.own_buckets or 1))
            self.kernels[name] = body.kernel(replace(self.contexts[name], owned=owned))

    def run(self) -> RunResult:
        for rank, jumbo in self._source_rows():
            self._emit(self.ranks[rank], [jumbo])
            self._drain_numbers()
            self._drain_times(self._ready_time())
        behind_clock = self._behind_clock()
        self._close([n for n in self.order if n not in behind_clock])
        for name, kernel in self.kernels.items():
            kernel.last_time = self._last_time(name)
        self._drain_times(LAST)
        self._close([n for n in self.order if n in behind_clock])
        return RunResult(
            {name: sink.table() for name, sink in self.sinks.items()},
            {name: kernel.context.counters for name, kernel in self.kernels.items()},
        )

    def _source_rows(self) -> Iterator[tuple[int, Jumbo]]:
        """Yield rows of all sources one by one, merged by (number, source)."""
        readers = []
        for source_rank, (name, source) in enumerate(self.flow.sources().items()):
            runs = self.interleavings.get(name)
            if runs is None and (source.interleaved or not source.bounded):
                raise BuildError(
                    name,
                    "a bounded source",
                    "an endless one",
                    "give it a number of rows, e.g. generate(…, rows=1000)",
                )
            step_rank = self.contexts[name].rank
            rows = _single_rows(source, source_rank, runs)
            readers.append([(root, step_rank, row) for root, row in rows])
        for _, rank, jumbo in heapq.merge(*readers, key=lambda item: item[0]):
            yield rank, jumbo

    def _emit(self, name: str, outputs: Outputs) -> None:
        """Put every output where its readers will find it, event by event."""
        for port, jumbo in enumerate(outputs):
            if jumbo is None or not (len(jumbo) or jumbo.marks):
                continue
            timed = self.contexts[name].outputs[port].time is not None
            domain = self.by_time if timed else self.by_number
            for consumer, in_port in self.flow.graph.consumers(Output(name, port)):
                for root, piece in _events(jumbo):
                    domain.push(root, self.contexts[consumer].rank, in_port, piece)

    def _show(self, name: str, inputs: list[Jumbo | None], frontier: Root) -> None:
        if name in self.sinks:
            self.sinks[name].add(inputs[0])
            return
        outputs = self.kernels[name].run(inputs, frontier)
        if self.tap is not None:
            self.tap(name, inputs, outputs)
        self._emit(name, outputs)

    def _drain_numbers(self) -> None:
        while self.by_number.heap:
            root, step_rank, inputs = self.by_number.pop_step(self.ports)
            self._show(self.ranks[step_rank], inputs, after(root))

    def _drain_times(self, ready: int) -> None:
        """Tuples before the ready time and timers up to it, whichever stands first."""
        while True:
            timer, name = self._next_timer()
            first = self.by_time.heap[0][0] if self.by_time.heap else None
            if timer is not None and timer.time <= ready and (first is None or timer < first):
                nothing: list[Jumbo | None] = [None] * len(self.steps[name].inputs)
                self._show(name, nothing, timer)
            elif first is not None and first.time < ready:
                root, rank, inputs = self.by_time.pop_step(self.ports)
                self._show(self.ranks[rank], inputs, after(root))
            else:
                return

    def _next_timer(self) -> tuple[Root | None, str]:
        best: tuple[Root | None, str] = (None, "")
        for name, kernel in self.kernels.items():
            time = kernel.next_timer()
            if time is not None:
                root = Root(time, -kernel.context.rank, FIRST, FIRST)
                if best[0] is None or root < best[0]:
                    best = (root, name)
        return best

    def _ready_time(self) -> int:
        clocks = [k for k in self.kernels.values() if isinstance(k, TimedKernel)]
        times = [clock.frontier(Root(FIRST, FIRST, FIRST, FIRST)).time for clock in clocks]
        return min(times, default=FIRST)

    def _last_time(self, name: str) -> int:
        """Return the greatest time that the nearest clocks upstream of a step have shown."""
        seen, todo, last = set[str](), [name], FIRST
        while todo:
            current = todo.pop()
            if current in seen:
                continue
            seen.add(current)
            kernel = self.kernels.get(current)
            if isinstance(kernel, TimedKernel):
                last = max(last, kernel.frontier(end(FIRST)).sub)
                continue  # a clock before it has another stream
            todo += [i.step for i in self.steps[current].inputs if i is not None]
        return last

    def _behind_clock(self) -> set[str]:
        """Steps that time can still reach when the sources have ended."""
        reached: set[str] = set()
        for name in self.order:
            timed = self.contexts[name].inputs[0].time is not None
            before = {i.step for i in self.steps[name].inputs if i is not None}
            if timed or before & reached:
                reached.add(name)
        return reached

    def _close(self, names: list[str]) -> None:
        """Show the end to steps, upstream first, together with all that waits for them."""
        for name in names:
            timed = self.contexts[name].inputs[0].time is not None
            domain = self.by_time if timed else self.by_number
            rank = self.contexts[name].rank
            inputs: list[Jumbo | None] = [None] * self.ports[rank]
            rest = []
            for item in sorted(domain.heap):
                if item[1] != rank:
                    rest.append(item)
                    continue
                known = inputs[item[2]]
                inputs[item[2]] = item[4] if known is None else Jumbo.concat([known, item[4]])
            domain.heap = rest
            heapq.heapify(domain.heap)
            self._show(name, inputs, end(self._last_time(name)))


def _single_rows(
    source: Source, rank: int, runs: Sequence[Run] | None
) -> Iterator[tuple[Root, Jumbo]]:
    if runs is not None:
        recorded = RunReader(source, rank, runs)
        for row, _ in recorded.read(1):
            yield from _events(row)
        last, _ = recorded.end(SourceOffsets(), over=True)
        if last is not None:
            yield from _events(last)
        return
    reader = SourceReader(source, rank)
    while not reader.ended:
        jumbo, _ = reader.read(1)
        if jumbo is not None:
            yield from _events(jumbo)


def _events(jumbo: Jumbo) -> Iterator[tuple[Root, Jumbo]]:
    """Yield a batch cut where the root changes; marks travel as events of their own."""
    roots = [Root(*row[:ROOT_WIDTH]) for row in jumbo.positions.rows()]
    start = 0
    for stop in range(1, len(roots) + 1):
        if stop == len(roots) or roots[stop] != roots[start]:
            yield roots[start], jumbo.slice(start, stop)
            start = stop
    for mark in jumbo.marks:
        yield mark.root, Jumbo(jumbo.batch.slice(0, 0), jumbo.positions.slice(0, 0), (mark,))
