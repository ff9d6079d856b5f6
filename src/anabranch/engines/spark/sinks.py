"""Sinks on Spark: all rows are written by tasks, and count once the manifest says so.

A sink of files gets hidden files under names that no other attempt uses; the driver gives them
their names. What any other sink shall get lies in the checkpoint's outbox until it was delivered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from anabranch.engines.checkpoint.checkpoint import RETAINED
from anabranch.engines.checkpoint.manifest import Manifest, SinkFile
from anabranch.engines.checkpoint.state_files import state_name, version_of
from anabranch.engines.checkpoint.storage import Storage
from anabranch.engines.spark.program import Batch, Program
from anabranch.engines.spark.station import StationRun
from anabranch.errors import StateError
from anabranch.graph import Role
from anabranch.io.directory import DirectorySink
from anabranch.io.spark.each_batch import EachBatchSink

OUTBOX = "outbox"
DELIVERED = "delivered"


def write_sink(
    program: Program, batch: Batch, run: StationRun, storage: Storage, attempt: str
) -> dict[str, Any]:
    """Write what a sink got in this task; says which file, if any."""
    name = run.region.name
    batches = [jumbo.batch for jumbo in run.sink_rows]
    told = {"sink": name, "rows": sum(b.num_rows for b in batches), "file": None}
    if not batches:
        return told
    sink, schema = program.body(name).sink, program.contexts[name].inputs[0].schema
    file = state_name(batch.version, name, run.replica, batch.token, attempt)
    if isinstance(sink, DirectorySink):
        return told | {"file": sink.write_hidden(file, batches, schema)}
    table = pa.Table.from_batches(batches, schema=schema)
    content = pa.BufferOutputStream()
    if isinstance(sink, EachBatchSink):
        file += ".parquet"
        pq.write_table(table, content)
    else:
        with pa.ipc.new_stream(content, schema) as stream:
            stream.write_table(table)
    storage.write(f"{OUTBOX}/{file}", content.getvalue(), durable=True)
    return told | {"file": file}


class Sinks:
    """All sinks of a flow, on the driver."""

    def __init__(self, program: Program, storage: Storage, spark: SparkSession | None) -> None:
        """Touch nothing yet."""
        self._program, self._storage, self._spark = program, storage, spark
        self._sinks = {name: program.body(name).sink for name in program.flow.names(Role.SINK)}
        self._shown = -1
        storage.make(OUTBOX)

    def open(self, last: Manifest | None) -> None:
        """Go on after a manifest; where it is not known that its rows were delivered, they are."""
        version = -1 if last is None else last.version
        # It says more than the manifest when the checkpoint was rolled back.
        told = self._storage.read(DELIVERED) or b""
        delivered = told.isdigit() and int(told) >= version
        for name, sink in self._sinks.items():
            schema = self._program.contexts[name].inputs[0].schema
            if isinstance(sink, DirectorySink):
                if last is not None:
                    sink.reveal(_renames(last, name), last.version)
                sink.open(schema, version)
            elif last is None or delivered:
                sink.open(schema, version)
            else:
                sink.open(schema, max(version - 1, -1))
                self._deliver(sink, name, last)
        self._shown = version
        if last is not None:
            self._note_delivered(version, durable=True)

    def named(self, version: int, written: Sequence[dict[str, Any]]) -> tuple[SinkFile, ...]:
        """What the files of a batch shall be called, for its manifest."""
        files: list[SinkFile] = []
        for name, sink in self._sinks.items():
            told = [w for w in written if w["sink"] == name and w["file"] is not None]
            finals = [w["file"] for w in told]
            if isinstance(sink, DirectorySink):
                finals = sink.names(version, len(told))
            files += [
                SinkFile(name, w["file"], final, w["rows"])
                for w, final in zip(told, finals, strict=True)
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
                self._deliver(sink, name, manifest)
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

    def _deliver(self, sink: Any, name: str, manifest: Manifest) -> None:
        """Hand the rows of a batch to a sink that is not files."""
        files = [f"{OUTBOX}/{file.final}" for file in manifest.sinks if file.sink == name]
        if isinstance(sink, EachBatchSink):
            if files and self._spark is not None:
                paths = [f"{self._program.checkpoint}/{file}" for file in files]
                sink.deliver(self._spark.read.parquet(*paths), manifest.version)
            return
        for file in files:
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
