"""Sink: a place for results, written in two phases.

Workers prepare rows: they write them to where nobody sees them, and get a receipt for them. When
all receipts of a version are safe in the checkpoint, the driver commits them, which makes the rows
visible. An engine knows of a sink only what this module declares.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from anabranch.errors import BuildError, SinkError, Subject


class Guarantee(Enum):
    """What a sink promises about a version that a crash made the engine commit again."""

    TRANSACTIONAL = "transactional"
    """The rows of a version become visible once, and are all visible when its commit is over.

    A sink of files shows one whole file after another while a commit is under way; recovery
    completes a commit that a crash cut short.
    """
    IDEMPOTENT = "idempotent"
    """Rows are written again, and leave what they left before: an upsert by key.

    A driver that was taken over stops before its next commit, but one that is in the middle of a
    commit cannot be stopped: its rows may come after newer ones. Keep the version with the key, and
    let the higher one win, where two drivers may overlap.
    """
    AT_LEAST_ONCE = "at least once"
    """Rows may be seen twice, with the same version."""


class Form(Enum):
    """The format in which an engine keeps rows until their commit."""

    ARROW = "arrow"
    PARQUET = "parquet"


@dataclass(frozen=True)
class Traits:
    """The properties of a sink that engines ask for.

    Attributes:
        guarantee: What it promises after a crash.
        staged: Whether the engine keeps the rows until their commit; otherwise workers write them
            to the sink's own place.
        dataframes: Whether it takes rows as DataFrames, which only Spark has.
        interval_s: The least time between two commits that an engine without a checkpoint should
            keep, where each commit has a price for readers, such as one more file.
        directory: The directory on this machine that its files are in; None for other sinks.
    """

    guarantee: Guarantee
    staged: bool = True
    dataframes: bool = False
    interval_s: float = 0.0
    directory: str | None = None


@dataclass(frozen=True)
class PositionRange:
    """The positions of the first and the last of some rows, both included."""

    first: tuple[int, ...]
    last: tuple[int, ...]


@dataclass(frozen=True)
class Receipt:
    """Rows that have been prepared and wait for their commit; a manifest keeps it.

    Attributes:
        name: Where the sink, or the engine's stage, finds them.
        rows: How many there are; at least one.
        staged: Whether the engine's stage keeps them.
        positions: Where they stand in the order of the stream; None where nobody has asked. Sinks
            that are partitioned by position need it.

    Example:
        >>> import msgspec
        >>> receipt = Receipt("a", 2, positions=PositionRange((0, 0, 0, 0), (1, 0, 1, 0)))
        >>> msgspec.json.decode(msgspec.json.encode(receipt), type=Receipt) == receipt
        True
    """

    name: str
    rows: int
    staged: bool = False
    positions: PositionRange | None = None

    @property
    def place(self) -> tuple[int, ...]:
        """The key that puts receipts of one version in the order of the stream."""
        return () if self.positions is None else self.positions.first


class Stage(Protocol):
    """Keeps rows from their preparation to their commit; each engine has its own.

    An implementer must keep what `put` has returned a receipt for, even if the process is killed
    right after it, until it is discarded; without a checkpoint, for the life of the process.
    """

    @abstractmethod
    def put(self, name: str, rows: pa.Table, form: Form = Form.ARROW) -> Receipt:
        """Keep rows under a name that no other attempt uses."""

    @abstractmethod
    def rows(self, receipts: Sequence[Receipt]) -> Iterator[pa.RecordBatch]:
        """Return the rows of some receipts, in their order."""

    @abstractmethod
    def discard(self, receipts: Sequence[Receipt]) -> None:
        """Remove rows for good; receipts that are not of this stage are passed over."""


class SinkWriter(Protocol):
    """Prepares rows in a worker: one attempt at one share of a version.

    An implementer must hold nothing visible, and after `abort` nothing at all.
    """

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows, in order."""

    @abstractmethod
    def prepare(self) -> Receipt | None:
        """Finish: the rows outlive this process. None where there were no rows."""

    @abstractmethod
    def abort(self) -> None:
        """Remove what was written; called instead of `prepare`, or when that has failed."""


class InMemory(Protocol):
    """A sink that keeps committed rows in the memory of this process."""

    limit: int | None
    dropped: int

    @abstractmethod
    def table(self) -> pa.Table:
        """Return the rows that are kept."""


class Sink(Protocol):
    """A place for results, written in two phases. `StagedSink` is the short way to write one.

    An implementer must provide:

    - *Traits*, above all the guarantee. They are facts of the sink and never change.
    - *No work in the constructor.* Everything begins with `open` or `recover`, in the driver;
      workers get a copy that was never opened, and use nothing of it but `writer` and `abort`.
    - *Invisible preparation.* What a writer has written, nobody sees before its commit.
    - *Commits that can be repeated.* After a crash the engine commits the last version again, with
      the same receipts. A transactional or idempotent sink then holds what it held before. A
      transactional one shows each row once; all rows of a version or none, but for the time of a
      commit that is under way or was cut short.
    - *Calls with nothing.* `commit` may come with no receipts, for a version without rows, and
      `abort` with none, even before `open`. `close` may come though `open` has failed.
    - *Forgetting.* `open` and `recover` discard whatever was written after the version that the
      run goes on from.
    - *Errors.* What cannot be written is a SinkError that names the place and the way out.

    An engine must commit rising versions, each once unless a crash comes between, and only receipts
    of attempts that have succeeded.
    """

    @property
    @abstractmethod
    def traits(self) -> Traits:
        """The properties that engines ask for."""

    @abstractmethod
    def open(self, schema: pa.Schema) -> None:
        """Begin a fresh start; rows have these columns."""

    @abstractmethod
    def recover(
        self, schema: pa.Schema, version: int, receipts: Sequence[Receipt], stage: Stage
    ) -> None:
        """Go on after `version`, and commit it if that has not happened yet.

        Its receipts are given, but those of a stage are left out where the engine is sure that
        their commit has happened.
        """

    @abstractmethod
    def writer(self, schema: pa.Schema, name: str, stage: Stage) -> SinkWriter:
        """Begin to prepare rows, under a name that no other attempt uses, in any process."""

    @abstractmethod
    def commit(self, version: int, receipts: Sequence[Receipt], stage: Stage) -> None:
        """Make the rows of these receipts visible, as `version`."""

    @abstractmethod
    def abort(self, receipts: Sequence[Receipt], stage: Stage) -> None:
        """Remove rows that were prepared and will never be committed."""

    def sweep(self, version: int) -> None:
        """Remove what killed attempts at versions up to `version`, which is committed, have left.

        Names of attempts begin with the twelve digits of their version. A run without a checkpoint
        begins by sweeping all versions, since nobody has receipts of them.
        """
        return

    def close(self) -> None:
        """Let go of resources."""
        return

    def rehearsal(self, folder: Path) -> Sink | None:
        """Return a sink that costs what this one costs and leaves nothing outside the folder.

        None where there is no such sink; profiling then leaves it out.
        """
        return None

    def in_memory(self) -> InMemory | None:
        """Return this sink where it keeps committed rows in memory; None otherwise."""
        return None


def require_sink(step: str, sink: object) -> None:
    """Raise a BuildError that names the members which a sink lacks."""
    if isinstance(sink, type):
        raise BuildError(step, "a sink", f"the class {sink.__name__}", "call it to make a sink")
    members = [name for name in vars(Sink) if not name.startswith("_")]
    if missing := [name for name in members if not hasattr(sink, name)]:
        raise BuildError(
            step,
            "a sink",
            f"{type(sink).__name__} without {', '.join(missing)}",
            "use one of anabranch.io, or let the class inherit from anabranch.io.StagedSink",
        )


def require_fit(sink: Subject, schema: pa.Schema, batch: pa.RecordBatch) -> None:
    """Refuse rows with other columns than the sink was opened with."""
    if batch.schema == schema:
        return
    remedy = "write batches of the schema the sink was opened with"
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        found = batch.schema.field(index).type if index >= 0 else "no such column"
        if found != field.type:
            raise SinkError(sink, f"column {field.name!r} of type {field.type}", str(found), remedy)
    raise SinkError(sink, f"columns {_fields(schema)}", _fields(batch.schema), remedy)


def _fields(schema: pa.Schema) -> str:
    return ", ".join(
        str(field).removeprefix("pyarrow.Field<").removesuffix(">") for field in schema
    )
