"""Buckets that move to and fro: rows stay where they are, and nothing piles up."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from anabranch.columns.hashing import bucket_of, hash_columns
from anabranch.operators.tuple_style.kernel import Wakes
from anabranch.state.tables import slab_set as slabs_module
from anabranch.state.tables.keyed_table import KeyedTable
from anabranch.state.tables.row_store import RowStore
from anabranch.state.tables.store import ObjectStore, Store
from anabranch.state.tables.table_store import TableStore
from tests.state.tables.tables import counting, ints, value_of

FEW, MANY = 5_000, 200_000
HALF = range(128)


def views(table: KeyedTable) -> int:
    return len(table._slabs.views)


def test_rows_are_changed_where_they_are_and_known_when_they_return() -> None:
    one, two = counting(1000), counting(0)
    two.absorb(one.release(HALF))
    (view,) = two._slabs.views
    assert np.shares_memory(view.values[0], one._slabs.own.values[0])
    slots = two.live()
    two.set("n", slots, two.get("n", slots) + 5000)
    two.remove(slots[:10])
    one.absorb(two.release(HALF))
    assert (views(one), len(one), len(two)) == (0, 990, 0)
    assert int((one.get("n", one.live()) >= 5000).sum()) == len(slots) - 10


def test_new_rows_of_a_bucket_that_moved_are_found_with_its_old_ones() -> None:
    one, two = counting(1000), counting(0)
    for turn in range(6):
        giver, taker = (one, two) if turn % 2 == 0 else (two, one)
        taker.absorb(giver.release(HALF))
        keys = ints(range(1000 + 100 * turn, 1100 + 100 * turn))
        mine = bucket_of(hash_columns([keys]), 256) < 128
        taker.groups([keys.filter(pa.array(mine))])
        one.groups([keys.filter(pa.array(~mine))])
        assert len(one) + len(two) == 1100 + 100 * turn
    both = [table.find([ints(range(1600))]) >= 0 for table in (one, two)]
    assert (both[0] ^ both[1]).all()


def test_a_key_that_was_removed_from_a_slab_taken_over_whole_is_gone() -> None:
    one, two = counting(100), counting(0)
    own = next(n for n in range(900, 9000) if bucket_of(hash_columns([ints([n])]), 256)[0] > 250)
    two.groups([ints([own])])
    two.absorb(one.release(range(250)))
    gone = two.find([ints(range(100))])
    two.remove(gone[gone >= 0])
    assert (two.find([ints(range(100))]) < 0).all()


def test_views_are_left_behind_a_few_rows_at_a_time() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slabs_module, "_SETTLE_AT_LEAST", 50)
        taker = counting(0)
        keys = ints(range(90_000, 92_000))
        own = keys.filter(pa.array(bucket_of(hash_columns([keys]), 256) > 200))
        taker.groups([own])
        for turn in range(10):
            giver = counting(0)
            giver.groups([ints(range(1000 * turn, 1000 * turn + 500))])
            taker.absorb(giver.release(range(20 * turn, 20 * turn + 20)))
        held, rows = views(taker), len(taker)
        assert held == 10
        for _ in range(100):
            taker.groups([own])
        assert len(taker) == rows
        assert views(taker) <= slabs_module.MOST_VIEWS


def test_switch_after_switch_with_new_keys_does_not_pile_up() -> None:
    random, owner = np.random.default_rng(3), np.zeros(256, np.int64)
    tables, total, sizes, chains = [counting(0)], 0, [], []
    for turn in range(150):
        wanted = random.integers(0, turn % 4 + 1, 256)
        fresh = [counting(0) for _ in range(turn % 4 + 1)]
        for giver, table in enumerate(tables):
            table.commit()
            table.forget(table.version)
            for taker, target in enumerate(fresh):
                moving = np.flatnonzero((owner == giver) & (wanted == taker))
                target.absorb(table.release(moving.tolist()))
        tables, owner = fresh, wanted
        for _ in range(3):
            keys = np.concatenate([random.integers(0, total + 1, 300), total + np.arange(30)])
            total += 30
            buckets = bucket_of(hash_columns([ints(keys)]), 256)
            for place, table in enumerate(tables):
                slots = table.groups([ints(keys[owner[buckets] == place])]).slots
                table.set("n", slots, table.get("n", slots) + 1)
        chains.append(max(views(table) for table in tables))
        sizes.append(sum(slab.size for table in tables for slab in table._slabs._all()))
    assert sum(len(table) for table in tables) == total
    assert max(chains) <= 4 * slabs_module.MOST_VIEWS
    assert sizes[-1] <= 8 * total


def test_what_was_touched_is_told_though_its_row_moved_on() -> None:
    one, two = counting(1000), counting(0)
    two.absorb(one.release(HALF))
    since = two.commit()
    slots = two.live()[:20]
    two.set("n", slots, np.arange(7000, 7020))
    two.settle()
    told = two.delta(since).rows.column(1).to_pylist()
    assert sorted(told) == list(range(7000, 7020))
    assert value_of(two, two.delta(since).rows.column(0)[0].as_py()) == told[0]


# --- what it costs -------------------------------------------------------------------------------


def tables(rows: int) -> list[Store]:
    keys = pa.schema([("k", pa.int64())])
    stores = [TableStore(keys, pa.schema([("n", pa.int64())]), 256, ["k"]) for _ in range(2)]
    slots = stores[0].table.groups([pa.array(np.arange(rows))]).slots
    stores[0].table.stamp(slots, np.arange(rows))
    stores[0].table.earliest_due()
    return list(stores)


def rows_to_match(rows: int) -> list[Store]:
    schema = pa.schema([("k", pa.int64())])
    stores = [RowStore(schema, ["k"], ["k"], 256) for _ in range(2)]
    batch = pa.RecordBatch.from_arrays([pa.array(np.arange(rows))], schema=schema)
    stores[0].add(stores[0].segment(batch, stores[0].number(rows), np.arange(rows)))
    return list(stores)


def objects(rows: int) -> list[Store]:
    stores = [ObjectStore(), ObjectStore()]
    for store in stores:
        store.move_along(Wakes())
    (wakes,) = stores[0]._indexes
    assert isinstance(wakes, Wakes)
    for number in range(rows):
        stores[0].bucket(number % 256)[number] = number
        wakes.note(rows - number, (0, 0), number % 256, number)
    return list(stores)


def cost_of_a_hand_over(stores: list[Store], act: Callable[[Store], None]) -> float:
    """CPU seconds of the thread, so that others on the machine do not count; the least of many."""
    one, two = stores
    took = []
    for _ in range(30):
        start = time.thread_time()
        two.absorb(one.release(HALF))
        act(two)
        one.absorb(two.release(HALF))
        act(one)
        took.append(time.thread_time() - start)
    return min(took)


def look_at_what_is_due(store: Store) -> None:
    if isinstance(store, TableStore):
        store.table.earliest_due()


@pytest.mark.parametrize("make", [tables, rows_to_match, objects])
def test_a_hand_over_costs_the_same_however_many_rows_there_are(
    make: Callable[[int], list[Store]],
) -> None:
    few, many = (cost_of_a_hand_over(make(rows), look_at_what_is_due) for rows in (FEW, MANY))
    assert many < 8 * few + 0.0005
