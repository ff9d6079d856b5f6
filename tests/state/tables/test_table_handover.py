"""Buckets that move between tables by reference."""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa
import pytest

from anabranch.columns.hashing import bucket_of, hash_columns
from anabranch.state.tables import keyed_table as table_module
from anabranch.state.tables.keyed_table import KeyedTable
from tests.state.tables.tables import (
    BUCKETS,
    INT64,
    VALUES,
    colliding,
    counting,
    ints,
    key_schema,
    texts,
    value_of,
)


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


def test_rows_route_by_part_of_the_key() -> None:
    schema = pa.schema([("host", pa.string()), ("user", pa.int64())])
    table = KeyedTable(schema, pa.schema([("n", pa.int64())]), 16, routing=["host"])
    hosts = pa.array([f"h{i % 5}" for i in range(40)])
    users = pa.array(list(range(40)))
    groups = table.groups([hosts, users])
    expected = bucket_of(hash_columns([hosts]), 16)
    assert table.bucket(groups.slots).tolist() == expected.tolist()

    moving = {int(expected[0])}
    other = KeyedTable(schema, table.value_schema, 16, routing=["host"])
    other.absorb(table.release(moving))
    mine = [row["host"] for row in other.rows(other.live()).to_pylist()]
    assert set(mine) == {h for h, b in zip(hosts.to_pylist(), expected, strict=True) if b in moving}
    assert len(table) + len(other) == 40


def test_removals_travel_by_the_part_of_the_key_that_routes() -> None:
    schema = pa.schema([("host", pa.string()), ("user", pa.int64())])
    one, two = (KeyedTable(schema, VALUES, BUCKETS, routing=["host"]) for _ in range(2))
    hosts, users = texts(range(20)), ints(range(20))
    one.remove(one.groups([hosts, users]).slots)
    buckets = bucket_of(hash_columns([hosts]), BUCKETS)
    moving = int(buckets[0])
    two.absorb(one.release({moving}))
    gone = two.delta(0).removed.column("host").to_pylist()
    assert gone == [h for h, b in zip(hosts.to_pylist(), buckets, strict=True) if b == moving]


def test_a_table_without_versions_remembers_no_changes() -> None:
    table = KeyedTable(key_schema([INT64]), VALUES, BUCKETS, versions=False)
    sizes = []
    for turn in range(50):
        table.remove(table.groups([ints(range(turn * 100, turn * 100 + 100))]).slots)
        sizes.append(table.nbytes)
    assert max(sizes) == sizes[0]
    with pytest.raises(LookupError, match="versions=True"):
        table.delta(0)
