"""Jumbo rows: how jumbo tuples travel through Spark's shuffles.

A Spark row is (target, header, payload): the task it goes to, a few words about it, and an Arrow
IPC stream of thousands of tuples with their positions (`engines/jumbo_ipc.py`). Spark's cost per
row is thereby paid once per jumbo tuple.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

SCHEMA = pa.schema([("target", pa.int32()), ("header", pa.binary()), ("payload", pa.binary())])

JUMBO = "jumbo"
FRONTIER = "frontier"
REPORT = "report"
FAILURE = "failure"


@dataclass(frozen=True)
class Row:
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

    def to_arrow(self, target: int) -> pa.RecordBatch:
        """As a batch of one row for a task of the next stage; the payload is not copied."""
        head = json.dumps([self.kind, self.stage, self.target, self.header]).encode()
        ends = pa.py_buffer(np.array([0, self.payload.size], np.int32))
        column = pa.Array.from_buffers(pa.binary(), 1, [None, ends, self.payload])
        return pa.RecordBatch.from_arrays(
            [pa.array([target], pa.int32()), pa.array([head], pa.binary()), column], schema=SCHEMA
        )


NOTHING = pa.py_buffer(b"")


def rows_of(batch: pa.RecordBatch) -> Iterator[Row]:
    """The rows of a batch, payloads as views of it."""
    for header, payload in zip(batch.column(1), batch.column(2), strict=True):
        kind, stage, target, more = json.loads(header.as_py())
        yield Row(kind, stage, target, more, payload.as_buffer())
