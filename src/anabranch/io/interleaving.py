"""Interleavings: the order in which the parts of an endless source are read.

Rows of several streams arrive in no order but that of their arrival. Which rows of which part an
engine reads next is therefore an input of the run, as an arrival time is: the engine decides it
once and records it as runs of rows. The position of a row is its number in that record. A run of
the flow that is repeated from the record gives the same results, under any plan and on any engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from anabranch.columns.schemas import without_dictionaries
from anabranch.errors import SourceError
from anabranch.io.offsets import Run, SourceOffsets
from anabranch.io.reader import last_word, mark_before, numbered, placed
from anabranch.io.source import Source
from anabranch.state.positions import FIRST, IDLE, JOINED, LAST, Jumbo, Root, end


@dataclass(frozen=True)
class Arrived:
    """Rows that have come, in the order that they have from now on.

    Attributes:
        runs: By reader, what it reads.
        after: Where the source stands once all of them are read.
    """

    runs: list[list[Run]]
    after: SourceOffsets

    @property
    def rows(self) -> int:
        """Return how many rows there are."""
        return sum(run.rows for runs in self.runs for run in runs)


def names_of(source: Source, offsets: SourceOffsets) -> tuple[str, ...]:
    """Return the names of all parts by number: those that are known, then those found now."""
    return tuple(dict.fromkeys((*offsets.names, *source.parts())))


def take_arrived(
    source: Source,
    offsets: SourceOffsets,
    budget: int,
    readers: int,
    silences: Silences | None = None,
    now_s: float = 0.0,
) -> Arrived:
    """Choose about `budget` of the rows that have come, and share them out among readers.

    Every part gets the same share of the budget; what one does not need is for the others. Notices
    to clocks come first where parts are new, and last where they have ended or are idle.

    Args:
        source: The source.
        offsets: Where it stands.
        budget: How many rows to take.
        readers: How many readers there are.
        silences: Notes which parts have no rows, and for how long.
        now_s: The time.

    Example:
        >>> from anabranch.io import memory
        >>> source = memory([{"x": x} for x in range(10)])
        >>> new = SourceOffsets(names=("memory",), unopened=1, open={0: 2}, ordinal=3)
        >>> found = take_arrived(source, new, budget=6, readers=2)
        >>> found.runs
        [[Run(first=3, number=0, part='memory', start=2, rows=6, passed=0)], []]
        >>> found.after.open, found.after.ordinal
        ({0: 8}, 9)
    """
    names = names_of(source, offsets)
    runs: list[list[Run]] = [[] for _ in range(readers)]
    ordinal = offsets.ordinal

    def notify(part: int, passed: int, reader: int = 0) -> None:
        nonlocal ordinal
        runs[reader].append(Run(ordinal, part, names[part], 0, 0, passed))
        ordinal += 1

    for part, passed in offsets.notices:
        notify(part, passed)
    for part in range(len(offsets.names), len(names)):
        notify(part, JOINED)
    next_rows = {**offsets.open, **dict.fromkeys(range(offsets.unopened, len(names)), 0)}
    ends: dict[int, int] = {}
    waiting: dict[int, int] = {}
    for part, row in next_rows.items():
        known = source.extent(names[part])
        if known.rows is None or not (known.exact or known.growing):
            raise SourceError(
                names[part],
                "the number of rows that have come: a batch on Spark takes those and no others",
                "a source that does not report it",
                "let its method extent return Extent(rows, growing=True)",
            )
        waiting[part] = max(0, known.rows - row)
        if known.exact:
            ends[part] = known.rows
        if silences is not None:
            silences.note(part, waiting[part], now_s)
    shares: list[list[tuple[int, int]]] = [[] for _ in range(readers)]
    left = budget = max(0, budget)
    for others, part in enumerate(sorted(waiting, key=lambda each: (-waiting[each], each))[::-1]):
        if rows := min(waiting[part], -(-left // (len(waiting) - others))):
            min(shares, key=lambda share: sum(taken for _, taken in share)).append((part, rows))
            left -= rows
    # Each reader gets one range of numbers, so a sink may write it in the task that reads.
    for reader, share in enumerate(shares):
        for part, rows in share:
            runs[reader].append(Run(ordinal, part, names[part], next_rows[part], rows))
            next_rows[part] += rows
            ordinal += rows
    idle = [] if silences is None else silences.take_idle()
    unfinished = {part: row for part, row in next_rows.items() if row < ends.get(part, row + 1)}
    for part in next_rows:
        if part not in unfinished:
            notify(part, LAST, reader=-1)
        elif part in idle:
            notify(part, IDLE, reader=-1)
    after = replace(
        offsets,
        open=unfinished,
        unopened=len(names),
        rows=offsets.rows + budget - left,
        over=bool(names) and not unfinished,
        names=names,
        notices=(),
        ordinal=ordinal,
        runs=tuple(sorted(run for each in runs for run in each)),
    )
    return Arrived(runs, after)


class Silences:
    """Notes how long parts have had no rows, and which of them count as idle.

    Only the answer that a part has no rows makes it idle: nobody knows what has come to a part that
    was not asked again.

    Args:
        after_s: After how long a part is idle; None: never.

    Example:
        >>> silences = Silences(after_s=5.0)
        >>> silences.note(0, rows=0, now_s=1.0)
        >>> silences.take_idle()
        []
        >>> silences.note(0, rows=0, now_s=6.0)
        >>> silences.take_idle(), silences.take_idle()
        ([0], [])
    """

    def __init__(self, after_s: float | None) -> None:
        self._after_s = after_s
        self._since_s: dict[int, float] = {}
        self._idle: set[int] = set()
        self._new: dict[int, None] = {}

    def note(self, part: int, rows: int, now_s: float) -> None:
        """Note how many rows a part had when it was asked."""
        if rows:
            self.forget(part)
            return
        silent_s = now_s - self._since_s.setdefault(part, now_s)
        if self._after_s is not None and silent_s >= self._after_s and part not in self._idle:
            self._idle.add(part)
            self._new[part] = None

    def forget(self, part: int) -> None:
        """A part has rows, or it has ended."""
        self._since_s.pop(part, None)
        self._idle.discard(part)
        self._new.pop(part, None)

    def take_idle(self) -> list[int]:
        """Return the parts that have become idle since the last time."""
        idle, self._new = list(self._new), {}
        return idle


class RunReader:
    """Reads runs of an interleaved source, in their order.

    Args:
        source: The source.
        rank: Its number in the flow.
        runs: What is read.

    Example:
        >>> from anabranch.io import memory
        >>> source = memory([{"x": 1}, {"x": 2}, {"x": 3}])
        >>> runs = [Run(4, 0, "memory", 2, 1), Run(0, 0, "memory", 0, 2)]
        >>> reader = RunReader(source, 0, runs)
        >>> [(jumbo.batch["x"].to_pylist(), frontier.seq) for jumbo, frontier in reader.read(8)]
        [([1, 2], 2), ([3], 5)]
    """

    def __init__(self, source: Source, rank: int, runs: Sequence[Run]) -> None:
        self._source, self._rank, self._runs = source, rank, sorted(runs)
        self._schema = without_dictionaries(source.schema)
        self.waited_ms: float | None = None  # by the rows read last

    def read(self, rows: int) -> Iterator[tuple[Jumbo, Root]]:
        """Jumbo tuples of at most `rows` tuples, and how far the reader has come with each."""
        for run in self._runs:
            if not run.rows:
                mark = notice(self._schema, self._rank, run.first, run.passed, run.number)
                yield mark, numbered(self._rank, run.first)  # rows may have the number, too
            at, stop = run.start, run.start + run.rows
            while at < stop:
                chunk = self._source.read(run.part, at, min(rows, stop - at))
                if chunk is None or not chunk.batch.num_rows:
                    raise SourceError(
                        run.part,
                        f"row {at}, which has come",
                        "no such row",
                        "keep the rows that a run may have to read again",
                    )
                self.waited_ms = chunk.waited_ms
                first = run.first + at - run.start
                jumbo = placed(chunk, self._schema, self._rank, first, run.number)
                at += len(jumbo)
                yield jumbo, numbered(self._rank, run.first + at - run.start)

    def end(self, after: SourceOffsets, *, over: bool) -> tuple[Jumbo | None, Root]:
        """Return the end mark if the source is over, and how far it has come in any case."""
        if not over:
            return None, numbered(self._rank, after.ordinal)
        return last_word(self._schema, self._rank, parts=None), end(FIRST)


def notice(schema: pa.Schema, rank: int, seq: int, passed: int, part: int) -> Jumbo:
    """Return a notice to clocks about a part."""
    return Jumbo.empty(schema, 0, (mark_before(rank, seq, passed, part),))
