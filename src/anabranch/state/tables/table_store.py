"""A keyed table as operator state: buckets come by reference, what is saved is Arrow IPC."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.columns.hashing import bucket_of, hash_columns
from anabranch.columns.key_words import Mask
from anabranch.state.tables.keyed_table import KeyedTable, TableDelta
from anabranch.state.tables.store import untracked


class TableStore:
    """Columnar state of one operator on one replica."""

    def __init__(
        self, keys: pa.Schema, values: pa.Schema, buckets: int, routing: Sequence[str]
    ) -> None:
        """An empty table; `routing` names the key columns that decide the bucket."""
        # Changes that nobody asks for must not pile up; `track` says that somebody will.
        self.table = KeyedTable(keys, values, buckets, routing, versions=False)
        self._routing, self._buckets = tuple(routing), buckets
        self._saved: int | None = None  # the version up to which all is safe; None: not tracked
        self._told = 0

    def release(self, buckets: Collection[int]) -> Any:
        """Give up buckets, by reference."""
        return self.table.release(buckets)

    def absorb(self, handover: Any) -> None:
        """Take over what another table of the same operator released."""
        self.table.absorb(handover)

    def take_over(self, other: TableStore) -> None:
        """Become what another store of the same operator was, its log of changes included.

        Unlike `absorb` it leaves every array where it is: those that the log and look-ups work
        with are as large as the table.
        """
        self.table = other.table

    def snapshot(self) -> bytes:
        """Every live row."""
        content = self.table.snapshot().to_ipc()
        self._close_version()
        return content

    def restore(self, snapshot: bytes, buckets: Collection[int]) -> None:
        """Take from a snapshot the rows of the given buckets."""
        self.replay(snapshot, buckets)

    def track(self) -> None:
        """Remember changes from now on."""
        self._saved = self._told = self.table.track()

    def changes(self) -> bytes | None:
        """Rows written and keys removed since the last `saved`; costs what was touched."""
        if self._saved is None:
            raise untracked()
        delta = self.table.delta(self._saved)
        self._close_version()
        return delta.to_ipc() if delta.rows.num_rows or delta.removed.num_rows else None

    def saved(self) -> None:
        """Forget the changes that were told."""
        if self._saved is not None:
            self._saved = self._told
            self.table.forget(self._told)

    def replay(self, changes: bytes, buckets: Collection[int]) -> None:
        """Put and remove what changed in the given buckets."""
        delta = TableDelta.from_ipc(changes)
        rows, removed = self._within(delta.rows, buckets), self._within(delta.removed, buckets)
        if rows.any() or removed.any():
            self.table.apply(
                TableDelta(
                    delta.rows.filter(pa.array(rows)),
                    delta.times[rows],
                    delta.removed.filter(pa.array(removed)),
                )
            )

    def _close_version(self) -> None:
        """What changes after this is told apart from what was told now."""
        if self._saved is not None:
            self._told = self.table.commit()

    def _within(self, rows: pa.RecordBatch, buckets: Collection[int]) -> Mask:
        """Which rows belong to some buckets."""
        if not rows.num_rows:
            return np.zeros(0, np.bool_)
        keys = [rows.column(name) for name in self._routing]
        mine: Mask = np.isin(bucket_of(hash_columns(keys), self._buckets), list(buckets))
        return mine
