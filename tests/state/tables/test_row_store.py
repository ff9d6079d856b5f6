import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.columns.hashing import bucket_of, hash_columns
from anabranch.state.positions import FIRST, LAST
from anabranch.state.tables.row_segment import index_order, same_keys
from anabranch.state.tables.row_store import RowStore

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])
BUCKETS = 8
KEYS = st.sampled_from(["a", "b", "c", "d", "a longer key"])


def store(routing=("k",)):
    return RowStore(SCHEMA, ("k",), routing, BUCKETS)


def put(target, keys, times, first=0):
    values = list(range(first, first + len(keys)))
    arrays = [pa.array(keys, pa.string()), pa.array(values, pa.int64())]
    batch = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    serials = target.number(len(keys))
    target.add(target.segment(batch, serials, np.array(times, np.int64)))


def held(target):
    """Every (serial, row) by serial; rows of one key keep the order of arrival."""
    batch, serials = target.all()
    return sorted(zip(serials.tolist(), batch.to_pylist(), strict=True), key=lambda r: r[0])


def bucket(key):
    return int(bucket_of(hash_columns([pa.array([key])]), BUCKETS)[0])


@st.composite
def filled(draw):
    target, first, time = store(), 0, 0
    for size in draw(st.lists(st.integers(0, 9), max_size=6)):
        keys = [draw(KEYS) for _ in range(size)]
        put(target, keys, [time + i for i in range(size)], first)
        first, time = first + size, time + size
    return target


@given(filled(), st.sets(st.integers(0, BUCKETS - 1)))
def test_released_buckets_are_there_no_more_and_come_back_whole(target, moving):
    before = held(target)
    other = store()
    other.absorb(target.release(moving))
    assert held(other) == [r for r in before if bucket(r[1]["k"]) in moving]
    assert held(target) == [r for r in before if bucket(r[1]["k"]) not in moving]
    target.absorb(other.release(range(BUCKETS)))
    assert held(target) == before
    assert len(other) == 0


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "move", "renew", "kill", "expire"]),
            st.lists(KEYS, max_size=6),
            st.sets(st.integers(0, BUCKETS - 1)),
            st.integers(0, 2),
        ),
        max_size=25,
    )
)
def test_rows_of_a_key_stay_in_order_however_often_their_bucket_moves(script):
    stores, owner = [store() for _ in range(3)], dict.fromkeys(range(BUCKETS), 0)
    expected, number, oldest = [], 0, 0
    for name, keys, buckets, place in script:
        if name == "put":
            for n, target in enumerate(stores):
                share = [k for k in keys if owner[bucket(k)] == n]
                put(target, share, range(number, number + len(share)), number)
                expected += [(k, number + i) for i, k in enumerate(share)]
                number += len(share)
        elif name == "move":
            for n, giver in enumerate(stores):
                moving = [b for b in buckets if owner[b] == n]
                if n != place and moving:
                    stores[place].absorb(giver.release(moving))
            owner |= dict.fromkeys(buckets, place)
        elif name == "renew":
            fresh = [store() for _ in stores]
            for n, giver in enumerate(stores):
                for moving in (set(owner) & buckets, set(owner) - buckets):
                    fresh[n].absorb(giver.release([b for b in moving if owner[b] == n]))
            stores = fresh
        elif name == "kill":
            for n, target in enumerate(stores):
                probe = [k for k in keys if owner[bucket(k)] == n]
                rows = pa.RecordBatch.from_arrays(
                    [pa.array(probe, pa.string()), pa.array([0] * len(probe))], schema=SCHEMA
                )
                for held_by, places in target.found(target.segment(rows, np.arange(len(probe)))):
                    target.kill(held_by, places)
                target.squeeze()
            expected = [(k, v) for k, v in expected if k not in keys]
        else:
            oldest = max(oldest, number - 8)
            for target in stores:
                target.expire(oldest)
    seen = []
    for n, target in enumerate(stores):
        for segment in target.segments:
            rows = segment.take(segment.places()).to_pylist()
            assert {owner[bucket(row["k"])] for row in rows} <= {n}
            seen += [(row["k"], row["v"]) for row in rows if row["v"] >= oldest]
    wanted = [(k, v) for k, v in expected if v >= oldest]
    for key in {k for k, _ in wanted} | {k for k, _ in seen}:
        assert [r for r in seen if r[0] == key] == [r for r in wanted if r[0] == key]


def test_a_row_that_was_copied_out_is_not_found_where_it_was():
    one, two = store(), store()
    put(one, ["a", "b", "c", "d"] * 5, range(20))
    one.absorb([])
    mine = {bucket("a")}
    two.absorb(one.release(mine))
    (held_by,) = two.segments
    two.segments = [two._merged([held_by])]
    one.absorb(two.release(mine))
    probe = one.segment(held_by.take(held_by.places()), one.number(held_by.live))
    pairs = [probe.candidates(segment, within=0) for segment in one.segments]
    assert sum(len(lefts) for lefts, _ in pairs) == len(probe)


def test_segments_that_return_go_before_those_that_followed_them():
    one, two = store(), store()
    for size, first in ((40, 0), (10, 40), (2, 50)):
        put(one, ["a", "b"] * (size // 2), range(first, first + size), first)
    assert len(one.segments) == 3
    mine = {bucket("a")}
    two.absorb(one.release(mine))
    two.segments[:2] = [two._merged(two.segments[:2])]
    one.absorb(two.release(mine))
    rows = [row for s in one.segments for row in s.take(s.places()).to_pylist()]
    assert [row["v"] for row in rows if row["k"] == "a"] == list(range(0, 52, 2))


def test_buckets_that_move_share_rows_and_index_and_are_one_again_when_they_return():
    one, two = store(), store()
    put(one, [f"key {n}" for n in range(1000)], range(1000))
    two.absorb(one.release(range(0, BUCKETS, 2)))
    assert np.shares_memory(one.segments[0].hashes, two.segments[0].hashes)
    one.absorb(two.release(range(BUCKETS)))
    assert len(one.segments) == 1
    assert len(one) == 1000


def test_segments_that_came_with_buckets_do_not_pile_up():
    one, two = store(), store()
    for turn in range(100):
        put(one, [f"{turn} {n}" for n in range(40)], range(40))
        two.absorb(one.release(range(turn % 4, BUCKETS, 2)))
        put(two, [], [])
        put(two, [f"{turn} more {n}" for n in range(10)], range(10))
        one.absorb(two.release(range(turn % 3, BUCKETS, 3)))
    assert len(one) + len(two) == 5000
    assert max(len(one.segments), len(two.segments)) <= 20


@given(filled(), st.sets(st.integers(0, BUCKETS - 1)))
def test_a_snapshot_restores_the_buckets_that_are_asked_for(target, wanted):
    before = held(target)
    content = target.snapshot()
    put(target, ["later"], [99])
    fresh = store()
    fresh.restore(content, wanted)
    assert held(fresh) == [r for r in before if bucket(r[1]["k"]) in wanted]


@given(filled(), filled(), st.integers(0, 5))
def test_candidates_are_all_pairs_of_equal_key_near_in_time(one, two, within):
    found = []
    for left in one.segments:
        for right in two.segments:
            lefts, rights = left.candidates(right, within)
            assert same_keys(left.columns(["k"], lefts), right.columns(["k"], rights)) is None
            found += zip(
                left.take(lefts)["v"].to_pylist(), right.take(rights)["v"].to_pylist(), strict=True
            )
    rows = [[r for _, r in held(s)] for s in (one, two)]  # here a row's time is its value
    wanted = [
        (a["v"], b["v"])
        for a in rows[0]
        for b in rows[1]
        if a["k"] == b["k"] and abs(a["v"] - b["v"]) <= within
    ]
    assert sorted(found) == sorted(wanted)


def test_rows_that_came_from_elsewhere_are_older_than_rows_that_come_later():
    one, two = store(), store()
    put(one, ["k"] * 5, range(5))
    two.absorb(one.release([bucket("k")]))
    put(two, ["k"], [5], first=5)
    assert [row["v"] for _, row in held(two)] == list(range(6))


def test_keys_of_one_hash_are_indexed_by_time_though_they_came_from_different_replicas():
    hashes = np.array([9, 7, 7, 7], np.uint64)
    assert index_order(hashes, np.array([0, 5, 8, 1])).tolist() == [3, 1, 2, 0]


def test_release_copies_no_row():
    one = store()
    put(one, ["a", "b", "c"], [0, 1, 2])
    batch = one.segments[0].batch
    (given_up,) = one.release([bucket("a")])
    assert given_up.batch is batch


def test_segments_are_few_and_expired_rows_go():
    target = store()
    for number in range(300):
        put(target, ["k"] * 3, [number] * 3)
        target.expire(number - 10)
    assert len(target.segments) <= 8
    assert len(target) <= 150


def test_rows_taken_out_are_not_found():
    target = store()
    put(target, ["a", "b", "a"], [0, 1, 2])
    wanted = pa.RecordBatch.from_pylist([{"k": "a", "v": 9}], SCHEMA)
    probe = target.segment(wanted, target.number(1))
    ((segment, places),) = target.found(probe)
    segment.kill(places)
    assert [row["v"] for _, row in held(target)] == [1]
    assert all(len(p) == 0 for _, p in target.found(probe))
    target.squeeze()
    assert [row["v"] for _, row in held(target)] == [1]


def test_times_at_the_ends_of_the_scale_do_not_overflow():
    one, two = store(), store()
    put(one, ["k", "k"], [FIRST, LAST])
    put(two, ["k", "k"], [FIRST + 1, LAST - 1])
    pairs = one.segments[0].candidates(two.segments[0], 5)
    assert sorted(zip(*map(np.ndarray.tolist, pairs), strict=True)) == [(0, 0), (1, 1)]


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        ([0.0, math.nan, 1.0], [-0.0, math.nan, 2.0], [True, True, False]),
        (["a", None, "b", None], ["a", None, None, "c"], [True, True, False, False]),
    ],
    ids=["floats", "texts"],
)
def test_keys_are_equal_as_everywhere_in_the_library(left, right, equal):
    assert same_keys([pa.array(left)], [pa.array(right)]).tolist() == equal
    assert same_keys([pa.array(left)], [pa.array(left)]) is None
