"""The terminal as a sink."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, TextIO

import pyarrow as pa

from anabranch.io.sink import Guarantee, Traits
from anabranch.io.staged import StagedSink


def console(limit: int | None = None, stream: TextIO | None = None) -> ConsoleSink:
    """Print committed rows as aligned plain text, at least once.

    Args:
        limit: How many rows to print at most; one line then says that there are more.
        stream: Where to; by default the standard output of the moment.

    Example:
        >>> from anabranch.io.two_phase_commit import Transactions
        >>> batch = pa.record_batch({"word": ["be", "question"], "n": [2, 10]})
        >>> out = Transactions(console())
        >>> out.open(batch.schema)
        >>> out.write(batch)
        >>> out.commit(0)
        word       n
        be         2
        question  10
    """
    return ConsoleSink(limit, stream)


class ConsoleSink(StagedSink):
    """See `console`."""

    traits = Traits(Guarantee.AT_LEAST_ONCE)

    def __init__(self, limit: int | None, stream: TextIO | None) -> None:
        """Remember where to print."""
        self._limit = limit
        self._stream = stream
        self._widths: list[int] = []
        self._printed = 0
        self._said_more = False

    def __repr__(self) -> str:
        """The description that errors use."""
        return "console"

    def __getstate__(self) -> dict[str, Any]:
        """Only the driver prints: its stream need not travel."""
        return {**self.__dict__, "_stream": None}

    def begin(self, schema: pa.Schema, version: int) -> None:
        """What was printed stays printed."""
        self._widths = []

    def deliver(self, version: int, rows: Iterator[pa.RecordBatch]) -> None:
        """Print the rows, under a header when it is the first time or the columns widened."""
        for batch in rows:
            fits = batch.num_rows if self._limit is None else self._limit - self._printed
            if fits > 0:
                self._print(batch.slice(0, fits))
            if fits < batch.num_rows and not self._said_more:
                self._said_more = True
                self._say(f"... more rows than the limit of {self._limit}")

    def _print(self, batch: pa.RecordBatch) -> None:
        names = batch.schema.names
        columns = [[_text(value) for value in column] for column in batch.columns]
        widths = [
            max(len(text) for text in [name, *column])
            for name, column in zip(names, columns, strict=True)
        ]
        seen = self._widths or [0] * len(names)
        self._widths = [max(pair) for pair in zip(seen, widths, strict=True)]
        right = [_is_number(field.type) for field in batch.schema]
        if self._widths != seen:
            self._line(names, right)
        for row in zip(*columns, strict=True):
            self._line(row, right)
        self._printed += batch.num_rows

    def _line(self, texts: list[str] | tuple[str, ...], right: list[bool]) -> None:
        cells = [
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(texts, self._widths, right, strict=True)
        ]
        self._say("  ".join(cells).rstrip())

    def _say(self, line: str) -> None:
        print(line, file=self._stream or sys.stdout, flush=True)


def _text(value: pa.Scalar) -> str:
    # One row is one line, whatever is in it.
    return str(value).replace("\r", "\\r").replace("\n", "\\n") if value.is_valid else "null"


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))
