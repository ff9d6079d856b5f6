"""A bounded piece of a flow's input, held in memory so that it can be cut down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from anabranch.flow import Flow
from anabranch.graph import Role
from anabranch.io import memory
from anabranch.io.reader import SourceReader
from anabranch.state.positions import LAST

PATIENCE = 100  # reads without a row after which an endless source counts as idle


@dataclass(frozen=True)
class Recording:
    """Rows and heartbeats of every source of a flow, in order."""

    rows: dict[str, list[dict[str, Any]]]
    schemas: dict[str, pa.Schema]
    heartbeats: dict[str, dict[int, int]]

    @staticmethod
    def of(flow: Flow, rows: int) -> Recording:
        """At most `rows` rows of each source."""
        taken: dict[str, list[dict[str, Any]]] = {}
        schemas: dict[str, pa.Schema] = {}
        beats: dict[str, dict[int, int]] = {}
        for name in flow.names(Role.SOURCE):
            source = flow.graph.steps[name].body.source
            reader = SourceReader(source, 0)
            taken[name], beats[name], schemas[name] = [], {}, source.schema
            silent = 0
            while not reader.ended and len(taken[name]) < rows and silent < PATIENCE:
                jumbo, _ = reader.read(rows - len(taken[name]))
                silent = 0 if jumbo is not None and len(jumbo) else silent + 1
                if jumbo is None:
                    continue
                taken[name] += jumbo.batch.to_pylist()
                for mark in jumbo.marks:
                    if mark.passed < LAST:
                        beats[name][len(taken[name])] = mark.passed
        return Recording(taken, schemas, beats)

    @property
    def size(self) -> int:
        """Rows of all sources."""
        return sum(len(rows) for rows in self.rows.values())

    def keep(self, wanted: list[tuple[str, int]]) -> Recording:
        """Only the rows named by (source, number)."""
        chosen = set(wanted)
        rows = {
            name: [row for i, row in enumerate(all_rows) if (name, i) in chosen]
            for name, all_rows in self.rows.items()
        }
        beats = {
            name: {sum((name, i) in chosen for i in range(at)): passed for at, passed in b.items()}
            for name, b in self.heartbeats.items()
        }
        return Recording(rows, self.schemas, beats)

    def rows_named(self) -> list[tuple[str, int]]:
        """Every row as (source, number)."""
        return [(name, i) for name, rows in self.rows.items() for i in range(len(rows))]

    def feed(self, flow: Flow) -> Flow:
        """The same flow, reading this recording."""
        sources = {
            name: memory(rows, self.schemas[name], heartbeats=self.heartbeats[name] or None)
            for name, rows in self.rows.items()
        }
        return flow.reading(sources)
