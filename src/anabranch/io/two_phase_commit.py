"""Driving a sink through its two phases."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack, suppress
from uuid import uuid4

import pyarrow as pa

from anabranch.errors import SinkError, Subject
from anabranch.io.sink import Receipt, Sink, SinkWriter, Stage
from anabranch.io.staged import MemoryStage

NEWEST = 10**12 - 1
"""No attempt is at a later version: its name has twelve digits for it."""


def prepare(
    sink: Sink, schema: pa.Schema, name: str, batches: Iterable[pa.RecordBatch], stage: Stage
) -> Receipt | None:
    """Prepare rows under a name that no other attempt uses; an attempt that fails leaves nothing.

    Returns:
        What to commit them with; None where there are no rows.
    """
    writer = sink.writer(schema, name, stage)
    try:
        for batch in batches:
            writer.write(batch)
        return writer.prepare()
    except BaseException:
        with suppress(Exception):  # why it failed is the news
            writer.abort()
        raise


class Transactions:
    """Writes to a sink version by version, in this process and without a checkpoint.

    Args:
        sink: The sink.
        first: The number of the first version.

    Example:
        >>> from anabranch.io import collect
        >>> batch = pa.record_batch({"x": [1, 2]})
        >>> sink = collect()
        >>> out = Transactions(sink)
        >>> out.open(batch.schema)
        >>> out.write(batch)
        >>> sink.table().num_rows
        0
        >>> out.commit(0)
        >>> sink.table().num_rows
        2
        >>> out.close()
    """

    def __init__(self, sink: Sink, first: int = 0) -> None:
        self._sink, self._first, self._stage = sink, first, MemoryStage()
        self._schema: pa.Schema | None = None
        self._committed = first - 1
        self._writer: SinkWriter | None = None
        self._prepared: list[Receipt] = []

    def open(self, schema: pa.Schema) -> None:
        """Begin afresh."""
        self._abort()
        self._sink.open(schema)
        # Nobody keeps receipts without a checkpoint: whatever was prepared before is lost.
        self._sink.sweep(NEWEST)
        self._schema, self._committed = schema, self._first - 1

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows to the next version."""
        if self._schema is None:
            subject = Subject("sink", repr(self._sink))
            raise SinkError(subject, "open() before write()", "write()", "open the sink first")
        if self._writer is None:
            name = f"{self._committed + 1:012d}-{uuid4().hex}"
            self._writer = self._sink.writer(self._schema, name, self._stage)
        self._writer.write(batch)

    def commit(self, version: int) -> None:
        """Make the rows visible; those of a version that was committed before are dropped.

        If that fails the rows stay, and the commit can be repeated.
        """
        if version <= self._committed:
            self._abort()
            return
        if self._writer is not None:
            receipt = self._writer.prepare()
            self._writer = None
            self._prepared += [] if receipt is None else [receipt]
        self._sink.commit(version, self._prepared, self._stage)
        self._stage.discard(self._prepared)
        self._prepared = []
        self._committed = version

    def close(self) -> None:
        """Close the sink; what was not committed is gone."""
        self._schema = None
        with ExitStack() as closing:
            closing.callback(self._sink.close)
            self._abort()

    def _abort(self) -> None:
        writer, prepared = self._writer, self._prepared
        self._writer, self._prepared = None, []
        with ExitStack() as aborting:
            aborting.callback(self._sink.abort, prepared, self._stage)
            if writer is not None:
                writer.abort()
