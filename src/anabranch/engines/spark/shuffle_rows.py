"""Jumbo rows: how jumbo tuples travel through Spark's shuffles.

A Spark row is (target, header, payload): the task it goes to, a few words about it, and an Arrow
IPC stream of thousands of tuples with their positions (`engines/jumbo_ipc.py`). Spark's cost per
row is thereby paid once per jumbo tuple.
"""

from __future__ import annotations

import json
import pickle
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.engines.jumbo_ipc import pack
from anabranch.engines.spark.layout import Link, StageLayout
from anabranch.engines.spark.task_report import TaskReport
from anabranch.state.positions import Jumbo, Root

SCHEMA = pa.schema([("target", pa.int32()), ("header", pa.binary()), ("payload", pa.binary())])

JUMBO = "jumbo"
FRONTIER = "frontier"
REPORT = "report"
FAILURE = "failure"


@dataclass(frozen=True)
class WireRow:
    """One row: what it is, for which stage and task, and what it carries.

    Attributes:
        kind: JUMBO, FRONTIER (how far a link has come), REPORT (what a task did) or FAILURE.
        stage: The stage that it is for; earlier ones hand it on.
        target: The task of that stage.
        header: What else there is to know, as JSON.
        payload: Arrow IPC, or other bytes.
    """

    kind: str
    stage: int
    target: int
    header: dict[str, Any]
    payload: pa.Buffer

    def described(self) -> bytes:
        """All but the payload."""
        return json.dumps([self.kind, self.stage, self.target, self.header]).encode()


NOTHING = pa.py_buffer(b"")


def to_arrow(rows: Sequence[tuple[WireRow, int]]) -> pa.RecordBatch:
    """Rows as a batch, with the task of the next stage of each; one payload alone is not copied."""
    payloads = [row.payload for row, _ in rows]
    together = payloads[0] if len(payloads) == 1 else pa.py_buffer(b"".join(payloads))
    ends = pa.py_buffer(np.cumsum([0, *(payload.size for payload in payloads)], dtype=np.int32))
    return pa.RecordBatch.from_arrays(
        [
            pa.array([target for _, target in rows], pa.int32()),
            pa.array([row.described() for row, _ in rows], pa.binary()),
            pa.Array.from_buffers(pa.binary(), len(rows), [None, ends, together]),
        ],
        schema=SCHEMA,
    )


def rows_of(batch: pa.RecordBatch) -> Iterator[WireRow]:
    """The rows of a batch, payloads as views of it."""
    for header, payload in zip(batch.column(1), batch.column(2), strict=True):
        kind, stage, target, more = json.loads(header.as_py())
        yield WireRow(kind, stage, target, more, payload.as_buffer())


# What a task sends: jumbo tuples to the tasks of later stages, and its report to the driver.

PIECE_BYTES = 1 << 26
"""A jumbo row is cut into pieces of about this size: Spark holds several of them at a time."""

PACKAGE = str(Path(__file__).parents[2])

SMALL_BYTES = 1 << 14


class Outbox:
    """Rows on their way out; pipelines of several threads may fill it."""

    def __init__(self, layout: StageLayout, stage: int) -> None:
        """Nothing to send yet."""
        self._layout, self._stage = layout, stage
        self._rows: deque[tuple[WireRow, int]] = deque()
        self.bytes_sent = 0

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Everything that waits to be sent; small rows share a batch, which has a price."""
        small: list[tuple[WireRow, int]] = []
        while self._rows:
            row, target = self._rows.popleft()
            if row.payload.size < SMALL_BYTES:
                small.append((row, target))
            else:
                yield to_arrow([(row, target)])
        if small:
            yield to_arrow(small)

    def jumbo(self, link: Link, replica: int, jumbo: Jumbo) -> None:
        """Tuples for a replica of a region further on."""
        pieces = max(1, -(-jumbo.batch.nbytes // PIECE_BYTES))
        rows = -(-len(jumbo) // pieces) if len(jumbo) else 0
        for number in range(pieces):
            piece = jumbo.slice(number * rows, min((number + 1) * rows, len(jumbo)))
            if number == 0 and jumbo.marks:
                piece = Jumbo(piece.batch, piece.positions, jumbo.marks)
            header, payload = pack(piece)
            self._to(link, replica, JUMBO, header, payload)

    def frontier(self, link: Link, producer: int, frontier: Root) -> None:
        """How far a link has come, for every replica at its other end."""
        header = {"producer": producer, "frontier": list(frontier)}
        for replica in range(self._layout.stations[link.consumer].replicas):
            self._to(link, replica, FRONTIER, header, NOTHING)

    def report(self, report: TaskReport) -> None:
        """What this task did."""
        payload = pa.py_buffer(report.to_bytes())
        self._put(WireRow(REPORT, self._layout.last_stage + 1, 0, {}, payload))

    def failure(self, error: BaseException) -> None:
        """An error that trying again cannot mend: everybody hears of it and stops."""
        trace = _where(error)
        try:
            payload = pickle.dumps((error, trace))
        except Exception:
            payload = pickle.dumps((RuntimeError(str(error)), trace))
        self.broadcast(WireRow(FAILURE, self._layout.last_stage + 1, 0, {}, pa.py_buffer(payload)))

    def broadcast(self, row: WireRow) -> None:
        """Send a row to every task of the next stage."""
        for target in range(self._width(self._stage + 1)):
            self._rows.append((row, target))

    def forward(self, row: WireRow) -> None:
        """Hand on a row that is for a later stage."""
        self._put(row)

    def _to(
        self, link: Link, replica: int, kind: str, header: dict[str, Any], payload: pa.Buffer
    ) -> None:
        consumer = self._layout.stations[link.consumer]
        header = {**header, "link": link.number}
        self._put(WireRow(kind, consumer.stage, consumer.first_task + replica, header, payload))

    def _put(self, row: WireRow) -> None:
        """To its task, or on the way there to some task of the next stage."""
        direct = row.stage == self._stage + 1
        target = row.target if direct else row.target % self._width(self._stage + 1)
        self.bytes_sent += row.payload.size
        self._rows.append((row, target))

    def _width(self, stage: int) -> int:
        return self._layout.tasks[stage] if stage <= self._layout.last_stage else 1


def _where(error: BaseException) -> str:
    """The traceback of what caused an error, without the frames that are this library's."""
    told = traceback.TracebackException.from_exception(error.__cause__ or error)
    theirs = [frame for frame in told.stack if not frame.filename.startswith(PACKAGE)]
    told.stack = traceback.StackSummary.from_list(theirs or told.stack)
    return "".join(told.format(chain=False))
