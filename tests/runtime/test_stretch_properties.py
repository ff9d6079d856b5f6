"""STRETCH's six properties (§3), each by itself, on runs whose plans change.

Four kinds of change meet each property: replicas are added and taken away, buckets get other
owners, and pipelines are split and merged.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from random import Random

import pytest

from anabranch.planning.plan import Plan
from anabranch.planning.regions import RegionKind
from tests.runtime.recorded import (
    Story,
    after_the_last,
    merged_when_ready,
    one_order,
    one_timestamp,
    own_buckets,
    record,
    violations,
    whole_switches,
)
from tests.runtime.switching import any_plan, switching_flow
from tests.sampling import few

FLOW = switching_flow(rows=150)
CHANGES = 15
MAPPED = (RegionKind.SHARED, RegionKind.PARTITIONED)


def changes() -> list[Plan]:
    """Changes of all kinds, in turn."""
    plan = Plan.sequential(FLOW)
    lopsided = tuple(0 if bucket % 3 else 1 for bucket in range(16))
    wide = plan.with_replicas("weighed", 3).with_replicas("chained", 3)
    kinds = [
        wide.with_replicas("merged", 2),  # provisioning
        wide.with_bucket_map("chained", lopsided),  # load balancing
        wide.with_pipelines("chained", 1, 1),  # a pipeline is split
        plan.with_replicas("chained", 2).with_pipelines("chained", 2),  # and merged
        plan,  # decommissioning
    ]
    return [kinds[number % len(kinds)] for number in range(CHANGES)]


@pytest.fixture(scope="module")
def stories() -> Iterator[dict[str, Story]]:
    with pytest.MonkeyPatch.context() as patch:
        yield record(patch, FLOW, Plan.sequential(FLOW), changes(), seed=7)


def of_kinds(stories: dict[str, Story], *kinds: RegionKind) -> list[Story]:
    """The stories of some regions; all of them have worked under many plans."""
    found = [story for story in stories.values() if story.region.kind in kinds]
    assert found
    for story in found:
        plans = [story.plans[epoch] for epoch in story.epochs()]
        assert sum(before != after for before, after in pairwise(plans)) > CHANGES // 3
    return found


def test_p1_all_units_process_all_tuples_in_one_order(stories: dict[str, Story]):
    for story in of_kinds(stories, *MAPPED):
        assert one_order(story) is None
        widest = max(story.epochs().values(), key=lambda works: len({w.unit for w in works}))
        assert len({work.unit for work in widest}) == 3


def test_p2_each_unit_has_exclusive_access_to_its_buckets(stories: dict[str, Story]):
    for story in of_kinds(stories, *MAPPED):
        assert own_buckets(story) is None
        assert any(len(held) > 1 and all(held.values()) for held in story.held)


def test_p3_streams_are_merged_into_one_sequence_of_ready_tuples(stories: dict[str, Story]):
    for story in of_kinds(stories, *MAPPED, RegionKind.STATEFUL, RegionKind.SINK):
        assert merged_when_ready(story) is None


def test_p4_an_epoch_begins_after_the_last_tuple_of_the_one_before(stories: dict[str, Story]):
    for story in of_kinds(stories, *MAPPED):
        assert after_the_last(story) is None
        owners = [{b: w.unit for w in ws for b in w.buckets} for ws in story.epochs().values()]
        assert any(old != new for old, new in pairwise(filter(None, owners)))


def test_p5_a_change_of_plan_happens_whole(stories: dict[str, Story]):
    for story in of_kinds(stories, *MAPPED, RegionKind.STATELESS):
        assert whole_switches(story) is None


def test_p6_tuples_of_one_timestamp_belong_to_one_epoch(stories: dict[str, Story]):
    for story in of_kinds(stories, *MAPPED):
        times = [root.time for work in story.work for root in work.roots]
        assert story.timed
        assert len(set(times)) < len(times) / 2  # several tuples share a timestamp
        assert one_timestamp(story) is None


@pytest.mark.parametrize("seed", few(range(12), 3))
def test_any_changes_of_plan_keep_all_six(seed: int, monkeypatch: pytest.MonkeyPatch):
    rng = Random(seed)
    flow = switching_flow(rows=60, seed=seed)
    plans = [any_plan(flow, rng) for _ in range(9)]
    assert list(violations(record(monkeypatch, flow, plans[0], plans[1:], seed))) == []
