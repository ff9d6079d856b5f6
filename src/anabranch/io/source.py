"""What a source is: named parts of rows that can be read again from any row."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from anabranch.errors import BuildError

Record = Mapping[str, Sequence[tuple[int, int, int]]]
"""For each part, runs of rows with one stamp: (first row, row after the last, stamp)."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive rows of one part, and what the source knows about time after them.

    A batch may be empty, either to carry a heartbeat alone or because an unbounded source has
    nothing yet.

    Attributes:
        batch: The rows.
        passed: A heartbeat: no later row of this source, or of this part if it is interleaved, is
            older than this time.
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


@dataclass(frozen=True, slots=True)
class Extent:
    """What is known of a part without reading it.

    Attributes:
        rows: How many rows it has, about; None when nobody can say, or when it has no end.
        exact: Whether that is the number, not a guess.
        seekable: Whether reading from a row further on costs hardly more than from the first.
        growing: Whether `rows` have come so far, all of them to be read, and more may follow.
    """

    rows: int | None = None
    exact: bool = False
    seekable: bool = False
    growing: bool = False


class Source(Protocol):
    """A replayable stream of rows, split into ordered parts.

    One protocol describes three kinds of sources:

    - A *bounded* source has an end: `bounded` is true, and `read` returns None after the last row
      of a part.
    - A *growing* source gets rows from elsewhere: `bounded` is false, `read` returns an empty chunk
      while nothing has come, and `extent` may report how many rows have come.
    - A *pushed* source is not read: `pushed` is true, and an engine brings its rows. It may be
      bounded or not.

    Rows are ordered part by part, so an endless source has one part. It may have several, none at
    first, or parts that come and go if it is *interleaved*: then parts are read at the same time,
    and the order in which their rows are read is the order of the stream. Engines record it, so it
    is an input: see `anabranch.io.interleaving`.

    Classes inherit from the protocol. They must provide `schema`, `bounded`, `order`, `parts` and
    `read`; the other members have defaults, which claim nothing. An implementer must ensure:

    - *Replay.* The same (part, start) gives the same rows, whatever was read before and in
      whatever chunks, also in another process. Offsets belong to the engine; a reader may remember
      its position to make reading on cheap, never to decide what it returns. A heartbeat, too,
      stands after the same row however the part is read.
    - *Progress.* A chunk of a bounded part holds at least one row; after the last row comes None.
    - *Stable names.* `parts` gives the same names in the same order for the life of the data. Of
      an interleaved source it returns the names of all parts that exist now, in any order. A part
      that was named once is read until `read` returns None, whether or not it is named again.
    - *One kind.* `interleaved` is the same for the life of the data: it says how rows are numbered.
    - *A truthful order.* `order` names what orders the rows ("file and row", "index"), or is None.
    - *Pickling.* Open files and caches stay behind; what was decided once (the file list, recorded
      arrival times) goes along.
    - *Sharing.* Different parts may be read by different threads at the same time.
    - *Errors.* What cannot be read is a SourceError that names the part, never fewer rows.

    Example:
        >>> class Squares(Source):
        ...     schema = pa.schema([("n", pa.int64())])
        ...     bounded, order = True, "index"
        ...
        ...     def parts(self):
        ...         return ("squares",)
        ...
        ...     def read(self, part, start, rows):
        ...         numbers = [n * n for n in range(start, min(start + rows, 4))]
        ...         return Chunk(pa.record_batch({"n": numbers})) if numbers else None
        >>> squares = Squares()
        >>> squares.read("squares", 2, 10).batch["n"].to_pylist()
        [4, 9]
        >>> squares.extent("squares")
        Extent(rows=None, exact=False, seekable=False, growing=False)
    """

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of every batch."""

    @property
    @abstractmethod
    def bounded(self) -> bool:
        """Whether every part ends."""

    @property
    @abstractmethod
    def order(self) -> str | None:
        """What orders the rows; None for an unordered source."""

    @abstractmethod
    def parts(self) -> tuple[str, ...]:
        """Return the names of the parts, in order."""

    @abstractmethod
    def read(self, part: str, start: int, rows: int) -> Chunk | None:
        """Return at most `rows` (1 or more) rows of `part` from row `start` on; None at its end."""

    @property
    def pushed(self) -> bool:
        """Whether an engine brings the rows, and nobody calls `read`."""
        return False

    @property
    def interleaved(self) -> bool:
        """Whether parts are read side by side, so that rows are ordered as they are read."""
        return False

    @property
    def idle_after_s(self) -> float | None:
        """Return after how long without rows event time goes on without a part; None: never."""
        return None

    @property
    def one_reader(self) -> bool:
        """Whether one reader at a time must read all parts."""
        return False

    @property
    def arrivals(self) -> Arrivals | None:
        """The arrival times of the rows, where the source adds them as a column."""
        return None

    def due_rows(self, elapsed_s: float) -> int | None:
        """Return how many rows, over all parts, are due `elapsed_s` after the start; None: all."""
        return None

    def extent(self, part: str) -> Extent:
        """Return what is known of a part, which lets engines share its rows out evenly.

        Engines compute from it how many rows wait to be read, so the answer for a part that grows
        must be as new as possible.
        """
        return Extent()


MEMBERS = tuple(name for name in vars(Source) if not name.startswith("_"))
"""All that engines ask of a source."""
DEFAULTS = tuple(name for name in MEMBERS if name not in Source.__abstractmethods__)
"""The members that a class which inherits from `Source` need not define."""


def require_source(step: str, source: object) -> None:
    """Raise a BuildError that names the members which a source lacks."""
    if isinstance(source, type):
        got = f"the class {source.__name__}"
        raise BuildError(step, "a source", got, "call it to make a source")
    missing = [name for name in MEMBERS if not hasattr(source, name)]
    if missing:
        raise BuildError(
            step,
            "a source",
            f"{type(source).__name__} without {', '.join(missing)}",
            "use one of anabranch.io, or let the class inherit from anabranch.io.Source, which has "
            f"defaults for {', '.join(DEFAULTS)}",
        )


def require_one_part(name: str, source: Source) -> None:
    """Raise a BuildError for an endless source whose later parts would never be read."""
    if source.bounded or source.pushed or source.interleaved:
        return
    if (parts := len(source.parts())) != 1:
        raise BuildError(
            name,
            "an endless source with one part, or one that is interleaved",
            f"{parts} parts that are read one after the other",
            "set `interleaved = True` in its class: then parts are read side by side, and may come "
            "and go",
        )


class Arrivals(Protocol):
    """The arrival times that a source has given to its rows, each decided once.

    Processing time thereby is a recorded input. An engine keeps what a run may need again: either
    the record of what each batch reads, or the latest stamp.
    An implementer must ensure that a row has the same stamp whenever it is read, and that stamps
    never decrease, from row to row of a part nor from call to call.
    """

    @property
    def latest(self) -> int | None:
        """The last stamp given, which no later one goes behind."""

    def stamp(self, part: str, start: int, end: int, not_before: int | None) -> Record:
        """Stamp the rows from `start` to before `end` now; return the record of exactly these."""

    def recalling(self, record: Record) -> Source:
        """Return the same source, with the stamps of a record and no others."""

    def let_go(self, part: str, row: int) -> None:
        """Remove the stamps before a row, which nobody will read again."""

    def forget(self, part: str, row: int) -> None:
        """Take back the stamps from a row on: those rows had not come yet."""


class WrappedSource(Source):
    """A source that is another one but for what a subclass overrides.

    Args:
        source: What it wraps.
    """

    def __init__(self, source: Source) -> None:
        self._source = source

    @property
    def schema(self) -> pa.Schema:
        return self._source.schema

    @property
    def bounded(self) -> bool:
        return self._source.bounded

    @property
    def order(self) -> str | None:
        return self._source.order

    def parts(self) -> tuple[str, ...]:
        return self._source.parts()

    def read(self, part: str, start: int, rows: int) -> Chunk | None:
        return self._source.read(part, start, rows)

    @property
    def pushed(self) -> bool:
        return self._source.pushed

    @property
    def interleaved(self) -> bool:
        return self._source.interleaved

    @property
    def idle_after_s(self) -> float | None:
        return self._source.idle_after_s

    @property
    def one_reader(self) -> bool:
        return self._source.one_reader

    @property
    def arrivals(self) -> Arrivals | None:
        inner = self._source.arrivals
        return None if inner is None else _WrappedArrivals(self, inner)

    def around(self, source: Source) -> Source:
        """Return this wrapper around another source."""
        twin = copy.copy(self)
        twin._source = source
        return twin

    def due_rows(self, elapsed_s: float) -> int | None:
        return self._source.due_rows(elapsed_s)

    def extent(self, part: str) -> Extent:
        return self._source.extent(part)


class IdleAfter(WrappedSource):
    """A source whose parts do not hold event time up once they have had no rows for some time.

    When a part counts as idle depends on a clock, so it is recorded like the order of the rows: the
    source is interleaved even if it has one part.

    Args:
        source: What it wraps.
        seconds: The time.
    """

    def __init__(self, source: Source, seconds: float) -> None:
        super().__init__(source)
        self.seconds = seconds

    @property
    def interleaved(self) -> bool:
        return True

    @property
    def kind(self) -> str:
        """The class of the source: with another time, or none, the rows are the same."""
        return type(self._source).__name__

    @property
    def idle_after_s(self) -> float:
        return self.seconds


class _WrappedArrivals(Arrivals):
    """The arrival times of a wrapped source, which stays wrapped when stamps are recalled."""

    def __init__(self, wrapper: WrappedSource, inner: Arrivals) -> None:
        self._wrapper, self._inner = wrapper, inner

    @property
    def latest(self) -> int | None:
        return self._inner.latest

    def stamp(self, part: str, start: int, end: int, not_before: int | None) -> Record:
        return self._inner.stamp(part, start, end, not_before)

    def recalling(self, record: Record) -> Source:
        return self._wrapper.around(self._inner.recalling(record))

    def let_go(self, part: str, row: int) -> None:
        self._inner.let_go(part, row)

    def forget(self, part: str, row: int) -> None:
        self._inner.forget(part, row)


def unread(extents: Iterable[Extent], read: int) -> int | None:
    """Return the backlog: how many rows have come, less those read; None if a part cannot say.

    Example:
        >>> unread([Extent(10, exact=True), Extent(5, growing=True)], read=12)
        3
        >>> unread([Extent(10), Extent()], read=0) is None
        True
    """
    rows = [each.rows for each in extents]
    known = [each for each in rows if each is not None]
    return max(0, sum(known) - read) if len(known) == len(rows) else None
