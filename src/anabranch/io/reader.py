"""Reads a source into jumbo tuples: stamps positions, turns heartbeats into marks, keeps offsets.

A tuple's sequence number is its part and its row in the part, so that several readers can share the
parts of a source and a restart can go on anywhere.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from anabranch.columns.schemas import without_dictionaries
from anabranch.io.source import Chunk, Source
from anabranch.state.positions import FIRST, LAST, Jumbo, Mark, Positions, Root, end

PART_SHIFT = 40
DONE = -1

Offsets = dict[int, int]
"""Next row of each part by number; DONE when the part is read."""


class SourceReader:
    """Reads the parts of a source, one after the other.

    Example:
        >>> from anabranch.io import memory
        >>> reader = SourceReader(memory([{"x": 1}, {"x": 2}, {"x": 3}]), rank=0)
        >>> jumbo, frontier = reader.read(2)
        >>> (len(jumbo), frontier.seq, reader.offsets)
        (2, 2, {0: 2})
    """

    def __init__(self, source: Source, rank: int) -> None:
        self._source, self._rank = source, rank
        self._parts = source.parts()
        self._schema = without_dictionaries(source.schema)
        self.offsets: Offsets = dict.fromkeys(range(len(self._parts)), 0)
        self.ended = False

    @property
    def frontier(self) -> Root:
        """Where this reader stands."""
        number = self._current()
        if number is None:
            return end(FIRST)
        return place(self._rank, number, self.offsets[number])

    def read(self, rows: int) -> tuple[Jumbo | None, Root]:
        """At most `rows` tuples, and how far the reader has come with them."""
        number = self._current()
        if number is None:
            return self._finish()
        start = self.offsets[number]
        chunk = self._source.read(self._parts[number], start, rows)
        if chunk is None:
            self.offsets[number] = DONE
            return self.read(rows) if self._current() is None else (None, self.frontier)
        self.offsets[number] = start + chunk.batch.num_rows
        return placed(chunk, self._schema, self._rank, number, start), self.frontier

    def _finish(self) -> tuple[Jumbo | None, Root]:
        """The end, told once."""
        self.ended = True
        return last_word(self._schema, self._rank, len(self._parts)), end(FIRST)

    def _current(self) -> int | None:
        return next((n for n, row in self.offsets.items() if row != DONE), None)


def place(rank: int, number: int, row: int) -> Root:
    """Where a row of a part stands; as a frontier: everything before it was read."""
    seq = (number << PART_SHIFT) + row
    return Root(seq, rank, seq, 0)


def part_and_row(seq: int) -> tuple[int, int]:
    """Return the number of the part and the row in it that a sequence number stands for."""
    return divmod(seq, 1 << PART_SHIFT)


def placed(chunk: Chunk, schema: pa.Schema, rank: int, number: int, start: int) -> Jumbo:
    """Rows of a part as a jumbo tuple; what they say about time becomes a mark."""
    batch = chunk.batch if chunk.batch.schema.equals(schema) else chunk.batch.cast(schema)
    first = (number << PART_SHIFT) + start
    seq = np.arange(first, first + batch.num_rows, dtype=np.int64)
    marks: tuple[Mark, ...] = ()
    if chunk.passed is not None:
        marks = (_mark(rank, number, start + batch.num_rows, chunk.passed),)
    return Jumbo(batch, Positions.of_source(rank, seq), marks)


def last_word(schema: pa.Schema, rank: int, parts: int) -> Jumbo:
    """What a source says at its end: the mark lets clocks stop waiting for it."""
    return Jumbo.empty(schema, 0, (_mark(rank, parts, 0, LAST),))


def _mark(rank: int, number: int, row: int, passed: int) -> Mark:
    # Right before the tuple that would come next: behind all that was read, before the rest.
    return Mark(place(rank, number, row)._replace(sub=-1), passed)
