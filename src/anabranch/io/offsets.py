"""Offsets: how far a source was read, as checkpoints record it, whichever engine read it.

Parts are opened in order. Readers may work on several at once, so a part can be open while an
earlier one is not done; every part before the first unopened one is open or done. The parts of an
interleaved source come and go, so their names are recorded, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import msgspec


@dataclass(frozen=True, order=True)
class Cursor:
    """A row of a source: everything before it was read."""

    part: int = 0
    row: int = 0


class Run(NamedTuple):
    """Rows of one part of an interleaved source that were read together, or a mark for clocks.

    A mark is a notice about the part, or a heartbeat that came without rows.

    Attributes:
        first: The sequence number of the first row in the stream, or before which the mark stands.
        number: The number of the part.
        part: The name of the part.
        start: The first row in the part.
        rows: How many rows there are; none of a mark.
        passed: What a mark says: a time, or that the part has joined, is idle, or has ended; see
            `Mark`.
    """

    first: int
    number: int
    part: str
    start: int
    rows: int
    passed: int = 0


@dataclass(frozen=True)
class SourceOffsets:
    """Where to read a source on.

    Attributes:
        open: By part that was begun and is not done, the next row.
        unopened: Number of the first part that was not begun.
        rows: How many rows were read.
        over: Whether the source has ended, at its last row or at a limit.
        stamp: The last arrival time that was given to a row, where the source has such times.
        names: Of an interleaved source, the parts in the order in which they were found.
        ordinal: Of an interleaved source, the number of the next row.
        runs: Of an interleaved source, the order of the rows since the version before.
        notices: Of an interleaved source, what clocks have to know of parts next; see `Mark`.
    """

    open: Mapping[int, int] = field(default_factory=dict)
    unopened: int = 0
    rows: int = 0
    over: bool = False
    stamp: int | None = None
    names: tuple[str, ...] = ()
    ordinal: int = 0
    runs: tuple[Run, ...] = ()
    notices: tuple[tuple[int, int], ...] = ()

    @property
    def cursor(self) -> Cursor:
        """The first row that was not read.

        Example:
            >>> SourceOffsets({2: 7, 4: 1}, unopened=5).cursor
            Cursor(part=2, row=7)
        """
        return Cursor(*min(self.open.items(), default=(self.unopened, 0)))

    def start(self, part: int) -> int | None:
        """The row at which to begin a part; None when it is done."""
        return self.open.get(part, None if part < self.unopened else 0)

    def read_to(self, cursor: Cursor) -> SourceOffsets:
        """Return the offsets once everything before a row was read, too.

        Example:
            >>> SourceOffsets({2: 7, 4: 1}, unopened=5).read_to(Cursor(3, 0)).cursor
            Cursor(part=4, row=1)
        """
        if cursor <= self.cursor:
            return self
        part, row = cursor.part, cursor.row
        ahead = {each: at for each, at in self.open.items() if each >= part}
        if part in ahead or row > 0:
            ahead[part] = max(ahead.get(part, 0), row)
        return replace(self, open=ahead, unopened=max(self.unopened, part + (part in ahead)))

    def to_json(self) -> dict[str, Any]:
        """As values that JSON gives back as they were.

        Example:
            >>> offsets = SourceOffsets({0: 7}, unopened=1, rows=7)
            >>> SourceOffsets.from_json(offsets.to_json()) == offsets
            True
        """
        content: dict[str, Any] = msgspec.to_builtins(self, str_keys=True)
        return content

    @staticmethod
    def from_json(content: Any) -> SourceOffsets:
        """From what `to_json` returned; raises msgspec.ValidationError when it is something else.

        Version 0.1 wrote a list on Spark: the next part and row, rows, over, and the last stamp.

        Example:
            >>> offsets = SourceOffsets.from_json([2, 7, 19, False, None])
            >>> offsets.open, offsets.unopened, offsets.rows
            ({2: 7}, 3, 19)
        """
        if isinstance(content, list):
            part, row, rows, over, stamp = content
            return SourceOffsets(rows=rows, over=over, stamp=stamp).read_to(Cursor(part, row))
        return msgspec.convert(content, SourceOffsets, str_keys=True)
