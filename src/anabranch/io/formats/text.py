"""Plain text: one row per line."""

from __future__ import annotations

import codecs
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.io.formats.format import (
    BLOCK_BYTES,
    SAMPLE_BYTES,
    BadFile,
    Block,
    ReadColumns,
    extent_of_lines,
    require_columns,
)
from anabranch.io.source import Extent

PARQUET_MAGIC = b"PAR1"
SCHEMA = pa.schema([("line", pa.string())])


class TextFormat:
    """UTF-8 text; lines end with a newline, with or without a carriage return before it.

    Logs hold what others sent, so bytes that are no UTF-8 harm nobody but themselves: each piece of
    such bytes becomes U+FFFD, the replacement character, and the rest of its line and all other
    lines are as they were. Only a file that says that it is UTF-16 or Parquet is refused.
    """

    suffixes = (".txt", ".log")
    seekable = False

    def extent(self, path: str) -> Extent:
        """A guess from the first lines."""
        return extent_of_lines(path)

    def infer(self, path: str) -> pa.Schema | None:
        """Always one column, `line`."""
        return SCHEMA

    def blocks(self, path: str, wanted: ReadColumns, start: int) -> Iterator[Block]:
        """Blocks of whole lines; those before `start` are counted, not parsed."""
        require_columns(path, SCHEMA, wanted)
        row = 0
        for block in _whole_lines(path, BLOCK_BYTES):
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
    block = next(_whole_lines(path, SAMPLE_BYTES), b"")
    return _parse(block)[0] if block else pa.array([], pa.string())


def _whole_lines(path: str, at_once: int) -> Iterator[bytes]:
    with pa.input_stream(path, compression="detect") as stream:
        rest = stream.read(at_once).removeprefix(codecs.BOM_UTF8)
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
        while True:
            end = rest.rfind(b"\n") + 1
            if end:
                yield rest[:end]
                rest = rest[end:]
            piece = stream.read(max(at_once, len(rest)))  # twice as much of a line without an end
            if not piece:
                break
            rest += piece
        if rest:
            yield rest


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
