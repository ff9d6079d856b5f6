"""What changed in a keyed table, as Arrow batches: what checkpoints store and replicas exchange."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa


@dataclass(frozen=True)
class TableDelta:
    """Rows to put and keys to remove; removals go first.

    Attributes:
        rows: Key columns, then value columns, of every row inserted or updated.
        times: The time stamp of each of those rows.
        removed: Key columns of the rows that are gone.
    """

    rows: pa.RecordBatch
    times: npt.NDArray[np.int64]
    removed: pa.RecordBatch

    def to_ipc(self) -> bytes:
        """Two Arrow IPC streams in a row: rows with their times as last column, then keys."""
        stamped = self.rows.append_column(pa.field("time", pa.int64()), pa.array(self.times))
        sink = pa.BufferOutputStream()
        for batch in (stamped, self.removed):
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch)
        content: bytes = sink.getvalue().to_pybytes()
        return content

    @classmethod
    def from_ipc(cls, content: bytes) -> TableDelta:
        """The delta that `to_ipc` wrote."""
        reader = pa.BufferReader(content)
        stamped, removed = (_only_batch(reader) for _ in range(2))
        last = stamped.num_columns - 1
        return cls(stamped.remove_column(last), stamped.column(last).to_numpy(), removed)


def _only_batch(reader: pa.BufferReader) -> pa.RecordBatch:
    with pa.ipc.open_stream(reader) as stream:
        batch = stream.read_next_batch()
        # The next stream begins after this one's end mark, which has to be read first.
        for extra in stream:
            raise ValueError(f"expected one batch in a delta, got another of {extra.num_rows} rows")
    return batch
