"""The file formats that sources read, one per file."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.io.formats.csv import CsvFormat
from anabranch.io.formats.format import COMPRESSED, BadFile, Block, Format, Listed, ReadColumns
from anabranch.io.formats.jsonl import JsonlFormat
from anabranch.io.formats.parquet import ParquetFormat
from anabranch.io.formats.text import TextFormat

FORMATS: Mapping[str, Format] = {
    "parquet": ParquetFormat(),
    "csv": CsvFormat(),
    "jsonl": JsonlFormat(),
    "text": TextFormat(),
}
"""The formats by the name that `files(format=...)` takes."""

__all__ = [
    "COMPRESSED",
    "FORMATS",
    "BadFile",
    "Block",
    "Format",
    "Listed",
    "ReadColumns",
]
