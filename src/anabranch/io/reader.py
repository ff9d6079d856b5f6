"""Reads a source into jumbo tuples: stamps positions, turns heartbeats into marks, keeps offsets.

A tuple's sequence number is its part and its row in the part, so that several readers can share the
parts of a source and a restart can go on anywhere. Only the tuples of an interleaved source are
numbered as they are read (`interleaving.py`).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from anabranch.columns.schemas import without_dictionaries
from anabranch.io.source import Chunk, Source
from anabranch.state.positions import (
    EVERY_PART,
    FIRST,
    LAST,
    Jumbo,
    Mark,
    Positions,
    Root,
    end,
)

PART_SHIFT = 40
MOST_PARTS = 1 << 21
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
        first = sequence_number(number, start)
        return placed(chunk, self._schema, self._rank, first), self.frontier

    def _finish(self) -> tuple[Jumbo | None, Root]:
        """The end, told once."""
        self.ended = True
        return last_word(self._schema, self._rank, len(self._parts)), end(FIRST)

    def _current(self) -> int | None:
        return next((n for n, row in self.offsets.items() if row != DONE), None)


def sequence_number(part: int, row: int) -> int:
    """Return the number of a row in the stream, where parts are read one after the other."""
    return (part << PART_SHIFT) + row


def place(rank: int, part: int, row: int) -> Root:
    """Return where a row of a part stands; as a frontier: everything before it was read."""
    return numbered(rank, sequence_number(part, row))


def numbered(rank: int, seq: int) -> Root:
    """Return where the row with a number stands."""
    return Root(seq, rank, seq, 0)


def part_and_row(seq: int) -> tuple[int, int]:
    """Return the number of the part and the row in it that a sequence number stands for."""
    return divmod(seq, 1 << PART_SHIFT)


def placed(chunk: Chunk, schema: pa.Schema, rank: int, first: int, part: int = 0) -> Jumbo:
    """Return rows as a jumbo tuple, numbered from `first` on; a heartbeat becomes a mark.

    `part` is the number of the part of an interleaved source.
    """
    batch = chunk.batch if chunk.batch.schema.equals(schema) else chunk.batch.cast(schema)
    behind = first + batch.num_rows
    seq = np.arange(first, behind, dtype=np.int64)
    marks: tuple[Mark, ...] = ()
    if chunk.passed is not None:
        marks = (mark_before(rank, behind, chunk.passed, part),)
    return Jumbo(batch, Positions.of_source(rank, seq, part), marks)


def last_word(schema: pa.Schema, rank: int, parts: int | None) -> Jumbo:
    """Return the end of a source: a mark that lets clocks stop waiting for it.

    Args:
        schema: Its columns.
        rank: Its number.
        parts: How many parts it has; None of an interleaved one.
    """
    if parts is None:
        mark = mark_before(rank, sequence_number(MOST_PARTS, 0), LAST, EVERY_PART)
    else:
        mark = mark_before(rank, sequence_number(parts, 0), LAST)
    return Jumbo.empty(schema, 0, (mark,))


def mark_before(rank: int, seq: int, passed: int, part: int = 0) -> Mark:
    """Return a mark right before the row with a number: behind all that was read before it."""
    return Mark(numbered(rank, seq)._replace(sub=-1), passed, part)
