"""Files of lines, and how several readers share a large one.

The number of a line is known only by counting those before it, which is several times faster than
parsing them; each process notes where the blocks that it has passed begin, and counts on from
there. A file that is still being written ends where it ended when it was listed: readers that look
at different moments must not find different ends.
"""

from __future__ import annotations

import codecs
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from threading import Lock

import pyarrow as pa

from anabranch.io.formats.format import COMPRESSED, SAMPLE_BYTES, BadFile, Block, Listed

SPLIT_BYTES = 1 << 26
"""From this size on a file is shared by readers; a smaller one is not worth counting its lines."""
MOST_FILES = 64
"""Files of which it is noted where blocks begin."""
PARQUET_MAGIC = b"PAR1"


def is_shared(path: str, listed: Listed) -> bool:
    """Return whether several readers may read a file."""
    return not _is_compressed(path) and listed.size >= SPLIT_BYTES


def blocks_of_lines(
    path: str,
    listed: Listed,
    start: int,
    at_once: int,
    count: Callable[[bytes], int],
    parse: Callable[[bytes], pa.RecordBatch],
) -> Iterator[Block]:
    """Blocks of whole lines; those before row `start` are counted, not parsed.

    Args:
        path: The file.
        listed: What it was when it was listed.
        start: The first row to be read.
        at_once: About so many bytes have the lines of a block.
        count: Counts the rows of a block.
        parse: Makes rows of a block.
    """
    marks = _marks_of(path, listed)
    row, offset = marks.before(start)
    for at, block in whole_lines(path, at_once, offset, listed):
        marks.note(row, at)
        if row < start and row + (rows := count(block)) <= start:
            row += rows
            continue
        batch = parse(block)
        yield row, batch
        row += batch.num_rows


def whole_lines(
    path: str, at_once: int, offset: int = 0, listed: Listed | None = None
) -> Iterator[tuple[int, bytes]]:
    """Blocks of whole lines, each with the byte that it begins at; a line begins at `offset`.

    Where a block ends follows from where it begins, so blocks are the same wherever reading began.
    """
    compressed = _is_compressed(path)
    size = None if listed is None or compressed else listed.size
    with pa.input_stream(path, compression="detect") as stream:

        def read(at: int, most: int) -> bytes:
            found: bytes = stream.read(most if size is None else max(0, min(most, size - at)))
            return found

        # The beginning says whether this is text, wherever reading begins.
        rest = read(0, min(at_once, SAMPLE_BYTES) if offset else at_once)
        at = len(codecs.BOM_UTF8) if rest.startswith(codecs.BOM_UTF8) else 0
        rest = rest[at:]
        _require_text(path, rest)
        if offset > at:
            stream.seek(offset)
            at, rest = offset, b""
        while True:
            if missing := max(0, at_once - len(rest)):
                rest += read(at + len(rest), missing)
            end = rest.rfind(b"\n", 0, at_once) + 1 or rest.find(b"\n", at_once) + 1
            while not end and (piece := read(at + len(rest), max(at_once, len(rest)))):
                searched = len(rest)
                rest += piece  # twice as much of a line without an end
                end = rest.find(b"\n", searched) + 1
            if not rest:
                return
            end = end or len(rest)
            yield at, rest[:end]
            at, rest = at + end, rest[end:]


def _require_text(path: str, head: bytes) -> None:
    """Refuse a file whose beginning says that it is no UTF-8 text."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise BadFile(
            f"UTF-8 text in {path}",
            "the byte order mark of UTF-16",
            "convert the file (for example with iconv), or leave bad files out with "
            "files(…, on_bad_file='skip')",
        )
    if head.startswith(PARQUET_MAGIC) and b"\0" in head:
        raise BadFile(
            f"text in {path}",
            "a Parquet file",
            "write its rows as text, or leave bad files out with files(…, on_bad_file='skip')",
        )


class _Marks:
    """Notes where blocks of a file begin: the number of the row, and the bytes before it."""

    def __init__(self) -> None:
        self._begins = [(0, 0)]

    def before(self, row: int) -> tuple[int, int]:
        """The last known block that begins at a row or before it."""
        with _lock:
            return self._begins[bisect_right(self._begins, row, key=lambda each: each[0]) - 1]

    def note(self, row: int, offset: int) -> None:
        with _lock:
            if row > self._begins[-1][0]:
                self._begins.append((row, offset))


_noted: OrderedDict[tuple[str, Listed], _Marks] = OrderedDict()
_lock = Lock()
"""Runs in several threads of a process may read the same file."""


def _marks_of(path: str, listed: Listed) -> _Marks:
    """The notes about a file as it was when it was listed; it may have grown since."""
    if not is_shared(path, listed):
        return _Marks()
    with _lock:
        marks = _noted.setdefault((path, listed), _Marks())
        _noted.move_to_end((path, listed))
        while len(_noted) > MOST_FILES:
            _noted.popitem(last=False)
    return marks


def _is_compressed(path: str) -> bool:
    return path.lower().endswith(COMPRESSED)
