"""Jumbo tuples as bytes: an Arrow IPC stream of tuples and positions, and a header.

Position columns are mostly constant, consecutive or close together, and are written as what they
are; a column that repeats an earlier one is not written again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.state.positions import Ints, Jumbo, Mark, Positions, Root


def to_bytes(jumbo: Jumbo | None) -> bytes:
    """A jumbo tuple, or none, as bytes."""
    if jumbo is None:
        return b""
    header, payload = pack(jumbo)
    text = json.dumps(header).encode()
    content: bytes = payload.to_pybytes()
    return len(text).to_bytes(4, "little") + text + content


def from_bytes(data: bytes, schema: pa.Schema) -> Jumbo | None:
    """What `to_bytes` wrote."""
    if not data:
        return None
    size = int.from_bytes(data[:4], "little")
    header = json.loads(data[4 : 4 + size])
    return unpack(header, pa.py_buffer(data[4 + size :]), schema)


def pack(jumbo: Jumbo) -> tuple[dict[str, Any], pa.Buffer]:
    """A jumbo tuple as header and payload."""
    shapes: list[Any] = []
    arrays: list[Ints] = []
    for place, column in enumerate(jumbo.positions.columns):
        twin = next((p for p in range(place) if column is jumbo.positions.columns[p]), None)
        shape, kept = (["same", twin], None) if twin is not None else _squeezed(column)
        shapes.append(shape)
        arrays += [] if kept is None else [kept]
    columns = [*jumbo.batch.columns, *(pa.array(a) for a in arrays)]
    names = [*jumbo.batch.schema.names, *(f"#{i}" for i in range(len(arrays)))]
    header = {
        "positions": shapes,
        "rows": len(jumbo),
        "marks": [[*m.root, *m[1:]] for m in jumbo.marks],
    }
    return header, to_ipc(pa.RecordBatch.from_arrays(columns, names=names))


def unpack(header: dict[str, Any], payload: pa.Buffer, schema: pa.Schema) -> Jumbo:
    """The jumbo tuple that `pack` wrote; its columns are views of the payload."""
    batch = from_ipc(payload)
    width = len(schema)
    kept = iter(batch.columns[width:])
    columns: list[Ints] = []
    for how, value in header["positions"]:
        columns.append(
            columns[value] if how == "same" else _restored(how, value, kept, header["rows"])
        )
    data = pa.RecordBatch.from_arrays(batch.columns[:width], schema=schema)
    marks = tuple(Mark(Root(*m[:4]), *m[4:]) for m in header["marks"])
    return Jumbo(data, Positions(tuple(columns)), marks)


def to_ipc(batch: pa.RecordBatch) -> pa.Buffer:
    """A batch as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return sink.getvalue()


def from_ipc(payload: pa.Buffer) -> pa.RecordBatch:
    """The batch that `to_ipc` wrote, as a view of the payload."""
    with pa.ipc.open_stream(pa.BufferReader(payload)) as stream:
        return stream.read_next_batch()


def _squeezed(column: Ints) -> tuple[list[Any], Ints | None]:
    """The shortest way to write a column: (way, its number), and what is left to write."""
    if not len(column):
        return ["constant", 0], None
    first, last = int(column[0]), int(column[-1])
    if column.strides == (0,):
        return ["constant", first], None
    low, high = int(column.min()), int(column.max())
    if low == high:
        return ["constant", low], None
    if low == first and last - first == len(column) - 1 and (np.diff(column) == 1).all():
        return ["count", first], None
    for narrow in (np.uint8, np.uint16, np.uint32):
        if high - low <= np.iinfo(narrow).max:
            return ["from", low], (column - low).astype(narrow)
    return ["plain", 0], column


def _restored(how: str, value: int, kept: Iterator[pa.Array], rows: int) -> Ints:
    if how == "constant":
        return np.broadcast_to(np.int64(value), rows)
    if how == "count":
        return np.arange(value, value + rows, dtype=np.int64)
    written: Ints = next(kept).to_numpy()
    return written if how == "plain" else written.astype(np.int64) + value
