"""Which rows of a table are due when: what waits for time is found without looking at the rest.

A row's due time is its stamp in the table. A stamp may move to a later time (a session that goes
on); the table's index finds that out when the old time comes, and files the row again. The index
is the table's, not the kernel's, so that buckets bring their part of it when they move.
"""

from __future__ import annotations

from anabranch.operators.aggregation import AggregationStore
from anabranch.state.positions import Ints


class Pending:
    """Rows by the time at which they are due."""

    def __init__(self, store: AggregationStore) -> None:
        """All rows of the store that have a stamp are waited for."""
        self._store = store  # not its table, which is another one after `take_over`

    def add(self, slots: Ints) -> None:
        """Rows have got their first stamps."""
        self._store.table.file(slots)

    def take(self, until: int) -> Ints:
        """Take out the rows that are due at or before a time."""
        return self._store.table.take_due(until)

    def earliest(self) -> int | None:
        """When something is due next."""
        return self._store.table.earliest_due()
