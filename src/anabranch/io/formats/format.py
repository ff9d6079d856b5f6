"""What a file format is: blocks of typed rows, and complaints that name file and column."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import pyarrow as pa

from anabranch.io.source import Extent

BLOCK_BYTES = 1 << 22
"""Bytes parsed at a time; also the longest line a CSV or JSON file may have."""

SAMPLE_BYTES = 1 << 16
"""Bytes that tell what a file looks like."""

COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")
"""Endings that Arrow decompresses while it reads (not Parquet, which compresses inside)."""

Block = tuple[int, pa.RecordBatch]
"""The number of a block's first row in its file, and its rows."""


class Listed(NamedTuple):
    """What a file was when it was listed: what is written to it later need not be read.

    Attributes:
        size: Its bytes.
        changed_ns: When it was written last.
    """

    size: int
    changed_ns: int

    @staticmethod
    def now(path: str) -> Listed:
        """Return what a file is now; a missing one is empty."""
        try:
            state = os.stat(path)
        except OSError:
            return Listed(0, 0)  # reading it will say what is wrong
        return Listed(state.st_size, state.st_mtime_ns)


class BadFile(Exception):
    """One file is not what it should be; the source decides whether that is the end."""

    def __init__(self, expected: str, got: str, remedy: str) -> None:
        """Say what was expected, what came, and what to do."""
        self.expected = expected
        self.got = got
        self.remedy = remedy
        super().__init__(f"expected {expected}, got {got}")


@dataclass(frozen=True, slots=True)
class ReadColumns:
    """The columns to read; `exact` when a file with further columns is an error.

    Columns inferred from a first file are exact, because leaving out what only a later file has
    would lose it silently. Columns the user names are a choice.
    """

    schema: pa.Schema
    exact: bool


class Format(Protocol):
    """How rows are read from one file.

    Where a file can be damaged, an implementer must provide blocks that begin at the same rows
    every time, so that where the file ends does not depend on how it was read.
    """

    @property
    def suffixes(self) -> tuple[str, ...]:
        """How the names of such files end."""

    @property
    def refuses_early(self) -> bool:
        """Whether a bad file is refused wherever reading begins, not only where it is bad."""

    def infer(self, path: str) -> pa.Schema | None:
        """The columns the file says it has; None when it is too empty to tell."""

    def blocks(self, path: str, wanted: ReadColumns, start: int, listed: Listed) -> Iterator[Block]:
        """All blocks from the one that holds row `start`, or from an earlier one.

        Where several readers share a file, it ends where it ended when it was listed.
        """

    def extent(self, path: str, listed: Listed) -> Extent:
        """How many rows there may be, found out cheaply."""


def extent_of_lines(path: str, listed: Listed) -> Extent:
    """About as many rows as there would be lines, were all as long as the first ones."""
    with pa.input_stream(path, compression="detect") as stream:
        sample = stream.read(SAMPLE_BYTES)
    if len(sample) < SAMPLE_BYTES:
        return Extent(sample.count(b"\n") + 1)
    # A compressed file holds more than its size says; guessing low makes larger batches, no error.
    return Extent(max(1, listed.size * sample.count(b"\n") // len(sample)))


def differing_column(path: str, column: str, wanted: object, found: object) -> BadFile:
    """The complaint about one column of one file."""
    return BadFile(
        f"column {column!r} to be {wanted} in {path}",
        str(found),
        "make the files agree, or give columns that fit them all with files(…, schema=…), or leave "
        "bad files out with files(…, on_bad_file='skip')",
    )


def require_columns(path: str, found: pa.Schema, wanted: ReadColumns) -> None:
    """Complain about the first column that is missing, of another type, or one too many."""
    for field in wanted.schema:
        index = found.get_field_index(field.name)
        if index < 0:
            raise differing_column(path, field.name, field.type, f"columns {found.names}")
        if found.field(index).type != field.type:
            raise differing_column(path, field.name, field.type, found.field(index).type)
    for field in found:
        if wanted.exact and field.name not in wanted.schema.names:
            raise differing_column(path, field.name, "absent as in the first file", field.type)


def select(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with exactly the columns of `schema`, in its order."""
    columns = [batch.column(name) for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
