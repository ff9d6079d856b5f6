"""Memory as a sink."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from anabranch.columns.rows import compact, copied
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


@dataclass(frozen=True)
class _Committed:
    """What a version committed: how many rows, and those of them that are kept."""

    version: int
    rows: int
    table: pa.Table


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
        self._visible: deque[_Committed] = deque()
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
        tables = [each.table for each in list(self._visible)]
        return pa.concat_tables([self._schema.empty_table(), *tables])

    def begin(self, schema: pa.Schema, version: int) -> None:
        """Drop the rows of later versions."""
        self._schema = schema
        self._forget_after(version)
        self.dropped = 0 if version < 0 else self.dropped

    def deliver(self, version: int, rows: Iterator[pa.RecordBatch]) -> None:
        """Make the rows part of the table; of more than `limit` rows the first ones go."""
        # A worker's rows lie in shared memory, which results would keep for as long as they live.
        table = pa.Table.from_batches([copied(batch) for batch in rows])
        self._forget_after(version - 1)  # it may be delivered again
        self._rows += table.num_rows
        self._bytes += table.nbytes
        self._visible.append(_Committed(version, table.num_rows, table))
        if self.limit is not None:
            self._drop_before(self.limit)
        # Last: where warnings are errors, what is committed must not be committed again.
        if self.limit is None and self._bytes > LARGE_BYTES and not self._warned:
            self._warn()

    def rehearsal(self, folder: Path) -> CollectSink:
        return CollectSink(self.limit)

    def in_memory(self) -> CollectSink:
        return self

    def _forget_after(self, version: int) -> None:
        while self._visible and self._visible[-1].version > version:
            last = self._visible.pop()
            self._rows -= last.table.num_rows
            self._bytes -= last.table.nbytes
            self.dropped -= last.rows - last.table.num_rows

    def _drop_before(self, limit: int) -> None:
        while (excess := self._rows - limit) > 0:
            first = self._visible[0].table
            if first.num_rows <= excess and len(self._visible) > 1:
                self._visible.popleft()
            else:  # the last version stays, if only to know what to take back
                rest = [compact(batch) for batch in first.slice(excess).to_batches()]
                table = pa.Table.from_batches(rest, schema=first.schema)
                self._visible[0] = replace(self._visible[0], table=table)
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
