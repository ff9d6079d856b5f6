"""Files as a source: one part per file, in the order in which they are named."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import pyarrow as pa

from anabranch.columns.schemas import SchemaLike
from anabranch.columns.schemas import schema as as_schema
from anabranch.errors import SourceError, Subject, nearest
from anabranch.io.formats import COMPRESSED, FORMATS, BadFile, Block, Format, Listed, ReadColumns
from anabranch.io.formats.text import first_lines
from anabranch.io.local_paths import local_path
from anabranch.io.source import Chunk, Extent, Source

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
OPEN_READERS = 64
ON_BAD_FILE = ("fail", "skip")


def files(
    paths: Paths,
    format: str | None = None,
    schema: SchemaLike = None,
    on_bad_file: Literal["fail", "skip"] = "fail",
) -> FilesSource:
    r"""Read Parquet, CSV, JSON lines or text files, none of which may change while they are read.

    Args:
        paths: A local path, a directory, a pattern (`**` crosses directories), or several of those,
            which are read in the order given. The files of a directory or pattern are read in the
            order of their paths.
        format: "parquet", "csv", "jsonl" or "text"; by default what the suffix says. Text and
            CSV and JSON may be compressed (.gz, .bz2, .zst, .lz4).
            Blank lines in CSV and JSON are passed over. A quoted CSV field may go on in the next
            line, unless the file is read as text and its lines are parsed (`parse_csv`).
        schema: The columns to read, and their types, as an Arrow schema or as text; by default
            those of the first file, which all others must then have too.
        on_bad_file: "fail", or "skip": go on after a file that cannot be read, and count it in
            `skipped_files`. What could be read before the damage stays.

    Example:
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "a.txt").write_text("to be\nor not\n")
        >>> source = files(folder / "*.txt")
        >>> [part] = source.parts()
        >>> source.read(part, start=1, rows=10).batch.to_pylist()
        [{'line': 'or not'}]
        >>> source.read(part, start=2, rows=10) is None
        True
    """
    return FilesSource(paths, format, schema, on_bad_file)


class FilesSource(Source):
    """See `files`."""

    def __init__(
        self,
        paths: Paths,
        format: str | Format | None = None,
        schema: SchemaLike = None,
        on_bad_file: str = "fail",
    ) -> None:
        """Remember what to read; nothing is looked up before it is needed."""
        several = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
        # Workers may have another working directory.
        self._paths = [local_path(path, SourceError) for path in several]
        self._description = "files " + ", ".join(repr(os.fspath(path)) for path in several)
        if isinstance(format, str) and format not in FORMATS:
            raise self._error(f"format in {list(FORMATS)}", repr(format), nearest(format, FORMATS))
        if on_bad_file not in ON_BAD_FILE:
            raise self._error(
                f"on_bad_file in {[*ON_BAD_FILE]}",
                repr(on_bad_file),
                nearest(on_bad_file, ON_BAD_FILE),
            )
        self._given_format = FORMATS[format] if isinstance(format, str) else format
        self._given_schema = (
            None if schema is None else as_schema(schema, Subject("source", "files"))
        )
        self._skip_bad = on_bad_file == "skip"
        self._skipped: dict[str, str] = {}
        self._parts: tuple[str, ...] | None = None
        self._listed: dict[str, Listed] = {}
        self._wanted: ReadColumns | None = None
        self._readers: dict[str, BlockReader] = {}
        self._extents: dict[str, Extent] = {}

    def __repr__(self) -> str:
        """The description that errors use."""
        return self._description

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the open files."""
        return {**self.__dict__, "_readers": {}}

    @property
    def bounded(self) -> bool:
        """The list of files is fixed when it is first asked for."""
        return True

    @property
    def order(self) -> str:
        """Rows are ordered by file, then by row."""
        return "file and row"

    @property
    def schema(self) -> pa.Schema:
        """The columns given, or those of the first file that has any."""
        return self._want().schema

    @property
    def skipped(self) -> Mapping[str, str]:
        """The files that could not be read to their end, and why."""
        return dict(self._skipped)

    @property
    def skipped_files(self) -> int:
        """How many files could not be read to their end."""
        return len(self._skipped)

    def parts(self) -> tuple[str, ...]:
        """The absolute paths of the files, each where it is first named; looked up once."""
        if self._parts is None:
            found = [file for path in self._paths for file in sorted(self._expand(path))]
            self._parts = tuple(dict.fromkeys(found))
            self._listed = {part: Listed.now(part) for part in self._parts}
        return self._parts

    def read(self, part: str, start: int, rows: int) -> Chunk | None:
        """At most `rows` rows of a file from row `start` on; None at its end."""
        wanted = self._want()
        # Taken out while in use: no other thread can move it, and after an error it is gone.
        reader = self._readers.pop(part, None)
        if reader is None or not reader.reaches(start):
            format = self._format(part)
            blocks = format.blocks(part, wanted, start, self._listed_of(part))
            reader = BlockReader(blocks, self.extent(part).seekable)
        batches, damage = reader.take(start, rows)
        if batches:
            if damage is None:
                self._keep(part, reader)
            return Chunk(pa.concat_batches(batches) if len(batches) > 1 else batches[0])
        if damage is not None:
            self._give_up_on(part, damage)
        return None

    def first_lines(self, part: str) -> pa.Array:
        r"""The lines at the start of a file of text, of which little is read; none of an empty one.

        Example:
            >>> import pathlib, tempfile
            >>> log = pathlib.Path(tempfile.mkdtemp(), "auth.log")
            >>> _ = log.write_text("to be\nor not\n")
            >>> source = files(log, format="text")
            >>> source.first_lines(source.parts()[0]).to_pylist()
            ['to be', 'or not']
        """
        try:
            return first_lines(part)
        except (BadFile, pa.ArrowException, OSError) as error:
            self._give_up_on(part, error)
            return pa.array([], pa.string())

    def columns(self, part: str) -> pa.Schema | None:
        """The columns that a file says it has; None where it does not tell."""
        try:
            return self._format(part).infer(part)
        except (BadFile, pa.ArrowException, OSError) as error:
            self._give_up_on(part, error)
            return None

    def extent(self, part: str) -> Extent:
        """What the format can tell of a file; nothing of one that cannot be read."""
        if part not in self._extents:
            try:
                self._extents[part] = self._extent(part)
            except (pa.ArrowException, OSError):
                self._extents[part] = Extent()  # reading it will say what is wrong
        return self._extents[part]

    def _extent(self, part: str) -> Extent:
        format = self._format(part)
        known = format.extent(part, self._listed_of(part))
        if self._skip_bad and not (known.exact or format.refuses_early):
            return replace(known, seekable=False)  # who begins behind the damage would not see it
        return known

    def _listed_of(self, part: str) -> Listed:
        self.parts()
        return self._listed[part]

    def _keep(self, part: str, reader: BlockReader) -> None:
        self._readers[part] = reader
        for oldest in list(self._readers)[:-OPEN_READERS]:
            self._readers.pop(oldest, None)

    def _expand(self, path: str) -> list[str]:
        if os.path.isdir(path):
            found = glob.glob(os.path.join(glob.escape(path), "*"))
        elif os.path.exists(path):
            found = [path]
        else:
            found = glob.glob(path, recursive=True)
        found = [file for file in found if os.path.isfile(file)]
        if not found:
            raise self._error(
                "at least one file", f"no file that matches {path}", "check the path or pattern"
            )
        return found

    def _format(self, path: str) -> Format:
        if self._given_format is not None:
            return self._given_format
        stem, last = os.path.splitext(path)
        suffix = (os.path.splitext(stem)[1] if last.lower() in COMPRESSED else last).lower()
        for format in FORMATS.values():
            if suffix in format.suffixes:
                return format
        known = [known for format in FORMATS.values() for known in format.suffixes]
        raise self._error(
            f"a file with a suffix in {known}", path, f"pass format=, one of {list(FORMATS)}"
        )

    def _want(self) -> ReadColumns:
        if self._wanted is None:
            if self._given_schema is not None:
                self._wanted = ReadColumns(self._given_schema, exact=False)
            else:
                self._wanted = ReadColumns(self._infer(), exact=True)
        return self._wanted

    def _infer(self) -> pa.Schema:
        for part in self.parts():
            schema = self.columns(part)
            if schema is None:
                continue
            if len(set(schema.names)) < len(schema.names):
                raise self._error(
                    "columns with different names",
                    f"{schema.names} in {part}",
                    "rename them in the file",
                )
            return pa.schema([(field.name, field.type) for field in schema])
        raise self._error(
            "a file that shows which columns there are",
            "only empty or unreadable files",
            "pass schema=",
        )

    def _give_up_on(self, part: str, error: Exception) -> None:
        if self._skip_bad:
            self._skipped[part] = str(error)
        elif isinstance(error, BadFile):
            raise self._error(error.expected, error.got, error.remedy) from error
        elif isinstance(error, FileNotFoundError):
            raise self._error(
                f"{part} to stay where it was when the files were listed",
                "no such file",
                "put it back and restart, or leave bad files out with files(…, on_bad_file='skip')",
            ) from error
        else:
            raise self._error(
                f"{part} to be readable",
                f"{type(error).__name__}: {error}",
                "repair, replace or remove it, or leave bad files out with "
                "files(…, on_bad_file='skip')",
            ) from error

    def _error(self, expected: str, got: str, remedy: str) -> SourceError:
        return SourceError(Subject("source", self._description), expected, got, remedy)


# A position in one file: turns blocks of the format's size into chunks of the engine's.

CHUNK_BYTES = 1 << 26
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
