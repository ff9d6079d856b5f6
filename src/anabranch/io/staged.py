"""Sinks whose rows the engine keeps until their commit: the short way to write a sink."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar

import pyarrow as pa

from anabranch.errors import Subject
from anabranch.io.sink import Form, Receipt, Sink, SinkWriter, Stage, require_fit


class StagedSink(Sink):
    """A sink that gets the rows of a version at once, in the driver.

    The engine keeps what workers prepare: in the checkpoint, or in memory where there is none. So
    such a sink can live in the driver (a Python object, a terminal, a connection to a database) and
    needs a place of its own for prepared rows no more than a connection in every worker.

    An implementer must provide `traits`, `begin` and `deliver`, with the obligations of `Sink`.
    """

    form: ClassVar[Form] = Form.ARROW

    @abstractmethod
    def begin(self, schema: pa.Schema, version: int) -> None:
        """Go on after `version`, and forget what came later; -1 for a fresh start."""

    @abstractmethod
    def deliver(self, version: int, rows: Iterator[pa.RecordBatch]) -> None:
        """Make the rows of a version visible; there is at least one.

        After a crash the last version is delivered again if it may not have been whole. A sink that
        is transactional keeps the version with the rows and passes over one that it has.
        """

    def open(self, schema: pa.Schema) -> None:
        self.begin(schema, -1)

    def recover(
        self, schema: pa.Schema, version: int, receipts: Sequence[Receipt], stage: Stage
    ) -> None:
        self.begin(schema, version)
        self.commit(version, receipts, stage)

    def writer(self, schema: pa.Schema, name: str, stage: Stage) -> SinkWriter:
        return _StagedWriter(repr(self), schema, name, stage, self.form)

    def commit(self, version: int, receipts: Sequence[Receipt], stage: Stage) -> None:
        if receipts:
            self.deliver(version, stage.rows(receipts))

    def abort(self, receipts: Sequence[Receipt], stage: Stage) -> None:
        stage.discard(receipts)


class _StagedWriter(SinkWriter):
    """Holds the rows, and hands them to the stage in one piece."""

    def __init__(self, sink: str, schema: pa.Schema, name: str, stage: Stage, form: Form) -> None:
        self._sink, self._schema, self._name = Subject("sink", sink), schema, name
        self._stage, self._form = stage, form
        self._batches: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch) -> None:
        require_fit(self._sink, self._schema, batch)
        if batch.num_rows:
            self._batches.append(batch)

    def prepare(self) -> Receipt | None:
        if not self._batches:
            return None
        rows = pa.Table.from_batches(self._batches, schema=self._schema)
        return self._stage.put(self._name, rows, self._form)

    def abort(self) -> None:
        self._batches = []


class MemoryStage(Stage):
    """Keeps rows in memory, for runs without a checkpoint.

    Example:
        >>> stage = MemoryStage()
        >>> receipt = stage.put("a", pa.table({"x": [1, 2]}))
        >>> [batch.to_pylist() for batch in stage.rows([receipt])]
        [[{'x': 1}, {'x': 2}]]
        >>> stage.discard([receipt])
    """

    def __init__(self) -> None:
        self._tables: dict[str, pa.Table] = {}

    def put(self, name: str, rows: pa.Table, form: Form = Form.ARROW) -> Receipt:
        self._tables[name] = rows
        return Receipt(name, rows.num_rows, staged=True)

    def rows(self, receipts: Sequence[Receipt]) -> Iterator[pa.RecordBatch]:
        for receipt in receipts:
            yield from self._tables[receipt.name].to_batches()

    def discard(self, receipts: Sequence[Receipt]) -> None:
        for receipt in receipts:
            self._tables.pop(receipt.name, None)
