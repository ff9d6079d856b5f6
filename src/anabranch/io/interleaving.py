"""Interleavings: the order in which the parts of an endless source are read.

Rows of several streams arrive in no order but that of their arrival. Which rows of which part an
engine reads next is therefore an input of the run, as an arrival time is: the engine decides it
once and records it as runs of rows. The position of a row is its number in that record. A run of
the flow that is repeated from the record gives the same results, under any plan and on any engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from anabranch.columns.schemas import without_dictionaries
from anabranch.errors import SourceError
from anabranch.io.offsets import Run, SourceOffsets
from anabranch.io.reader import last_word, number_of_parts, numbered, placed
from anabranch.io.source import Source
from anabranch.state.positions import FIRST, Jumbo, Root, end


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
        """How many rows there are."""
        return sum(run.rows for runs in self.runs for run in runs)


def names_of(source: Source, offsets: SourceOffsets) -> tuple[str, ...]:
    """Return the names of all parts by number: those that are known, then those found now."""
    return tuple(dict.fromkeys((*offsets.names, *source.parts())))


def take_arrived(source: Source, offsets: SourceOffsets, budget: int, readers: int) -> Arrived:
    """Choose about `budget` of the rows that have come, and share them out among readers.

    Every part gets the same share of the budget; what one does not need is for the others.

    Example:
        >>> from anabranch.io import memory
        >>> source = memory([{"x": x} for x in range(10)])
        >>> found = take_arrived(source, SourceOffsets(), budget=6, readers=2)
        >>> found.runs, found.after.open
        ([[Run(first=0, part='memory', start=0, rows=6)], []], {0: 6})
    """
    names = names_of(source, offsets)
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
    runs: list[list[Run]] = [[] for _ in range(readers)]
    loads, ordinal, left = [0] * readers, offsets.ordinal, budget
    for others, part in enumerate(sorted(waiting, key=lambda each: (-waiting[each], each))[::-1]):
        rows = min(waiting[part], -(-left // (len(waiting) - others)))
        if rows:
            reader = loads.index(min(loads))
            runs[reader].append(Run(ordinal, names[part], next_rows[part], rows))
            loads[reader] += rows
            next_rows[part] += rows
            ordinal, left = ordinal + rows, left - rows
    unfinished = {part: row for part, row in next_rows.items() if row < ends.get(part, row + 1)}
    after = replace(
        offsets,
        open=unfinished,
        unopened=len(names),
        rows=offsets.rows + budget - left,
        over=bool(names) and not unfinished,
        names=names,
        ordinal=ordinal,
        runs=tuple(sorted(run for each in runs for run in each)),
    )
    return Arrived(runs, after)


class RunReader:
    """Reads runs of an interleaved source, in their order.

    Args:
        source: The source.
        rank: Its number in the flow.
        runs: What is read.

    Example:
        >>> from anabranch.io import memory
        >>> source = memory([{"x": 1}, {"x": 2}, {"x": 3}])
        >>> reader = RunReader(source, 0, [Run(4, "memory", 2, 1), Run(0, "memory", 0, 2)])
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
                jumbo = placed(chunk, self._schema, self._rank, run.first + at - run.start)
                at += len(jumbo)
                yield jumbo, numbered(self._rank, run.first + at - run.start)

    def end(self, after: SourceOffsets, *, over: bool) -> tuple[Jumbo | None, Root]:
        """What there is to say when the source has come so far, or is over."""
        if not over:
            return None, numbered(self._rank, after.ordinal)
        return last_word(self._schema, self._rank, number_of_parts(self._source)), end(FIRST)
