"""Rows waiting to be matched: found by key and time, whole batches at a time.

Rows lie in segments: Arrow rows as they came, beside them an index sorted by (hash of the key,
time). Looking a batch up costs binary searches and what is found. Segments merge when they are of
like size, as in a log-structured merge tree, so there are few of them and a row is copied a
logarithmic number of times. What expired goes with a merge, or when it makes up half of a segment.
Buckets that move share the rows and the index; whoever has few rows of a segment copies them out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.columns.hashing import bucket_of
from anabranch.columns.key_words import Ints, Mask, Words, ranges
from anabranch.state.positions import FIRST
from anabranch.state.tables.row_segment import Segment, index_order, key_hashes, same_keys
from anabranch.state.tables.store import untracked

_GONE = pa.schema([("serial", pa.int64()), ("bucket", pa.int64())])
_MOST_MERGED_BYTES = 1 << 30  # texts of one Arrow column have 32-bit offsets
_MOST_SEGMENTS = 12


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
        self._log: RowLog | None = None
        self.shrank_from = 0  # the most rows that were held when all were forgotten
        self._marked = pa.schema([*schema, ("time", pa.int64()), ("serial", pa.int64())])

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
        if self._log is not None:
            self._log.note_added(self._numbers(segment, np.arange(len(segment))), segment)
        self._append(segment)

    def kill(self, segment: Segment, places: Ints) -> None:
        """Take rows out of a segment of this store."""
        if self._log is not None:
            self._log.note_removed(self._numbers(segment, places))
        segment.kill(places)

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
            if segment.owned is not None:
                if segment.live and segment.expired(self._oldest) < len(segment):
                    few = self._has_few(segment)
                    kept.append(self._merged([segment]) if few else segment)
                continue
            needed = segment.live - segment.expired(self._oldest)
            if needed > 0:
                wasteful = 2 * needed <= segment.batch.num_rows
                kept.append(self._merged([segment]) if wasteful else segment)
            elif segment.live and segment.dead is not None:
                kept.append(self._merged([segment]))  # the two may overlap: count anew
        self.segments = [s for s in kept if len(s)]

    def clear(self) -> None:
        """Forget all rows."""
        self.shrank_from = max(self.shrank_from, len(self))
        if self._log is not None:
            for segment in self.segments:
                self._log.note_removed(self._numbers(segment, segment.places()))
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
            there = segment.there(places)
            yield segment, places if there is None else places[there]

    # Store protocol

    def release(self, buckets: Collection[int]) -> list[Segment]:
        """Give buckets up: rows and, where the key decides the bucket, their index are shared."""
        owned = np.zeros(self.buckets, np.bool_)
        owned[list(buckets)] = True
        given, kept = [], []
        for segment in self.segments:
            if self.routing == self.key and self.key:
                leaving, staying = self._shared_out(segment, owned)
            else:
                leaving, staying = self._split(segment, owned)
            given += [] if leaving is None else [leaving]
            kept += [] if staying is None else [staying]
        self.segments = kept
        return given

    def absorb(self, handover: list[Segment]) -> None:
        """Take buckets over; rows that come later get higher serials than any of theirs."""
        start = 0
        for segment in handover:
            self._next_serial = max(self._next_serial, segment.newest + 1)
            # Rows of one key stay in the order of their segments, so it goes before those that
            # share the index of one that follows it.
            twins = (n for n, s in enumerate(self.segments) if s.is_part_of(segment))
            place = next(twins, -1)
            if place >= start:
                self.segments[place].join(segment)
                start = place + 1
            else:
                self.segments.insert(start, segment)
                start += 1
        handover.clear()

    def snapshot(self) -> bytes:
        """Every row with its time and serial, as an Arrow IPC stream."""
        parts = [self._marked_rows(s, s.places()) for s in self.segments]
        if self._log is not None:
            self._log.tell()
        return ipc_of(parts, self._marked)

    def restore(self, snapshot: bytes, buckets: Collection[int]) -> None:
        """Take from a snapshot the rows of the given buckets."""
        self.absorb(self._loaded(pa.BufferReader(snapshot), buckets))

    def track(self) -> None:
        """Remember from now on which rows come and go."""
        self._log = RowLog()

    def changes(self) -> bytes | None:
        """Two Arrow IPC streams: rows that came, then serial and bucket of rows that went.

        What expires is not told: how long rows are needed is known to whoever looks them up, and
        may differ between the replicas whose changes are replayed together.
        """
        if self._log is None:
            raise untracked()
        net = self._log.net()
        self._log.tell()
        added = [self._marked_rows(segment, places) for segment, places in net.added]
        added = [part for part in added if part.num_rows]
        if not added and not len(net.removed):
            return None
        serials, numbers = np.divmod(net.removed, self.buckets)
        gone = pa.RecordBatch.from_arrays([pa.array(serials), pa.array(numbers)], schema=_GONE)
        # One batch of them all, since each becomes a segment.
        came = [pa.concat_batches(added)] if added else []
        return ipc_of(came, self._marked) + ipc_of([gone], _GONE)

    def saved(self) -> None:
        """Forget the changes that were told."""
        if self._log is not None:
            self._log.saved()

    def replay(self, changes: bytes, buckets: Collection[int]) -> None:
        """Take rows of the given buckets out and in."""
        reader = pa.BufferReader(changes)
        came = self._loaded(reader, buckets)
        with pa.ipc.open_stream(reader) as stream:
            serials, numbers = (column.to_numpy() for column in stream.read_next_batch())
        mine = np.isin(numbers, list(buckets))
        if mine.any():
            gone = serials[mine] * self.buckets + numbers[mine]
            for segment in self.segments:
                places = segment.places()
                segment.kill(places[np.isin(self._numbers(segment, places), gone)])
            self.squeeze()
        for segment in came:
            self._next_serial = max(self._next_serial, segment.newest + 1)
            self._append(segment)

    # Inside

    def _append(self, segment: Segment) -> None:
        self.segments.append(segment)
        while len(self.segments) > 1 and self._mergeable(*self.segments[-2:]):
            younger, older = self.segments.pop(), self.segments.pop()
            self.segments.append(self._merged([older, younger]))
        if len(self.segments) > _MOST_SEGMENTS:
            self._merge_smallest()
        self.segments = [s for s in self.segments if len(s)]

    def _merge_smallest(self) -> None:
        """Buckets that came brought segments of any size: merge two neighbours, of few rows."""
        rows = [segment.mine for segment in self.segments]
        place = min(range(len(rows) - 1), key=lambda n: rows[n] + rows[n + 1])
        pair = self.segments[place : place + 2]
        if _bytes_of(pair[0]) + _bytes_of(pair[1]) < _MOST_MERGED_BYTES:
            self.segments[place : place + 2] = [self._merged(pair)]

    def _shared_out(self, segment: Segment, owned: Mask) -> tuple[Segment | None, Segment | None]:
        """What leaves and what stays, over the same rows and index."""
        held = segment.holds(self.buckets)
        if not (held & owned).any():
            return None, segment
        if not (held & ~owned).any():
            return segment, None
        return segment.part(owned), segment

    def _split(self, segment: Segment, owned: Mask) -> tuple[Segment | None, Segment | None]:
        """What leaves and what stays, over the same rows."""
        places = segment.places()
        moving = owned.take(self._bucket(segment, places))
        if not moving.any():
            return None, segment
        return segment.only(places[moving]), segment.only(
            places[~moving]
        ) if not moving.all() else None

    def _has_few(self, segment: Segment) -> bool:
        """Whether what this store has of a shared segment is little, or half of it is over."""
        if 2 * segment.expired(self._oldest) >= len(segment) or 8 * segment.mine < len(segment):
            return True
        return segment.dead is not None and 2 * segment.live <= segment.mine

    def _numbers(self, segment: Segment, places: Ints) -> Ints:
        """What tells a row from all others of the store: rows of one bucket differ in serial."""
        return segment.serials.take(places) * self.buckets + self._bucket(segment, places)

    def _bucket(self, segment: Segment, places: Ints) -> Ints:
        if not self.routing:
            return np.zeros(len(places), np.int64)
        by_key = self.routing == self.key
        hashes = segment.hashes if by_key else segment.hashes_of(self.routing)
        return bucket_of(hashes.take(places), self.buckets)

    def _marked_rows(self, segment: Segment, places: Ints) -> pa.RecordBatch:
        """Rows that are still needed, with time and serial."""
        places = places[segment.times.take(places) >= self._oldest]
        indexed = [pa.array(c.take(places)) for c in (segment.times, segment.serials)]
        arrays = [*segment.take(places).columns, *indexed]
        return pa.RecordBatch.from_arrays(arrays, schema=self._marked)

    def _loaded(self, reader: pa.BufferReader, buckets: Collection[int]) -> list[Segment]:
        """The rows of the given buckets from one stream of marked rows."""
        with pa.ipc.open_stream(reader) as stream:
            batches = list(stream)
        loaded, width = [], len(self.schema)
        for marked in batches:
            batch = pa.RecordBatch.from_arrays(marked.columns[:width], schema=self.schema)
            times, serials = (marked.column(width + i).to_numpy() for i in range(2))
            whole = Segment.of(batch, key_hashes(batch, self.key), times, serials)
            mine = np.isin(self._bucket(whole, np.arange(len(whole))), list(buckets))
            if mine.any():
                loaded.append(whole.only(np.flatnonzero(mine)))
        return loaded

    @staticmethod
    def _mergeable(older: Segment, younger: Segment) -> bool:
        size = _bytes_of(older) + _bytes_of(younger)
        return older.mine <= 2 * younger.mine and size < _MOST_MERGED_BYTES

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


def _bytes_of(segment: Segment) -> int:
    """Bytes of the rows that are not others'."""
    share = segment.mine / len(segment) if len(segment) else 0
    return int(segment.batch.nbytes * share)


def _joined(parts: Sequence[npt.NDArray[Any]], dtype: type[np.generic]) -> npt.NDArray[Any]:
    return np.concatenate(parts) if parts else np.zeros(0, dtype)


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)


# Which rows of a row store came and went since the last save; telling costs what was touched.
#
# A row is known by its number: serial and bucket in one, which no other row of the store shares. A
# row that was taken out and put back has not changed; one that came and went was never there.


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
