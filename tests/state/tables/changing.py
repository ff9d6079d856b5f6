"""Stores of every kind behind one face, and a fleet of them that writes what an engine would."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa

from anabranch.columns.hashing import bucket_of, hash_columns
from anabranch.state.positions import FIRST
from anabranch.state.tables.row_store import RowStore
from anabranch.state.tables.store import ObjectStore, Store
from anabranch.state.tables.table_store import TableStore

BUCKETS = 8
KEYS = [f"key {n}" for n in range(24)]
BUCKET_OF = dict(
    zip(KEYS, bucket_of(hash_columns([pa.array(KEYS)]), BUCKETS).tolist(), strict=True)
)
Held = dict[str, Any]


class Kind(Protocol):
    """How to use a kind of store."""

    def make(self) -> Any: ...
    def put(self, store: Any, keys: list[str], clock: int) -> None: ...
    def remove(self, store: Any, keys: list[str]) -> None: ...
    def read(self, store: Any, oldest: int) -> Held: ...


class Objects:
    def make(self) -> ObjectStore:
        return ObjectStore()

    def put(self, store: ObjectStore, keys: list[str], clock: int) -> None:
        for key in keys:
            store.bucket(BUCKET_OF[key]).setdefault(key, []).append(clock)
            store.touch(BUCKET_OF[key], key)

    def remove(self, store: ObjectStore, keys: list[str]) -> None:
        for key in keys:
            store.bucket(BUCKET_OF[key]).pop(key, None)
            store.touch(BUCKET_OF[key], key)

    def read(self, store: ObjectStore, oldest: int) -> Held:
        return {key: list(value) for _, key, value in store.items()}


class Tables:
    def make(self) -> TableStore:
        values = pa.schema([("n", pa.int64()), ("tags", pa.list_(pa.int64()))])
        return TableStore(pa.schema([("k", pa.string())]), values, BUCKETS, ["k"])

    def put(self, store: TableStore, keys: list[str], clock: int) -> None:
        slots = store.table.groups([pa.array(keys, pa.string())]).slots
        store.table.set("n", slots, store.table.get("n", slots) + clock)
        store.table.set("tags", slots, [[clock]] * len(slots))
        store.table.stamp(slots, clock)

    def remove(self, store: TableStore, keys: list[str]) -> None:
        slots = store.table.find([pa.array(keys, pa.string())])
        store.table.remove(np.unique(slots[slots >= 0]))

    def read(self, store: TableStore, oldest: int) -> Held:
        found = store.table.snapshot()
        rows = found.rows.to_pylist()
        return {r.pop("k"): (r, t) for r, t in zip(rows, found.times.tolist(), strict=True)}


class Rows:
    """Every third put takes rows out and puts them in again with the serials they had."""

    schema = pa.schema([("k", pa.string()), ("v", pa.int64())])

    def make(self) -> RowStore:
        return RowStore(self.schema, ("k",), ("k",), BUCKETS)

    def put(self, store: RowStore, keys: list[str], clock: int) -> None:
        if clock % 3 == 0:
            self._put_back(store, keys)
        batch = self._batch(keys, clock)
        times = np.full(len(keys), clock)
        store.add(store.segment(batch, store.number(len(keys)), times))

    def _put_back(self, store: RowStore, keys: list[str]) -> None:
        taken = []
        for segment, places in store.found(self._probe(store, keys)):
            columns = (segment.take(places), segment.serials.take(places))
            taken.append((*columns, segment.times.take(places)))
            store.kill(segment, places)
        for batch, serials, times in taken:
            store.add(store.segment(batch, serials, times))

    def remove(self, store: RowStore, keys: list[str]) -> None:
        for segment, places in store.found(self._probe(store, keys)):
            store.kill(segment, places)
        store.squeeze()

    def read(self, store: RowStore, oldest: int) -> Held:
        held: Held = {}
        for segment in store.segments:
            places = segment.places()
            indexes = segment.times.take(places).tolist(), segment.serials.take(places).tolist()
            for row, time, serial in zip(segment.take(places).to_pylist(), *indexes, strict=True):
                if time >= oldest:
                    held.setdefault(row["k"], []).append((serial, time, row["v"]))
        return {key: sorted(rows) for key, rows in held.items()}

    def _probe(self, store: RowStore, keys: list[str]) -> Any:
        return store.segment(self._batch(keys, 0), np.arange(len(keys)))

    def _batch(self, keys: list[str], value: int) -> pa.RecordBatch:
        arrays = [pa.array(keys, pa.string()), pa.array([value] * len(keys), pa.int64())]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


class Fleet:
    """Replicas that own buckets between them, and the files they have written."""

    def __init__(self, kind: Kind, replicas: int = 3) -> None:
        self.kind, self.clock, self.oldest = kind, 0, FIRST
        self.stores: list[Any] = [kind.make() for _ in range(replicas)]
        self.owner = [bucket % replicas for bucket in range(BUCKETS)]
        self.snapshots: list[bytes] = []
        self.changes: list[bytes] = []
        for store in self.stores:
            store.track()

    def put(self, keys: list[str]) -> None:
        self.clock += 1
        for number, store in enumerate(self.stores):
            self.kind.put(store, self._share(number, keys), self.clock)

    def remove(self, keys: list[str]) -> None:
        for number, store in enumerate(self.stores):
            self.kind.remove(store, self._share(number, keys))

    def clear(self) -> None:
        for store in self.stores:
            if not isinstance(store, TableStore):
                store.clear()

    def expire(self) -> None:
        self.oldest = max(self.oldest, self.clock - 2)
        for store in self.stores:
            if isinstance(store, RowStore):
                store.expire(self.oldest)

    def tell(self, between: list[str] = ()) -> None:
        """Write what changed; keys are put between telling and saving."""
        told = [store.changes() for store in self.stores]
        if between:
            self.put(list(between))
        self.changes += [changes for changes in told if changes is not None]
        self._saved()

    def give_up(self) -> None:
        """Tell changes that are never written."""
        for store in self.stores:
            store.changes()

    def snapshot(self, between: list[str] = ()) -> None:
        self.snapshots, self.changes = [store.snapshot() for store in self.stores], []
        if between:
            self.put(list(between))
        self._saved()

    def move(self, buckets: Collection[int], target: int) -> None:
        self.tell()
        for number, store in enumerate(self.stores):
            mine = [b for b in buckets if self.owner[b] == number]
            if mine and number != target:
                self.stores[target].absorb(store.release(mine))
        for bucket in buckets:
            self.owner[bucket] = target

    def restart(self) -> None:
        self.tell()
        for number in range(len(self.stores)):
            mine = [b for b in range(BUCKETS) if self.owner[b] == number]
            self.stores[number] = self.loaded(mine)
            self.stores[number].track()
            assert self.stores[number].changes() is None

    def loaded(self, buckets: Collection[int]) -> Store:
        store: Store = self.kind.make()
        for content in self.snapshots:
            store.restore(content, buckets)
        for changes in self.changes:
            store.replay(changes, buckets)
        return store

    def held(self, buckets: Collection[int]) -> Held:
        whole: Held = {}
        for store in self.stores:
            whole |= self.kind.read(store, self.oldest)
        return {key: value for key, value in whole.items() if BUCKET_OF[key] in buckets}

    def check(self, buckets: Collection[int]) -> None:
        self.tell()
        assert self.kind.read(self.loaded(buckets), self.oldest) == self.held(buckets)

    def _saved(self) -> None:
        for store in self.stores:
            store.saved()

    def _share(self, number: int, keys: list[str]) -> list[str]:
        return [key for key in dict.fromkeys(keys) if self.owner[BUCKET_OF[key]] == number]


def scripts() -> st.SearchStrategy[list[tuple[Any, ...]]]:
    some = st.lists(st.sampled_from(KEYS), max_size=8)
    buckets = st.sets(st.integers(0, BUCKETS - 1))
    return st.lists(
        st.one_of(
            st.tuples(st.just("put"), some),
            st.tuples(st.just("put"), some),
            st.tuples(st.just("remove"), some),
            st.tuples(st.just("tell"), some),
            st.tuples(st.sampled_from(["expire", "give_up", "clear", "restart"])),
            st.tuples(st.just("snapshot"), some),
            st.tuples(st.just("move"), buckets, st.integers(0, 2)),
            st.tuples(st.just("check"), buckets),
        ),
        max_size=14,
    )


def play(kind: Kind, script: list[tuple[Any, ...]]) -> None:
    fleet = Fleet(kind)
    for name, *arguments in script:
        getattr(fleet, name)(*arguments)
    fleet.check(range(BUCKETS))
