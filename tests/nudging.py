"""Sources that call a function of the test before they are read in the process of the test."""

from __future__ import annotations

import copy
from collections.abc import Callable

from anabranch.flow import Flow
from anabranch.io.source import Chunk, Source, WrappedSource


def nudging(flow: Flow, call: Callable[[], None]) -> Flow:
    """Return the same flow, whose sources call a function before each read in this process."""
    sources = flow.sources().items()
    return flow.reading({name: Nudging(source, call) for name, source in sources})


class Nudging(WrappedSource):
    """A source that calls a function before each read; in another process, the source alone."""

    def __init__(self, source: Source, call: Callable[[], None]) -> None:
        super().__init__(source)
        self._call = call

    def __copy__(self) -> Nudging:
        return Nudging(copy.copy(self._source), self._call)

    def __reduce__(self) -> tuple[Callable[[Source], Source], tuple[Source]]:
        return _itself, (self._source,)

    def read(self, part: str, start: int, rows: int) -> Chunk | None:
        """Call, then read."""
        self._call()
        return self._source.read(part, start, rows)


def _itself(source: Source) -> Source:
    return source
