"""Plain text: one row per line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.io.formats.format import (
    BLOCK_BYTES,
    SAMPLE_BYTES,
    Block,
    Listed,
    ReadColumns,
    extent_of_lines,
    require_columns,
)
from anabranch.io.formats.lines import blocks_of_lines, is_shared, whole_lines
from anabranch.io.source import Extent

SCHEMA = pa.schema([("line", pa.string())])


class TextFormat:
    """UTF-8 text; lines end with a newline, with or without a carriage return before it.

    Logs hold what others sent, so bytes that are no UTF-8 harm nobody but themselves: each piece of
    such bytes becomes U+FFFD, the replacement character, and the rest of its line and all other
    lines are as they were. Only a file that says that it is UTF-16 or Parquet is refused.
    """

    suffixes = (".txt", ".log")
    refuses_early = True

    def extent(self, path: str, listed: Listed) -> Extent:
        """A guess from the first lines."""
        return replace(extent_of_lines(path, listed), seekable=is_shared(path, listed))

    def infer(self, path: str) -> pa.Schema | None:
        """Always one column, `line`."""
        return SCHEMA

    def blocks(self, path: str, wanted: ReadColumns, start: int, listed: Listed) -> Iterator[Block]:
        """Blocks of whole lines; those before `start` are counted, not parsed."""
        require_columns(path, SCHEMA, wanted)
        yield from blocks_of_lines(path, listed, start, BLOCK_BYTES, _count, _parse)


def first_lines(path: str) -> pa.Array:
    """Whole lines from the start of a file, one at least unless it is empty."""
    _, block = next(whole_lines(path, SAMPLE_BYTES), (0, b""))
    return _parse(block)[0] if block else pa.array([], pa.string())


def _count(block: bytes) -> int:
    return block.count(b"\n") + (not block.endswith(b"\n"))


def _parse(block: bytes) -> pa.RecordBatch:
    text = block.replace(b"\r\n", b"\n") if b"\r" in block else block
    try:
        lines = _split(text)
    except pa.ArrowInvalid:
        # A newline is never taken for a part of a broken character, so lines stay apart.
        lines = _split(text.decode(errors="replace").encode())
    return pa.RecordBatch.from_arrays([lines], schema=SCHEMA)


def _split(text: bytes) -> pa.Array:
    """The lines of a text; raises pa.ArrowInvalid if it is no UTF-8."""
    # The last newline ends a line and does not begin another.
    offsets = np.array([0, len(text) - text.endswith(b"\n")], np.int32)
    whole = pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(text)])
    return pc.split_pattern(whole.cast(pa.string()), "\n").flatten()
