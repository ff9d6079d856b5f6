"""JSON lines, streamed block by block."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from anabranch.io.formats.format import (
    BLOCK_BYTES,
    BadFile,
    Block,
    Listed,
    ReadColumns,
    differing_column,
    extent_of_lines,
    require_columns,
    select,
)
from anabranch.io.formats.lines import blocks_of_lines, is_shared
from anabranch.io.source import Extent

NEWLINE, SPACE = b"\n "


class JsonlFormat:
    """One JSON object per line; a field that is left out reads as null."""

    suffixes = (".jsonl", ".ndjson", ".json")
    refuses_early = False

    def extent(self, path: str, listed: Listed) -> Extent:
        """A guess from the first lines."""
        return replace(extent_of_lines(path, listed), seekable=is_shared(path, listed))

    def infer(self, path: str) -> pa.Schema | None:
        """Names and types from the first block; None for an empty file."""
        reader = self._open(path, None, "infer")
        return None if reader is None else reader.schema

    def blocks(self, path: str, wanted: ReadColumns, start: int, listed: Listed) -> Iterator[Block]:
        """All blocks from the first on; of a large file, lines before `start` are counted only."""
        try:
            if is_shared(path, listed):

                def parse(block: bytes) -> pa.RecordBatch:
                    return _parse(path, wanted, block)

                yield from blocks_of_lines(path, listed, start, BLOCK_BYTES, _count, parse)
                return
            reader = self._open(path, _parsed(wanted.schema), "error" if wanted.exact else "ignore")
            row = 0
            for batch in reader or ():
                yield row, _typed(select(batch, _parsed(wanted.schema)), wanted.schema)
                row += batch.num_rows
        except pa.ArrowInvalid as error:
            raise self._explain(path, wanted, error) from error

    def _open(
        self, path: str, schema: pa.Schema | None, unexpected: str
    ) -> pa_json.JSONStreamingReader | None:
        try:
            return pa_json.open_json(
                pa.input_stream(path, compression="detect"),
                read_options=pa_json.ReadOptions(block_size=BLOCK_BYTES),
                parse_options=pa_json.ParseOptions(
                    explicit_schema=schema, unexpected_field_behavior=unexpected
                ),
            )
        except pa.ArrowInvalid as error:
            if "Empty JSON stream" in str(error):
                return None
            raise

    def _explain(self, path: str, wanted: ReadColumns, error: Exception) -> Exception:
        """Name the column, which Arrow does not always do."""
        named = re.search(r"Column\(/([^/)]+)[^)]*\) (.*)", str(error))
        if named is not None and named[1] in wanted.schema.names:
            return differing_column(path, named[1], wanted.schema.field(named[1]).type, named[2])
        try:
            found = self.infer(path)
            present = [f for f in found or () if f.name in wanted.schema.names]
            extra = [f for f in found or () if f.name not in wanted.schema.names]
            subset = pa.schema([wanted.schema.field(f.name) for f in present])
            require_columns(path, pa.schema(present + extra), ReadColumns(subset, wanted.exact))
        except BadFile as difference:
            return difference
        except pa.ArrowInvalid:
            pass
        return error


def _parse(path: str, wanted: ReadColumns, block: bytes) -> pa.RecordBatch:
    """The rows of whole lines; raises pa.ArrowInvalid for what is no JSON."""
    schema = _parsed(wanted.schema)
    table = pa_json.read_json(
        pa.BufferReader(block),
        read_options=pa_json.ReadOptions(use_threads=False, block_size=len(block)),
        parse_options=pa_json.ParseOptions(
            explicit_schema=schema,
            unexpected_field_behavior="error" if wanted.exact else "ignore",
        ),
    )
    if table.num_rows != (lines := _count(block)):
        raise BadFile(
            f"one JSON object in each line of {path}",
            f"{table.num_rows} objects in {lines} lines",
            "write each object in a line of its own, or leave bad files out with "
            "files(…, on_bad_file='skip')",
        )
    batches = table.combine_chunks().to_batches()
    batch = batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)
    return _typed(select(batch, schema), wanted.schema)


def _count(block: bytes) -> int:
    """The lines that are not blank."""
    data = np.frombuffer(block, np.uint8)
    begins = np.flatnonzero(data[:-1] == NEWLINE) + 1  # of all lines but the first
    if data[0] <= SPACE or (data[begins] <= SPACE).any():
        return sum(bool(line.strip()) for line in block.split(b"\n"))
    return len(begins) + 1


def _parsed(schema: pa.Schema) -> pa.Schema:
    """Arrow's JSON reader knows no dates and times of day: they are read as text."""
    return pa.schema(
        [
            pa.field(f.name, pa.string())
            if pa.types.is_date(f.type) or pa.types.is_time(f.type)
            else f
            for f in schema
        ]
    )


def _typed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [_cast(column, f.type) for column, f in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_time(kind):
        # Arrow parses a time of day only as part of a moment.
        moment = pc.binary_join_element_wise("1970-01-01", column, " ")
        return moment.cast(pa.timestamp(kind.unit)).cast(kind)
    return column.cast(kind)
