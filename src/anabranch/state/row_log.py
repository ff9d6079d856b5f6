"""Which rows of a row store came and went since the last save; telling costs what was touched.

A row is known by its number: serial and bucket in one, which no other row of the store shares. A
row that was taken out and put back has not changed; one that came and went was never there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.state.key_words import Ints
from anabranch.state.row_segment import Segment


@dataclass(frozen=True, eq=False)
class _Event:
    """Rows that came, or went when `segment` is None; places in the segment as it came."""

    numbers: Ints
    segment: Segment | None
    places: Ints


@dataclass(frozen=True)
class RowChanges:
    """What came and what went, all told.

    Attributes:
        added: New segments' parts, in the order they came; rows by segment and place.
        removed: Numbers of the rows that went.
    """

    added: list[tuple[Segment, Ints]]
    removed: Ints


class RowLog:
    """Events since the last save, in order."""

    def __init__(self) -> None:
        """Nothing happened."""
        self._events: list[_Event] = []
        self._told = 0

    def note_added(self, numbers: Ints, segment: Segment) -> None:
        """All rows of a segment came."""
        if len(numbers):
            self._events.append(_Event(numbers, segment, np.arange(len(segment))))

    def note_removed(self, numbers: Ints) -> None:
        """Rows went."""
        if len(numbers):
            self._events.append(_Event(numbers, None, np.zeros(len(numbers), np.int64)))

    def net(self) -> RowChanges:
        """What all events come to."""
        if not self._events:
            return RowChanges([], np.zeros(0, np.int64))
        numbers = np.concatenate([event.numbers for event in self._events])
        sizes = [len(event.numbers) for event in self._events]
        when = np.repeat(np.arange(len(self._events)), sizes)
        came = np.repeat([event.segment is not None for event in self._events], sizes)
        # Stable, so that the events of one row stay in order.
        order = np.argsort(numbers, kind="stable")
        ordered = numbers.take(order)
        first = np.ones(len(order), np.bool_)
        np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
        last = np.append(first[1:], True)
        begins, ends = came.take(order[first]), came.take(order[last])
        fresh = np.sort(order[last][begins & ends])
        places = np.concatenate([event.places for event in self._events])
        added = []
        for number in np.unique(when.take(fresh)).tolist():
            segment = self._events[number].segment
            assert segment is not None
            added.append((segment, places.take(fresh[when.take(fresh) == number])))
        return RowChanges(added, ordered[last][~begins & ~ends])

    def tell(self) -> None:
        """Everything so far is told."""
        self._told = len(self._events)

    def saved(self) -> None:
        """What was told need not be remembered."""
        del self._events[: self._told]
        self._told = 0


def ipc_of(batches: list[pa.RecordBatch], schema: pa.Schema) -> bytes:
    """An Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content
