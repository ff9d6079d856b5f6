"""A sink on a thread: writes what comes, makes it visible, and notes how old it was by then.

Without a checkpoint, every jumbo tuple is shown at once, or as often as the sink asks for: files
about once a second, since every commit is a new file. With a checkpoint rows are kept until the
next version is saved, and become visible with it (`saving.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from anabranch.engines.local.entry import Entry
from anabranch.engines.local.gate import ElasticGate
from anabranch.engines.local.latency import Latencies
from anabranch.engines.local.outlet import Outlet
from anabranch.engines.local.region import RegionRun
from anabranch.flow import Flow
from anabranch.io.sink import Sink
from anabranch.io.two_phase_commit import Transactions
from anabranch.operators.base import KernelContext
from anabranch.planning.plan import RegionPlan
from anabranch.planning.regions import Region
from anabranch.state.positions import Jumbo, Root, is_end


class SinkRun(RegionRun):
    """The region of a sink: its only replica writes.

    Args:
        latencies: Where to note how long tuples took.
        keeps: Whether rows are kept for the next checkpoint.
        told_end: Called when the end of the stream was written.
    """

    def __init__(
        self,
        flow: Flow,
        contexts: Mapping[str, KernelContext],
        region: Region,
        plan: RegionPlan,
        gate: ElasticGate,
        latencies: Latencies,
        keeps: bool,
        told_end: Callable[[], None],
    ) -> None:
        super().__init__(flow, contexts, region, plan, gate, Outlet((), together=False))
        self.sink: Sink = flow.graph.steps[region.name].body.sink
        self.schema: pa.Schema = contexts[region.name].inputs[0].schema
        self._latencies, self._keeps, self._told_end = latencies, keeps, told_end
        self._every_s = self.sink.traits.interval_s
        self._version = 0
        self._out = Transactions(self.sink, first=1)
        self._shown_s = time.monotonic()
        self._unseen: list[tuple[float, int]] = []  # when read, how many rows
        self.kept: list[pa.RecordBatch] = []
        self.rows = 0
        self.ended = False

    def open(self) -> None:
        """Begin afresh, without a checkpoint."""
        self._out.open(self.schema)

    def close_sink(self) -> None:
        """Close the sink; what was not made visible is gone."""
        self._out.close()

    def deliver(
        self, replica: int, entry: Entry, outputs: Sequence[Jumbo | None], reached: Sequence[Root]
    ) -> None:
        """Write; make it visible when it is time to, and at the end."""
        probe = self.replicas[replica].probes[-1]
        probe.begin()  # writing is what the step is about
        for jumbo in outputs:
            if jumbo is not None and len(jumbo):
                self._write(jumbo.batch, entry.born_s)
        over = is_end(reached[0])
        due = time.monotonic() - self._shown_s >= self._every_s
        if not self._keeps and (over or due):
            self.commit()
        probe.end_step(self.region.name)
        if over and not self.ended:
            self.ended = True
            self._told_end()

    @property
    def all_shown(self) -> bool:
        """Whether every row that came is visible."""
        return not self._unseen

    def commit(self) -> None:
        """Make visible what was written."""
        if self._unseen:
            self._version += 1
            self._out.commit(self._version)
        self.note_shown()

    def note_shown(self) -> None:
        """All rows so far are visible."""
        now = time.monotonic()
        self._latencies.note([((now - born_s) * 1000, rows) for born_s, rows in self._unseen])
        self._unseen, self.kept = [], []
        self._shown_s = now

    def remind(self) -> None:
        """Wake the sink's thread if rows have waited long enough and nothing else wakes it."""
        waited_s = time.monotonic() - self._shown_s
        if self._unseen and not self._keeps and waited_s >= self._every_s > 0:
            self.gate.nudge()

    def _write(self, batch: pa.RecordBatch, born_s: float | None) -> None:
        if self._keeps:
            self.kept.append(batch)
        else:
            self._out.write(batch)
        self.rows += batch.num_rows
        self._unseen.append((time.monotonic() if born_s is None else born_s, batch.num_rows))
