"""Plain text: one row per line.

A large file is read by several readers. The number of a line is known only by counting those before
it, which is several times faster than parsing them; each process notes where the blocks that it has
passed begin, and counts on from there.
"""

from __future__ import annotations

import codecs
import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.io.formats.format import (
    BLOCK_BYTES,
    COMPRESSED,
    SAMPLE_BYTES,
    BadFile,
    Block,
    ReadColumns,
    extent_of_lines,
    require_columns,
)
from anabranch.io.source import Extent

SPLIT_BYTES = 1 << 26
"""From this size on a file is shared by readers; a smaller one is not worth counting its lines."""
MOST_FILES = 64
"""Files of which it is noted where blocks begin."""
PARQUET_MAGIC = b"PAR1"
SCHEMA = pa.schema([("line", pa.string())])


class TextFormat:
    """UTF-8 text; lines end with a newline, with or without a carriage return before it.

    Logs hold what others sent, so bytes that are no UTF-8 harm nobody but themselves: each piece of
    such bytes becomes U+FFFD, the replacement character, and the rest of its line and all other
    lines are as they were. Only a file that says that it is UTF-16 or Parquet is refused.
    """

    suffixes = (".txt", ".log")

    def extent(self, path: str) -> Extent:
        """A guess from the first lines."""
        return replace(extent_of_lines(path), seekable=_is_shared(path))

    def infer(self, path: str) -> pa.Schema | None:
        """Always one column, `line`."""
        return SCHEMA

    def blocks(self, path: str, wanted: ReadColumns, start: int) -> Iterator[Block]:
        """Blocks of whole lines; those before `start` are counted, not parsed."""
        require_columns(path, SCHEMA, wanted)
        marks = _marks_of(path)
        row, offset = marks.before(start)
        for at, block in _whole_lines(path, BLOCK_BYTES, offset):
            marks.note(row, at)
            if row < start:
                lines = block.count(b"\n") + (not block.endswith(b"\n"))
                if row + lines <= start:
                    row += lines
                    continue
            batch = _parse(block)
            yield row, batch
            row += batch.num_rows


def first_lines(path: str) -> pa.Array:
    """Whole lines from the start of a file, one at least unless it is empty."""
    _, block = next(_whole_lines(path, SAMPLE_BYTES), (0, b""))
    return _parse(block)[0] if block else pa.array([], pa.string())


class _Marks:
    """Notes where blocks of a file begin: the number of the line, and the bytes before it."""

    def __init__(self) -> None:
        self._begins = [(0, 0)]

    def before(self, row: int) -> tuple[int, int]:
        """The last known block that begins at a line or before it."""
        with _lock:
            return self._begins[bisect_right(self._begins, row, key=lambda each: each[0]) - 1]

    def note(self, row: int, offset: int) -> None:
        with _lock:
            if row > self._begins[-1][0]:
                self._begins.append((row, offset))


_noted: OrderedDict[tuple[str, int, int], _Marks] = OrderedDict()
_lock = Lock()
"""Runs in several threads of a process may read the same file."""


def _is_shared(path: str) -> bool:
    """Return whether several readers may read a file."""
    compressed = path.lower().endswith(COMPRESSED)
    return not compressed and os.path.getsize(path) >= SPLIT_BYTES


def _marks_of(path: str) -> _Marks:
    """The notes about a file as it is now."""
    if not _is_shared(path):
        return _Marks()
    state = os.stat(path)
    known = path, state.st_size, state.st_mtime_ns
    with _lock:
        marks = _noted.setdefault(known, _Marks())
        _noted.move_to_end(known)
        while len(_noted) > MOST_FILES:
            _noted.popitem(last=False)
    return marks


def _whole_lines(path: str, at_once: int, offset: int = 0) -> Iterator[tuple[int, bytes]]:
    """Blocks of whole lines, each with the byte that it begins at; a line begins at `offset`."""
    with pa.input_stream(path, compression="detect") as stream:
        # The beginning says whether this is text, wherever reading begins.
        rest = stream.read(min(at_once, SAMPLE_BYTES) if offset else at_once)
        at = len(codecs.BOM_UTF8) if rest.startswith(codecs.BOM_UTF8) else 0
        rest = rest[at:]
        if rest.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise BadFile(
                f"UTF-8 text in {path}",
                "the byte order mark of UTF-16",
                "convert the file (for example with iconv), or leave bad files out with "
                "files(…, on_bad_file='skip')",
            )
        if rest.startswith(PARQUET_MAGIC) and b"\0" in rest:
            raise BadFile(
                f"text in {path}",
                "a Parquet file",
                "write its rows as text, or leave bad files out with files(…, on_bad_file='skip')",
            )
        if offset > at:
            stream.seek(offset)
            at, rest = offset, stream.read(at_once)
        while True:
            end = rest.rfind(b"\n") + 1
            if end:
                yield at, rest[:end]
                at, rest = at + end, rest[end:]
            piece = stream.read(max(at_once, len(rest)))  # twice as much of a line without an end
            if not piece:
                break
            rest += piece
        if rest:
            yield at, rest


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
