"""TaskReport: what a task tells the driver. Exactly once rests on it.

A task builds one report and packs it (`to_bytes`); the driver unpacks it (`from_bytes`), which
checks every value against the types below. Tasks and driver run the same version of the library, or
the report is refused: the number of the format travels in front of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from anabranch.errors import EngineError, Subject
from anabranch.io.offsets import Cursor
from anabranch.io.sink import Receipt
from anabranch.operators.base import Counters
from anabranch.runtime.bucket_loads import Loads
from anabranch.runtime.early_verdicts import Verdicts

FORMAT = 4


class Work(StrEnum):
    """The kinds of work that a task spends its time on."""

    SCAN = "scan"
    SHUFFLE = "shuffle"
    COMPUTE = "compute"
    STATE = "state"
    LOAD = "load"
    SINK = "sink"


@dataclass(frozen=True)
class StepWork:
    """What a step did in a task."""

    rows_in: int
    rows_out: int
    seconds: float


@dataclass(frozen=True)
class SourceRead:
    """What a task read of a source.

    Attributes:
        rows: Tuples.
        cursor: Where it stopped; None for a partition of a streaming DataFrame, and for an
            interleaved source.
        lag_ms: How long its rows had waited to be read; None when nobody can say.
    """

    rows: int
    cursor: Cursor | None = None
    lag_ms: float | None = None


@dataclass(frozen=True)
class StateWritten:
    """A file of state: whether it holds all of the state or what changed, its size and checksum."""

    whole: bool
    size: int
    crc: int


@dataclass(frozen=True)
class StateSaved:
    """The state of a replica after the batch.

    Attributes:
        region: Its region.
        replica: Its number.
        name: Under which it can be found, in the host's cache and as a file.
        buckets: The buckets that it holds.
        file: What was written; None if nothing has changed.
    """

    region: str
    replica: int
    name: str
    buckets: tuple[int, ...]
    file: StateWritten | None


@dataclass(frozen=True)
class ReplicaWork:
    """The replica of a region that a task ran, and how long its busiest pipeline worked."""

    replica: int
    seconds: float


@dataclass(frozen=True)
class TaskReport:
    """One task of one micro-batch.

    Attributes:
        stage: The stage of the task.
        task: Its number within the stage.
        pid: The process that ran it.
        seconds: How long it took.
        work: By kind, the part of those seconds that it spent on it.
        state_loaded_bytes: State that it read.
        sources: By source, what it read.
        steps: By step, what they did.
        replicas: By region.
        dealt: By region that results went to, what its buckets got.
        keys: By step, the keys that it holds.
        timers: By region, the next time at which something is due.
        counters: By step, what it lost on purpose in this batch.
        state: What it saved.
        sinks: By sink that it worked for, what it prepared.
        clocks: By clock that judged what this task has read, its verdicts.
    """

    stage: int
    task: int
    pid: int = 0
    seconds: float = 0.0
    work: Mapping[Work, float] = field(default_factory=dict)
    state_loaded_bytes: int = 0
    sources: Mapping[str, SourceRead] = field(default_factory=dict)
    steps: Mapping[str, StepWork] = field(default_factory=dict)
    replicas: Mapping[str, ReplicaWork] = field(default_factory=dict)
    dealt: Mapping[str, tuple[Loads, ...]] = field(default_factory=dict)
    keys: Mapping[str, int] = field(default_factory=dict)
    timers: Mapping[str, int | None] = field(default_factory=dict)
    counters: Mapping[str, Counters] = field(default_factory=dict)
    state: tuple[StateSaved, ...] = ()
    sinks: Mapping[str, tuple[Receipt, ...]] = field(default_factory=dict)
    clocks: Mapping[str, Verdicts] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Pack the report.

        Example:
            >>> report = TaskReport(0, 1, sources={"lines": SourceRead(7, Cursor(0, 7))})
            >>> TaskReport.from_bytes(report.to_bytes()) == report
            True
        """
        return FORMAT.to_bytes(2) + _ENCODER.encode(self)

    @staticmethod
    def from_bytes(data: bytes) -> TaskReport:
        """Unpack a report; raises EngineError where another version of the library wrote it."""
        written = int.from_bytes(data[:2])
        if written != FORMAT:
            raise _unreadable(f"format {written}")
        try:
            return _DECODER.decode(data[2:])
        except msgspec.MsgspecError as error:
            raise _unreadable(str(error)) from error


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(TaskReport)


def _unreadable(got: str) -> EngineError:
    return EngineError(
        Subject("engine", "spark"),
        f"reports of tasks in format {FORMAT}",
        got,
        "install the same version of anabranch for the driver and the workers",
    )
