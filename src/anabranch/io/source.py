"""What a source is: named parts of rows that can be read again from any row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive rows of one part, and what the source knows about time after them.

    A batch may be empty, either to carry a heartbeat alone or because an unbounded source has
    nothing yet.

    Attributes:
        batch: The rows.
        passed: A heartbeat: no later row of this source is older than this time.
        dry: Whether no more had come when it was read: ask again later, not at once.
        waited_ms: How long its first row had waited to be read; None when nobody can say.

    Example:
        >>> Chunk(pa.record_batch({"x": [1, 2]}), passed=7).batch.num_rows
        2
    """

    batch: pa.RecordBatch
    passed: int | None = None
    dry: bool = False
    waited_ms: float | None = None


class Source(Protocol):
    """A replayable stream of rows, split into ordered parts.

    An implementer owes:

    - *Replay.* The same (part, start) gives the same rows, whatever was read before and in
      whatever chunks, also in another process. Offsets belong to the engine; a reader may remember
      its position to make reading on cheap, never to decide what it returns. A heartbeat, too,
      stands after the same row however the part is read.
    - *Progress.* A chunk of a bounded part holds at least one row; after the last row comes None.
    - *Stable names.* `parts` gives the same names in the same order for the life of the data.
    - *A truthful order.* `order` names what orders the rows ("file and row", "index"), or is None.
    - *Pickling.* Open files and caches stay behind; what was decided once (the file list, recorded
      arrival times) goes along.
    - *Sharing.* Different parts may be read by different threads at the same time.
    - *Errors.* What cannot be read is a SourceError that names the part, never fewer rows.

    A source may also have `extent(part) -> Extent`, which lets engines share its rows out evenly.
    """

    @property
    def schema(self) -> pa.Schema:
        """The columns of every batch."""

    @property
    def bounded(self) -> bool:
        """Whether every part ends."""

    @property
    def order(self) -> str | None:
        """What orders the rows; None for an unordered source."""

    def parts(self) -> tuple[str, ...]:
        """The names of the parts, in order."""

    def read(self, part: str, start: int, rows: int) -> Chunk | None:
        """At most `rows` (1 or more) rows of `part` from row `start` on; None at its end."""

    def due_rows(self, elapsed_s: float) -> int | None:
        """How many rows, over all parts, are due `elapsed_s` after the start; None: no pacing."""


@dataclass(frozen=True, slots=True)
class Extent:
    """What is known of a part without reading it.

    Attributes:
        rows: How many rows it has, about; None when nobody can say, or when it has no end.
        exact: Whether that is the number, not a guess.
        seekable: Whether reading from a row further on costs no more than from the first.
        growing: Whether `rows` have come so far, all of them to be read, and more may follow.
    """

    rows: int | None = None
    exact: bool = False
    seekable: bool = False
    growing: bool = False


def is_pushed(source: Source) -> bool:
    """Whether an engine brings the rows of a source, and nobody reads them."""
    return bool(getattr(source, "pushed", False))


def extent(source: Source, part: str) -> Extent:
    """What a source can tell of a part; a source need not be able to (`extent` is optional).

    Example:
        >>> from anabranch.io import memory
        >>> extent(memory([{"x": 1}, {"x": 2}]), "memory")
        Extent(rows=2, exact=True, seekable=True, growing=False)
    """
    tell = getattr(source, "extent", None)
    return Extent() if tell is None else tell(part)
