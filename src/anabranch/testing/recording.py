"""A bounded piece of a flow's input, held in memory so that it can be cut down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from anabranch.flow import Flow
from anabranch.io import memory
from anabranch.io.reader import SourceReader
from anabranch.operators.rows import python_rows
from anabranch.operators.schemas import without_dictionaries
from anabranch.state.positions import LAST

PATIENCE = 100  # reads without a row after which an endless source counts as idle


@dataclass(frozen=True)
class Recording:
    """Rows and heartbeats of every source of a flow, in order."""

    tables: dict[str, pa.Table]
    heartbeats: dict[str, dict[int, int]]

    @staticmethod
    def of(flow: Flow, rows: int) -> Recording:
        """At most `rows` rows of each source."""
        tables: dict[str, pa.Table] = {}
        beats: dict[str, dict[int, int]] = {}
        for name, source in flow.sources().items():
            reader = SourceReader(source, 0)
            batches: list[pa.RecordBatch] = []
            beats[name], taken, silent = {}, 0, 0
            while not reader.ended and taken < rows and silent < PATIENCE:
                jumbo, _ = reader.read(rows - taken)
                silent = 0 if jumbo is not None and len(jumbo) else silent + 1
                if jumbo is None:
                    continue
                batches.append(jumbo.batch)
                taken += len(jumbo)
                for mark in jumbo.marks:
                    if mark.passed < LAST:
                        beats[name][taken] = mark.passed
            schema = without_dictionaries(source.schema)
            tables[name] = pa.Table.from_batches(batches, schema=schema)
        return Recording(tables, beats)

    @property
    def size(self) -> int:
        """Rows of all sources."""
        return sum(table.num_rows for table in self.tables.values())

    @property
    def rows(self) -> dict[str, list[dict[str, Any]]]:
        """The rows of each source, to be shown."""
        return {name: python_rows(table) for name, table in self.tables.items()}

    def keep(self, wanted: list[tuple[str, int]]) -> Recording:
        """Only the rows named by (source, number)."""
        chosen = {name: [i for n, i in wanted if n == name] for name in self.tables}
        beats = {
            name: {sum(i < at for i in chosen[name]): passed for at, passed in b.items()}
            for name, b in self.heartbeats.items()
        }
        tables = {n: t.take(pa.array(chosen[n], pa.int64())) for n, t in self.tables.items()}
        return Recording(tables, beats)

    def rows_named(self) -> list[tuple[str, int]]:
        """Every row as (source, number)."""
        return [(name, i) for name, table in self.tables.items() for i in range(table.num_rows)]

    def feed(self, flow: Flow) -> Flow:
        """The same flow, reading this recording."""
        return flow.reading(
            {
                name: memory(table, heartbeats=self.heartbeats[name] or None)
                for name, table in self.tables.items()
            }
        )
