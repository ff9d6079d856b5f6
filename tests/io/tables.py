"""Tables of a database as sinks: one of each guarantee that a database can give."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from anabranch.io.sink import Guarantee, Receipt, Sink, SinkWriter, Stage, Traits
from anabranch.io.staged import StagedSink

COLUMNS = "k, n, total"
SCHEMA = pa.schema([(name, pa.int64()) for name in COLUMNS.split(", ")])
ROW = "?, ?, ?"

Values = tuple[Any, ...]


class Table:
    """A table of rows, and of versions where the sink is transactional."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.half_way: Callable[[], None] = lambda: None  # called after the first row of a version

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        with self.connection() as database, database:
            yield database

    @contextmanager
    def connection(self, isolation: str | None = "DEFERRED") -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=30, isolation_level=isolation)) as database:
            database.execute("PRAGMA synchronous = OFF")  # a kill is no power failure
            yield database

    def rows(self) -> list[dict[str, Any]]:
        """The rows in the order of the stream."""
        with self.transaction() as database:
            found = database.execute(f"SELECT {COLUMNS} FROM rows ORDER BY n").fetchall()
        return [dict(zip(SCHEMA.names, row, strict=True)) for row in found]

    def table(self) -> pa.Table:
        return pa.Table.from_pylist(self.rows(), schema=SCHEMA)

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path}

    def insert(self, database: sqlite3.Connection, into: str, rows: Iterator[Values]) -> None:
        for number, row in enumerate(rows):
            database.execute(f"{into} VALUES ({', '.join('?' * len(row))})", row)
            if number == 0:
                self.half_way()


class VersionedTable(Table, StagedSink):
    """Transactional: rows and their version are inserted together."""

    traits = Traits(Guarantee.TRANSACTIONAL)

    def begin(self, schema: pa.Schema, version: int) -> None:
        with self.transaction() as database:
            database.execute(f"CREATE TABLE IF NOT EXISTS rows ({COLUMNS}, version)")
            database.execute("DELETE FROM rows WHERE version > ?", (version,))

    def deliver(self, version: int, rows: Iterator[pa.RecordBatch]) -> None:
        with self.transaction() as database:
            known = database.execute("SELECT 1 FROM rows WHERE version = ?", (version,)).fetchone()
            if known is None:
                self.insert(database, "INSERT INTO rows", ((*row, version) for row in values(rows)))


class UpsertedTable(Table, StagedSink):
    """Idempotent: a row replaces the one with its number, and each is visible at once."""

    traits = Traits(Guarantee.IDEMPOTENT)

    def begin(self, schema: pa.Schema, version: int) -> None:
        with self.transaction() as database:
            database.execute(f"CREATE TABLE IF NOT EXISTS rows ({COLUMNS}, UNIQUE (n))")

    def deliver(self, version: int, rows: Iterator[pa.RecordBatch]) -> None:
        with self.connection(None) as database:
            self.insert(database, "INSERT OR REPLACE INTO rows", values(rows))


class PreparedTable(Table, Sink):
    """Transactional, and written by workers: a commit moves their rows from a table of its own."""

    traits = Traits(Guarantee.TRANSACTIONAL, staged=False)

    def open(self, schema: pa.Schema) -> None:
        with self.transaction() as database:
            for table in ("rows", "prepared"):
                database.execute(f"CREATE TABLE IF NOT EXISTS {table} ({COLUMNS}, version)")
                database.execute(f"DELETE FROM {table}")

    def recover(
        self, schema: pa.Schema, version: int, receipts: Sequence[Receipt], stage: Stage
    ) -> None:
        with self.transaction() as database:
            database.execute("DELETE FROM rows WHERE version > ?", (version,))
        self.commit(version, receipts, stage)

    def writer(self, schema: pa.Schema, name: str, stage: Stage) -> SinkWriter:
        return PreparedRows(self, name)

    def commit(self, version: int, receipts: Sequence[Receipt], stage: Stage) -> None:
        with self.transaction() as database:
            for receipt in receipts:
                database.execute(
                    f"INSERT INTO rows SELECT {COLUMNS}, ? FROM prepared WHERE version = ?",
                    (version, receipt.name),
                )
                self.half_way()
                database.execute("DELETE FROM prepared WHERE version = ?", (receipt.name,))

    def abort(self, receipts: Sequence[Receipt], stage: Stage) -> None:
        with self.transaction() as database:
            names = [(receipt.name,) for receipt in receipts]
            database.executemany("DELETE FROM prepared WHERE version = ?", names)

    def sweep(self, version: int) -> None:
        with self.transaction() as database:
            database.execute(
                "DELETE FROM prepared WHERE CAST(substr(version, 1, 12) AS int) <= ?", (version,)
            )


class PreparedRows(SinkWriter):
    def __init__(self, table: PreparedTable, name: str) -> None:
        self._table, self._name = table, name
        self._batches: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)

    def prepare(self) -> Receipt | None:
        rows = [(*row, self._name) for row in values(iter(self._batches))]
        with self._table.transaction() as database:
            database.executemany(f"INSERT INTO prepared VALUES ({ROW}, ?)", rows)
        return Receipt(self._name, len(rows)) if rows else None

    def abort(self) -> None:
        self._batches = []


def values(batches: Iterator[pa.RecordBatch]) -> Iterator[Values]:
    return (tuple(row.values()) for batch in batches for row in batch.to_pylist())


TABLES = {kind.__name__: kind for kind in (VersionedTable, UpsertedTable, PreparedTable)}
