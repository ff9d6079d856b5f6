"""Sinks on Spark: files are written inside the job, by tasks; anything else by the driver.

A task writes hidden files under names that no other attempt uses and reports them. The manifest
says which of them count; then the driver gives them their names, or hands them to a function.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from anabranch.engines.checkpoint.manifest import Manifest, SinkFile
from anabranch.engines.checkpoint.state_files import state_name
from anabranch.engines.spark.outbox import Outbox
from anabranch.engines.spark.program import Batch, Program
from anabranch.engines.spark.station import StationRun
from anabranch.errors import SinkError
from anabranch.graph import Role
from anabranch.io.directory import DirectorySink
from anabranch.io.parquet import parquet
from anabranch.io.spark.each_batch import EachBatchSink

OUTBOX = "outbox"


def files_of(program: Program, name: str) -> DirectorySink | None:
    """The directory that a sink's tasks write to; None when the driver writes the rows."""
    sink = program.body(name).sink
    if isinstance(sink, DirectorySink):
        return sink
    if isinstance(sink, EachBatchSink):
        return parquet(os.path.join(program.checkpoint, OUTBOX, name), overwrite=True)
    return None


def write_sink(
    program: Program, batch: Batch, run: StationRun, outbox: Outbox, attempt: str
) -> list[dict[str, Any]]:
    """Write what a sink got in this task; says which file, if any."""
    name = run.region.name
    batches = [jumbo.batch for jumbo in run.sink_rows]
    rows = sum(b.num_rows for b in batches)
    directory = files_of(program, name)
    if directory is None:
        for number, each in enumerate(batches):
            outbox.rows(name, number, each)
        return [{"sink": name, "hidden": None, "rows": rows}]
    hidden = directory.write_hidden(
        state_name(batch.version, name, run.replica, batch.token, attempt),
        batches,
        program.contexts[name].inputs[0].schema,
    )
    return [{"sink": name, "hidden": hidden, "rows": rows}]


class Sinks:
    """All sinks of a flow, on the driver."""

    def __init__(self, program: Program, spark: SparkSession | None) -> None:
        """Touch nothing yet."""
        self._program, self._spark = program, spark
        self._names = program.flow.names(Role.SINK)
        self._files = {name: files_of(program, name) for name in self._names}

    def open(self, last: Manifest | None) -> None:
        """Go on after a manifest: make visible what it says, then forget all that is later."""
        if last is not None:
            self._reveal(last)
        version = -1 if last is None else last.version
        for name in self._names:
            schema = self._program.contexts[name].inputs[0].schema
            directory = self._files[name]
            (directory or self._program.body(name).sink).open(schema, version)

    def named(self, version: int, written: Sequence[dict[str, Any]]) -> tuple[SinkFile, ...]:
        """What the files of a batch shall be called, for its manifest."""
        files: list[SinkFile] = []
        for name, directory in self._files.items():
            hidden = [w for w in written if w["sink"] == name and w["hidden"] is not None]
            if directory is not None and hidden:
                finals = directory.names(version, len(hidden))
                files += [
                    SinkFile(name, w["hidden"], final, w["rows"])
                    for w, final in zip(hidden, finals, strict=True)
                ]
        return tuple(files)

    def write(self, rows: Sequence[tuple[str, pa.RecordBatch]]) -> None:
        """Hand rows to the sinks that the driver writes; they show with the commit."""
        for name, batch in rows:
            self._program.body(name).sink.write(batch)

    def commit(self, manifest: Manifest) -> None:
        """Make a batch visible."""
        self._reveal(manifest)
        for name in self._names:
            sink = self._program.body(name).sink
            if self._files[name] is None:
                sink.commit(manifest.version)

    def close(self) -> None:
        """Let go of what was not committed."""
        for name in self._names:
            if self._files[name] is None:
                self._program.body(name).sink.close()

    def _reveal(self, manifest: Manifest) -> None:
        for name, directory in self._files.items():
            if directory is None:
                continue
            renames = {f.pending: f.final for f in manifest.sinks if f.sink == name}
            directory.reveal(renames, manifest.version)
            sink = self._program.body(name).sink
            if isinstance(sink, EachBatchSink) and renames:
                self._deliver(sink, name, list(renames.values()), manifest.version)

    def _deliver(self, sink: EachBatchSink, name: str, files: list[str], version: int) -> None:
        folder = os.path.join(self._program.checkpoint, OUTBOX, name)
        paths = [os.path.join(folder, file) for file in files]
        if not all(map(os.path.exists, paths)):
            raise SinkError(name, f"the rows of batch {version} in {folder}", "none", "restore it")
        if self._spark is not None:
            sink.deliver(self._spark.read.parquet(*paths), version)
