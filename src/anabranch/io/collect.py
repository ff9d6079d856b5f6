"""Memory as a sink."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from anabranch.errors import SinkError, Subject
from anabranch.io.sink import Sink
from anabranch.io.transaction import Transaction


def collect() -> CollectSink:
    """Keep the committed rows in memory, exactly once.

    Example:
        >>> batch = pa.record_batch({"x": [1, 2]})
        >>> sink = collect()
        >>> sink.open(batch.schema, version=-1)
        >>> sink.write(batch)
        >>> sink.table().num_rows
        0
        >>> sink.commit(0)
        >>> sink.table().to_pylist()
        [{'x': 1}, {'x': 2}]
    """
    return CollectSink()


class CollectSink(Sink):
    """See `collect`."""

    def __init__(self) -> None:
        """Hold nothing yet."""
        self._transaction = Transaction(repr(self))
        self._schema: pa.Schema | None = None
        self._visible: list[tuple[int, list[pa.RecordBatch]]] = []

    def __repr__(self) -> str:
        """The description that errors use."""
        return "collect"

    def __getstate__(self) -> dict[str, Any]:
        """Only the driver collects: what it holds need not travel."""
        return {**self.__dict__, "_visible": []}

    def table(self) -> pa.Table:
        """The committed rows, in order; also after `close`."""
        if self._schema is None:
            raise SinkError(
                Subject("sink", repr(self)),
                "a sink that a run has opened",
                "table() before any run",
                "run the flow first",
            )
        batches = [batch for _, batches in self._visible for batch in batches]
        return pa.Table.from_batches(batches, schema=self._schema)

    def open(self, schema: pa.Schema, version: int) -> None:
        """Go on after `version`; later rows are dropped."""
        self._schema = schema
        self._visible = [kept for kept in self._visible if kept[0] <= version]
        self._transaction.open(schema, version)

    def write(self, batch: pa.RecordBatch) -> None:
        """Hold the rows until their commit."""
        self._transaction.write(batch)

    def commit(self, version: int) -> None:
        """Make the rows part of the table."""
        if batches := self._transaction.pending(version):
            self._visible = [*self._visible, (version, batches)]
        self._transaction.commit(version)

    def close(self) -> None:
        """Drop what was not committed."""
        self._transaction.close()
