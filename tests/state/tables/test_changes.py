"""A snapshot and the changes after it are the state, whoever wrote them and whoever reads them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from anabranch.errors import StateError
from anabranch.state.tables.store import ObjectStore
from anabranch.state.tables.table_store import TableStore
from tests.state.tables.changing import (
    BUCKET_OF,
    BUCKETS,
    KEYS,
    Objects,
    Rows,
    Tables,
    play,
    scripts,
)

KINDS = {"objects": Objects(), "table": Tables(), "rows": Rows()}


@pytest.fixture(params=sorted(KINDS))
def kind(request) -> Any:
    return KINDS[request.param]


@pytest.mark.parametrize("name", sorted(KINDS))
@given(script=scripts())
def test_changes_replayed_on_a_snapshot_are_the_state(name, script):
    play(KINDS[name], script)


def test_nothing_changed_is_told_as_none(kind):
    store = kind.make()
    kind.put(store, KEYS, 1)
    store.track()
    assert store.changes() is None
    kind.put(store, KEYS[:1], 2)
    assert store.changes() is not None
    store.saved()
    assert store.changes() is None


def test_changes_are_told_again_until_they_are_saved(kind):
    store, twin = kind.make(), kind.make()
    store.track()
    kind.put(store, KEYS[:3], 1)
    store.changes()
    kind.put(store, KEYS[3:5], 2)
    twin.replay(store.changes(), range(BUCKETS))
    assert kind.read(twin, 0) == kind.read(store, 0)


def test_a_store_that_is_not_tracked_cannot_tell(kind):
    with pytest.raises(StateError, match="track"):
        kind.make().changes()


@pytest.mark.parametrize("kind", [Tables(), Rows()], ids=["table", "rows"])
def test_what_is_told_follows_what_was_touched_not_what_is_held(kind):
    store = kind.make()
    for clock in range(1, 3000, 3):
        kind.put(store, KEYS, clock)
    if isinstance(store, TableStore):
        kind.put(store, [f"k{n}" for n in range(20_000)], 1)
    store.track()
    kind.put(store, KEYS[:2], 3001)
    assert len(store.changes()) < 4000 < len(store.snapshot()) // 10


def test_many_keys_cost_nothing_that_one_touched_key_must_pay():
    objects = ObjectStore()
    for number in range(10_000):
        objects.bucket(number % 8)[number] = [number] * 10
    objects.track()
    objects.bucket(3)[3].append(1)
    objects.touch(3, 3)
    assert len(objects.changes()) < 200


def test_closed_versions_leave_slots_alone_unless_rows_moved():
    store = Tables().make()
    store.track()
    keys = [f"k{n}" for n in range(3000)]
    Tables().put(store, keys, 1)
    moved = store.table.moved
    for _ in range(5):
        Tables().put(store, keys[:10], 2)
        store.changes()
        store.saved()
    assert store.table.moved == moved
    Tables().remove(store, keys[100:])
    store.changes()
    store.saved()
    assert store.table.moved > moved
    assert store.changes() is None


def test_changes_of_a_compacted_table_are_replayed_alike():
    store, twin = Tables().make(), Tables().make()
    store.track()
    keys = [f"k{n}" for n in range(3000)]
    for step in (keys, keys[:1500], keys[:7]):
        Tables().put(store, step, 1)
        Tables().remove(store, keys[100 : len(step)])
        twin.replay(store.changes(), range(BUCKETS))
        store.saved()
    assert Tables().read(twin, 0) == Tables().read(store, 0)


def test_a_tracked_table_does_not_pile_changes_up():
    store = Tables().make()
    store.track()
    sizes = []
    for turn in range(30):
        Tables().put(store, [f"k{turn}-{n}" for n in range(100)], turn)
        Tables().remove(store, [f"k{turn}-{n}" for n in range(100)])
        store.changes()
        store.saved()
        sizes.append(store.table.nbytes)
    assert max(sizes[2:]) == sizes[2]


def test_a_row_that_was_taken_out_and_put_back_is_no_change():
    store = Rows().make()
    Rows().put(store, KEYS, 1)
    store.track()
    Rows()._put_back(store, KEYS)
    assert store.changes() is None


def test_a_row_that_came_and_went_is_no_change():
    store = Rows().make()
    store.track()
    Rows().put(store, KEYS, 1)
    Rows().remove(store, KEYS)
    assert store.changes() is None


def test_only_the_given_buckets_are_brought_up_to_date(kind):
    store, twin = kind.make(), kind.make()
    kind.put(store, KEYS, 1)
    twin.restore(store.snapshot(), range(BUCKETS))
    before = kind.read(twin, 0)
    store.track()
    kind.remove(store, KEYS[:12])
    kind.put(store, KEYS[12:], 2)
    mine = {BUCKET_OF[key] for key in KEYS[:3]}
    twin.replay(store.changes(), mine)
    after, now = kind.read(twin, 0), kind.read(store, 0)
    for key in KEYS:
        assert after.get(key) == (now if BUCKET_OF[key] in mine else before).get(key)


def test_objects_are_not_given_up_while_their_changes_are_unsaved():
    store = ObjectStore()
    store.track()
    store.bucket(2)["k"] = 1
    store.touch(2, "k")
    store.release([1])
    with pytest.raises(StateError, match=r"unsaved changes in buckets \[2\]"):
        store.release([2])


def test_changes_of_a_table_and_of_rows_hold_no_pickle():
    for kind in (Tables(), Rows()):
        store = kind.make()
        store.track()
        kind.put(store, KEYS, 1)
        kind.remove(store, KEYS[:3])
        reader = pa.BufferReader(store.changes())
        for _ in range(2):
            with pa.ipc.open_stream(reader) as stream:
                stream.read_all()
        assert reader.tell() == reader.size()


def test_rows_of_one_serial_in_two_buckets_are_told_apart():
    kind, (one, two) = Rows(), (Rows().make() for _ in range(2))
    kind.put(one, KEYS[:1], 1)
    kind.put(two, KEYS[1:4], 1)
    one.absorb(two.release(range(BUCKETS)))
    content = one.snapshot()
    one.track()
    kind.remove(one, KEYS[:1])
    twin = kind.make()
    twin.restore(content, range(BUCKETS))
    twin.replay(one.changes(), range(BUCKETS))
    assert kind.read(twin, 0) == kind.read(one, 0) != {}


def test_numbers_go_on_after_rows_that_were_replayed():
    store, twin = Rows().make(), Rows().make()
    store.track()
    Rows().put(store, KEYS, 1)
    twin.replay(store.changes(), range(BUCKETS))
    assert twin.number(1)[0] == len(KEYS)


def test_a_row_that_expired_before_it_was_told_is_not_told():
    store = Rows().make()
    store.track()
    Rows().put(store, KEYS, 1)
    store.expire(5)
    assert store.changes() is None


def test_the_order_of_what_objects_tell_does_not_depend_on_the_process():
    code = (
        "from anabranch.state.tables.store import ObjectStore\n"
        "s = ObjectStore(); s.track()\n"
        "for k in 'abcdefgh': s.bucket(1)[k] = 1; s.touch(1, k)\n"
        "print(s.changes().hex())"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in "12"
    }
    assert len(told) == 1


def test_a_table_store_takes_times_of_rows_along():
    store, twin = (
        TableStore(pa.schema([("k", pa.int64())]), pa.schema([]), 4, ["k"]) for _ in range(2)
    )
    store.track()
    slots = store.table.groups([pa.array([1, 2])]).slots
    store.table.stamp(slots, np.array([7, 8]))
    twin.replay(store.changes(), range(4))
    assert sorted(twin.table.time(twin.table.live()).tolist()) == [7, 8]
