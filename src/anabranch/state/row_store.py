"""Rows waiting to be matched: found by key and time, whole batches at a time.

Rows lie in segments: Arrow rows as they came, beside them an index sorted by (hash of the key,
time). Looking a batch up costs binary searches and what is found. Segments merge when they are of
like size, as in a log-structured merge tree, so there are few of them and a row is copied a
logarithmic number of times. What expired goes with a merge, or when it makes up half of a segment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.state.hashing import bucket_of
from anabranch.state.key_words import Ints, Words, ranges
from anabranch.state.positions import FIRST
from anabranch.state.row_segment import Segment, index_order, key_hashes, same_keys

_MOST_MERGED_BYTES = 1 << 30  # texts of one Arrow column have 32-bit offsets


class RowStore:
    """Rows of one operator on one replica, in any number per key.

    Of the rows of one key, those in an earlier segment came earlier, and so did those at an earlier
    place of a segment.

    Args:
        schema: The columns of the rows.
        key: Columns that rows are looked up by; none when all rows belong together.
        routing: Columns that decide the bucket; none when everything is in bucket 0.
        buckets: Number of buckets.

    Example:
        >>> schema = pa.schema([("k", pa.string()), ("v", pa.int64())])
        >>> store, other = (RowStore(schema, ["k"], ["k"], buckets=8) for _ in range(2))
        >>> rows = pa.record_batch([["a", "b"], [1, 2]], schema=schema)
        >>> store.add(store.segment(rows, store.number(2), times=np.array([10, 20])))
        >>> other.absorb(store.release(range(8)))
        >>> (len(store), len(other))
        (0, 2)
    """

    def __init__(
        self, schema: pa.Schema, key: Sequence[str], routing: Sequence[str], buckets: int
    ) -> None:
        """An empty store."""
        self.schema, self.key, self.routing = schema, tuple(key), tuple(routing)
        self.buckets = buckets
        self.segments: list[Segment] = []
        self._next_serial = 0
        self._oldest = FIRST  # rows of an earlier time are not needed any more

    def __len__(self) -> int:
        """Number of rows, expired ones included until they are squeezed out."""
        return sum(segment.live for segment in self.segments)

    def number(self, rows: int) -> Ints:
        """Serials for new rows, in the order of their positions: higher than any in the store."""
        first = self._next_serial
        self._next_serial += rows
        return np.arange(first, self._next_serial)

    def segment(self, batch: pa.RecordBatch, serials: Ints, times: Ints | None = None) -> Segment:
        """Index rows, in the order of their serials; `add` makes them part of the store."""
        if times is None:
            times = np.zeros(batch.num_rows, np.int64)
        return Segment.of(batch, key_hashes(batch, self.key), times, serials)

    def add(self, segment: Segment) -> None:
        """Keep rows, younger than all of their buckets; merge what has become of like size."""
        self.segments.append(segment)
        while len(self.segments) > 1 and self._mergeable(*self.segments[-2:]):
            younger, older = self.segments.pop(), self.segments.pop()
            self.segments.append(self._merged([older, younger]))
        self.segments = [s for s in self.segments if len(s)]

    def expire(self, before: int) -> None:
        """Rows older than this time will not be looked up any more."""
        if before <= self._oldest:
            return
        self._oldest = before
        self.squeeze()

    def squeeze(self) -> None:
        """Rewrite the segments of which half or more is no longer needed."""
        kept = []
        for segment in self.segments:
            needed = segment.live - segment.expired(self._oldest)
            if needed > 0:
                wasteful = 2 * needed <= segment.batch.num_rows
                kept.append(self._merged([segment]) if wasteful else segment)
            elif segment.live and segment.dead is not None:
                kept.append(self._merged([segment]))  # the two may overlap: count anew
        self.segments = [s for s in kept if len(s)]

    def clear(self) -> None:
        """Forget all rows."""
        self.segments = []

    def all(self) -> tuple[pa.RecordBatch, Ints]:
        """Every row, and their serials."""
        parts = [s.take(s.places()) for s in self.segments]
        serials = [s.serials.take(s.places()) for s in self.segments]
        if not parts:
            return _no_rows(self.schema), np.zeros(0, np.int64)
        return pa.concat_batches(parts), np.concatenate(serials)

    def found(self, probe: Segment) -> Iterator[tuple[Segment, Ints]]:
        """For each segment, the places whose key some row of `probe` has."""
        for segment in self.segments:
            mine, theirs = probe.candidates(segment)
            same = same_keys(probe.columns(self.key, mine), segment.columns(self.key, theirs))
            yield segment, np.unique(theirs if same is None else theirs[same])

    def with_hash(self, hashes: Words) -> Iterator[tuple[Segment, Ints]]:
        """For each segment, the places whose key has one of these hashes, which are distinct."""
        for segment in self.segments:
            starts = np.searchsorted(segment.hashes, hashes, "left").astype(np.int64)
            stops = np.searchsorted(segment.hashes, hashes, "right").astype(np.int64)
            places, _ = ranges(starts, stops - starts)
            yield segment, places if segment.dead is None else places[~segment.dead.take(places)]

    # Store protocol

    def release(self, buckets: Collection[int]) -> list[Segment]:
        """Give buckets up: the rows are shared by reference, only their index is split."""
        owned = np.zeros(self.buckets, np.bool_)
        owned[list(buckets)] = True
        given, kept = [], []
        for segment in self.segments:
            moving = owned.take(self._bucket(segment))
            if segment.dead is not None:
                moving, staying = moving & ~segment.dead, ~moving & ~segment.dead
            else:
                staying = ~moving
            if moving.any():
                given.append(segment.only(np.flatnonzero(moving)))
                segment = segment.only(np.flatnonzero(staying))
            if len(segment):
                kept.append(segment)
        self.segments = kept
        return given

    def absorb(self, handover: list[Segment]) -> None:
        """Take buckets over; rows that come later get higher serials than any of theirs."""
        self.segments += handover
        for segment in handover:
            self._next_serial = max(self._next_serial, int(segment.serials.max(initial=-1)) + 1)
        handover.clear()

    def snapshot(self) -> bytes:
        """Every row with its time and serial, as an Arrow IPC stream."""
        marked = pa.schema([*self.schema, ("time", pa.int64()), ("serial", pa.int64())])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, marked) as stream:
            for segment in self.segments:
                places = segment.places()
                indexed = [pa.array(c.take(places)) for c in (segment.times, segment.serials)]
                arrays = [*segment.take(places).columns, *indexed]
                stream.write_batch(pa.RecordBatch.from_arrays(arrays, schema=marked))
        content: bytes = sink.getvalue().to_pybytes()
        return content

    def restore(self, snapshot: bytes, buckets: Collection[int]) -> None:
        """Take from a snapshot the rows of the given buckets."""
        with pa.ipc.open_stream(pa.BufferReader(snapshot)) as stream:
            saved = list(stream)
        width = len(self.schema)
        for marked in saved:
            batch = pa.RecordBatch.from_arrays(marked.columns[:width], schema=self.schema)
            times, serials = (marked.column(width + i).to_numpy() for i in range(2))
            whole = Segment.of(batch, key_hashes(batch, self.key), times, serials)
            mine = np.isin(self._bucket(whole), list(buckets))
            if mine.any():
                self.absorb([whole.only(np.flatnonzero(mine))])

    # Inside

    def _bucket(self, segment: Segment) -> Ints:
        if not self.routing:
            return np.zeros(len(segment), np.int64)
        if self.routing == self.key:
            return bucket_of(segment.hashes, self.buckets)
        return bucket_of(segment.hashes_of(self.routing), self.buckets)

    @staticmethod
    def _mergeable(older: Segment, younger: Segment) -> bool:
        size = older.batch.nbytes + younger.batch.nbytes
        return len(older) <= 2 * len(younger) and size < _MOST_MERGED_BYTES

    def _merged(self, segments: Sequence[Segment]) -> Segment:
        """One segment of all rows that are still needed, oldest segment first."""
        parts = []
        for segment in segments:
            places = segment.places()
            needed = segment.times.take(places) >= self._oldest
            places = places if needed.all() else places[needed]
            parts.append((segment, places))
        batches = [s.batch if len(p) == s.batch.num_rows else s.take(p) for s, p in parts if len(p)]
        rows, start = [], 0
        for segment, places in parts:
            whole = len(places) == segment.batch.num_rows
            rows.append(start + (segment.rows if whole else np.arange(len(places))))
            start += len(places)
        batch = pa.concat_batches(batches) if batches else _no_rows(self.schema)
        hashes = _joined([s.hashes.take(p) for s, p in parts], np.uint64)
        times = _joined([s.times.take(p) for s, p in parts], np.int64)
        order = index_order(hashes, times)
        return Segment(
            batch,
            _joined(rows, np.int64).take(order),
            hashes.take(order),
            times.take(order),
            _joined([s.serials.take(p) for s, p in parts], np.int64).take(order),
        )


def _joined(parts: Sequence[npt.NDArray[Any]], dtype: type[np.generic]) -> npt.NDArray[Any]:
    return np.concatenate(parts) if parts else np.zeros(0, dtype)


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)
