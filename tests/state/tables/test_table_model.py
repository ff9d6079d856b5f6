"""The keyed table against a plain dict: any script of changes and hand-overs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from anabranch.columns.hashing import bucket_of, hash_columns
from anabranch.state.tables import keyed_table as table_module
from anabranch.state.tables import slab_set as slabs_module
from anabranch.state.tables.keyed_table import Handover, KeyedTable, TableDelta
from tests.state.tables.tables import (
    BUCKETS,
    KEY_TYPES,
    VALUES,
    between_processes,
    canonical,
    colliding,
    columns,
    contents,
    key_schema,
    sharing,
)

FIXED = pa.schema([("n", pa.int64()), ("tags", pa.int64())])
"""Values that can lie in shared memory, all of them; of VALUES, the lists are always copied."""
SOME_BLOCKS, MANY_BLOCKS = 6, 60
"""Numbers of arrays in shared memory at a time. A slab of integers has 7 with its index."""

Carry = Callable[[Handover], Handover]


class Model:
    """Several tables that own buckets between them, and the dict they should add up to."""

    def __init__(
        self, types: list[pa.DataType], values: pa.Schema, tables: int, carry: Carry
    ) -> None:
        self.types, self.values, self.carry = types, values, carry
        self.schema = key_schema(types)
        self.tables = [self.table() for _ in range(tables)]
        self.owner = [bucket % tables for bucket in range(BUCKETS)]
        self.travelling: list[tuple[Handover, int]] = []
        self.expected: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        # What a store of deltas would hold, all tables writing to it at the same barriers.
        self.stored = self.table()
        self.clock = 0

    def table(self) -> KeyedTable:
        return KeyedTable(self.schema, self.values, BUCKETS)

    def tagged(self, old: Any) -> Any:
        """The last two times that a key was counted, in a list or in one number."""
        if self.values is VALUES:
            return [*(old or [])[-1:], self.clock]
        return int(old or 0) % 1000 * 1000 + self.clock

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
            tags = [self.tagged(old) for old in table.get("tags", groups.slots)]
            table.set("tags", groups.slots, tags)
            table.stamp(groups.slots, self.clock)
            for key, more in zip(order, times.tolist(), strict=True):
                n, old, _ = self.expected.get(key, (0, None, 0))
                self.expected[key] = (n + more, self.tagged(old), self.clock)

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
                self.tables[target].absorb(self.carry(table.release(mine)))
        for bucket in buckets:
            self.owner[bucket] = target

    def renew(self, order: list[int]) -> None:
        """Every bucket goes to a new table of the same place, a few at a time."""
        fresh = [self.table() for _ in self.tables]
        # Deltas are asked for by version, and the new tables start with versions of their own.
        self.checkpoint()
        for bucket in order:
            place = self.owner[bucket]
            fresh[place].absorb(self.carry(self.tables[place].release([bucket])))
        self.tables = fresh

    def trickle(self, keys: list[tuple[Any, ...]], target: int) -> None:
        """Every bucket goes to one table, one at a time, and rows are counted in between."""
        for bucket in range(BUCKETS):
            self.count(keys[bucket::BUCKETS])
            self.move({bucket}, target)

    def settle(self, most: int) -> None:
        for table in self.tables:
            assert table.settle(most) <= most

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
            st.tuples(st.just("renew"), st.permutations(range(BUCKETS))),
            st.tuples(st.just("trickle"), st.permutations(keys), st.integers(0, 2)),
            st.tuples(st.just("settle"), st.integers(1, 5)),
            st.tuples(st.just("checkpoint")),
            st.tuples(st.just("check")),
        ),
        max_size=16,
    )


def by_reference(handover: Handover) -> Handover:
    return handover


def play(
    types: list[pa.DataType],
    script: list[tuple[Any, ...]],
    values: pa.Schema = VALUES,
    carry: Carry = by_reference,
) -> None:
    model = Model(types, values, tables=3, carry=carry)
    for name, *arguments in script:
        getattr(model, name)(*arguments)
    model.checkpoint()
    model.check()


@pytest.mark.parametrize("name", ["int64", "string", "pair", "triple"])
@given(data=st.data())
def test_tables_that_share_buckets_add_up_to_one_dict(name: str, data: st.DataObject) -> None:
    types, keys = KEY_TYPES[name]
    play(types, data.draw(steps(keys)))


@pytest.mark.parametrize(
    ("most", "from_items"),
    [(MANY_BLOCKS, 1), (SOME_BLOCKS, 1), (MANY_BLOCKS, 65), (0, 1)],
    ids=["all", "some", "large", "none"],
)
@pytest.mark.parametrize("values", [FIXED, VALUES], ids=["fixed", "lists"])
@pytest.mark.parametrize("name", ["int64", "string"])
@given(data=st.data())
def test_tables_of_several_processes_add_up_to_one_dict(
    name: str, values: pa.Schema, most: int, from_items: int, data: st.DataObject
) -> None:
    types, keys = KEY_TYPES[name]
    script = data.draw(steps(keys))
    with sharing(most, from_items):
        play(types, script, values, between_processes)


@given(data=st.data())
def test_tables_that_leave_views_soon_add_up_to_one_dict(data: st.DataObject) -> None:
    types, keys = KEY_TYPES["int64"]
    script = data.draw(steps(keys))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slabs_module, "MOST_VIEWS", 1)
        patch.setattr(slabs_module, "_SETTLE_AT_LEAST", 2)
        play(types, script)


@pytest.mark.parametrize(("name", "distinct"), [("int64", 1), ("string", 1), ("pair", 3)])
@given(data=st.data())
def test_keys_with_equal_hashes_stay_apart(name: str, distinct: int, data: st.DataObject) -> None:
    types, keys = KEY_TYPES[name]
    script = data.draw(steps(keys))
    collide = colliding(distinct)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_module, "hash_words", collide)
        patch.setattr("anabranch.columns.hashing.hash_words", collide)
        play(types, script)
