"""A sink on a thread: writes what comes, makes it visible, and notes how old it was by then.

Sinks of files get a new file with each commit, so they commit about once a second; the others show
every jumbo tuple at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from anabranch.engines.local.entry import Entry
from anabranch.engines.local.gate import ElasticGate
from anabranch.engines.local.latency import Latencies
from anabranch.engines.local.outlet import Outlet
from anabranch.engines.local.region import RegionRun
from anabranch.flow import Flow
from anabranch.io.directory import DirectorySink
from anabranch.operators.base import KernelContext
from anabranch.plan.plan import RegionPlan
from anabranch.plan.regions import Region
from anabranch.state.positions import Jumbo, Root, is_end

FILES_S = 1.0


class SinkRun(RegionRun):
    """The region of a sink: its only replica writes.

    Args:
        told_end: Called when the end of the stream was written and is visible.
    """

    def __init__(
        self,
        flow: Flow,
        contexts: Mapping[str, KernelContext],
        region: Region,
        plan: RegionPlan,
        gate: ElasticGate,
        latencies: Latencies,
        told_end: Callable[[], None],
    ) -> None:
        super().__init__(flow, contexts, region, plan, gate, Outlet((), together=False))
        self._sink: Any = flow.graph.steps[region.name].body.sink
        self._schema: pa.Schema = contexts[region.name].inputs[0].schema
        self._latencies, self._told_end = latencies, told_end
        self._every_s = FILES_S if isinstance(self._sink, DirectorySink) else 0.0
        self._version = 0
        self._shown_s = time.monotonic()
        self._unseen: list[tuple[float, int]] = []  # when read, how many rows
        self.rows = 0
        self.ended = False

    def open(self) -> None:
        """Begin afresh: what the sink may hold of earlier runs without a checkpoint is replaced."""
        self._sink.open(self._schema, -1)
        self._sink.commit(self._version)

    def deliver(
        self, replica: int, entry: Entry, outputs: Sequence[Jumbo | None], reached: Sequence[Root]
    ) -> None:
        """Write; make it visible when it is time to, and at the end."""
        for jumbo in outputs:
            if jumbo is not None and len(jumbo):
                self._sink.write(jumbo.batch)
                self.rows += len(jumbo)
                self._unseen.append((entry.born_s or time.monotonic(), len(jumbo)))
        over = is_end(reached[0])
        if over or time.monotonic() - self._shown_s >= self._every_s:
            self.commit()
        if over and not self.ended:
            self.ended = True
            self._told_end()

    def commit(self) -> None:
        """Make visible what was written."""
        if self._unseen:
            self._version += 1
            self._sink.commit(self._version)
            now = time.monotonic()
            self._latencies.note([((now - born_s) * 1000, rows) for born_s, rows in self._unseen])
            self._unseen = []
        self._shown_s = time.monotonic()

    def remind(self) -> None:
        """Wake the sink's thread if rows have waited long enough and nothing else wakes it."""
        if self._unseen and self._every_s and time.monotonic() - self._shown_s >= self._every_s:
            self.gate.nudge()

    def let_go(self) -> None:
        """Close the sink; what was not made visible is gone."""
        self._sink.close()
