"""Slices: runs of a source's rows that a task reads to their end, for engines that work in batches.

A batch takes a stretch of a source's sequence: whole parts, or a run of rows of one. Readers share
the stretch; all of it is read when the batch is done, so the furthest reader says how far the
source has come.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from anabranch.columns.schemas import without_dictionaries
from anabranch.io.offsets import Cursor, SourceOffsets
from anabranch.io.reader import last_word, place, placed, sequence_number
from anabranch.io.source import Source
from anabranch.state.positions import FIRST, Jumbo, Root, end

SLACK = 1.25  # a part that is a little larger than the budget is taken whole


@dataclass(frozen=True)
class Slice:
    """Rows of one part from `start` on; `rows` of them at most, or all to its end."""

    part: int
    start: int
    rows: int | None


@dataclass(frozen=True)
class Stop:
    """Where reading a slice ended, and whether the part was over there."""

    part: int
    row: int
    over: bool

    @property
    def cursor(self) -> Cursor:
        """Where to read on."""
        return Cursor(self.part + 1, 0) if self.over else Cursor(self.part, self.row)


def take(source: Source, offsets: SourceOffsets, budget: int, readers: int) -> list[list[Slice]]:
    """Choose about `budget` rows from the offsets on, and share them out among readers.

    Example:
        >>> from anabranch.io import memory
        >>> rows = memory([{"x": x} for x in range(10)])
        >>> take(rows, SourceOffsets(), budget=6, readers=2)
        [[Slice(part=0, start=0, rows=3)], [Slice(part=0, start=3, rows=3)]]
    """
    return _shared_out(source, _stretch(source, offsets, budget), budget, readers)


def _stretch(source: Source, offsets: SourceOffsets, budget: int) -> list[Slice]:
    """Whole parts while they fit; a run of rows of the first one when it does not."""
    parts = source.parts()
    chosen: list[Slice] = []
    left = budget
    for part in range(offsets.cursor.part, len(parts)):
        row = offsets.start(part)
        if row is None:
            continue
        if left <= 0:
            break
        known = source.extent(parts[part])
        rest = None if known.rows is None else max(known.rows - row, 0)
        if known.growing and rest is not None:
            # Rows that have come and no others: whoever reads the slice again finds the same.
            return [*chosen, Slice(part, row, min(left, rest))] if rest else chosen
        if rest is not None and rest <= (left if known.exact else left * SLACK):
            chosen.append(Slice(part, row, None))
            left -= max(rest, 1)
        elif not chosen or known.seekable:
            return [*chosen, Slice(part, row, left)]
        else:
            break
    return chosen


def _shared_out(
    source: Source, chosen: Sequence[Slice], budget: int, readers: int
) -> list[list[Slice]]:
    """Neighbouring slices to the same reader, about the same number of rows to each."""
    shares: list[list[Slice]] = [[] for _ in range(readers)]
    parts = source.parts()
    sized = []
    for piece in chosen:
        known = source.extent(parts[piece.part])
        rest = budget if known.rows is None else max(known.rows - piece.start, 0)
        sized.append((piece, min(rest, piece.rows or rest), known.seekable))
    share = max(1, -(-sum(rows for _, rows, _ in sized) // readers))
    reader, room = 0, share
    for piece, rows, seekable in sized:
        start, left = piece.start, rows
        while seekable and left > room and reader < readers - 1:
            shares[reader].append(Slice(piece.part, start, room))
            start, left = start + room, left - room
            reader, room = reader + 1, share
        limit = None if piece.rows is None else piece.start + piece.rows - start
        shares[reader].append(Slice(piece.part, start, limit))
        room -= left
        while room <= 0 and reader < readers - 1:
            reader, room = reader + 1, room + share
    return [[piece for piece in pieces if piece.rows != 0] for pieces in shares]


class SliceReader:
    """Reads slices one after another; `stops` says where each of them ended.

    Example:
        >>> from anabranch.io import memory
        >>> rows = memory([{"x": x} for x in range(10)])
        >>> reader = SliceReader(rows, rank=0, slices=[Slice(0, 4, None)])
        >>> [(len(jumbo), frontier.seq) for jumbo, frontier in reader.read(4)]
        [(4, 8), (2, 10)]
        >>> reader.stops
        [Stop(part=0, row=10, over=True)]
    """

    def __init__(self, source: Source, rank: int, slices: Sequence[Slice]) -> None:
        """A reader that has read nothing yet."""
        self._source, self._rank, self._slices = source, rank, slices
        self._parts = source.parts()
        self._schema = without_dictionaries(source.schema)
        self.stops: list[Stop] = []
        self.waited_ms: float | None = None  # by the rows read last

    def read(self, rows: int) -> Iterator[tuple[Jumbo, Root]]:
        """Jumbo tuples of at most `rows` tuples, and how far the reader has come with each."""
        for piece in self._slices:
            yield from self._read(piece, rows)

    def end(self, cursor: Cursor) -> tuple[Jumbo | None, Root]:
        """What there is to say when the source has come to `cursor`."""
        if cursor.part < len(self._parts):
            return None, place(self._rank, cursor.part, cursor.row)
        return last_word(self._schema, self._rank, len(self._parts)), end(FIRST)

    def _read(self, piece: Slice, rows: int) -> Iterator[tuple[Jumbo, Root]]:
        at = piece.start
        stop = None if piece.rows is None else piece.start + piece.rows
        while stop is None or at < stop:
            wanted = rows if stop is None else min(rows, stop - at)
            chunk = self._source.read(self._parts[piece.part], at, wanted)
            if chunk is None:
                self.stops.append(Stop(piece.part, at, True))
                return
            self.waited_ms = chunk.waited_ms
            jumbo = placed(chunk, self._schema, self._rank, sequence_number(piece.part, at))
            at += len(jumbo)
            yield jumbo, place(self._rank, piece.part, at)
            if not len(jumbo):
                break  # an endless source has no more for now
        self.stops.append(Stop(piece.part, at, False))
