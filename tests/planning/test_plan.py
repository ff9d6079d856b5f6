from __future__ import annotations

import json
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import PlanError
from anabranch.planning.plan import Plan, RegionPlan, SourcePlan
from anabranch.testing.random_plans import random_plan
from tests.planning.described_flows import built

TEXT = """
    s: source a b
    m: map makes a b
    n: map makes a b
    p: partitioned by a
    g: stateful
    x: shared
    out: sink
"""
FLOW, PLAN = built(TEXT)


@given(st.integers(0, 2**32))
def test_a_plan_survives_being_written_and_read(seed):
    plan = random_plan(FLOW, Random(seed)).with_source("s", in_flight_limit=seed % 7 + 1)
    assert Plan.from_json(plan.to_json()) == plan


def test_a_placement_survives_being_written_and_read():
    plan = replaced("p", replicas=2, bucket_map=(0, 1) * 6, placement=("here", "there"))
    assert Plan.from_json(plan.to_json()) == plan


@given(st.integers(0, 2**32))
def test_a_random_plan_is_valid(seed):
    assert random_plan(FLOW, Random(seed)).validate(FLOW) is None


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", "3", '{"flow": "f", "fingerprint": "x", "regions": [1], "sources": []}'],
)
def test_what_is_no_plan_is_refused(text):
    with pytest.raises(PlanError, match="expected JSON with flow, fingerprint, regions"):
        Plan.from_json(text)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("regions", 0, "replicas"), "2"),
        (("regions", 1, "bucket_map"), ["0"] * 12),
        (("sources", 0, "batch_rows"), None),
        (("sources", 0, "replicas"), 1.5),
    ],
)
def test_a_plan_with_a_value_of_another_type_is_refused(place, value):
    data = json.loads(PLAN.to_json())
    part, number, name = place
    data[part][number][name] = value
    with pytest.raises(PlanError):
        Plan.from_json(json.dumps(data)).validate(FLOW)


# --- validate ------------------------------------------------------------------------------------


def replaced(region: str, **changes) -> Plan:
    changed = replace(PLAN.region(region), **changes)
    return replace(PLAN, regions=tuple(changed if r.region == region else r for r in PLAN.regions))


def test_a_plan_for_another_flow_is_refused():
    other, _ = built(TEXT.replace("by a", "by b"))
    with pytest.raises(PlanError) as caught:
        PLAN.validate(other)
    message = str(caught.value)
    assert other.fingerprint() in message
    assert FLOW.fingerprint() in message
    assert "plan again" in message


BROKEN = {
    "a region left out": (
        replace(PLAN, regions=PLAN.regions[1:]),
        "each of the regions .* once",
    ),
    "a region planned twice": (
        replace(PLAN, regions=(*PLAN.regions, PLAN.regions[0])),
        "each of the regions .* once",
    ),
    "a source left out": (replace(PLAN, sources=()), "each of the regions .* once"),
    "steps left out": (replaced("m", pipelines=(("m",),)), "pipelines over the steps"),
    "steps in another order": (replaced("m", pipelines=(("n", "m"),)), "pipelines over the steps"),
    "an empty pipeline": (replaced("m", pipelines=(("m", "n"), ())), "pipelines over the steps"),
    "no replica": (replaced("m", replicas=0), "at least one replica, got 0"),
    "replicas of a stateful region": (
        PLAN.with_replicas("g", 2),
        "region 'g': expected one replica, as it is stateful, got 2",
    ),
    "ranges of a sink that do not tile parts": (
        replaced("out", range_rows=3),
        "region 'out': expected range_rows as a power of two up to .*, got 3",
    ),
    "ranges of another region": (replaced("m", range_rows=4), "range_rows for a sink alone, got 4"),
    "a bucket map too short": (
        replaced("p", bucket_map=(0,) * 11),
        "region 'p': expected a bucket map of 12 buckets, got 11",
    ),
    "a bucket map without keys": (replaced("m", bucket_map=(0,)), "a bucket map of 0 buckets"),
    "a shared region's map of the flow's length": (
        replaced("x", bucket_map=(0,) * 12),
        "region 'x': expected a bucket map of 6 buckets, got 12",
    ),
    "an owner that does not exist": (
        replaced("p", replicas=2, bucket_map=(0, 2) * 6),
        r"owners in 0\.\.1, got \[0, 2\]",
    ),
    "a negative owner": (replaced("p", bucket_map=(0, -1) * 6), r"owners in 0\.\.0"),
    "fewer places than replicas": (
        replaced("m", replicas=2, placement=("here",)),
        "a place for each of 2 replicas",
    ),
    "no reader": (PLAN.with_source("s", replicas=0), "step 's': expected positive replicas"),
    "no rows": (PLAN.with_source("s", batch_rows=0), "positive replicas, batch_rows"),
    "nothing in flight": (PLAN.with_source("s", in_flight_limit=0), "in_flight_limit"),
}


@pytest.mark.parametrize("mistake", sorted(BROKEN))
def test_a_plan_that_cannot_run_is_refused(mistake):
    plan, words = BROKEN[mistake]
    with pytest.raises(PlanError, match=words):
        plan.validate(FLOW)


# --- changes -------------------------------------------------------------------------------------


def test_unknown_regions_and_sources_say_which_exist():
    with pytest.raises(PlanError, match=r"a region among \['m', 'p', 'g', 'x', 'out'\]"):
        PLAN.with_replicas("nobody", 2)
    with pytest.raises(PlanError, match=r"a source among \['s'\]"):
        PLAN.with_source("nobody", replicas=2)


def test_replicas_are_at_least_one():
    with pytest.raises(PlanError, match="at least one replica"):
        PLAN.with_replicas("p", 0)


@pytest.mark.parametrize("lengths", [(1,), (1, 2), (0, 2), (3, -1), ()])
def test_pipelines_cut_every_step_once(lengths):
    with pytest.raises(PlanError, match="lengths that add up to 2"):
        PLAN.with_pipelines("m", *lengths)


def test_another_number_of_replicas_forgets_the_places_of_the_old_ones():
    plan = replaced("m", replicas=2, placement=("here", "there"))
    assert plan.with_replicas("m", 3).region("m").placement == ()


def test_pipelines_are_runs_of_the_given_lengths():
    assert PLAN.with_pipelines("m", 1, 1).region("m").pipelines == (("m",), ("n",))


# --- diff ----------------------------------------------------------------------------------------


def test_a_plan_does_not_differ_from_itself():
    assert PLAN.diff(PLAN) == []


CHANGES = {
    "replicas with buckets": (
        PLAN.with_replicas("p", 3),
        "1 → 3 replicas of region p, 8 of 12 buckets move",
    ),
    "replicas without buckets": (PLAN.with_replicas("m", 2), "1 → 2 replicas of region m"),
    "pipelines": (PLAN.with_pipelines("m", 1, 1), "pipelines of region m: m · n → m | n"),
    "places": (replaced("g", placement=("here",)), "placement of region g: [] → ['here']"),
    "readers": (PLAN.with_source("s", replicas=2), "1 → 2 replicas of source s"),
    "throttle": (
        PLAN.with_source("s", in_flight_limit=9),
        "None → 9 in flight limit of source s",
    ),
    "batches": (PLAN.with_source("s", batch_rows=10), "65536 → 10 batch rows of source s"),
}


@pytest.mark.parametrize("change", sorted(CHANGES))
def test_a_change_is_told_in_words(change):
    plan, words = CHANGES[change]
    assert PLAN.diff(plan) == [words]


def test_buckets_that_move_between_the_same_replicas_are_told():
    before = PLAN.with_bucket_map("p", (0,) * 12).with_replicas("p", 2)
    after = before.with_bucket_map("p", (0,) * 11 + (1,))
    assert before.diff(after) == ["region p: 5 of 12 buckets move"]


def test_the_sequential_plan_has_one_of_everything():
    assert PLAN.regions == (
        RegionPlan("m", (("m", "n"),)),
        RegionPlan("p", (("p",),), bucket_map=(0,) * 12),
        RegionPlan("g", (("g",),)),
        RegionPlan("x", (("x",),), bucket_map=(0,) * 6),
        RegionPlan("out", (("out",),)),
    )
    assert PLAN.sources == (SourcePlan("s"),)
