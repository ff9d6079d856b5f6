"""Memory as a sink."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from anabranch.columns.rows import compact
from anabranch.errors import BuildError, SinkError, Subject, is_count
from anabranch.io.sink import Guarantee, Traits
from anabranch.io.staged import StagedSink

LARGE_BYTES = 1 << 30
"""A sink without a limit warns when it holds more than this."""


def collect(limit: int | None = None) -> CollectSink:
    """Keep the committed rows in memory, exactly once.

    Args:
        limit: Keep no more than the last `limit` rows; `dropped` counts the rows before them. All
            rows are kept when left out; the sink warns once when they take more than 1 GiB, as
            those of an endless source do in the end.

    Example:
        >>> from anabranch.io.two_phase_commit import Transactions
        >>> batch = pa.record_batch({"x": [1, 2, 3]})
        >>> sink = collect(limit=2)
        >>> out = Transactions(sink)
        >>> out.open(batch.schema)
        >>> out.write(batch)
        >>> sink.table().num_rows
        0
        >>> out.commit(0)
        >>> sink.table().to_pylist(), sink.dropped
        ([{'x': 2}, {'x': 3}], 1)
    """
    if limit is not None and not is_count(limit, 0):
        raise BuildError(
            Subject("sink", "collect"),
            "a limit of 0 rows or more",
            repr(limit),
            "leave it out for all",
        )
    return CollectSink(limit)


class CollectSink(StagedSink):
    """See `collect`.

    Attributes:
        limit: The most rows that are kept; None for all.
        dropped: How many rows were committed and are no longer kept.
    """

    traits = Traits(Guarantee.TRANSACTIONAL)

    def __init__(self, limit: int | None = None) -> None:
        """Hold nothing yet."""
        self.limit, self.dropped = limit, 0
        self._schema: pa.Schema | None = None
        self._visible: deque[tuple[int, pa.Table]] = deque()  # what each version committed
        self._rows = self._bytes = 0
        self._warned = False

    def __repr__(self) -> str:
        """The description that errors use."""
        return "collect"

    def __getstate__(self) -> dict[str, Any]:
        """Only the driver collects: what it holds need not travel."""
        return {**self.__dict__, "_visible": deque()}

    def table(self) -> pa.Table:
        """The committed rows that are kept, in order; also after `close`."""
        if self._schema is None:
            raise SinkError(
                Subject("sink", repr(self)),
                "a sink that a run has opened",
                "table() before any run",
                "run the flow first",
            )
        # Copying a deque is one step for other threads, which iterating over it is not.
        tables = [table for _, table in list(self._visible)]
        return pa.concat_tables([self._schema.empty_table(), *tables])

    def begin(self, schema: pa.Schema, version: int) -> None:
        """Drop the rows of later versions."""
        self._schema = schema
        self._visible = deque(kept for kept in self._visible if kept[0] <= version)
        self._rows = sum(table.num_rows for _, table in self._visible)
        self._bytes = sum(table.nbytes for _, table in self._visible)
        self.dropped = 0 if version < 0 else self.dropped

    def deliver(self, version: int, rows: Iterator[pa.RecordBatch]) -> None:
        """Make the rows part of the table; of more than `limit` rows the first ones go."""
        table = pa.Table.from_batches(rows)
        while self._visible and self._visible[-1][0] >= version:  # it is delivered again
            _, earlier = self._visible.pop()
            self._rows -= earlier.num_rows
            self._bytes -= earlier.nbytes
        self._rows += table.num_rows
        self._bytes += table.nbytes
        self._visible.append((version, table))
        if self.limit is not None:
            self._drop_before(self.limit)
        # Last: where warnings are errors, what is committed must not be committed again.
        if self.limit is None and self._bytes > LARGE_BYTES and not self._warned:
            self._warn()

    def rehearsal(self, folder: Path) -> CollectSink:
        return CollectSink(self.limit)

    def in_memory(self) -> CollectSink:
        return self

    def _drop_before(self, limit: int) -> None:
        while (excess := self._rows - limit) > 0:
            version, first = self._visible[0]
            if first.num_rows <= excess:
                self._visible.popleft()
            else:
                rest = [compact(batch) for batch in first.slice(excess).to_batches()]
                self._visible[0] = (version, pa.Table.from_batches(rest))
            gone = min(excess, first.num_rows)
            self._rows -= gone
            self.dropped += gone

    def _warn(self) -> None:
        self._warned = True
        warnings.warn(
            f"collect() holds {self._bytes / (1 << 30):.1f} GiB in {self._rows:,} rows, and keeps "
            "every row that comes: collect(limit=…) keeps the last ones, parquet(…) writes them",
            RuntimeWarning,
            stacklevel=2,
        )
