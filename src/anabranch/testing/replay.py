"""A source that replays rows from memory without end, and notes when they are read.

For measurements: reading costs next to nothing, and the rate of a run in its steady state follows
from the notes, without the time that starting and ending take.
"""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa

from anabranch.errors import BuildError, Subject
from anabranch.flow import Flow
from anabranch.io.source import Chunk, Extent, Source

PART = "replayed"


class Replay(Source):
    """The rows of a batch again and again.

    Example:
        >>> source = Replay(pa.record_batch({"x": [1, 2, 3]}))
        >>> source.read("replayed", start=2, rows=10).batch.to_pylist()
        [{'x': 3}]
        >>> source.read("replayed", start=3, rows=2).batch.to_pylist()
        [{'x': 1}, {'x': 2}]
    """

    def __init__(self, batch: pa.RecordBatch, most_rows: int | None = None) -> None:
        """Hold the rows; there must be some. No more than `most_rows` are given at once."""
        if not batch.num_rows:
            raise BuildError(Subject("argument", "rows"), "rows to replay", "none", "give it some")
        self._batch, self._most_rows = batch, most_rows or batch.num_rows
        self.notes: list[tuple[float, int]] = []

    def __getstate__(self) -> dict[str, Any]:
        """Who reads in another process takes notes of its own."""
        return {**self.__dict__, "notes": []}

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return self._batch.schema

    @property
    def bounded(self) -> bool:
        """It has no end."""
        return False

    @property
    def order(self) -> str:
        """By number."""
        return "index"

    def parts(self) -> tuple[str, ...]:
        """One part."""
        return (PART,)

    def read(self, part: str, start: int, rows: int) -> Chunk:
        """Rows up to the next time that they begin anew."""
        self.notes.append((time.perf_counter(), start))
        most = min(rows, self._most_rows)
        return Chunk(self._batch.slice(start % self._batch.num_rows, most))

    def extent(self, part: str) -> Extent:
        """Any row is at hand."""
        return Extent(None, seekable=True)

    def rate_per_s(self, warm_up: float) -> float:
        """Rows a second, from a part of the time on; 0 if too little was read to tell.

        Readers run ahead of the rest by a few jumbo tuples and then keep pace with it, so the first
        part of a run tells nothing.
        """
        notes = sorted(self.notes)
        if not notes:
            return 0.0
        begin = notes[0][0] + warm_up * (notes[-1][0] - notes[0][0])
        steady = [note for note in notes if note[0] >= begin]
        if len(steady) < 2:
            return 0.0
        (first_s, first), (last_s, last) = steady[0], steady[-1]
        return (last - first) / (last_s - first_s)


def replaying(flow: Flow, rows: int, most_rows: int | None = None) -> tuple[Flow, Replay]:
    """The same flow, with the first rows of its only source replayed from memory."""
    sources = flow.sources()
    if len(sources) != 1:
        raise BuildError(
            Subject("flow", flow.name), "one source", str(list(sources)), "measure another flow"
        )
    ((name, source),) = sources.items()
    part = source.parts()[0]
    batches: list[pa.RecordBatch] = []
    while (held := sum(batch.num_rows for batch in batches)) < rows:
        chunk = source.read(part, held, rows - held)
        if chunk is None or not chunk.batch.num_rows:
            break
        batches.append(chunk.batch)
    replay = Replay(pa.concat_batches(batches), most_rows)
    return flow.reading({name: replay}), replay
