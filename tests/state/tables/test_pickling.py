"""Stores can be pickled with their arrays beside the pickle, and work on in that memory."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from anabranch.state.positions import Jumbo, Positions
from anabranch.state.tables.row_store import RowStore
from anabranch.state.tables.store import ObjectStore
from anabranch.state.tables.table_store import TableStore
from tests.state.tables.changing import BUCKETS, KEYS, Objects, Rows, Tables

MANY = 100_000
EVERYWHERE = range(BUCKETS)


def cached(thing: Any) -> tuple[bytes, list[bytearray]]:
    """The pickle, and writable copies of the buffers beside it."""
    buffers: list[pickle.PickleBuffer] = []
    content = pickle.dumps(thing, protocol=5, buffer_callback=buffers.append)
    return content, [bytearray(buffer.raw()) for buffer in buffers]


def uncached(content: bytes, buffers: list[bytearray]) -> Any:
    return pickle.loads(content, buffers=buffers)


def many_keys(key: pa.Array) -> TableStore:
    values = pa.schema([("n", pa.int64()), ("x", pa.float32())])
    store = TableStore(pa.schema([("k", key.type)]), values, BUCKETS, ["k"])
    slots = store.table.groups([key]).slots
    store.table.set("n", slots, np.arange(len(slots)))
    store.table.stamp(slots, np.arange(len(slots)))
    return store


NUMBERS = pa.array(np.arange(MANY))
TEXTS = pa.array([f"key number {n}" for n in range(MANY)])


@pytest.mark.parametrize("tracked", [False, True])
@pytest.mark.parametrize("keys", [NUMBERS, TEXTS], ids=["numbers", "texts"])
def test_a_large_table_is_pickled_beside_the_pickle(keys, tracked):
    store = many_keys(keys)
    if tracked:
        store.track()
        store.table.set("n", np.arange(MANY // 2), np.zeros(MANY // 2))
        store.table.remove(np.arange(10))
        store.changes()
        store.saved()
    content, buffers = cached(store)
    assert len(content) < 20_000
    assert sum(map(len, buffers)) < 2 * store.table.nbytes


@pytest.mark.parametrize("keys", [NUMBERS, TEXTS], ids=["numbers", "texts"])
def test_a_table_taken_over_from_parked_memory_works_in_that_memory(keys):
    content, buffers = cached(many_keys(keys))
    mapped = [np.frombuffer(buffer, np.uint8) for buffer in buffers if buffer]
    old, new = uncached(content, buffers), many_keys(keys[:0])
    new.absorb(old.release(EVERYWHERE))
    slab = new.table._slabs.own
    for array in (*slab.values, slab.times, slab.alive, slab._hashes, slab._index._entries):
        assert any(np.shares_memory(array, memory) for memory in mapped)
    before = [bytes(buffer) for buffer in buffers]
    slots = new.table.find([keys.slice(77, 3)])
    new.table.set("n", slots, np.array([-1, -2, -3]))
    after = [bytes(buffer) for buffer in buffers]
    changed = [a != b for a, b in zip(before, after, strict=True)]
    assert sum(changed) == 1
    place = changed.index(True)
    assert np.frombuffer(after[place], np.int64)[slots].tolist() == [-1, -2, -3]


def test_a_table_that_inherited_rows_leaves_the_rest_of_their_slab_behind():
    one = many_keys(NUMBERS)
    two = many_keys(NUMBERS[:0])
    two.absorb(one.release([3]))
    size = sum(map(len, cached(two)[1]))
    assert size < sum(map(len, cached(one)[1])) / 3
    back = uncached(*cached(two))
    assert len(back.table) == len(two.table) > 0
    assert set(back.table.bucket(back.table.live()).tolist()) == {3}


@pytest.mark.parametrize("kind", [Objects(), Tables(), Rows()], ids=["objects", "table", "rows"])
def test_an_unpickled_store_goes_on_where_it_was(kind):
    store = kind.make()
    kind.put(store, KEYS, 1)
    store.track()
    kind.put(store, KEYS[:5], 2)
    twin = uncached(*cached(store))
    kind.remove(twin, KEYS[3:7])
    kind.put(twin, KEYS[:2], 4)
    kind.remove(store, KEYS[3:7])
    kind.put(store, KEYS[:2], 4)
    assert kind.read(twin, 0) == kind.read(store, 0)
    assert twin.changes() == store.changes()


def rows(start: int, stop: int) -> pa.RecordBatch:
    texts = pa.array([f"key {n}" for n in range(start, stop)])
    return pa.RecordBatch.from_arrays([texts, pa.array(np.arange(start, stop))], ["k", "v"])


def row_store() -> RowStore:
    return RowStore(rows(0, 0).schema, ("k",), ("v",), BUCKETS)


def test_rows_are_pickled_beside_the_pickle_with_what_was_computed_about_them():
    store = row_store()
    batch = rows(0, 50_000)
    store.add(store.segment(batch, store.number(len(batch)), np.arange(len(batch))))
    store.add(store.segment(rows(0, 9), store.number(9), np.arange(9)))
    probe = store.segments[1]
    probe.candidates(store.segments[0], 5)
    store.expire(3)
    store.kill(store.segments[0], np.arange(100))
    content, buffers = cached(store)
    assert len(content) < 20_000
    twin = uncached(content, buffers)
    assert twin.segments[0]._derived.ranked is not None
    assert twin.segments[0]._derived.ages is not None
    assert twin.all()[0].equals(store.all()[0])
    other = row_store()
    other.absorb(twin.release(EVERYWHERE))
    assert len(other) == len(store)


@pytest.mark.parametrize("part", ["a slice", "few of its rows"])
def test_rows_leave_the_rest_of_their_batch_behind(part):
    store, batch = row_store(), rows(0, 50_000)
    if part == "a slice":
        batch = batch.slice(40_000, 100)
        store.add(store.segment(batch, store.number(100)))
    else:
        store.add(store.segment(batch, store.number(len(batch))))
        other = row_store()
        other.absorb([store.segments[0].only(np.arange(500, 600))])
        store = other
    twin = uncached(*cached(store))
    assert sum(map(len, cached(store)[1])) < 20_000
    assert twin.all()[0].equals(store.all()[0])
    assert twin.all()[1].tolist() == store.all()[1].tolist()


def test_a_jumbo_tuple_is_pickled_without_constant_columns_and_without_what_it_was_cut_from():
    whole = Jumbo(rows(0, 100_000), Positions.of_source(3, np.arange(100_000)).pad(2))
    store = ObjectStore()
    store.bucket(0)["held"] = whole
    content, buffers = cached(store)
    assert len(content) < 20_000
    assert sum(map(len, buffers)) < whole.batch.nbytes + 900_000
    part = whole.slice(500, 600)
    content, buffers = cached(part)
    assert len(content) + sum(map(len, buffers)) < 20_000
    twin = uncached(content, buffers)
    assert twin.batch.equals(part.batch)
    assert twin.positions.rows() == part.positions.rows()
    assert [c.strides for c in twin.positions.columns] == [
        c.strides for c in part.positions.columns
    ]


def test_positions_of_no_tuple_survive_pickling():
    none = Positions.of_source(0, np.zeros(0, np.int64))
    assert pickle.loads(pickle.dumps(none)).depth == 0
    assert len(pickle.loads(pickle.dumps(Jumbo.empty(rows(0, 0).schema, 2)))) == 0
