"""What a run gives back: the sinks' rows in order, and what was counted on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from anabranch.columns.rows import python_rows
from anabranch.io.offsets import Run
from anabranch.operators.base import Counters
from anabranch.state.positions import Jumbo

Tap = Callable[[str, Sequence[Jumbo | None], Sequence[Jumbo | None]], None]
"""Called with (step, inputs, outputs) after every call of a kernel."""


@dataclass
class RunResult:
    """Holds the results of a run.

    Attributes:
        outputs: Rows by sink, in the order in which the sink got them.
        counters: By step.
        events: What happened on the way.
        interleavings: By interleaved source, the order in which it was read.
    """

    outputs: dict[str, pa.Table]
    counters: dict[str, Counters] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)
    interleavings: dict[str, list[Run]] = field(default_factory=dict)

    def rows(self, sink: str) -> list[dict[str, object]]:
        """Return one sink's rows as dicts."""
        return python_rows(self.outputs[sink])


class Collected:
    """Rows of one sink while a run goes on."""

    def __init__(self, schema: pa.Schema) -> None:
        """Nothing yet."""
        self.schema = schema
        self.batches: list[pa.RecordBatch] = []

    def add(self, jumbo: Jumbo | None) -> None:
        """Append what arrived."""
        if jumbo is not None and len(jumbo):
            self.batches.append(jumbo.batch)

    def table(self) -> pa.Table:
        """Return all rows."""
        return pa.Table.from_batches(self.batches, schema=self.schema)
