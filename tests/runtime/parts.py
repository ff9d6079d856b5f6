"""A source whose parts a test decides, and readers that read it without any engine."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from anabranch.flow import Flow
from anabranch.io import collect
from anabranch.io.reader import numbered
from anabranch.io.source import Chunk, Extent, Source
from anabranch.planning.plan import Plan, SourcePlan
from anabranch.runtime.dispenser import Dispenser
from anabranch.runtime.layout import Layout, Topology
from anabranch.runtime.messages import (
    Claim,
    Delivery,
    Finished,
    Promise,
    Survey,
    Surveyed,
    UnitId,
)
from anabranch.runtime.outlet import Outlet
from anabranch.runtime.source_unit import SourceUnit
from anabranch.state.positions import START, Root

SCHEMA = pa.schema([("part", pa.int64()), ("row", pa.int64())])

Row = tuple[int, int]
"""Number of the part, and the row in it."""


@dataclass
class Part:
    """One part.

    Attributes:
        rows: Rows that it has, or that have come so far.
        seekable: Whether readers may share it.
        exact: Whether the number of rows is known before reading.
        growing: Whether more rows may come.
    """

    rows: int
    seekable: bool = True
    exact: bool = True
    growing: bool = False


class Parts(Source):
    """Rows that say where they are from.

    Args:
        parts: The parts; a number stands for a part of so many rows that is easy to share.
        per_s: Rows that become due in a second; None where all are due at once.
        most: Rows of a chunk at most.
        interleaved: Whether parts are read side by side.
    """

    schema, order = SCHEMA, "part and row"

    def __init__(
        self,
        *parts: Part | int,
        per_s: float | None = None,
        most: int | None = None,
        interleaved: bool = False,
    ) -> None:
        self.all = [Part(part) if isinstance(part, int) else part for part in parts]
        self.per_s, self.most, self._interleaved = per_s, most, interleaved

    @property
    def interleaved(self) -> bool:
        return self._interleaved

    @property
    def bounded(self) -> bool:
        return not any(part.growing for part in self.all)

    def parts(self) -> tuple[str, ...]:
        return tuple(str(number) for number in range(len(self.all)))

    def extent(self, part: str) -> Extent:
        each = self.all[int(part)]
        if each.growing:
            return Extent(each.rows, growing=True)
        return Extent(each.rows if each.exact else None, each.exact, each.seekable)

    def due_rows(self, elapsed_s: float) -> int | None:
        if self.per_s is None:
            return None
        return min(int(self.per_s * elapsed_s), sum(part.rows for part in self.all))

    def read(self, part: str, start: int, rows: int) -> Chunk | None:
        each = self.all[int(part)]
        if start >= each.rows and not each.growing:
            return None
        stop = min(start + min(rows, self.most or rows), each.rows)
        numbers = list(range(start, max(start, stop)))
        columns = {"part": [int(part)] * len(numbers), "row": numbers}
        return Chunk(pa.record_batch(columns, schema=SCHEMA))

    def every_row(self) -> list[Row]:
        """All rows that there are, in order."""
        return [(number, row) for number, part in enumerate(self.all) for row in range(part.rows)]


def flow_of(source: Source) -> Flow:
    """A flow from a source to a sink."""
    flow = Flow("reading")
    flow.source("rows", source).sink("out", collect())
    return flow


class Reading:
    """A dispenser and its readers; every message between them is delivered by hand.

    Args:
        source: What is read.
        readers: How many readers there are.
        batch_rows: Rows of a claim at most.
        limit: Rows to give out at most.
        in_flight_limit: Rows under way at most.
    """

    def __init__(
        self,
        source: Source,
        readers: int = 1,
        batch_rows: int = 4,
        limit: int | None = None,
        in_flight_limit: int | None = None,
    ) -> None:
        self.source, self._flow = source, flow_of(source)
        self.now_s = 0.0
        self.dispenser = Dispenser("rows", source, 0, limit)
        self.to_readers: dict[UnitId, deque[Claim | Promise | Survey]] = {}
        self.to_dispenser: deque[Finished | Surveyed] = deque()
        self.deliveries: list[Delivery] = []
        self.rows: list[Row] = []
        self.numbered: list[tuple[int, Row]] = []
        self._change: dict[int, int] = {}
        self.epoch = -1
        self.begin(SourcePlan("rows", readers, in_flight_limit, batch_rows))

    def begin(self, plan: SourcePlan) -> None:
        """Begin an epoch with other readers."""
        self.epoch += 1
        self.to_dispenser.clear()
        self.dispenser.begin(self.epoch, plan)
        whole = Plan.sequential(self._flow).with_source("rows", replicas=plan.replicas)
        layout = Layout(Topology(self._flow), whole)
        self.promised: dict[UnitId, Root] = {}
        self.readers: dict[UnitId, SourceUnit] = {}
        self.to_readers = {unit: deque() for unit in layout.of_region("rows")}
        for unit in self.to_readers:
            self.promised[unit] = START
            outlet = Outlet(
                self.epoch, layout, unit, {}, self._deliver, self._note, lambda count: 0
            )
            self.readers[unit] = SourceUnit(
                unit, self.epoch, self.source, 0, outlet, self.to_dispenser.append
            )

    def _deliver(self, message: Any) -> None:
        assert isinstance(message, Delivery)
        reader = message.link.producer
        self.deliveries.append(message)
        if message.jumbo is not None:
            columns = (message.jumbo.batch.column(name).to_pylist() for name in SCHEMA.names)
            rows = list(zip(*columns, strict=True))
            times = message.jumbo.positions.columns[0].tolist()
            placed = zip(times, rows, strict=True)
            early = [row for seq, row in placed if numbered(0, seq) < self.promised[reader]]
            assert not early, f"{early} came after a promise of {self.promised[reader]}"
            self.rows += rows
            self.numbered += zip(times, rows, strict=True)
            for chunk in message.chunks:
                self._note(chunk, -1)  # whoever gets it is done with it at once
        self.promised[reader] = max(self.promised[reader], message.frontier)

    def _note(self, chunk: Any, change: int) -> None:
        self._change[chunk.number] = self._change.get(chunk.number, 0) + change

    # What may happen next

    def give(self) -> list[Claim | Promise | Survey]:
        """Let the dispenser give out, after it has received all acknowledgements."""
        for number, change in self._change.items():
            self.dispenser.acknowledged(number, change)
        self._change.clear()
        given = self.dispenser.give(self.now_s)
        for message in given:
            self.to_readers[message.reader].append(message)
        return given

    def hand_on(self, reader: UnitId) -> None:
        """Deliver one message to a reader."""
        self.readers[reader].receive(self.to_readers[reader].popleft())

    def report(self) -> None:
        """Deliver one message to the dispenser."""
        message = self.to_dispenser.popleft()
        if isinstance(message, Finished):
            self.dispenser.finished(message, self.now_s)
        else:
            self.dispenser.surveyed(message)

    def read(self, reader: UnitId) -> None:
        """Let a reader do one thing."""
        self.readers[reader].run(self._note, lambda: self.now_s)

    def runnable(self) -> list[UnitId]:
        """Readers that have something to do."""
        return [unit for unit, reader in self.readers.items() if reader.runnable()]

    def one_thing(self, choose: Callable[[Sequence[Any]], Any]) -> bool:
        """Let one of the things happen that may happen; whether there was any."""
        waiting = [reader for reader, messages in self.to_readers.items() if messages]
        possible: list[Callable[[], Any]] = [
            *(partial(self.read, reader) for reader in self.runnable()),
            *(partial(self.hand_on, reader) for reader in waiting),
            *([self.report] if self.to_dispenser else []),
        ]
        if not possible:
            return bool(self.give())
        choose([*possible, self.give])()
        return True

    def settle_until(self, holds: Callable[[], Any]) -> None:
        """Let things happen in turn until something holds."""
        while not holds():
            assert self.one_thing(lambda possible: possible[0]), "nothing more happens"

    def settle(self) -> None:
        """Let things happen in turn until nothing more does."""
        while self.one_thing(lambda possible: possible[0]):
            pass
