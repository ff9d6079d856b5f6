"""CSV files with a header line, streamed block by block."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.csv as pa_csv

from anabranch.io.formats.format import (
    BLOCK_BYTES,
    Block,
    Listed,
    ReadColumns,
    differing_column,
    extent_of_lines,
    require_columns,
    select,
)
from anabranch.io.source import Extent


class CsvFormat:
    """CSV: the types of the first file, or of the given schema, hold for every file.

    With `unquoted_nulls` the files are those of our own sink: an unquoted empty field is null
    (a quoted one an empty string), and an empty line is a row.
    """

    suffixes = (".csv",)
    refuses_early = False

    def __init__(self, unquoted_nulls: bool = False) -> None:
        """Choose how empty fields read."""
        self._unquoted_nulls = unquoted_nulls

    def extent(self, path: str, listed: Listed) -> Extent:
        """A guess from the first lines."""
        return extent_of_lines(path, listed)

    def infer(self, path: str) -> pa.Schema | None:
        """Names from the header, types from the first block."""
        return self._open(path, {}, None).schema

    def blocks(self, path: str, wanted: ReadColumns, start: int, listed: Listed) -> Iterator[Block]:
        """All blocks from the first on: where a row stands is known only by counting."""
        types = {field.name: field.type for field in wanted.schema}
        try:
            reader = self._open(path, types, None if wanted.exact else wanted.schema.names)
            require_columns(path, reader.schema, wanted)
            row = 0
            for batch in reader:
                yield row, select(batch, wanted.schema)
                row += batch.num_rows
        except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
            raise self._explain(path, wanted, error) from error

    def _open(
        self, path: str, types: dict[str, pa.DataType], only: list[str] | None
    ) -> pa_csv.CSVStreamingReader:
        return pa_csv.open_csv(
            pa.input_stream(path, compression="detect"),
            read_options=pa_csv.ReadOptions(block_size=BLOCK_BYTES),
            parse_options=pa_csv.ParseOptions(
                newlines_in_values=True, ignore_empty_lines=not self._unquoted_nulls
            ),
            convert_options=pa_csv.ConvertOptions(
                column_types=types,
                include_columns=only,
                strings_can_be_null=self._unquoted_nulls,
                quoted_strings_can_be_null=not self._unquoted_nulls,
            ),
        )

    def _explain(self, path: str, wanted: ReadColumns, error: Exception) -> Exception:
        """Name the column, of which Arrow gives the number, and the type this file has in it."""
        found = self._found(path)
        if found is None:
            return error
        for field in wanted.schema:
            if field.name not in found.names:
                return differing_column(path, field.name, field.type, f"columns {found.names}")
        numbered = re.search(r"column #(\d+): (.*)", str(error), re.DOTALL)
        if numbered is None:
            return error
        field = found.field(int(numbered[1]))
        type_wanted = wanted.schema.field(field.name).type
        return differing_column(path, field.name, type_wanted, f"{field.type} ({numbered[2]})")

    def _found(self, path: str) -> pa.Schema | None:
        try:
            return self.infer(path)
        except pa.ArrowInvalid:
            return None
