"""Plain text: one row per line."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.io.formats.format import (
    BLOCK_BYTES,
    BadFile,
    Block,
    Wanted,
    extent_of_lines,
    require_columns,
)
from anabranch.io.source import Extent

SCHEMA = pa.schema([("line", pa.string())])


class TextFormat:
    """UTF-8 text; lines end with a newline, with or without a carriage return before it."""

    suffixes = (".txt", ".log")
    seekable = False

    def extent(self, path: str) -> Extent:
        """A guess from the first lines."""
        return extent_of_lines(path)

    def infer(self, path: str) -> pa.Schema | None:
        """Always one column, `line`."""
        return SCHEMA

    def blocks(self, path: str, wanted: Wanted, start: int) -> Iterator[Block]:
        """Blocks of whole lines; those before `start` are counted, not parsed."""
        require_columns(path, SCHEMA, wanted)
        row = 0
        for block in _whole_lines(path):
            if row < start:
                lines = block.count(b"\n") + (not block.endswith(b"\n"))
                if row + lines <= start:
                    row += lines
                    continue
            batch = _parse(path, block)
            yield row, batch
            row += batch.num_rows


def _whole_lines(path: str) -> Iterator[bytes]:
    with pa.input_stream(path, compression="detect") as stream:
        rest = stream.read(BLOCK_BYTES).removeprefix(b"\xef\xbb\xbf")
        while piece := stream.read(BLOCK_BYTES):
            end = rest.rfind(b"\n") + 1
            if end:
                yield rest[:end]
            rest = rest[end:] + piece
        if rest:
            yield rest


def _parse(path: str, block: bytes) -> pa.RecordBatch:
    text = block.replace(b"\r\n", b"\n") if b"\r" in block else block
    # The last newline ends a line and does not begin another.
    offsets = np.array([0, len(text) - text.endswith(b"\n")], np.int32)
    whole = pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(text)])
    try:
        lines = pc.split_pattern(whole.cast(pa.string()), "\n").flatten()
    except pa.ArrowInvalid as error:
        raise BadFile(
            f"UTF-8 text in {path}",
            str(error),
            "convert the file (for example with iconv), or leave bad files out with "
            "on_bad_file='skip'",
        ) from error
    return pa.RecordBatch.from_arrays([lines], schema=SCHEMA)
