"""The keyed table against a plain dict, and what it promises beyond a dict."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from anabranch.state import table as table_module
from anabranch.state.handover import Handover
from anabranch.state.hashing import bucket_of, hash_columns
from anabranch.state.table import KeyedTable, TableDelta

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


def key_schema(types: list[pa.DataType]) -> pa.Schema:
    return pa.schema([(f"k{i}", key_type) for i, key_type in enumerate(types)])


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


class Model:
    """Several tables that own buckets between them, and the dict they should add up to."""

    def __init__(self, types: list[pa.DataType], tables: int) -> None:
        self.types = types
        self.schema = key_schema(types)
        self.tables = [KeyedTable(self.schema, VALUES, BUCKETS) for _ in range(tables)]
        self.owner = [bucket % tables for bucket in range(BUCKETS)]
        self.travelling: list[tuple[Handover, int]] = []
        self.expected: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        # What a store of deltas would hold, all tables writing to it at the same barriers.
        self.stored = KeyedTable(self.schema, VALUES, BUCKETS)
        self.clock = 0

    def shares(self, keys: list[tuple[Any, ...]]) -> list[tuple[KeyedTable, list[tuple[Any, ...]]]]:
        if not keys:
            return [(table, []) for table in self.tables]
        buckets = bucket_of(hash_columns(columns(keys, self.types)), BUCKETS)
        return [
            (table, [k for k, b in zip(keys, buckets, strict=True) if self.owner[b] == place])
            for place, table in enumerate(self.tables)
        ]

    def count(self, keys: list[tuple[Any, ...]]) -> None:
        self.clock += 1
        for table, share in self.shares(keys):
            groups = table.groups(columns(share, self.types))
            order = list(dict.fromkeys(canonical(key) for key in share))
            assert len(groups.slots) == len(order)
            assert [order[code] for code in groups.codes] == [canonical(key) for key in share]
            assert groups.fresh.tolist() == [key not in self.expected for key in order]
            times = np.bincount(groups.codes, minlength=len(order))
            table.set("n", groups.slots, table.get("n", groups.slots) + times)
            tags = [[*(old or [])[-1:], self.clock] for old in table.get("tags", groups.slots)]
            table.set("tags", groups.slots, tags)
            table.stamp(groups.slots, self.clock)
            for key, more in zip(order, times.tolist(), strict=True):
                n, old, _ = self.expected.get(key, (0, [], 0))
                self.expected[key] = (n + more, [*old[-1:], self.clock], self.clock)

    def look(self, keys: list[tuple[Any, ...]]) -> None:
        for table, share in self.shares(keys):
            slots = table.find(columns(share, self.types))
            known = [canonical(key) in self.expected for key in share]
            assert (slots >= 0).tolist() == known
            found = table.rows(slots[slots >= 0]).column(len(self.types)).to_pylist()
            assert found == [
                self.expected[canonical(k)][0] for k in share if canonical(k) in self.expected
            ]

    def remove(self, keys: list[tuple[Any, ...]]) -> None:
        for table, share in self.shares(keys):
            slots = table.find(columns(share, self.types))
            table.remove(np.unique(slots[slots >= 0]))
        for key in keys:
            self.expected.pop(canonical(key), None)

    def expire(self, before: int) -> None:
        for table in self.tables:
            table.remove(table.expired(before))
        self.expected = {k: v for k, v in self.expected.items() if v[2] >= before}

    def move(self, buckets: set[int], target: int) -> None:
        for place, table in enumerate(self.tables):
            mine = {bucket for bucket in buckets if self.owner[bucket] == place}
            if place != target and mine:
                self.tables[target].absorb(table.release(mine))
        for bucket in buckets:
            self.owner[bucket] = target

    def checkpoint(self) -> None:
        for table in self.tables:
            before = table.version
            delta = TableDelta.from_ipc(table.delta(before).to_ipc())
            assert table.commit() == before + 1
            table.forget(before)
            self.stored.apply(delta)
        assert contents(self.stored) == self.expected

    def check(self) -> None:
        assert sum(len(table) for table in self.tables) == len(self.expected)
        held: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        for place, table in enumerate(self.tables):
            held |= contents(table)
            assert {self.owner[bucket] for bucket in table.bucket(table.live())} <= {place}
        assert held == self.expected


def steps(keys: list[tuple[Any, ...]]) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    some = st.lists(st.sampled_from(keys), max_size=12)
    return st.lists(
        st.one_of(
            st.tuples(st.just("count"), some),
            st.tuples(st.just("look"), some),
            st.tuples(st.just("remove"), some),
            st.tuples(st.just("expire"), st.integers(0, 20)),
            st.tuples(st.just("move"), st.sets(st.integers(0, BUCKETS - 1)), st.integers(0, 2)),
            st.tuples(st.just("checkpoint")),
            st.tuples(st.just("check")),
        ),
        max_size=16,
    )


def play(types: list[pa.DataType], script: list[tuple[Any, ...]]) -> None:
    model = Model(types, tables=3)
    for name, *arguments in script:
        getattr(model, name)(*arguments)
    model.checkpoint()
    model.check()


@pytest.mark.parametrize("name", ["int64", "string", "pair", "triple"])
@given(data=st.data())
def test_tables_that_share_buckets_add_up_to_one_dict(name: str, data: st.DataObject) -> None:
    types, keys = KEY_TYPES[name]
    play(types, data.draw(steps(keys)))


@pytest.mark.parametrize(("name", "distinct"), [("int64", 1), ("string", 1), ("pair", 3)])
@given(data=st.data())
def test_keys_with_equal_hashes_stay_apart(name: str, distinct: int, data: st.DataObject) -> None:
    types, keys = KEY_TYPES[name]
    script = data.draw(steps(keys))
    collide = colliding(distinct)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_module, "hash_words", collide)
        patch.setattr("anabranch.state.hashing.hash_words", collide)
        play(types, script)


def colliding(distinct: int) -> Callable[[Any], np.ndarray]:
    from anabranch.state.hashing import hash_words as real

    return lambda words: (real(words) % np.uint64(distinct)) << np.uint64(62)


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


def test_released_buckets_are_gone_here_and_found_there() -> None:
    one, two = counting(1000), counting(0)
    half = bucket_of(hash_columns([ints(range(1000))]), 256) < 128
    handover = one.release(range(128))
    assert handover.rows == half.sum()
    two.absorb(handover)
    assert ((one.find([ints(range(1000))]) >= 0) == ~half).all()
    assert (len(one), len(two)) == ((~half).sum(), half.sum())
    assert ((two.find([ints(range(1000))]) >= 0) == half).all()


def test_a_look_up_moves_in_only_the_rows_it_finds() -> None:
    one, two = counting(100_000), counting(0)
    two.absorb(one.release(range(1, 256)))
    size = two.nbytes
    keys = ints(range(10))
    assert (two.find([keys]) >= 0).sum() > 0
    assert two.nbytes - size < 10_000
    assert len(one) + len(two) == 100_000


def test_giving_everything_away_copies_nothing_at_either_end() -> None:
    one, two = counting(10_000), counting(0)
    held = one.nbytes
    two.absorb(one.release(range(256)))
    assert len(one) == 0
    assert len(two) == 10_000
    assert two.nbytes >= held // 2
    assert value_of(two, 77) == 77


def test_a_bucket_that_returns_brings_its_newer_state() -> None:
    one, two = counting(100), counting(0)
    two.absorb(one.release(range(1, 256)))
    for key in range(100):
        if value_of(two, key) is not None:
            two.set("n", two.find([ints([key])]), [-key])
    moved = two.live()
    two.remove(moved[:5])
    one.absorb(two.release(range(256)))
    assert len(one) == 95
    values = {key: value_of(one, key) for key in range(100)}
    assert sum(value is None for value in values.values()) == 5
    assert all(values[key] in (None, key, -key) for key in values)
    assert sum(value is not None and value < 0 for value in values.values()) >= 90


def test_buckets_travel_on_before_anybody_looked_at_them() -> None:
    one, two, three = counting(1000), counting(0), counting(0)
    own = next(n for n in range(5000, 9000) if bucket_of(hash_columns([ints([n])]), 256)[0] == 200)
    two.groups([ints([own])])
    two.absorb(one.release(range(200)))
    three.absorb(two.release(range(100)))
    assert len(one) + len(two) + len(three) == 1001
    held = [value_of(table, key) for key in range(1000) for table in (one, two, three)]
    assert sorted(value for value in held if value is not None) == list(range(1000))


def test_a_removed_row_does_not_come_back_from_where_it_was_inherited() -> None:
    one, two, three = counting(100), counting(0), counting(0)
    two.absorb(one.release(range(1, 256)))
    two.remove(two.find([ints(range(100))])[two.find([ints(range(100))]) >= 0])
    assert len(two) == 0
    three.absorb(two.release(range(256)))
    assert len(three) == 0
    assert (three.find([ints(range(100))]) < 0).all()


def test_times_travel_with_their_rows() -> None:
    one, two = counting(100), counting(0)
    slots = one.find([ints(range(100))])
    one.stamp(slots, np.arange(100))
    two.absorb(one.release(range(1, 256)))
    expired = len(two.expired(50))
    assert expired > 0
    assert expired + len(one.expired(50)) == 50


def test_uncommitted_changes_travel_to_the_receiver_s_delta() -> None:
    one, two = counting(100), counting(0)
    one.commit()
    one.set("n", one.find([ints(range(10))]), np.full(10, -1))
    one.remove(one.find([ints([50, 51])]))
    handover = one.release(range(256))
    assert one.delta(one.version).rows.num_rows == 0
    assert one.delta(one.version).removed.num_rows == 0
    two.absorb(handover)
    delta = two.delta(two.version)
    assert sorted(delta.rows.column(0).to_pylist()) == list(range(10))
    assert sorted(delta.removed.column(0).to_pylist()) == [50, 51]


def test_a_handover_is_absorbed_once() -> None:
    one, two = counting(10), counting(0)
    handover = one.release(range(256))
    two.absorb(handover)
    with pytest.raises(ValueError, match="release again"):
        one.absorb(handover)


def test_settling_in_steps_moves_everything_in() -> None:
    one, two = counting(1000), counting(0)
    two.absorb(one.release(range(1, 256)))
    expected = len(two)
    total = 0
    while moved := two.settle(100):
        assert moved <= 100
        total += moved
    assert total == expected == len(two)


def test_the_receiver_reads_while_the_releaser_goes_on_writing() -> None:
    one, two = counting(20_000, pa.string()), counting(0, pa.string())
    two.absorb(one.release(range(128)))
    mine = one.keys(one.live())
    failures: list[BaseException] = []

    def churn() -> None:
        try:
            for turn in range(30):
                slots = one.groups(mine).slots
                one.set("n", slots, np.full(len(slots), -1 - turn))
                one.remove(slots[: 100 * (turn % 3)])
                one.commit()
        except BaseException as failure:
            failures.append(failure)

    writer = threading.Thread(target=churn)
    writer.start()
    for start in range(0, 20_000, 500):
        keys = texts(range(start, start + 500))
        slots = two.find([keys])
        seen = np.flatnonzero(slots >= 0)
        assert (two.get("n", slots[seen]) == start + seen).all()
    writer.join()
    assert not failures
    assert len(two) == int((bucket_of(hash_columns([texts(range(20_000))]), 256) < 128).sum())


def test_rows_of_a_returned_bucket_are_seen_in_slots_that_other_buckets_left() -> None:
    one, two = counting(1000), counting(0)
    two.absorb(one.release(range(128)))
    one.remove(one.live())
    one.absorb(two.release(range(128)))
    one.groups([ints(range(2000))])
    assert len(one) == 2000
    assert (one.find([ints(range(2000))]) >= 0).all()
    assert len(one.live()) == 2000


def test_texts_with_one_hash_and_one_length_stay_apart() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_module, "hash_words", colliding(1))
        table = counting(50, pa.string())
        assert len(table) == 50
        assert (table.get("n", table.find([texts(range(50))])) == np.arange(50)).all()
        assert table.find([texts([99])]).tolist() == [-1]


def test_a_row_removed_among_others_still_to_be_inherited_stays_removed() -> None:
    one, two = counting(1000), counting(0)
    two.absorb(one.release(range(1, 256)))
    before = len(two)
    gone = two.find([ints(range(100))])
    two.remove(gone[gone >= 0])
    assert (two.find([ints(range(100))]) < 0).all()
    assert len(two.live()) == before - int((gone >= 0).sum())
