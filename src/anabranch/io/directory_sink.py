"""A directory as a sink: one file per committed version, made visible by a rename.

The directory is the table: pandas, Arrow and Spark read all files in it and below it, but those in
folders and files whose names begin with `_` or `.`. So no other output may lie below it under any
other name, and where files keep their columns a file without rows stands for an empty result.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import permutations
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import pyarrow as pa

from anabranch.errors import SinkError, Subject
from anabranch.io.local_paths import local_path
from anabranch.io.sink import (
    Guarantee,
    Receipt,
    Sink,
    SinkWriter,
    Stage,
    Traits,
    require_fit,
)

SCHEMA_FILE = ".schema.arrow"
PENDING = ".pending-"
NO_ROWS = "part-schema"
NOT_READ = (".", "_")
"""How the names begin of what readers of a directory pass over."""
INTERVAL_S = 1.0
"""Without a checkpoint a version is about so long, since each of them is a file."""
OF_TASK = re.compile(r"\.pending-(\d{12,})-.*")
COMMITTED = re.compile(r"part-(\d{8,})(?:-(\d{3,}))?\.(parquet|csv|jsonl)")


class Writer(Protocol):
    """Writes one file; `close` finishes it."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""

    def close(self) -> None:
        """Write what is still held back and close the file."""


class Encoding(Protocol):
    """How rows are written to a file."""

    @property
    def name(self) -> str:
        """What the format is called, and how its files end."""

    @property
    def keeps_columns(self) -> bool:
        """Whether a file without rows says which columns there are, and of which types."""

    def unfit(self, schema: pa.Schema) -> pa.Field | None:
        """The first column that this format cannot hold so that it reads back the same."""

    def writer(self, path: str, schema: pa.Schema) -> Writer:
        """Begin a new file."""


def committed_files(directory: str) -> dict[str, int]:
    """The names of the visible files and their versions, by version and number within it.

    Directories list their files in any order, which must not show in what is read back.
    """
    found = {name: COMMITTED.fullmatch(name) for name in os.listdir(directory)}
    places = {name: (int(m[1]), int(m[2] or 0)) for name, m in found.items() if m}
    return {name: places[name][0] for name in sorted(places, key=lambda n: (*places[n], n))}


def kept_schema(directory: str) -> pa.Schema | None:
    """The columns that a sink writes to this directory; None if none does."""
    path = os.path.join(directory, SCHEMA_FILE)
    if not os.path.exists(path):
        return None
    with open(path, "rb") as file:
        return pa.ipc.read_schema(pa.py_buffer(file.read()))


def require_apart(sinks: Mapping[str, Sink]) -> None:
    """Refuse a sink whose files readers would find in the directory of another one.

    Args:
        sinks: The sinks of a flow by the names of their steps.
    """
    found = {
        name: Path(sink.traits.directory).resolve()
        for name, sink in sinks.items()
        if sink.traits.directory is not None
    }
    for (outer, above), (inner, below) in permutations(found.items(), 2):
        if not below.is_relative_to(above):
            continue
        if not any(part.startswith(NOT_READ) for part in below.relative_to(above).parts):
            raise SinkError(
                inner,
                "a directory that is neither that of another sink nor below it",
                f"{below}, where the sink {outer!r} writes to {above}",
                "give each sink a directory of its own, side by side",
            )


class DirectorySink(Sink):
    """See `parquet`, `csv` and `jsonl`, which are this with an encoding each.

    A writer writes a hidden file under a name of its own (a process that was given up but still
    runs cannot touch those of others); a commit renames the files of its receipts to
    `part-<version>.<format>`, numbered where there are several. The hidden `.schema.arrow` keeps
    the exact types, so that `read_back` finds them whatever the format lost. `part-schema` is a
    file without rows, from the first moment on, so that others find the columns of no result.
    """

    def __init__(
        self, directory: str | os.PathLike[str], encoding: Encoding, overwrite: bool
    ) -> None:
        """Remember where to write; nothing is touched before `open`."""
        self._directory = local_path(directory, SinkError)
        self._description = f"{encoding.name} {os.fspath(directory)!r}"
        self._encoding = encoding
        self._overwrite = overwrite

    def __repr__(self) -> str:
        """The description that errors use."""
        return self._description

    @property
    def traits(self) -> Traits:
        return Traits(
            Guarantee.TRANSACTIONAL,
            staged=False,
            interval_s=INTERVAL_S,
            directory=self._directory,
        )

    def open(self, schema: pa.Schema) -> None:
        """Refuse a directory with files, unless they may be replaced: then they are removed."""
        self._require_columns(schema)
        with self.named_errors():
            self._require_free()
            self._remove_after(-1)
            self._keep_schema(schema)
            self._show_columns(schema)

    def recover(
        self, schema: pa.Schema, version: int, receipts: Sequence[Receipt], stage: Stage
    ) -> None:
        """Remove files of later versions and unfinished ones.

        What attempts at later versions wrote stays hidden, until `sweep`: another run may have been
        committing it when this one took over.
        """
        self._require_columns(schema)
        self._require_format(receipts)
        self.commit(version, receipts, stage)
        with self.named_errors():
            self._require_kept(schema, version)
            self._remove_after(version)
            self._show_columns(schema)

    def writer(self, schema: pa.Schema, name: str, stage: Stage) -> SinkWriter:
        hidden = f"{PENDING}{name}.{self._encoding.name}"
        return _HiddenFile(self, schema, hidden, self._directory, self._encoding)

    def commit(self, version: int, receipts: Sequence[Receipt], stage: Stage) -> None:
        """Give hidden files their names; doing it again changes nothing."""
        with self.named_errors():
            for receipt, name in zip(receipts, _names(version, receipts), strict=True):
                source = os.path.join(self._directory, receipt.name)
                target = os.path.join(self._directory, name)
                if os.path.exists(source):
                    os.replace(source, target)
                elif not os.path.exists(target):
                    raise self._error(
                        f"the file {receipt.name} of version {version} in {self._directory}",
                        "neither it nor its final name",
                        "put the output back, or start afresh without the checkpoint",
                    )
            if receipts:
                _to_disk(self._directory)

    def abort(self, receipts: Sequence[Receipt], stage: Stage) -> None:
        with self.named_errors():
            for receipt in receipts:
                with suppress(FileNotFoundError):
                    os.remove(os.path.join(self._directory, receipt.name))

    def sweep(self, version: int) -> None:
        with self.named_errors():
            for name in os.listdir(self._directory):
                match = OF_TASK.fullmatch(name)
                if match and int(match[1]) <= version:
                    with suppress(FileNotFoundError):
                        os.remove(os.path.join(self._directory, name))

    def rehearsal(self, folder: Path) -> DirectorySink:
        return DirectorySink(folder, self._encoding, overwrite=True)

    def _require_format(self, receipts: Sequence[Receipt]) -> None:
        for receipt in receipts:
            if (earlier := _ending(receipt).lstrip(".")) != self._encoding.name:
                raise self._error(
                    f"to go on in the format of the version before, {earlier}",
                    self._encoding.name,
                    f"go on with {earlier}, or write to a new directory without the checkpoint",
                )

    def _require_columns(self, schema: pa.Schema) -> None:
        if (field := self._encoding.unfit(schema)) is not None:
            raise self._error(
                f"columns that {self._encoding.name} can hold",
                f"{field.name!r} of type {field.type}",
                "cast or drop it before the sink, or write parquet",
            )

    def _require_free(self) -> None:
        os.makedirs(self._directory, exist_ok=True)
        names = os.listdir(self._directory)
        visible = sorted(n for n in names if not n.startswith((*NOT_READ, f"{NO_ROWS}.")))
        if visible and not self._overwrite:
            raise self._error(
                f"an empty directory {self._directory} for a fresh start",
                f"{len(visible)} files such as {visible[0]!r}",
                "choose another directory, or pass overwrite=True (--overwrite on the command "
                "line) to replace earlier output; files that are not earlier output stay",
            )
        within = [n for n in visible if kept_schema(os.path.join(self._directory, n)) is not None]
        if within:
            raise self._error(
                f"no output of another sink below {self._directory}, where it would be read with "
                "the rows of this one",
                f"{within[0]!r}",
                "remove or move that folder, or choose another directory",
            )

    def _require_kept(self, schema: pa.Schema, version: int) -> None:
        earlier = kept_schema(self._directory)
        if earlier is None:
            raise self._error(
                f"the output up to version {version} in {self._directory}",
                "none",
                "put it back, or start afresh without the checkpoint",
            )
        if earlier != schema:
            raise self._error(
                f"the columns committed before, {_columns(earlier)}",
                _columns(schema),
                "go on with the earlier flow, or write to a new directory",
            )

    def _remove_after(self, version: int) -> None:
        self.sweep(version)
        hidden = [name for name in os.listdir(self._directory) if name.startswith(PENDING)]
        gone = [name for name in hidden if not OF_TASK.fullmatch(name)]
        if version < 0:
            gone += [n for n in os.listdir(self._directory) if n.startswith(f"{NO_ROWS}.")]
        later = committed_files(self._directory)
        # The newest first: a kill in between must leave no hole.
        gone += [name for name in reversed(later) if later[name] > version]
        for name in gone:
            os.remove(os.path.join(self._directory, name))

    def _keep_schema(self, schema: pa.Schema) -> None:
        hidden = os.path.join(self._directory, PENDING + uuid4().hex)
        with open(hidden, "wb") as file:
            file.write(schema.serialize())
        _to_disk(hidden)
        os.replace(hidden, os.path.join(self._directory, SCHEMA_FILE))
        _to_disk(self._directory)

    def _show_columns(self, schema: pa.Schema) -> None:
        if not self._encoding.keeps_columns:
            return
        hidden = os.path.join(self._directory, f"{PENDING}{uuid4().hex}.{self._encoding.name}")
        self._encoding.writer(hidden, schema).close()
        _to_disk(hidden)
        name = f"{NO_ROWS}.{self._encoding.name}"
        os.replace(hidden, os.path.join(self._directory, name))
        _to_disk(self._directory)

    @contextmanager
    def named_errors(self) -> Iterator[None]:
        """Let errors of the operating system name this sink, and say what to do."""
        try:
            yield
        except (OSError, pa.ArrowException, UnicodeError) as error:
            raise self._error(
                f"to be able to write to {self._directory}",
                f"{type(error).__name__}: {error}",
                "check permissions and free space, or choose another directory",
            ) from error

    def _error(self, expected: str, got: str, remedy: str) -> SinkError:
        return SinkError(Subject("sink", self._description), expected, got, remedy)


class _HiddenFile(SinkWriter):
    """One attempt at a file."""

    def __init__(
        self,
        sink: DirectorySink,
        schema: pa.Schema,
        name: str,
        directory: str,
        encoding: Encoding,
    ) -> None:
        self._sink, self._schema, self._name, self._encoding = sink, schema, name, encoding
        self._path = os.path.join(directory, name)
        self._file: Writer | None = None
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        require_fit(Subject("sink", repr(self._sink)), self._schema, batch)
        if batch.num_rows == 0:
            return
        with self._sink.named_errors():
            if self._file is None:
                self._file = self._encoding.writer(self._path, self._schema)
            self._file.write(batch)
        self._rows += batch.num_rows

    def prepare(self) -> Receipt | None:
        if self._file is None:
            return None
        with self._sink.named_errors():
            self._file.close()
            _to_disk(self._path)
        return Receipt(self._name, self._rows)

    def abort(self) -> None:
        if self._file is not None:
            with suppress(Exception):  # what it still holds may not fit on the disk
                self._file.close()
        with self._sink.named_errors(), suppress(FileNotFoundError):
            os.remove(self._path)


def _names(version: int, receipts: Sequence[Receipt]) -> list[str]:
    stem = f"part-{version:08d}"
    if len(receipts) == 1:
        return [stem + _ending(receipts[0])]
    digits = max(3, len(str(len(receipts) - 1)))  # so that names sort as the numbers do
    return [f"{stem}-{n:0{digits}d}{_ending(each)}" for n, each in enumerate(receipts)]


def _ending(receipt: Receipt) -> str:
    return os.path.splitext(receipt.name)[1]


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


def _to_disk(path: str) -> None:
    """A rename that survives a power failure needs the contents on disk, and the directory."""
    if os.path.isdir(path):
        if os.name != "posix":
            return  # Windows cannot open a directory, and keeps its entries by itself.
        descriptor = os.open(path, os.O_RDONLY)
    else:
        descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
