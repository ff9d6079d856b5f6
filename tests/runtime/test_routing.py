from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.columns.hashing import bucket_of, hash_columns
from anabranch.planning.bucket_map import balanced
from anabranch.planning.plan import RegionPlan
from anabranch.planning.regions import Region, RegionKind
from anabranch.runtime.routing import Router
from anabranch.state.positions import Jumbo, Mark, Positions, Root

BUCKETS = 8
KEYED = Region("p", RegionKind.PARTITIONED, ("p",), ("k",), BUCKETS)
SHARED = Region("x", RegionKind.SHARED, ("x",), (), BUCKETS)
PLAIN = Region("m", RegionKind.STATELESS, ("m",), ordered=False)
MARK = Mark(Root(9, 0, 9, -1), 4)


def tuples(keys: list[int], marks: tuple[Mark, ...] = ()) -> Jumbo:
    batch = pa.record_batch({"k": pa.array(keys, pa.int64()), "n": list(range(len(keys)))})
    return Jumbo(batch, Positions.of_source(0, np.arange(len(keys))), marks)


def router(region: Region, replicas: int, owners: tuple[int, ...] = ()) -> Router:
    owners = owners or balanced(BUCKETS, replicas)
    return Router(region, RegionPlan(region.name, (region.steps,), replicas, owners))


def numbers(share: Jumbo | None) -> list[int]:
    return [] if share is None else share.batch.column("n").to_pylist()


@given(st.lists(st.integers(-9, 9), max_size=20), st.tuples(*[st.integers(0, 2)] * BUCKETS))
def test_a_keyed_tuple_goes_to_the_owner_of_its_bucket(keys, owners):
    shares = router(KEYED, 3, owners).route(tuples(keys))
    buckets = bucket_of(hash_columns([pa.array(keys, pa.int64())]), BUCKETS).tolist()
    wanted = [[n for n, b in enumerate(buckets) if owners[b] == r] for r in range(3)]
    assert [numbers(share) for share in shares] == wanted


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=20))
def test_tuples_travel_with_their_positions(keys):
    whole = tuples(keys)
    shares = router(KEYED, 3).route(whole)
    places = {
        n: p for s in shares if s for n, p in zip(numbers(s), s.positions.rows(), strict=True)
    }
    assert places == dict(enumerate(whole.positions.rows()))


def test_one_replica_gets_the_batch_as_it_is():
    whole = tuples([1, 2, 3])
    assert router(KEYED, 1).route(whole)[0] is whole


def test_every_replica_of_a_shared_region_gets_everything():
    whole = tuples([1, 2])
    assert router(SHARED, 3).route(whole) == [whole] * 3


def test_a_stateless_region_takes_whole_batches_in_turn():
    route = router(PLAIN, 2)
    taken = [
        [share is not None for share in route.route(tuples([1]))].index(True) for _ in range(4)
    ]
    assert sorted(taken[:2]) == sorted(taken[2:]) == [0, 1]


def test_the_caller_may_choose_the_replica():
    shares = router(PLAIN, 3).route(tuples([1]), turn=5)
    assert [numbers(share) for share in shares] == [[], [], [0]]


@pytest.mark.parametrize("region", [KEYED, SHARED, PLAIN], ids=lambda r: r.kind.value)
@pytest.mark.parametrize("nothing", [None, tuples([])], ids=["none", "empty"])
def test_nothing_goes_nowhere(region, nothing):
    assert router(region, 3).route(nothing) == [None] * 3


@pytest.mark.parametrize("keys", [[], [1], [1, 2, 3, 4, 5]])
@pytest.mark.parametrize("region", [KEYED, PLAIN], ids=lambda r: r.kind.value)
def test_a_mark_reaches_one_replica_whatever_tuples_come_with_it(region, keys):
    shares = router(region, 3).route(tuples(keys, (MARK,)))
    assert [m for share in shares if share is not None for m in share.marks] == [MARK]
