"""Sources whose parts, extents and pace a test decides."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from anabranch.io.source import Chunk, Extent, Source

SCHEMA = pa.schema([("part", pa.int64()), ("row", pa.int64())])


class Rows(Source):
    """Parts of so many rows.

    Args:
        sizes: Rows of each part.
        seekable: Whether readers may share a part.
        exact: Whether the sizes are known before reading.
        per_s: Rows that become due in a second; None for no pacing.
        bounded: Whether the parts end; what is not there yet comes as an empty chunk.
    """

    schema, order = SCHEMA, "part and row"

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        seekable: bool = True,
        exact: bool = True,
        per_s: float | None = None,
        bounded: bool = True,
    ) -> None:
        self.sizes = dict(zip(map(str, range(len(sizes))), sizes, strict=True))
        self.seekable, self.exact, self.per_s, self._bounded = seekable, exact, per_s, bounded
        self.reads = 0

    def __copy__(self) -> Rows:
        return self  # a test counts the reads of all readers

    @property
    def bounded(self) -> bool:
        return self._bounded

    def parts(self) -> tuple[str, ...]:
        return tuple(self.sizes)

    def extent(self, part: str) -> Extent:
        known = self.exact and self.bounded
        return Extent(self.sizes[part] if known else None, exact=known, seekable=self.seekable)

    def due_rows(self, elapsed_s: float) -> int | None:
        if self.per_s is None:
            return None
        due = int(self.per_s * elapsed_s)
        return min(due, sum(self.sizes.values())) if self.bounded else due

    def read(self, part: str, start: int, rows: int) -> Chunk | None:
        self.reads += 1
        stop = min(start + rows, self.sizes[part])
        if start >= stop and self.bounded:
            return None
        numbers = list(range(start, max(start, stop)))
        columns = {"part": [int(part)] * len(numbers), "row": numbers}
        return Chunk(pa.record_batch(columns, schema=SCHEMA))


class Growing(Source):
    """One part that has so many rows so far; all readers of this process share it."""

    schema, bounded, order, one_reader = SCHEMA, False, "row", True

    def __init__(self, rows: int = 0) -> None:
        self.rows, self.ended = rows, False

    def __copy__(self) -> Growing:
        return self

    def parts(self) -> tuple[str, ...]:
        return ("stream",)

    def extent(self, part: str) -> Extent:
        return Extent(self.rows, exact=self.ended, growing=not self.ended)

    def read(self, part: str, start: int, rows: int) -> Chunk | None:
        stop = min(start + rows, self.rows)
        if start >= self.rows and self.ended:
            return None
        columns = {"part": [0] * (stop - start), "row": list(range(start, stop))}
        return Chunk(pa.record_batch(columns, schema=SCHEMA), dry=stop == self.rows)
