from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from anabranch.planning.bucket_map import balanced, moved, owned, rebalanced

maps = st.lists(st.integers(0, 5), min_size=1, max_size=40).map(tuple)
small_maps = st.lists(st.integers(0, 3), min_size=1, max_size=6).map(tuple)


def sizes(bucket_map: tuple[int, ...], replicas: int) -> list[int]:
    return [bucket_map.count(replica) for replica in range(replicas)]


def is_even(bucket_map: tuple[int, ...], replicas: int) -> bool:
    held = sizes(bucket_map, replicas)
    return sum(held) == len(bucket_map) and max(held) - min(held) <= 1


@given(st.integers(0, 40), st.integers(1, 8))
def test_buckets_are_dealt_evenly(buckets, replicas):
    assert is_even(balanced(buckets, replicas), replicas)


@given(maps, st.integers(1, 8))
def test_a_rebalanced_map_is_even(current, replicas):
    assert is_even(rebalanced(current, replicas), replicas)


@given(small_maps, st.integers(1, 4))
def test_no_even_map_moves_fewer_buckets(current, replicas):
    fewest = min(
        len(moved(current, other))
        for other in product(range(replicas), repeat=len(current))
        if is_even(other, replicas)
    )
    assert len(moved(current, rebalanced(current, replicas))) == fewest


@given(maps, st.integers(1, 8))
def test_rebalancing_again_moves_nothing(current, replicas):
    once = rebalanced(current, replicas)
    assert rebalanced(once, replicas) == once


@given(st.integers(1, 40), st.integers(1, 6), st.integers(1, 6))
def test_growing_moves_buckets_only_to_the_new_replicas(buckets, before, more):
    old = balanced(buckets, before)
    new = rebalanced(old, before + more)
    assert all(new[bucket] >= before for bucket in moved(old, new))


@given(maps, maps)
def test_moved_are_the_buckets_with_another_owner(old, new):
    length = min(len(old), len(new))
    old, new = old[:length], new[:length]
    changed = set(moved(old, new))
    assert all((old[b] != new[b]) == (b in changed) for b in range(length))


def test_each_bucket_is_owned_by_the_replica_the_map_names():
    assert [owned((0, 2, 0, 1), replica) for replica in range(4)] == [(0, 2), (3,), (1,), ()]
