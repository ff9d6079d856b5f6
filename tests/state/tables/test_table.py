"""What the keyed table promises: look-up, values, versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from anabranch.state.tables.keyed_table import KeyedTable, TableDelta
from tests.state.tables.tables import (
    BUCKETS,
    KEY_TYPES,
    VALUES,
    canonical,
    columns,
    contents,
    counting,
    ints,
    key_schema,
    texts,
    value_of,
)


@pytest.mark.parametrize("key_type", [pa.int64(), pa.string()])
def test_a_table_grows_and_finds_every_key(key_type: pa.DataType) -> None:
    table = counting(50_000, key_type)
    make = texts if key_type == pa.string() else ints
    slots = table.find([make([*range(50_000), 50_001])])
    assert slots[-1] == -1
    assert (table.get("n", slots[:-1]) == np.arange(50_000)).all()
    assert len(table) == 50_000


def test_an_empty_batch_makes_no_groups() -> None:
    for types, _ in KEY_TYPES.values():
        table = KeyedTable(key_schema(types), VALUES, BUCKETS)
        groups = table.groups(columns([], types))
        assert (len(groups.slots), len(groups.codes), len(groups.fresh)) == (0, 0, 0)
        assert len(table.find(columns([], types))) == 0
        assert table.snapshot().rows.num_rows == 0


@pytest.mark.parametrize("name", KEY_TYPES)
def test_slices_of_arrays_are_looked_up_as_their_values(name: str) -> None:
    types, keys = KEY_TYPES[name]
    table = KeyedTable(key_schema(types), VALUES, BUCKETS)
    whole = columns(keys, types)
    slots = table.groups(whole).slots
    part = [column.slice(1, len(keys) - 2) for column in whole]
    assert table.find(part).tolist() == slots[1:-1].tolist()
    again = table.groups(part)
    assert again.slots.tolist() == slots[1:-1].tolist()
    assert not again.fresh.any()


def test_keys_come_back_with_the_types_of_the_schema() -> None:
    for types, keys in KEY_TYPES.values():
        table = KeyedTable(key_schema(types), VALUES, BUCKETS)
        slots = table.groups(columns(keys, types)).slots
        batch = table.rows(slots)
        assert batch.schema.types[: len(types)] == types
        batch.validate(full=True)
        back = list(zip(*(column.to_pylist() for column in table.keys(slots)), strict=True))
        assert [canonical(key) for key in back] == [canonical(key) for key in keys]


def test_keys_of_another_width_or_encoding_find_the_same_row() -> None:
    table = counting(10)
    assert table.find([pa.array([3], pa.int8())])[0] == table.find([ints([3])])[0]
    named = counting(10, pa.string())
    expected = named.find([texts([3, 4, 3])]).tolist()
    assert named.find([texts([3, 4, 3]).cast(pa.large_string())]).tolist() == expected
    assert named.find([texts([3, 4, 3]).dictionary_encode()]).tolist() == expected


def test_a_key_of_another_kind_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="'k0' of type int64, got string"):
        counting(1).find([pa.array(["1"])])


def test_values_of_every_fixed_width_type_start_as_zero_and_keep_what_is_set() -> None:
    types = [pa.bool_(), pa.int8(), pa.float32(), pa.timestamp("us"), pa.date32(), pa.duration("s")]
    schema = pa.schema([(f"v{i}", value_type) for i, value_type in enumerate(types)])
    table = KeyedTable(key_schema([pa.int64()]), schema, BUCKETS)
    slots = table.groups([ints([1, 2])]).slots
    for name in schema.names:
        assert not table.get(name, slots).any()
        table.set(name, slots, np.array([0, 1]))
    other = KeyedTable(table.key_schema, schema, BUCKETS)
    other.restore(TableDelta.from_ipc(table.snapshot().to_ipc()))
    assert other.rows(other.live()).equals(table.rows(slots))
    assert other.rows(other.live()).schema.types[1:] == types


def test_a_slot_used_again_starts_from_zero() -> None:
    table = KeyedTable(key_schema([pa.int64()]), VALUES, BUCKETS)
    slots = table.groups([ints([1])]).slots
    table.set("n", slots, [5])
    table.set("tags", slots, [[1]])
    table.stamp(slots, 5)
    table.remove(slots)
    again = table.groups([ints([2])]).slots
    assert again.tolist() == slots.tolist()
    assert (table.get("n", again)[0], table.get("tags", again)[0]) == (0, None)
    assert len(table.expired(100)) == 0


@pytest.mark.parametrize("make", [ints, texts])
def test_inserting_and_removing_keeps_memory_bounded(make: Callable[[Any], pa.Array]) -> None:
    table = KeyedTable(key_schema([make([1]).type]), VALUES, BUCKETS)
    sizes = []
    for turn in range(200):
        slots = table.groups([make(range(turn * 500, turn * 500 + 500))]).slots
        table.remove(slots)
        table.commit()
        table.forget(table.version)
        sizes.append(table.nbytes)
    assert max(sizes) <= 2 * max(sizes[:20])


def test_moving_buckets_to_and_fro_keeps_memory_bounded() -> None:
    one, two = (
        counting(2000),
        KeyedTable(key_schema([pa.int64()]), pa.schema([("n", pa.int64())]), 256),
    )
    sizes = []
    for _ in range(40):
        two.absorb(one.release(range(128)))
        two.settle()
        one.absorb(two.release(range(128)))
        one.settle()
        sizes.append(one.nbytes + two.nbytes)
        one.commit()
        two.commit()
        one.forget(one.version)
        two.forget(two.version)
    assert len(one) == 2000
    assert max(sizes) <= 3 * sizes[0]


def test_a_delta_holds_what_was_touched_since_a_version() -> None:
    table = counting(1000)
    first = table.commit()
    table.set("n", table.find([ints([3])]), [33])
    second = table.commit()
    table.set("n", table.find([ints([4])]), [44])
    table.remove(table.find([ints([5])]))
    assert table.delta(second).rows.column(0).to_pylist() == [4]
    assert sorted(table.delta(first).rows.column(0).to_pylist()) == [3, 4]
    assert table.delta(second).removed.column(0).to_pylist() == [5]
    assert table.delta(0).rows.num_rows == 999


def test_a_key_removed_and_put_again_is_not_among_the_removed() -> None:
    table = counting(3)
    since = table.commit()
    table.remove(table.find([ints([1])]))
    table.groups([ints([1])])
    delta = table.delta(since)
    assert delta.rows.to_pydict() == {"k0": [1], "n": [0]}
    assert delta.removed.num_rows == 0


def test_reading_is_no_change() -> None:
    table = counting(100)
    since = table.commit()
    slots = table.groups([ints(range(100))]).slots
    table.get("n", slots)
    table.live()
    assert table.delta(since).rows.num_rows == 0


def test_deltas_from_before_what_was_forgotten_are_refused() -> None:
    table = counting(3)
    table.commit()
    table.forget(table.version)
    with pytest.raises(LookupError, match="take a snapshot"):
        table.delta(0)
    assert table.delta(table.version).rows.num_rows == 0


def test_deltas_replayed_on_another_table_give_the_same_table() -> None:
    table, copy = counting(500, pa.string()), counting(0, pa.string())
    random = np.random.default_rng(1)
    since = 0
    for _ in range(20):
        copy.apply(TableDelta.from_ipc(table.delta(since).to_ipc()))
        since = table.commit()
        slots = table.groups([texts(random.integers(0, 900, 50))]).slots
        table.set("n", slots, random.integers(0, 99, len(slots)))
        table.remove(random.choice(table.live(), 40, replace=False))
    copy.apply(table.delta(since))
    assert contents(copy) == contents(table)


def test_restoring_into_a_table_that_holds_rows_is_refused() -> None:
    table = counting(3)
    with pytest.raises(ValueError, match="empty table"):
        table.restore(table.snapshot())


def test_compaction_keeps_rows_and_their_deltas() -> None:
    table = counting(5000)
    since = table.commit()
    table.set("n", table.find([ints([4990])]), [7])
    table.remove(table.find([ints(range(4900))]))
    before = table.nbytes
    table.commit()
    table.forget(0)
    assert table.nbytes < before
    assert table.delta(since).rows.to_pydict() == {"k0": [4990], "n": [7]}
    assert table.delta(since).removed.num_rows == 4900
    assert [value_of(table, key) for key in (4899, 4990, 4999)] == [None, 7, 4999]
