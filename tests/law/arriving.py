"""A source whose parts come while it is read, and whose rows come while they are asked for."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any

import pyarrow as pa

from anabranch.io import memory
from anabranch.io.offsets import Run
from anabranch.io.source import Chunk, Extent, Source

_numbers = count()
_asked: defaultdict[int, Counter[str]] = defaultdict(Counter)
"""By source, how often each part was asked for: copies of a source share what has come."""


def let_come(source: Source, runs: Iterable[Run]) -> None:
    """Let the rows come that other processes have read."""
    for run in runs:
        for _ in range(run.rows):
            source.extent(run.part)


class Arriving(Source):
    """Rows of some parts, of which two more have come each time that somebody asks.

    Args:
        parts: The rows of each part.
        schema: Their columns.
        announced: Whether extents say that all rows of a part have come. Readers in different
            processes do not agree on it here.
    """

    bounded, order, interleaved = False, "arrival", True

    def __init__(
        self,
        parts: Mapping[str, Sequence[Mapping[str, Any]]],
        schema: pa.Schema,
        *,
        announced: bool = True,
    ) -> None:
        self._schema, self._announced, self._number = schema, announced, next(_numbers)
        self._rows = {name: len(rows) for name, rows in parts.items()}
        self._parts = {name: memory(list(rows), schema) for name, rows in parts.items()}

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def parts(self) -> tuple[str, ...]:
        _asked[self._number]["parts"] += 1
        return tuple(self._parts)[: _asked[self._number]["parts"]]

    def extent(self, part: str) -> Extent:
        come, rows = self._come(part), self._rows[part]
        if come == rows and self._announced:
            return Extent(rows, exact=True)
        return Extent(come, growing=True)

    def read(self, part: str, start: int, rows: int) -> Chunk | None:
        if start >= self._rows[part]:
            return None
        stop = min(start + rows, self._come(part))
        if stop <= start:
            return Chunk(pa.RecordBatch.from_pylist([], self._schema), dry=True)
        return self._parts[part].read("memory", start, stop - start)

    def _come(self, part: str) -> int:
        asked = _asked[self._number]
        asked[f"part {part}"] += 1
        return min(self._rows[part], 2 * asked[f"part {part}"] - 2)


class Listed(Arriving):
    """All parts exist from the start."""

    def parts(self) -> tuple[str, ...]:
        return tuple(self._parts)
