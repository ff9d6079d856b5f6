"""The outlet of a unit: who gets which tuples, and who gets the frontier alone."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.planning.plan import Plan
from anabranch.runtime.bucket_loads import BucketLoads
from anabranch.runtime.layout import Layout, Topology
from anabranch.runtime.messages import Barrier, Chunk, Delivery, UnitId
from anabranch.runtime.outlet import Outlet
from anabranch.runtime.routing import Router
from anabranch.state.positions import Root
from tests.runtime.switching import switching_flow
from tests.runtime.test_unit import tuples, values

FLOW = switching_flow()
TOPOLOGY = Topology(FLOW)
PLAN = Plan.sequential(FLOW)
MANY = tuple(range(40))
CHUNK = Chunk("left", 3)


def at(time: int) -> Root:
    return Root(time, 0, 0, 0)


class Sending:
    """The outlet of one unit; what it sends, and by how much the number of deliveries changes."""

    def __init__(self, unit: UnitId, plan: Plan, turn: int = 0, loads: Any = None) -> None:
        self.layout = Layout(TOPOLOGY, plan)
        self.sent: list[Any] = []
        self.changes: list[int] = []
        self.outlet = Outlet(
            5, self.layout, unit, loads or {}, self.sent.append, self._note, lambda count: turn
        )

    def _note(self, chunk: Chunk, change: int) -> None:
        self.changes.append(change)

    def send(self, jumbo: Any, frontier: Root, chunks: Any = frozenset()) -> list[Delivery]:
        """What is sent by one call."""
        before = len(self.sent)
        self.outlet.send([jumbo], [frontier], 2.5, chunks)
        return self.sent[before:]


def shares(sent: list[Delivery], region: str) -> list[list[int]]:
    """By replica of a region, the tuples that it gets."""
    return [values(each.jumbo) for each in sent if each.link.consumer.region == region]


WEIGHED, MERGED = UnitId("weighed", 0), UnitId("merged", 0)


def test_tuples_go_to_the_owners_of_their_buckets():
    sending = Sending(WEIGHED, PLAN.with_replicas("chained", 3))
    region = TOPOLOGY.regions["chained"]
    router = Router(region, sending.layout.plan.region("chained"))
    expected = [values(each) for each in router.route(tuples(*MANY))]
    assert shares(sending.send(tuples(*MANY), at(50)), "chained") == expected


def test_every_replica_of_a_shared_region_gets_every_tuple():
    sending = Sending(MERGED, PLAN.with_replicas("weighed", 3))
    assert shares(sending.send(tuples(1, 2), at(9)), "weighed") == [[1, 2]] * 3


def test_every_region_that_reads_a_stream_gets_it():
    sent = Sending(MERGED, PLAN).send(tuples(1, 2), at(9))
    assert sorted(each.link.consumer.region for each in sent) == ["numbered", "weighed"]


@pytest.mark.parametrize("turn", [0, 1, 2])
def test_one_replica_of_a_stateless_region_gets_the_tuples(turn: int):
    sending = Sending(UnitId("left.time", 0), PLAN.with_replicas("merged", 3), turn)
    sending.outlet.send([tuples(1, 2), None], [at(9), at(9)], None, frozenset())
    sent = [each for each in sending.sent if each.link.consumer.region == "merged"]
    assert [bool(values(each.jumbo)) for each in sent] == [turn == n for n in range(3)]


def test_tuples_go_on_to_the_next_pipeline_of_their_replica():
    plan = PLAN.with_replicas("chained", 2).with_pipelines("chained", 1, 1)
    (sent,) = Sending(UnitId("chained", 1, 0), plan).send(tuples(*MANY), at(50))
    assert (sent.link.consumer, values(sent.jumbo)) == (UnitId("chained", 1, 1), list(MANY))


def test_who_gets_no_tuples_gets_the_frontier():
    sending = Sending(WEIGHED, PLAN.with_replicas("chained", 3))
    sent = sending.send(tuples(4), at(9))
    assert [each.frontier for each in sent] == [at(9)] * 3
    assert sorted(each.jumbo is None for each in sent) == [False, True, True]


def test_a_frontier_that_is_not_new_is_not_sent_again():
    sending = Sending(WEIGHED, PLAN.with_replicas("chained", 3))
    sending.send(None, at(9))
    assert sending.send(None, at(9)) == []


def test_tuples_are_sent_though_the_frontier_is_not_new():
    sending = Sending(WEIGHED, PLAN)
    sending.send(None, at(9))
    assert shares(sending.send(tuples(20), at(9)), "chained") == [[20]]


def test_only_deliveries_with_tuples_count_for_their_claims():
    sending = Sending(WEIGHED, PLAN.with_replicas("chained", 3))
    sent = sending.send(tuples(4), at(9), frozenset({CHUNK}))
    assert (sorted(len(each.chunks) for each in sent), sending.changes) == ([0, 0, 1], [1])


def test_copies_count_each_for_its_claim():
    sending = Sending(MERGED, PLAN.with_replicas("weighed", 3))
    sending.send(tuples(4), at(9), frozenset({CHUNK}))
    assert sending.changes == [1] * 4  # three replicas, and the other region


def test_deliveries_are_of_the_epoch_and_as_old_as_what_they_stem_from():
    (sent,) = Sending(WEIGHED, PLAN).send(tuples(4), at(9))
    assert (sent.epoch, sent.born_s) == (5, 2.5)


def test_an_epoch_ends_on_every_link():
    sending = Sending(MERGED, PLAN.with_replicas("weighed", 3))
    sending.outlet.end_epoch()
    links = [link for each in sending.layout.exits[MERGED] for link in each.links]
    assert sending.sent == [Barrier(5, link) for link in links]


def test_tuples_are_counted_by_bucket():
    loads = {"chained": BucketLoads(16, ("k",))}
    sending = Sending(WEIGHED, PLAN.with_replicas("chained", 3), loads=loads)
    sending.send(tuples(*MANY), at(50))
    assert sum(loads["chained"].look().bucket_rows) == len(MANY)


def test_claims_that_complete_what_was_sent_travel_with_the_frontier():
    sending = Sending(MERGED, PLAN)
    sending.outlet.send([tuples(1, 2)], [at(0)], 2.5, frozenset())
    sending.sent.clear()
    sending.outlet.send([tuples(3)], [at(3)], 2.5, frozenset(), completing=frozenset({CHUNK}))
    scaled = [each for each in sending.sent if each.link.consumer == sending.sent[0].link.consumer]
    with_rows, alone = scaled
    assert (values(with_rows.jumbo), with_rows.frontier, with_rows.chunks) == (
        [3],
        at(0),
        frozenset(),
    )
    assert (alone.jumbo, alone.frontier, alone.chunks) == (None, at(3), frozenset({CHUNK}))
    assert sending.changes == [1] * (len(sending.sent) // 2)


def test_claims_that_complete_nothing_new_are_not_sent():
    sending = Sending(MERGED, PLAN)
    sending.outlet.send([None], [at(3)], None, frozenset())
    sending.sent.clear()
    sending.outlet.send([None], [at(3)], None, frozenset(), completing=frozenset({CHUNK}))
    assert (sending.sent, sending.changes) == ([], [])
