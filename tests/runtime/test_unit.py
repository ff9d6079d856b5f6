"""A unit from one epoch to the next: its buckets and the tuples that wait move as the plan says."""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.planning.plan import Plan, RegionPlan
from anabranch.planning.regions import RegionKind
from anabranch.runtime.channel import owned_buckets
from anabranch.runtime.layout import Layout, Topology
from anabranch.runtime.messages import Barrier, Chunk, Delivery, Handover, UnitId
from anabranch.runtime.outlet import Outlet
from anabranch.runtime.routing import Router
from anabranch.runtime.unit import Unit, concerns
from anabranch.state.positions import Jumbo, Positions, Root, end
from anabranch.state.tables.store import ObjectStore
from tests.runtime.switching import any_plan, switching_flow

FLOW = switching_flow()
TOPOLOGY = Topology(FLOW)
PLAN = Plan.sequential(FLOW)


def at(time: int) -> Root:
    return Root(time, 0, 0, 0)


def tuples(*values: int) -> Jumbo:
    """One tuple for each number, which is its time, key and value."""
    columns = {name: pa.array(values, pa.int64()) for name in ("k", "v")}
    rows = [(value, 0, value, 0) for value in values]
    return Jumbo(pa.record_batch(columns), Positions.of_rows(rows, 4))


def values(jumbo: Jumbo | None) -> list[int]:
    return [] if jumbo is None else jumbo.batch.column("v").to_pylist()


class Collected:
    """The outflow of a sink."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.ends = 0
        self.followed: list[int] = []

    def write(self, jumbo: Jumbo, born_s: float | None) -> None:
        self.rows += values(jumbo)

    def enter(self, epoch: int, plan: RegionPlan) -> None:
        """Epochs make no difference."""

    def end(self) -> None:
        self.ends += 1

    def leave(self) -> int:
        return 7

    def reach(self, frontier: Root) -> None:
        """Rows are shown at once."""

    def follow(self, generation: int) -> None:
        self.followed.append(generation)


class Alone:
    """One unit in an epoch; all that it sends is kept."""

    def __init__(self, unit: UnitId, plan: Plan = PLAN, epoch: int = 0) -> None:
        self.layout = Layout(TOPOLOGY, plan)
        self.outflow = Collected() if unit.region in ("numbers", "chain") else None
        self.unit = Unit(unit, self.layout, self.outflow)
        self.links = [each.link for each in self.layout.entrances[unit]]
        self.sent: list[Any] = []
        self.changes: dict[Chunk, int] = defaultdict(int)
        self.enter(epoch)

    def enter(self, epoch: int) -> None:
        outlet = Outlet(
            epoch, self.layout, self.unit.id, {}, self.sent.append, self.note, lambda count: 0
        )
        self.unit.enter(epoch, self.layout, outlet)

    def note(self, chunk: Chunk, change: int) -> None:
        self.changes[chunk] += change

    def deliver(self, jumbo: Jumbo | None, frontier: Root, link: int = 0, **more: Any) -> None:
        epoch = more.pop("epoch", self.unit.epoch)
        self.unit.receive(Delivery(epoch, self.links[link], jumbo, frontier, **more))

    def barrier(self, link: int = 0, epoch: int = 0) -> None:
        self.unit.receive(Barrier(epoch, self.links[link]))

    def run(self) -> None:
        self.unit.run(self.note)


SINK = UnitId("chain", 0)
CHAINED = UnitId("chained", 0)


# Within an epoch


def test_a_unit_processes_what_every_link_has_passed():
    alone = Alone(SINK, PLAN.with_replicas("chained", 2))
    alone.deliver(tuples(1, 5), at(9), link=0)
    alone.deliver(tuples(3), at(4), link=1)
    alone.run()
    assert alone.outflow.rows == [1, 3]


def test_a_unit_has_no_news_while_a_link_has_passed_nothing():
    alone = Alone(SINK, PLAN.with_replicas("chained", 2))
    alone.deliver(tuples(1, 5), at(9), link=0)
    assert not alone.unit.has_news()


def test_a_frontier_alone_is_passed_on():
    alone = Alone(CHAINED)
    alone.deliver(None, at(9))
    alone.run()
    assert [(each.jumbo, each.frontier) for each in alone.sent] == [(None, at(9))]


def test_the_end_of_a_stream_ends_a_sink_once():
    alone = Alone(SINK)
    alone.deliver(tuples(1), end(1))
    alone.run()
    alone.deliver(None, end(2))
    alone.run()
    assert (alone.outflow.rows, alone.outflow.ends) == ([1], 1)


def test_claims_of_what_a_unit_sends_are_counted_before_those_of_what_it_got_are_not():
    chunk = Chunk("left", 4)
    alone = Alone(CHAINED)
    alone.deliver(tuples(1, 2), at(9), chunks=frozenset({chunk}), born_s=3.0)
    alone.run()
    (sent,) = alone.sent
    assert (sent.chunks, sent.born_s, alone.changes[chunk]) == ({chunk}, 3.0, 0)


def test_a_sink_acknowledges_what_it_has_written():
    chunk = Chunk("left", 4)
    alone = Alone(SINK)
    alone.deliver(tuples(1, 2), at(9), chunks=frozenset({chunk}))
    alone.run()
    assert alone.changes == {chunk: -1}


def test_a_unit_is_over_when_every_link_has_ended():
    alone = Alone(SINK, PLAN.with_replicas("chained", 2))
    alone.barrier(link=0)
    before = alone.unit.is_over()
    alone.barrier(link=1)
    assert (before, alone.unit.is_over()) == (False, True)


def test_a_unit_sends_barriers_after_all_that_is_ready():
    alone = Alone(CHAINED)
    alone.deliver(tuples(1), at(9))
    alone.barrier()
    alone.run()
    alone.run()
    assert [type(each) for each in alone.sent] == [Delivery, Barrier]
    assert alone.unit.done


def test_deliveries_of_a_later_epoch_wait_for_it():
    alone = Alone(SINK)
    alone.deliver(tuples(7), at(8), epoch=1)
    before = alone.unit.has_news()
    alone.barrier()
    alone.run()
    alone.enter(1)
    alone.run()
    assert (before, alone.outflow.rows) == (False, [7])


def test_a_barrier_of_a_later_epoch_waits_for_it():
    alone = Alone(SINK)
    alone.barrier(epoch=1)
    before = alone.unit.is_over()
    alone.barrier(epoch=0)
    alone.run()
    alone.enter(1)
    assert (before, alone.unit.is_over()) == (False, True)


def test_tuples_that_wait_are_processed_in_the_next_epoch():
    alone = Alone(SINK)
    alone.deliver(tuples(1, 7), at(5))
    alone.barrier()
    alone.run()
    alone.run()
    alone.unit.preload(alone.unit.waiting())
    alone.enter(1)
    alone.deliver(tuples(6), at(9))
    alone.run()
    assert alone.outflow.rows == [1, 6, 7]


def test_claims_of_tuples_that_wait_are_let_go_with_the_epoch():
    chunk = Chunk("left", 4)
    alone = Alone(SINK)
    alone.deliver(tuples(7), at(5), chunks=frozenset({chunk}))
    assert alone.unit.abandoned() == [{chunk}]


def test_only_regions_that_need_order_can_be_cut():
    alone = Alone(UnitId("merged", 0))
    for link in range(len(alone.links)):
        alone.deliver(tuples(1, 2), at(9), link=link)
    assert alone.unit.cuts() == []


# From one layout to another


class Moved:
    """All units of one region, taken from one layout to another as hosts do it.

    Every bucket holds one key under every step that has state, and so many tuples wait.
    """

    def __init__(self, region: str, old: Layout, new: Layout, waiting: Jumbo) -> None:
        self.region, self.new = TOPOLOGY.regions[region], new
        units = [Unit(unit, old, Collected()) for unit in old.of_region(region)]
        shares = _shared_out(self.region, old, waiting)
        keeps: dict[UnitId, list[Jumbo | None]] = {}
        self.handovers: list[Handover] = []
        self.units: dict[UnitId, Unit] = {}
        for unit in units:
            _fill(unit)
            stays = new.units.get(unit.id) == old.units[unit.id]
            left = [shares[unit.id.replica]] if unit.id.pipeline == 0 else [None]
            handovers, keeps[unit.id] = unit.hand_over(new, left, stays)
            self.handovers += handovers
            if stays:
                unit.adopt(new)
                unit.preload(keeps[unit.id])
                self.units[unit.id] = unit
        for taker in new.of_region(region):
            self.units.setdefault(taker, Unit(taker, new, Collected()))
        for handover in self.handovers:
            self.units[handover.taker].absorb(handover)

    def waiting(self) -> dict[UnitId, list[int]]:
        """By unit, the tuples that wait in front of it."""
        return {
            name: sorted(v for port in unit._preloaded for jumbo in port for v in values(jumbo))
            for name, unit in self.units.items()
        }

    def held(self) -> dict[UnitId, dict[str, dict[int, Any]]]:
        """By unit and step, the buckets whose state it holds."""
        return {
            name: {
                step: {b: dict(entries) for b, entries in kernel.stores[0]._buckets.items()}
                for step, kernel in unit.channel.kernels.items()
                if kernel.stores and isinstance(kernel.stores[0], ObjectStore)
            }
            for name, unit in self.units.items()
        }


def _shared_out(region: Any, layout: Layout, waiting: Jumbo) -> list[Jumbo | None]:
    return Router(region, layout.plan.region(region.name)).route(waiting, turn=0)


def _fill(unit: Unit) -> None:
    for step, kernel in unit.channel.kernels.items():
        for store in kernel.stores:
            if isinstance(store, ObjectStore):
                for bucket in unit.channel.buckets:
                    store.bucket(bucket)["key"] = (step, bucket)


REGIONS = ["weighed", "chained", "numbered", "chain", "merged"]
WAITING = tuple(range(30))


@st.composite
def layouts(draw: st.DrawFn) -> tuple[Layout, Layout]:
    rng = Random(draw(st.integers(0, 2**32)))
    first, second = (
        Layout(TOPOLOGY, any_plan(FLOW, rng), draw(st.integers(0, 3))) for _ in range(2)
    )
    return first, second


@pytest.mark.parametrize("region", [name for name in REGIONS if name != "merged"])
@given(layouts())
def test_tuples_that_wait_go_to_those_that_process_them(
    region: str, both: tuple[Layout, Layout]
) -> None:
    old, new = both
    waiting = tuples(*WAITING)
    moved = Moved(region, old, new, waiting)
    shares = _shared_out(moved.region, new, waiting)
    expected = {
        unit: sorted(values(shares[unit.replica])) if unit.pipeline == 0 else []
        for unit in new.of_region(region)
    }
    assert moved.waiting() == expected


@pytest.mark.parametrize("region", REGIONS)
@given(layouts())
def test_every_bucket_is_held_by_its_owner_alone(region: str, both: tuple[Layout, Layout]) -> None:
    old, new = both
    moved = Moved(region, old, new, tuples())
    plan = new.plan.region(region)
    expected = {
        unit: {
            step: {b: {"key": (step, b)} for b in owned_buckets(moved.region, plan, unit.replica)}
            for step in moved.held()[unit]
        }
        for unit in new.of_region(region)
    }
    assert moved.held() == expected


@pytest.mark.parametrize("region", REGIONS)
@given(layouts())
def test_a_unit_runs_the_steps_of_its_pipeline(region: str, both: tuple[Layout, Layout]) -> None:
    old, new = both
    moved = Moved(region, old, new, tuples())
    steps = {name: tuple(unit.channel.kernels) for name, unit in moved.units.items()}
    assert steps == {unit: new.steps(unit) for unit in new.of_region(region)}


@pytest.mark.parametrize("region", REGIONS)
@given(layouts())
def test_a_taker_waits_for_exactly_those_that_hand_over(
    region: str, both: tuple[Layout, Layout]
) -> None:
    old, new = both
    expected = {
        (giver, taker)
        for giver in old.of_region(region)
        for taker in new.of_region(region)
        if concerns(old, new, giver, taker)
    }
    handed = [(each.giver, each.taker) for each in Moved(region, old, new, tuples()).handovers]
    assert sorted(handed) == sorted(expected)


@pytest.mark.parametrize("region", REGIONS)
def test_nothing_is_handed_over_under_the_same_plan(region: str) -> None:
    plan = PLAN.with_replicas("chained", 3).with_replicas("weighed", 2)
    layout = Layout(TOPOLOGY, plan, 2)
    moved = Moved(region, layout, Layout(TOPOLOGY, plan, 2), tuples(*WAITING))
    assert moved.handovers == []


def test_only_buckets_that_get_another_owner_move() -> None:
    old = Layout(TOPOLOGY, PLAN.with_replicas("chained", 2))
    owners = list(old.plan.region("chained").bucket_map)
    moving = owners.index(0)
    owners[moving] = 1
    new = Layout(TOPOLOGY, old.plan.with_bucket_map("chained", tuple(owners)))
    (handover,) = Moved("chained", old, new, tuples()).handovers
    assert (handover.giver.replica, handover.taker.replica) == (0, 1)
    assert {step: list(stores[0]) for step, stores in handover.state.items()} == {
        "chained": [moving],
        "counted": [moving],
    }


def test_a_pipeline_that_is_split_gives_the_state_of_its_last_steps_to_a_new_unit() -> None:
    old = Layout(TOPOLOGY, PLAN)
    new = Layout(TOPOLOGY, PLAN.with_pipelines("chained", 1, 1))
    (handover,) = Moved("chained", old, new, tuples()).handovers
    assert (handover.taker, list(handover.state)) == (UnitId("chained", 0, 1), ["counted"])


def test_a_new_replica_of_a_shared_region_gets_a_copy_of_what_waits() -> None:
    old = Layout(TOPOLOGY, PLAN.with_replicas("weighed", 2))
    new = Layout(TOPOLOGY, PLAN.with_replicas("weighed", 3))
    moved = Moved("weighed", old, new, tuples(1, 2))
    copies = [each for each in moved.handovers if values(next(iter(each.waiting), None))]
    assert [(each.giver.replica, each.taker.replica) for each in copies] == [(0, 2)]


def test_a_unit_that_moves_to_another_host_takes_all_along() -> None:
    old = Layout(TOPOLOGY, PLAN.with_workers("numbered", 0), 2)
    new = Layout(TOPOLOGY, PLAN.with_workers("numbered", 1), 2)
    (handover,) = Moved("numbered", old, new, tuples(1, 2)).handovers
    assert (handover.giver, handover.taker) == (UnitId("numbered", 0), UnitId("numbered", 0))
    assert (list(handover.state["numbered"][0]), values(handover.waiting[0])) == ([0], [1, 2])


def test_a_sink_that_moves_goes_on_where_it_has_left() -> None:
    old = Layout(TOPOLOGY, PLAN.with_replicas("chained", 1), 0)
    moved = Moved("chain", old, _elsewhere(old), tuples())
    assert moved.units[UnitId("chain", 0)].outflow.followed == [7]


def _elsewhere(layout: Layout) -> Layout:
    """The same plan; all units are on other hosts."""
    other = Layout(TOPOLOGY, layout.plan, layout.workers)
    other.__dict__["units"] = {unit: host + 1 for unit, host in layout.units.items()}
    return other


def test_a_shared_replica_without_buckets_takes_what_waits_to_another_host() -> None:
    plan = PLAN.with_replicas("weighed", 2).with_bucket_map("weighed", (0,) * 8)
    old = Layout(TOPOLOGY, plan.with_workers("weighed", 0, 0), 2)
    new = Layout(TOPOLOGY, plan.with_workers("weighed", 0, 1), 2)
    assert Moved("weighed", old, new, tuples(1, 2)).waiting()[UnitId("weighed", 1)] == [1, 2]


def test_stateless_units_hand_nothing_over() -> None:
    old = Layout(TOPOLOGY, PLAN.with_replicas("merged", 3), 3)
    new = Layout(TOPOLOGY, PLAN.with_replicas("merged", 2), 3)
    assert TOPOLOGY.regions["merged"].kind is RegionKind.STATELESS
    assert Moved("merged", old, new, tuples()).handovers == []


def test_what_was_counted_is_reported_once() -> None:
    alone = Alone(CHAINED)
    alone.unit.channel.kernels["chained"].context.counters.late += 2
    counted = [alone.unit.take_counters()["chained"].late for _ in range(2)]
    assert counted == [2, 0]
