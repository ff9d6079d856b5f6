"""STRETCH's six properties (§3), each by itself, on the real engine with plans that change.

Four kinds of change meet each property: replicas are added and taken away, buckets get other
owners, and pipelines are split and merged.
"""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from anabranch.engines.local.gate import ElasticGate
from anabranch.planning.plan import Plan
from anabranch.planning.regions import RegionKind
from anabranch.state.positions import Root
from tests.engines.local import switching
from tests.engines.local.recorded import (
    Story,
    after_the_last,
    merged_when_ready,
    one_order,
    one_timestamp,
    own_buckets,
    whole_switches,
)
from tests.engines.local.switching import Switching

pytestmark = pytest.mark.timeout(120)

CHANGES = 16


class InTurn(Switching):
    """A run whose changes are of all kinds, in turn."""

    def _plan(self) -> Plan:
        plan = self._small(Plan.sequential(self.flow))
        lopsided = tuple(0 if bucket % 3 else 1 for bucket in range(16))
        wide = plan.with_replicas("weighed", 3).with_replicas("chained", 3)
        kinds: list[Plan] = [
            wide.with_replicas("merged", 2),  # provisioning
            wide.with_bucket_map("chained", lopsided),  # load balancing
            wide.with_pipelines("chained", 1, 1),  # a pipeline is split
            plan.with_replicas("chained", 2).with_pipelines("chained", 2),  # and merged
            plan,  # decommissioning
        ]
        return kinds[len(self.plans) % len(kinds)]


@pytest.fixture(autouse=True)
def _impatient_threads() -> Iterator[None]:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(5e-5)
    yield
    sys.setswitchinterval(usual)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> InTurn:
    """Ready to run; operators and gates can still be watched."""
    return InTurn(monkeypatch, seed=7, changes=CHANGES, rows=240)


def stories(run: InTurn, *kinds: RegionKind) -> list[Story]:
    """Run to the end; the stories of regions that have switched often enough to tell."""
    wrong = [each for each in run.run() if each.startswith(("error", "crash"))]
    assert wrong == []
    told = [story for story in run.recorder.stories.values() if story.region.kind in kinds]
    switched = [story for story in told if len(story.plans) > CHANGES // 2]
    assert switched, "no region of that kind has switched"
    return switched


def test_p1_all_threads_observe_all_tuples_in_one_order(run: InTurn):
    told = stories(run, RegionKind.SHARED, RegionKind.PARTITIONED)
    for story in told:
        assert one_order(story) is None
        widest = max(story.epochs(), key=lambda works: len({w.replica for w in works}))
        assert len({work.replica for work in widest}) == 3


def test_p2_each_thread_has_exclusive_access_to_its_buckets(
    run: InTurn, monkeypatch: pytest.MonkeyPatch
):
    inside: dict[int, threading.Lock] = defaultdict(threading.Lock)
    calls: list[tuple[int, bool]] = []
    weigh = switching.weighed.function

    def watched(batch: Any, bucket: Any) -> Any:
        alone = inside[bucket.index].acquire(blocking=False)
        calls.append((bucket.index, alone))
        try:
            return weigh(batch, bucket)
        finally:
            if alone:
                inside[bucket.index].release()

    monkeypatch.setattr(switching.weighed, "function", watched)
    told = stories(run, RegionKind.SHARED, RegionKind.PARTITIONED)
    assert {bucket for bucket, _ in calls} == set(range(8))
    assert all(alone for _, alone in calls)
    assert [own_buckets(story) for story in told] == [None] * len(told)


def test_p3_streams_are_merged_into_one_sequence_of_ready_tuples(
    run: InTurn, monkeypatch: pytest.MonkeyPatch
):
    early: list[tuple[Root, Root]] = []
    read: Callable[..., Any] = ElasticGate.next_ready

    def watched(gate: ElasticGate, reader: object) -> Any:
        entry = read(gate, reader)
        with gate._lock:
            if gate.frontier < entry.frontier:  # some source could still come before it
                early.append((gate.frontier, entry.frontier))
        return entry

    monkeypatch.setattr(ElasticGate, "next_ready", watched)
    told = stories(run, RegionKind.SHARED, RegionKind.PARTITIONED)
    assert [merged_when_ready(story) for story in told] == [None] * len(told)
    assert early == []


def test_p4_an_epoch_begins_after_the_last_tuple_of_the_one_before(run: InTurn):
    for story in stories(run, RegionKind.SHARED, RegionKind.PARTITIONED, RegionKind.STATELESS):
        assert after_the_last(story) is None
        owners = [{b: w.replica for w in works for b in w.buckets} for works in story.epochs()]
        if story.region.mapped:
            assert any(old != new for old, new in pairwise(filter(None, owners)))


def test_p5_a_reconfiguration_happens_whole_or_not_at_all(run: InTurn):
    told = stories(run, RegionKind.SHARED, RegionKind.PARTITIONED, RegionKind.STATELESS)
    applied = [run.plans[0], *(Plan.from_json(each.after) for each in run._told())]
    for story in told:
        assert whole_switches(story, [plan.region(story.region.name) for plan in applied]) is None
    assert run.engine.plan == applied[-1]
    assert len(applied) > CHANGES - 4  # the last wishes may have come too late


def test_p6_tuples_of_one_timestamp_belong_to_one_epoch(run: InTurn):
    for story in stories(run, RegionKind.SHARED, RegionKind.PARTITIONED):
        assert story.timed
        times = [root.time for works in story.epochs() for work in works for root in work.roots]
        assert len(set(times)) < len(times) / 2  # several tuples share a timestamp
        assert one_timestamp(story) is None
