"""Which rows of a table are due when: what waits for time is found without looking at the rest.

A row's due time is its stamp in the table. A stamp may move to a later time (a session that goes
on); the index finds that out when the old time comes, and files the row again.
"""

from __future__ import annotations

import heapq

import numpy as np

from anabranch.operators.aggregation import AggregationStore
from anabranch.state.positions import Ints


class Pending:
    """Slots by the time at which they are due."""

    def __init__(self, store: AggregationStore) -> None:
        """Nothing is due."""
        self._store = store
        self._indexed = store.moves
        self._times: list[int] = []
        self._slots: dict[int, list[Ints]] = {}

    def refresh(self) -> None:
        """Start anew when rows may have moved, come or gone."""
        if self._indexed != self._store.moves:
            self._times, self._slots = [], {}
            self.add(self._store.table.live())
            self._indexed = self._store.moves

    def add(self, slots: Ints) -> None:
        """File rows under their stamps."""
        dues, which = np.unique(self._store.table.time(slots), return_inverse=True)
        by_due = slots[np.argsort(which, kind="stable")]
        ends = np.cumsum(np.bincount(which, minlength=len(dues))).tolist()
        start = 0
        for due, end in zip(dues.tolist(), ends, strict=True):
            if due not in self._slots:
                heapq.heappush(self._times, due)
            self._slots.setdefault(due, []).append(by_due[start:end])
            start = end

    def take(self, until: int) -> Ints:
        """Take out the rows that are due at or before a time."""
        noted: list[Ints] = []
        while self._times and self._times[0] <= until:
            noted += self._slots.pop(heapq.heappop(self._times))
        if not noted:
            return np.zeros(0, np.int64)
        slots = np.concatenate(noted)
        later = self._store.table.time(slots) > until
        if later.any():
            self.add(slots[later])
        return slots[~later]

    def earliest(self) -> int | None:
        """When something is due next."""
        self.refresh()
        while self._times:
            time = self._times[0]
            slots = np.concatenate(self._slots[time])
            later = self._store.table.time(slots) > time
            if not later.all():
                return time
            heapq.heappop(self._times)
            del self._slots[time]
            self.add(slots)
        return None
