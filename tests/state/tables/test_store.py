"""What every store owes, shown on both kinds."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from anabranch.columns.hashing import bucket_of, hash_columns
from anabranch.errors import StateError
from anabranch.state.tables.store import ObjectStore, Store
from anabranch.state.tables.table_store import TableStore

BUCKETS = 8
KEYS = pa.array(list(range(40)), pa.int64())
BUCKET_OF = dict(zip(KEYS.to_pylist(), bucket_of(hash_columns([KEYS]), BUCKETS), strict=True))
MINE, OTHERS = [0, 2, 5], [1, 3, 4, 6, 7]


def objects() -> ObjectStore:
    return ObjectStore()


def write_objects(store: ObjectStore, values: dict[int, int]) -> None:
    for key, value in values.items():
        store.bucket(BUCKET_OF[key])[key] = value


def read_objects(store: ObjectStore) -> dict[int, int]:
    return {key: value for _, key, value in store.items()}


def table() -> TableStore:
    fields = pa.schema([("k", pa.int64())]), pa.schema([("v", pa.int64())])
    return TableStore(*fields, BUCKETS, ["k"])


def write_table(store: TableStore, values: dict[int, int]) -> None:
    found = store.table.groups([pa.array(list(values), pa.int64())])
    store.table.set("v", found.slots, pa.array(list(values.values())).to_numpy())


def read_table(store: TableStore) -> dict[int, int]:
    rows = store.table.snapshot().rows
    return {row["k"]: row["v"] for row in rows.to_pylist()}


Kind = tuple[Callable[[], Any], Callable[[Any, dict[int, int]], None], Callable[[Any], Any]]
KINDS = {
    "objects": (objects, write_objects, read_objects),
    "table": (table, write_table, read_table),
}
VALUES = {key: key * 10 for key in KEYS.to_pylist()}


def part(buckets: list[int]) -> dict[int, int]:
    return {k: v for k, v in VALUES.items() if BUCKET_OF[k] in buckets}


@pytest.fixture(params=sorted(KINDS))
def kind(request) -> Kind:
    return KINDS[request.param]


def filled(kind: Kind) -> Store:
    store = kind[0]()
    kind[1](store, VALUES)
    return store


def test_released_buckets_are_gone(kind):
    store = filled(kind)
    store.release(MINE)
    assert kind[2](store) == part(OTHERS)


def test_what_is_absorbed_is_what_was_released(kind):
    other = kind[0]()
    other.absorb(filled(kind).release(MINE))
    assert kind[2](other) == part(MINE)


def test_a_bucket_can_come_back(kind):
    store = filled(kind)
    store.absorb(store.release(MINE))
    assert kind[2](store) == VALUES


def test_releasing_nothing_changes_nothing(kind):
    store = filled(kind)
    kind[0]().absorb(store.release([]))
    assert kind[2](store) == VALUES


def test_a_restored_store_holds_the_wanted_buckets_alone(kind):
    other = kind[0]()
    other.restore(filled(kind).snapshot(), MINE)
    assert kind[2](other) == part(MINE)


def test_a_snapshot_does_not_follow_later_writes(kind):
    store = filled(kind)
    snapshot = store.snapshot()
    kind[1](store, {0: -1})
    other = kind[0]()
    other.restore(snapshot, range(BUCKETS))
    assert kind[2](other) == VALUES


def test_snapshots_of_several_stores_can_be_restored_into_one(kind):
    store, other, whole = filled(kind), kind[0](), kind[0]()
    other.absorb(store.release(MINE))
    for each in (store, other):
        whole.restore(each.snapshot(), range(BUCKETS))
    assert kind[2](whole) == VALUES


def test_an_empty_store_survives_a_snapshot(kind):
    other = kind[0]()
    other.restore(kind[0]().snapshot(), range(BUCKETS))
    assert kind[2](other) == {}


def test_objects_with_two_owners_are_an_error():
    store, other = filled(KINDS["objects"]), filled(KINDS["objects"])
    with pytest.raises(StateError, match=r"buckets \[0, 2, 5\] twice"):
        store.absorb(other.release(MINE))


def test_objects_are_handed_over_by_reference():
    store, other, held = ObjectStore(), ObjectStore(), [1, 2]
    store.bucket(3)["k"] = held
    other.absorb(store.release([3]))
    assert other.bucket(3)["k"] is held


def test_the_owner_of_objects_can_tell_that_buckets_came():
    store = ObjectStore()
    before = store.arrivals
    store.absorb({1: {"k": 1}})
    assert store.arrivals > before


class Index:
    """Knows a bucket or does not."""

    def __init__(self, *known: int) -> None:
        self.known = set(known)

    def release(self, buckets):
        given = self.known & set(buckets)
        self.known -= given
        return given

    def absorb(self, handover):
        self.known |= handover


def indexed(*known: int) -> tuple[ObjectStore, Index]:
    store, index = ObjectStore(), Index(*known)
    for number in known:
        store.bucket(number)["k"] = number
    store.move_along(index)
    return store, index


def test_indexes_come_and_go_with_their_buckets():
    (one, first), (two, second) = indexed(1, 2, 3), indexed()
    two.absorb(one.release([2, 3, 4]))
    assert (first.known, second.known) == ({1}, {2, 3})
    assert two.arrivals == 0


@pytest.mark.parametrize("way", ["restored", "from a store without", "unpickled"])
def test_buckets_that_come_without_their_index_are_told(way):
    (one, _), (two, index) = indexed(1), indexed()
    if way == "restored":
        two.restore(one.snapshot(), [1])
    elif way == "unpickled":
        two.absorb(pickle.loads(pickle.dumps(one)).release([1]))
    else:
        one.move_along()
        two.absorb(one.release([1]))
    assert two.arrivals == 1
    assert index.known == set()


def test_the_length_is_the_number_of_keys():
    store = ObjectStore()
    store.bucket(1).update(a=1, b=2)
    store.bucket(2).update(c=3)
    assert len(store) == 3
