"""A position in one file: turns blocks of the format's size into chunks of the engine's."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from anabranch.io.formats import BadFile, Block

CHUNK_BYTES = 1 << 28
"""A chunk ends early past this size: it must stay far below Arrow's 2 GiB of text per column."""


class BlockReader:
    """Reads on from where it stands, as the engine usually does."""

    def __init__(self, blocks: Iterator[Block], seekable: bool) -> None:
        """Stand before the first of `blocks`."""
        self._blocks = blocks
        self._seekable = seekable
        self._first = 0
        self._block: pa.RecordBatch | None = None

    def reaches(self, start: int) -> bool:
        """Whether reading on from here is a good way to row `start`."""
        if self._block is None:
            return False
        end = self._first + self._block.num_rows
        return self._first <= start and (start <= end or not self._seekable)

    def take(self, start: int, rows: int) -> tuple[list[pa.RecordBatch], Exception | None]:
        """The next rows from `start` on, and what kept them from being more, if it is an error.

        Rows before the damage come out whatever the chunk size, so that a file ends at the same
        row however it is read.
        """
        taken: list[pa.RecordBatch] = []
        size = 0
        try:
            while rows > 0 and size < CHUNK_BYTES:
                while self._block is None or start >= self._first + self._block.num_rows:
                    self._first, self._block = next(self._blocks)
                piece = self._block.slice(start - self._first, rows)
                taken.append(piece)
                start += piece.num_rows
                rows -= piece.num_rows
                size += piece.nbytes
        except StopIteration:
            pass
        except (BadFile, pa.ArrowException, OSError) as error:
            return taken, error
        return taken, None
