"""Loads of buckets and keys: counts by bucket, and a hot key found in a sample."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.columns.hashing import bucket_of, hash_columns
from anabranch.events import HotKey
from anabranch.planning.bucket_map import balanced
from anabranch.planning.plan import RegionPlan
from anabranch.planning.regions import Region, RegionKind
from anabranch.runtime.bucket_loads import (
    KEPT_DRAWS,
    BucketLoads,
    Loads,
    bucket_rows,
    hottest_key,
)
from anabranch.runtime.routing import Router
from anabranch.state.positions import Jumbo, Positions

BUCKETS = 16
REGION = Region("p", RegionKind.PARTITIONED, ("p",), ("k",), BUCKETS)


def dealt(*batches: list[int] | np.ndarray, replicas: int = 3) -> BucketLoads:
    """What a router notes of some batches of keys."""
    loads = BucketLoads(BUCKETS, ("k",))
    plan = RegionPlan("p", (("p",),), replicas, balanced(BUCKETS, replicas))
    router = Router(REGION, plan, loads)
    for keys in batches:
        batch = pa.record_batch({"k": pa.array(keys, pa.int64())})
        router.route(Jumbo(batch, Positions.of_source(0, np.arange(len(keys)))))
    return loads


@given(st.lists(st.lists(st.integers(-50, 50), min_size=1, max_size=200), min_size=1, max_size=4))
def test_every_tuple_counts_in_its_bucket(batches):
    found = dealt(*batches).look()
    keys = pa.array([key for batch in batches for key in batch], pa.int64())
    buckets = bucket_of(hash_columns([keys]), BUCKETS)
    assert found.bucket_rows == tuple(np.bincount(buckets, minlength=BUCKETS).tolist())
    assert found.rows == pytest.approx(len(keys))


def test_a_look_tells_what_came_since_the_last_one():
    loads = dealt([1, 2, 3])
    assert sum(loads.look().bucket_rows) == 3
    assert loads.look() == Loads()


def test_one_replica_gets_everything_and_nothing_is_counted():
    assert dealt([1, 2, 3], replicas=1).look() == Loads()


def test_a_hot_key_is_named_with_about_its_share():
    chance = np.random.default_rng(5)
    batches = [
        np.where(chance.random(20_000) < 0.3, 7, chance.integers(100, 100_000, 20_000))
        for _ in range(20)
    ]
    found = hottest_key([dealt(*batches).look()])
    assert found is not None
    assert (found.key, found.share) == ("k 7", pytest.approx(0.3, abs=0.05))


def test_a_pattern_in_the_data_makes_no_hot_key():
    """Rows that go round as evenly as a sample of every n-th row does."""
    keys = np.tile(np.arange(1000), 64)
    assert hottest_key([dealt(*[keys] * 50).look()]) is None


def test_a_few_tuples_make_no_hot_key():
    assert hottest_key([dealt([1, 1, 1, 2]).look()]) is None
    assert hottest_key([Loads()]) is None


def test_large_and_small_jumbo_tuples_count_by_their_size():
    large = np.full(10_000, 1)
    small = np.full(64, 2)
    found = hottest_key([dealt(large, *[small] * 20).look()])
    assert found == HotKey("k 1", pytest.approx(10_000 / 11_280))


def test_what_several_tasks_told_is_put_together():
    """Each of them saw another part; a key that is hot in all of them is hot."""
    told = [dealt([7] * 40 + [n] * 20).look() for n in (1, 2, 3)]
    assert hottest_key(told) == HotKey("k 7", pytest.approx(2 / 3))
    assert sum(bucket_rows([*told, Loads()])) == 180
    assert bucket_rows([]) == ()


def test_memory_does_not_grow_with_the_stream():
    loads = dealt(*[np.arange(100)] * (KEPT_DRAWS + 50))
    assert len(loads._draws) == KEPT_DRAWS


def test_a_long_key_of_several_columns_is_cut():
    loads = BucketLoads(4, ("name", "port"))
    columns = [pa.array(["x" * 500] * 20), pa.array([80] * 20)]
    loads.note(np.array([20, 0, 0, 0]), hash_columns(columns), columns)
    found = hottest_key([loads.look()])
    assert found is not None
    assert found.key.endswith("…, port 80")
    assert len(found.key) < 80
