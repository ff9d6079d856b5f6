"""Small tables and columns for the tests of the keyed table."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from anabranch.engines.local.mesh import packed
from anabranch.state.tables import shared_arrays
from anabranch.state.tables.keyed_table import Handover, KeyedTable, TableDelta
from anabranch.state.tables.shared_arrays import Block

BUCKETS = 8
INT64 = pa.int64()
VALUES = pa.schema([("n", pa.int64()), ("tags", pa.list_(pa.int64()))])
KEY_TYPES: dict[str, tuple[list[pa.DataType], list[Any]]] = {
    "int64": ([pa.int64()], [(v,) for v in [None, 0, 1, -1, 7, 2**62, *range(100, 130)]]),
    "uint8": ([pa.uint8()], [(v,) for v in [None, *range(30)]]),
    "bool": ([pa.bool_()], [(None,), (True,), (False,)]),
    "float": ([pa.float64()], [(v,) for v in [None, math.nan, 0.0, 1.5, -1.5, math.inf]]),
    "timestamp": (
        [pa.timestamp("us")],
        [(pa.scalar(v, pa.timestamp("us")).as_py(),) for v in range(9)],
    ),
    "string": (
        [pa.string()],
        [(v,) for v in [None, "", "a", "a\0", "ab", "12345678", "123456789", "é" * 9, "x" * 40]],
    ),
    "large_binary": ([pa.large_binary()], [(v,) for v in [None, b"", b"\0", b"\0\0", b"k" * 17]]),
    "pair": (
        [pa.string(), pa.int32()],
        [(t, n) for t in [None, "", "a", "long enough"] for n in [None, 0, 1]],
    ),
    "triple": (
        [pa.int16(), pa.float32(), pa.bool_()],
        [(a, b, c) for a in [None, 1] for b in [None, math.nan, 0.0] for c in [None, True]],
    ),
}


def columns(keys: list[tuple[Any, ...]], types: list[pa.DataType]) -> list[pa.Array]:
    return [pa.array([key[i] for key in keys], key_type) for i, key_type in enumerate(types)]


def canonical(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple("nan" if isinstance(part, float) and math.isnan(part) else part for part in key)


def contents(table: KeyedTable) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    return of_delta(table.snapshot(), len(table.key_schema))


def of_delta(delta: TableDelta, width: int) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    held = [column.to_pylist() for column in delta.rows.columns]
    keys = [canonical(key) for key in zip(*held[:width], strict=True)]
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, zip(*held[width:], delta.times.tolist(), strict=True), strict=True))


def colliding(distinct: int) -> Callable[[Any], np.ndarray]:
    from anabranch.columns.hashing import hash_words as real

    return lambda words: (real(words) % np.uint64(distinct)) << np.uint64(62)


def key_schema(types: list[pa.DataType]) -> pa.Schema:
    return pa.schema([(f"k{i}", key_type) for i, key_type in enumerate(types)])


def counting(rows: int, key_type: pa.DataType = INT64) -> KeyedTable:
    table = KeyedTable(key_schema([key_type]), pa.schema([("n", pa.int64())]), 256)
    slots = table.groups(
        [texts(range(rows)) if key_type == pa.string() else ints(range(rows))]
    ).slots
    table.set("n", slots, np.arange(rows))
    table.commit()  # what is not committed travels eagerly
    return table


def ints(values: Any) -> pa.Array:
    return pa.array(list(values), pa.int64())


def texts(values: Any) -> pa.Array:
    return pa.array([f"key-{value}" for value in values], pa.string())


def value_of(table: KeyedTable, key: Any) -> int | None:
    (slot,) = table.find([pa.array([key], table.key_schema.field(0).type)])
    return None if slot < 0 else int(table.get("n", np.array([slot]))[0])


@contextmanager
def sharing(most: int, from_items: int = 1) -> Iterator[shared_arrays._Blocks]:
    """Be a process that may have so many arrays in shared memory, and has none yet."""
    blocks = shared_arrays._Blocks()
    blocks.most = most
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_arrays, "_blocks", blocks)
        patch.setattr(shared_arrays, "SHARED_FROM_ITEMS", from_items)
        yield blocks


def between_processes(handover: Handover) -> Handover:
    """Carry what a process gets that has the same shared memory mapped, and nothing else."""
    return carried(handover)[0]


def carried(handover: Handover) -> tuple[Handover, int]:
    """Carry a hand-over between processes; returns how many bytes were copied, too."""
    buffers: list[pickle.PickleBuffer] = []
    blocks: list[Block] = []
    data = packed(handover, buffers.append, by_value=True, take_block=blocks.append)
    copied = [bytearray(buffer.raw()) for buffer in buffers]
    return pickle.loads(data, buffers=copied), len(data) + sum(map(len, copied))
