"""Arrival times as a recorded input: what was stamped once stays stamped."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.errors import SourceError, Subject
from anabranch.io.source import Chunk, Extent, Record, Source, WrappedSource

STAMP = pa.timestamp("us")


def stamped(
    source: Source, clock: Callable[[], int], column: str = "arrival", record: Record | None = None
) -> StampedSource:
    """Add the time at which each row arrived, the same one when it is read again.

    Processing time thereby is an input like any other: a run repeated from the record gives the
    same results. The clock is asked once for each chunk that has rows not seen before. Stamps
    never decrease, from chunk to chunk nor from row to row of a part, even if the clock does.

    Args:
        source: The source to wrap.
        clock: Gives microseconds since 1970 (UTC).
        column: The name of the new column, of type timestamp[us].
        record: The `record` of an earlier run, to go on from. Of a source without an end, a run
            keeps only the stamps of rows that it may read again.

    Example:
        >>> from anabranch.io.memory_source import memory
        >>> ticks = iter([1_000_000, 2_000_000])
        >>> source = stamped(memory([{"x": 1}, {"x": 2}]), clock=lambda: next(ticks))
        >>> first = source.read("memory", start=0, rows=1).batch
        >>> str(first["arrival"][0])
        '1970-01-01 00:00:01'
        >>> both = source.read("memory", start=0, rows=2).batch
        >>> [str(stamp) for stamp in both["arrival"]]
        ['1970-01-01 00:00:01', '1970-01-01 00:00:02']
        >>> source.record
        {'memory': [(0, 1, 1000000), (1, 2, 2000000)]}
    """
    return StampedSource(source, clock, column, record)


class StampedSource(WrappedSource):
    """See `stamped`."""

    def __init__(
        self, source: Source, clock: Callable[[], int] | None, column: str, record: Record | None
    ) -> None:
        """Remember what to wrap; the record grows with the rows read."""
        super().__init__(source)
        self._clock = clock
        self._column = column
        self._runs = {part: [*map(_as_run, runs)] for part, runs in (record or {}).items()}
        every = [stamp for runs in self._runs.values() for _, _, stamp in runs]
        self._latest = max(every, default=None)
        self._lock = Lock()

    def __repr__(self) -> str:
        """The description that errors use."""
        return f"stamped {self._source!r}"

    def __getstate__(self) -> dict[str, Any]:
        """The record, and neither lock nor clock: stamps are given in one place only."""
        state = {**self.__dict__, "_clock": None}
        del state["_lock"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """The copy goes by the same record, with a lock of its own."""
        self.__dict__.update(state)
        self._lock = Lock()

    @property
    def record(self) -> dict[str, list[tuple[int, int, int]]]:
        """All stamps given so far, to be kept with a checkpoint."""
        with self._lock:
            return {part: list(runs) for part, runs in self._runs.items()}

    @property
    def schema(self) -> pa.Schema:
        """The wrapped source's columns and the stamp."""
        schema = self._source.schema
        if self._column in schema.names:
            raise SourceError(
                Subject("source", repr(self)),
                f"a column name not in {schema.names}",
                repr(self._column),
                "pass another one as column=",
            )
        return schema.append(pa.field(self._column, STAMP))

    @property
    def one_reader(self) -> bool:
        """Rows are stamped as they are read, so who reads what when must not matter."""
        return True

    @property
    def arrivals(self) -> StampedSource:
        """The record is part of the source: copies take it along."""
        return self

    def read(self, part: str, start: int, rows: int) -> Chunk | None:
        """The wrapped source's chunk, stamped."""
        schema = self.schema
        chunk = self._source.read(part, start, rows)
        if chunk is None:
            return None
        with self._lock:
            stamps = self._stamps(part, start, start + chunk.batch.num_rows)
        columns = [*chunk.batch.columns, pa.array(stamps, STAMP)]
        # Heartbeats speak of the wrapped source's own time, which may not be the arrival time.
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        return Chunk(batch, dry=chunk.dry, waited_ms=chunk.waited_ms)

    def extent(self, part: str) -> Extent:
        """As the wrapped source, if it is sure: whoever stamps ahead must know the rows."""
        known = self._source.extent(part)
        return known if known.exact or known.growing else Extent()

    # For engines that read elsewhere: one place decides the stamps, all readers recall them.

    def stamp(
        self, part: str, start: int, end: int, not_before: int | None
    ) -> dict[str, list[tuple[int, int, int]]]:
        """Stamp rows now, before they are read; gives the record of exactly these rows.

        Args:
            part: The part.
            start: The first row.
            end: The row after the last.
            not_before: The last stamp of an earlier run, which no later one may go behind.
        """
        with self._lock:
            if not_before is not None:
                self._latest = max(not_before, self._latest or not_before)
            self._stamps(part, start, end)
            runs = [(max(f, start), min(e, end), stamp) for f, e, stamp in self._runs[part]]
            return {part: [run for run in runs if run[0] < run[1]]}

    def recalling(self, record: Record) -> StampedSource:
        """The same source, with the stamps of a record and no others."""
        return StampedSource(self._source, self._clock, self._column, record)

    @property
    def latest(self) -> int | None:
        """The last stamp given, which no later one goes behind."""
        return self._latest

    def let_go(self, part: str, row: int) -> None:
        """Forget the stamps of a part before a row: nobody will read those rows again."""
        with self._lock:
            self._runs[part] = [run for run in self._runs.get(part, []) if run[1] > row]

    def forget(self, part: str, row: int) -> None:
        """Take back the stamps of a part from a row on: those rows had not come yet."""
        with self._lock:
            runs = self._runs.get(part, [])
            self._runs[part] = [(f, min(e, row), stamp) for f, e, stamp in runs if f < row]

    def _stamps(self, part: str, start: int, end: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The stamps of the rows from `start` to before `end`; new rows are recorded."""
        runs = self._runs.setdefault(part, [])
        stamps = np.empty(end - start, dtype=np.int64)
        now: int | None = None
        at = bisect_right(runs, start, key=lambda run: run[1])
        row = start
        while row < end:
            following = runs[at] if at < len(runs) else None
            if following is None or row < following[0]:
                if now is None:
                    now = self._now()
                stop = end if following is None else min(end, following[0])
                # Rows read out of turn must not look younger than the rows after them.
                stamp = now if following is None else min(now, following[2])
                runs.insert(at, (row, stop, stamp))
            _, stop, stamp = runs[at]
            stamps[row - start : min(stop, end) - start] = stamp
            row = stop
            at += 1
        return stamps

    def _now(self) -> int:
        if self._clock is None:
            raise SourceError(
                Subject("source", repr(self)),
                "the arrival times of all rows that a copy reads, in its record",
                "rows without one",
                "stamp them where the clock is, and read with recalling(record)",
            )
        now = int(self._clock())
        self._latest = now if self._latest is None else max(now, self._latest)
        return self._latest


def _as_run(run: Sequence[int]) -> tuple[int, int, int]:
    first, end, stamp = run
    return first, end, stamp
