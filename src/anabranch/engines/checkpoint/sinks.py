"""Sinks that are exactly once: rows are prepared first, and count once the manifest says so.

A manifest keeps the receipts of what was prepared for each sink. Once it is there the receipts are
committed, and after a crash committed again. What sinks want to be kept for them until then lies in
the checkpoint's outbox.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.engines.checkpoint.checkpoint import RETAINED
from anabranch.engines.checkpoint.manifest import Manifest
from anabranch.engines.checkpoint.state_files import version_of
from anabranch.engines.checkpoint.storage import Storage
from anabranch.errors import StateError, Subject
from anabranch.io.sink import Form, Receipt, Sink, Stage

OUTBOX = "outbox"
DELIVERED = "delivered"
PARQUET = ".parquet"


class OutboxStage(Stage):
    """Keeps rows in the outbox of a checkpoint, a file for each receipt."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def put(self, name: str, rows: pa.Table, form: Form = Form.ARROW) -> Receipt:
        content = pa.BufferOutputStream()
        if form is Form.PARQUET:
            name += PARQUET
            pq.write_table(rows, content)
        else:
            with pa.ipc.new_stream(content, rows.schema) as stream:
                stream.write_table(rows)
        self._storage.write(f"{OUTBOX}/{name}", content.getvalue(), durable=True)
        return Receipt(name, rows.num_rows, staged=True)

    def rows(self, receipts: Sequence[Receipt]) -> Iterator[pa.RecordBatch]:
        for receipt in receipts:
            file = f"{OUTBOX}/{receipt.name}"
            content = self._storage.read(file)
            if content is None:
                raise StateError(
                    Subject("checkpoint", self._storage.location),
                    f"the rows that were committed, in {self._storage.named(file)}",
                    "no such file",
                    "put it back, or start afresh in a new checkpoint directory",
                )
            if receipt.name.endswith(PARQUET):
                yield from pq.read_table(pa.BufferReader(content)).to_batches()
            else:
                with pa.ipc.open_stream(content) as stream:
                    yield from stream

    def discard(self, receipts: Sequence[Receipt]) -> None:
        for receipt in receipts:
            if receipt.staged:
                self._storage.remove(f"{OUTBOX}/{receipt.name}")


class Sinks:
    """All sinks of a flow in the driver, by name, with the columns that each gets.

    Args:
        sinks: The sinks.
        schemas: By sink, the columns.
        storage: The checkpoint.
        stage: Where workers keep rows until their commit; the outbox when left out.
    """

    def __init__(
        self,
        sinks: Mapping[str, Sink],
        schemas: Mapping[str, pa.Schema],
        storage: Storage,
        stage: Stage | None = None,
    ) -> None:
        self._sinks, self._schemas, self._storage = sinks, schemas, storage
        self.stage = OutboxStage(storage) if stage is None else stage
        self._shown = -1
        storage.make(OUTBOX)

    def open(self, last: Manifest | None) -> None:
        """Go on after a manifest, and commit it again where it may not have been committed."""
        if last is None:
            for name, sink in self._sinks.items():
                sink.open(self._schemas[name])
            return
        noted = self._storage.read(DELIVERED)
        # It says more than the manifest when the checkpoint was rolled back.
        delivered = noted is not None and noted.isdigit() and int(noted) >= last.version
        for name, sink in self._sinks.items():
            receipts = [r for r in last.receipts(name) if not (r.staged and delivered)]
            sink.recover(self._schemas[name], last.version, receipts, self.stage)
        self._shown = last.version
        # A note on a later version would hide that the next one is not delivered yet.
        if noted is not None or last.staged:
            self._note_delivered(last.version, durable=True)

    def commit(self, manifest: Manifest, require_owned: Callable[[], None] = lambda: None) -> None:
        """Make a version visible, if that was not done yet.

        Args:
            manifest: The version.
            require_owned: Raises when another run took over. That run makes the version visible
                itself, or has gone back behind it, so neither may happen here any more.
        """
        if manifest.version <= self._shown:
            return
        require_owned()
        for name, sink in self._sinks.items():
            sink.commit(manifest.version, manifest.receipts(name), self.stage)
        self._shown = manifest.version
        if manifest.staged:
            require_owned()
            self._note_delivered(manifest.version)

    @contextmanager
    def aborting(self, prepared: Mapping[str, Sequence[Receipt]]) -> Iterator[None]:
        """Abort what is prepared, by sink, if what happens meanwhile fails."""
        try:
            yield
        except BaseException:
            for name, receipts in prepared.items():
                with suppress(Exception):  # whatever stays is swept later
                    self._sinks[name].abort(receipts, self.stage)
            raise

    def clean(self, manifest: Manifest) -> None:
        """Remove what was delivered so long ago that no version to go back to needs it."""
        for file in self._storage.entries(OUTBOX):
            version = version_of(file)
            if version is not None and version <= manifest.version - RETAINED:
                self._storage.remove(f"{OUTBOX}/{file}")

    def sweep(self, manifest: Manifest) -> None:
        """Remove what was prepared up to this manifest by attempts and runs that did not count."""
        for sink in self._sinks.values():
            sink.sweep(manifest.version)

    def close(self) -> None:
        """Let go of what was not committed; every sink is closed, whatever the others do."""
        with ExitStack() as closing:
            for sink in reversed(list(self._sinks.values())):
                closing.callback(sink.close)

    def _note_delivered(self, version: int, *, durable: bool = False) -> None:
        self._storage.write(DELIVERED, str(version).encode(), durable=durable)
