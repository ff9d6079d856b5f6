"""Stela: effective throughput percentages by hand, projections, and attempts in a round."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.adapt.guards import beyond
from anabranch.adapt.history import Limits
from anabranch.adapt.policies.stela import (
    Projection,
    RegionStream,
    Stela,
    effective_share,
    project,
    region_streams,
)
from anabranch.adapt.registry import policy
from anabranch.events import Observation
from anabranch.flow import Flow
from anabranch.planning.plan import Plan
from tests.adapt.flows_of_regions import graph_of_regions, line_of_regions
from tests.adapt.scripted import ROOMY, ScriptedRun, observation, seen

LINE = line_of_regions("parse", "split", "count")
START = Plan.sequential(LINE)
TREE = graph_of_regions(first="left right", right="near far")
"""first → left → out, first → right → near → out, right → far → out."""


def shown(
    plan: Plan, costs_s: Mapping[str, float], rate: float = 100.0, backlog: int | None = None
) -> Observation:
    """A second in which each region handles `rate` tuples, each for so long."""
    busy = {n: [min(1.0, rate * c / plan.region(n).replicas)] for n, c in costs_s.items()}
    busy |= {r.region: [0.0] for r in plan.regions if r.region not in costs_s}
    return observation(plan, rate=rate, busy=busy, backlog=backlog)


def streams_of(**pairs: str) -> list[RegionStream]:
    return [RegionStream(a, b, 1.0, 1.0) for a, f in pairs.items() for b in f.split()]


def test_effective_throughput_leaves_out_what_lies_behind_a_congested_region() -> None:
    streams = streams_of(a="b c", b="x", c="d e", d="y", e="z")
    sinks = {"x": 500.0, "y": 300.0, "z": 200.0}
    hindered = Projection({}, {}, frozenset({"a", "d"}))
    assert effective_share("a", streams, sinks, hindered) == pytest.approx(0.7)  # x and z
    assert effective_share("d", streams, sinks, hindered) == pytest.approx(0.3)  # its own sink
    assert effective_share("c", streams, sinks, hindered) == pytest.approx(0.2)  # z alone


def test_a_sink_that_two_ways_lead_to_counts_once() -> None:
    streams = streams_of(a="b c", b="x", c="x")
    assert effective_share("a", streams, {"x": 9.0}, Projection({}, {}, frozenset("a"))) == 1.0


def test_a_congested_region_passes_on_what_it_handles() -> None:
    streams = [RegionStream("in", "a", 1, 1.0), RegionStream("a", "b", 3, 3.0)]
    found = project(["in", "a", "b"], streams, {"in": 50.0}, {"a": 40.0, "b": 100.0})
    assert (found.handled["a"], found.coming["b"], found.handled["b"]) == (40.0, 120.0, 100.0)
    assert found.congested == {"a", "b"}


def test_the_region_whose_results_come_through_is_scaled_and_not_the_first_one() -> None:
    """Both parse and count are congested; what parse makes more of would wait in front of count."""
    now = shown(START, {"parse": 0.008, "split": 0.001, "count": 0.01})
    found = Stela(attempts=1).decide(None, seen(LINE, START, now))[1]
    assert found is not None
    assert found.plan == START.with_replicas("count", 2)
    assert "region count: handles 100 tuples/s" in found.why
    assert "ETP 1.00, 1 → 2 replicas" in found.why


def test_attempts_of_a_round_see_the_projection_of_those_before() -> None:
    """With two replicas count handles 200/s and parse, 125/s, is what hinders."""
    now = shown(START, {"parse": 0.008, "split": 0.001, "count": 0.01})
    found = Stela(attempts=2).decide(None, seen(LINE, START, now))[1]
    assert found is not None
    assert found.plan == START.with_replicas("count", 2).with_replicas("parse", 2)
    assert found.why.index("count") < found.why.index("parse")


def test_there_is_one_attempt_for_each_two_cores() -> None:
    now = shown(START, {"parse": 0.01, "split": 0.01, "count": 0.01})
    found = Stela().decide(None, seen(LINE, START, now, limits=Limits(6, 16, 200)))[1]
    assert found is not None
    assert sum(r.replicas for r in found.plan.regions) == sum(r.replicas for r in START.regions) + 3


def test_of_two_branches_the_one_that_leads_to_more_throughput_comes_first() -> None:
    plan = Plan.sequential(TREE)
    costs = {"first": 0.001, "left": 0.01, "right": 0.01, "near": 0.001, "far": 0.001}
    found = Stela(attempts=1).decide(None, seen(TREE, plan, shown(plan, costs)))[1]
    assert found is not None
    assert found.plan == plan.with_replicas("right", 2)  # two of three sinks, all at 100/s


def test_a_known_rate_that_is_served_congests_nobody() -> None:
    now = shown(START, {"parse": 0.0095, "split": 0.001, "count": 0.0095}, backlog=0)
    assert Stela().decide(None, seen(LINE, START, now))[1] is None


def test_a_source_that_nobody_hinders_asks_for_nothing() -> None:
    now = shown(START, {"parse": 0.005, "split": 0.001, "count": 0.007})
    assert Stela().decide(None, seen(LINE, START, now))[1] is None


def test_a_growing_backlog_asks_for_replicas_until_it_would_be_served() -> None:
    """100/s are read and 80/s pile up: 180/s need two replicas of count, and one of parse."""
    costs = {"parse": 0.005, "split": 0.001, "count": 0.01}
    first, last = shown(START, costs, backlog=0), shown(START, costs, backlog=80)
    window = (first, Observation(**{**vars(last), "at_s": 2.0}))
    found = Stela(attempts=9).decide(None, seen(LINE, START, *window))[1]
    assert found is not None
    assert found.plan == START.with_replicas("count", 2)


def test_nothing_is_scaled_in_front_of_a_congested_region_that_cannot_grow() -> None:
    flow = line_of_regions("parse", "total!")
    plan = Plan.sequential(flow)
    now = shown(plan, {"parse": 0.008, "total": 0.01})
    assert Stela().decide(None, seen(flow, plan, now))[1] is None


def test_streams_that_meet_are_parted_by_what_their_producers_gave() -> None:
    flow = graph_of_regions(first="left right", left="last", right="last")
    plan = Plan.sequential(flow)
    steps = {"left": (100, 300, 0.1), "right": (100, 100, 0.1), "last": (400, 400, 0.1)}
    found = region_streams(seen(flow, plan, observation(plan, rate=100, steps=steps)))
    gains = {(s.producer, s.consumer): s.gain for s in found}
    assert (gains["left", "last"], gains["right", "last"]) == (3.0, 1.0)


def test_the_registry_knows_it() -> None:
    assert policy("stela") == Stela()


@given(
    costs=st.tuples(*[st.floats(0.0001, 0.05)] * 3),
    offered=st.floats(10.0, 2000.0),
    flow=st.just(LINE),
)
def test_it_comes_to_rest_within_bounds_under_a_constant_load(
    costs: tuple[float, ...], offered: float, flow: Flow
) -> None:
    names, limits = ("parse", "split", "count"), Limits(8, replicas=8, threads=20)
    backlog = [0.0]

    def script(plan: Plan, second: int) -> Observation:
        able = [plan.region(n).replicas / c for n, c in zip(names, costs, strict=True)]
        rate = min(offered, *able)
        backlog[0] += offered - rate
        now = shown(plan, dict(zip(names, costs, strict=True)), rate, int(backlog[0]))
        return Observation(**{**vars(now), "at_s": float(second)})

    run = ScriptedRun(flow, START, script)
    run.go(run.tuned_by(Stela(), limits), seconds=150)
    assert all(beyond(plan, limits) is None for plan in run.plans)
    assert len(run.plans) <= 3 * 7
    threads = [sum(r.replicas for r in plan.regions) for plan in [START, *run.plans]]
    assert threads == sorted(set(threads))  # every change adds some, none comes back


@given(cost=st.floats(0.0005, 0.05))
def test_decisions_depend_on_what_is_seen_alone(cost: float) -> None:
    now = shown(START, {"parse": cost, "split": 0.001, "count": 0.01})
    view = seen(LINE, START, now, limits=ROOMY)
    assert Stela().decide(None, view) == Stela().decide(None, view)
