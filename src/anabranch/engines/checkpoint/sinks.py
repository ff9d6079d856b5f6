"""Sinks that are exactly once: rows are written first, and count once the manifest says so.

A sink of files gets hidden files under names that no other attempt uses, which get their names
when the manifest is there. What any other sink shall get lies in the checkpoint's outbox until it
was delivered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from anabranch.engines.checkpoint.checkpoint import RETAINED
from anabranch.engines.checkpoint.manifest import Manifest, SinkFile, SinkWritten
from anabranch.engines.checkpoint.state_files import version_of
from anabranch.engines.checkpoint.storage import Storage
from anabranch.errors import StateError
from anabranch.io.directory import DirectorySink

OUTBOX = "outbox"
DELIVERED = "delivered"


def write_rows(
    sink: Any, schema: pa.Schema, file: str, batches: Sequence[pa.RecordBatch], storage: Storage
) -> str | None:
    """Write what a sink shall get, under a name that nobody else uses; gives the hidden name."""
    if not batches:
        return None
    if isinstance(sink, DirectorySink):
        return sink.write_hidden(file, batches, schema)
    content = pa.BufferOutputStream()
    with pa.ipc.new_stream(content, schema) as stream:
        stream.write_table(pa.Table.from_batches(batches, schema=schema))
    storage.write(f"{OUTBOX}/{file}", content.getvalue(), durable=True)
    return file


class Sinks:
    """All sinks of a flow, by name, with the columns that each gets."""

    def __init__(
        self, sinks: Mapping[str, Any], schemas: Mapping[str, pa.Schema], storage: Storage
    ) -> None:
        """Touch nothing but the outbox yet."""
        self._sinks, self._schemas, self._storage = sinks, schemas, storage
        self._shown = -1
        storage.make(OUTBOX)

    def open(self, last: Manifest | None) -> None:
        """Go on after a manifest; where it is not known that its rows were delivered, they are."""
        version = -1 if last is None else last.version
        # It says more than the manifest when the checkpoint was rolled back.
        told = self._storage.read(DELIVERED) or b""
        delivered = told.isdigit() and int(told) >= version
        for name, sink in self._sinks.items():
            schema = self._schemas[name]
            if isinstance(sink, DirectorySink):
                if last is not None:
                    sink.reveal(_renames(last, name), last.version)
                sink.open(schema, version)
            elif last is None or delivered:
                sink.open(schema, version)
            else:
                sink.open(schema, max(version - 1, -1))
                self.deliver(sink, name, last)
        self._shown = version
        if last is not None:
            self._note_delivered(version, durable=True)

    def named(self, version: int, written: Sequence[SinkWritten]) -> tuple[SinkFile, ...]:
        """What the files of a batch shall be called, for its manifest."""
        files: list[SinkFile] = []
        for name, sink in self._sinks.items():
            hidden = [(w.file, w.rows) for w in written if w.sink == name and w.file is not None]
            finals = [file for file, _ in hidden]
            if isinstance(sink, DirectorySink):
                finals = sink.names(version, len(hidden))
            files += [
                SinkFile(name, file, final, rows)
                for (file, rows), final in zip(hidden, finals, strict=True)
            ]
        return tuple(files)

    def commit(self, manifest: Manifest) -> None:
        """Make a batch visible, if that was not done yet."""
        if manifest.version <= self._shown:
            return
        for name, sink in self._sinks.items():
            if isinstance(sink, DirectorySink):
                sink.reveal(_renames(manifest, name), manifest.version)
            else:
                self.deliver(sink, name, manifest)
        self._shown = manifest.version
        self._note_delivered(manifest.version)

    def clean(self, manifest: Manifest) -> None:
        """Remove what was delivered so long ago that no version to go back to needs it."""
        for file in self._storage.entries(OUTBOX):
            version = version_of(file)
            if version is not None and version <= manifest.version - RETAINED:
                self._storage.remove(f"{OUTBOX}/{file}")

    def sweep(self, manifest: Manifest) -> None:
        """Remove hidden files up to this manifest: of attempts and runs that did not count."""
        for sink in self._sinks.values():
            if isinstance(sink, DirectorySink):
                sink.sweep(manifest.version)

    def close(self) -> None:
        """Let go of what was not committed."""
        for sink in self._sinks.values():
            if not isinstance(sink, DirectorySink):
                sink.close()

    def _note_delivered(self, version: int, *, durable: bool = False) -> None:
        if not all(isinstance(sink, DirectorySink) for sink in self._sinks.values()):
            self._storage.write(DELIVERED, str(version).encode(), durable=durable)

    def deliver(self, sink: Any, name: str, manifest: Manifest) -> None:
        """Hand the rows of a batch to a sink that is not files."""
        for file in outbox_files(name, manifest):
            for batch in self._read(name, file):
                sink.write(batch)
        sink.commit(manifest.version)

    def _read(self, name: str, file: str) -> Iterator[pa.RecordBatch]:
        content = self._storage.read(file)
        if content is None:
            raise StateError(
                name,
                f"the rows that were committed, in {self._storage.named(file)}",
                "no such file",
                "put it back, or start afresh in a new checkpoint directory",
            )
        with pa.ipc.open_stream(content) as stream:
            yield from stream


def _renames(manifest: Manifest, name: str) -> dict[str, str]:
    return {file.pending: file.final for file in manifest.sinks if file.sink == name}


def outbox_files(name: str, manifest: Manifest) -> list[str]:
    """Where the rows of a sink that is not files are, in the checkpoint."""
    return [f"{OUTBOX}/{file.final}" for file in manifest.sinks if file.sink == name]
