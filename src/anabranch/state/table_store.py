"""A keyed table as operator state: buckets come and go by reference, snapshots are Arrow IPC."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.state.hashing import bucket_of, hash_columns
from anabranch.state.table import KeyedTable
from anabranch.state.table_delta import TableDelta


class TableStore:
    """Columnar state of one operator on one replica."""

    def __init__(
        self, keys: pa.Schema, values: pa.Schema, buckets: int, routing: Sequence[str]
    ) -> None:
        """An empty table; `routing` names the key columns that decide the bucket."""
        # Checkpoints are snapshots so far: changes that nobody asks for must not pile up.
        self.table = KeyedTable(keys, values, buckets, routing, versions=False)
        self._routing, self._buckets = tuple(routing), buckets

    def release(self, buckets: Collection[int]) -> Any:
        """Give up buckets, by reference."""
        return self.table.release(buckets)

    def absorb(self, handover: Any) -> None:
        """Take over what another table of the same operator released."""
        self.table.absorb(handover)

    def snapshot(self) -> bytes:
        """Every live row."""
        return self.table.snapshot().to_ipc()

    def restore(self, snapshot: bytes, buckets: Collection[int]) -> None:
        """Take from a snapshot the rows of the given buckets."""
        delta = TableDelta.from_ipc(snapshot)
        if not delta.rows.num_rows:
            return
        keys = [delta.rows.column(n) for n in self._routing]
        mine = np.isin(bucket_of(hash_columns(keys), self._buckets), list(buckets))
        self.table.apply(
            TableDelta(delta.rows.filter(pa.array(mine)), delta.times[mine], delta.removed)
        )
