"""Bucket maps by load."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.planning.bucket_map import (
    least_bound,
    moved,
    rebalance_by_load,
    replica_loads,
)

TOLERANCE = 0.1


@st.composite
def cases(draw):
    replicas = draw(st.integers(1, 6))
    buckets = draw(st.integers(1, 40))
    owners = draw(st.tuples(*[st.integers(0, replicas - 1)] * buckets))
    weights = st.one_of(st.floats(0.0, 10.0), st.sampled_from((0.0, 1.0, 2.0, 5.0, 20.0, 100.0)))
    return owners, draw(st.lists(weights, min_size=buckets, max_size=buckets)), replicas


@given(cases())
def test_what_the_replica_with_most_to_do_has_never_grows(case):
    owners, loads, replicas = case
    after = rebalance_by_load(owners, loads, replicas, TOLERANCE)
    before = max(replica_loads(owners, loads, replicas))
    assert max(replica_loads(after, loads, replicas)) <= before * (1 + 1e-9)
    assert set(after) <= set(range(replicas))


@given(cases())
def test_a_map_that_comes_out_stays_as_it_is(case):
    owners, loads, replicas = case
    once = rebalance_by_load(owners, loads, replicas, TOLERANCE)
    assert rebalance_by_load(once, loads, replicas, TOLERANCE) == once


@given(cases())
def test_every_move_is_needed_where_all_get_within_the_bound(case):
    owners, loads, replicas = case
    after = rebalance_by_load(owners, loads, replicas, TOLERANCE)
    bound = (1 + TOLERANCE) * least_bound(loads, replicas)
    if max(replica_loads(after, loads, replicas)) > bound * (1 + 1e-9):
        return
    for bucket in moved(owners, after):
        back = tuple(owners[b] if b == bucket else owner for b, owner in enumerate(after))
        assert replica_loads(back, loads, replicas)[owners[bucket]] > bound * (1 - 1e-9)


@given(cases())
def test_nothing_moves_within_the_tolerance(case):
    owners, loads, replicas = case
    bound = (1 + TOLERANCE) * least_bound(loads, replicas)
    if max(replica_loads(owners, loads, replicas)) <= bound:
        assert rebalance_by_load(owners, loads, replicas, TOLERANCE) == owners


@given(
    st.integers(1, 6).flatmap(
        lambda n: st.tuples(st.just(n), st.lists(st.integers(0, n - 1), min_size=64, max_size=64))
    )
)
def test_many_small_buckets_always_get_within_the_bound(case):
    replicas, owners = case
    loads = [1.0 + (b % 3) / 10 for b in range(64)]
    after = rebalance_by_load(tuple(owners), loads, replicas, TOLERANCE)
    mean = sum(loads) / replicas
    assert max(replica_loads(after, loads, replicas)) <= mean * (1 + TOLERANCE) + 1e-6


def test_of_several_buckets_that_are_enough_the_lightest_moves():
    after = rebalance_by_load((0, 0, 0, 0, 1, 1), [4.0, 2.5, 1.5, 2.0, 2.0, 4.0], 2)
    assert moved((0, 0, 0, 0, 1, 1), after) == (2,)


def test_what_a_later_move_made_needless_goes_back():
    """Bucket 3 has to go before bucket 0 does, and may stay then."""
    owners, loads = (1, 0, 0, 1, 1), [20.0, 2.0, 5.0, 1.0, 20.0]
    assert moved(owners, rebalance_by_load(owners, loads, 2)) == (0, 1)


def test_a_bucket_that_is_more_than_a_fair_share_keeps_its_replica_to_itself():
    owners = (0, 0, 0, 1, 1, 1)
    after = rebalance_by_load(owners, [10.0, 2.0, 2.0, 1.0, 1.0, 1.0], 2)
    assert after == (0, 1, 1, 1, 1, 1)


def test_a_lone_hot_bucket_does_not_move():
    owners = (0, 1, 1, 1)
    assert rebalance_by_load(owners, [10.0, 1.0, 1.0, 1.0], 2) == owners


@pytest.mark.parametrize("loads", [[0.0] * 4, [1.0, 0.0, 0.0, 0.0]])
def test_without_load_nothing_moves(loads):
    assert rebalance_by_load((0, 0, 1, 1), loads, 2) == (0, 0, 1, 1)


def test_loads_that_differ_by_rounding_alone_do_not_move_back_and_forth():
    loads = [10.0, 10.0, 0.0, 0.0, 9.999999999999998]
    moved = rebalance_by_load((0, 0, 1, 1, 0), loads, 2, 0.05)
    assert sorted(replica_loads(moved, loads, 2)) == pytest.approx([10, 20])
