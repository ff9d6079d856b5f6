from math import inf, log2, prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import PlanError
from anabranch.graph import StateKind
from anabranch.planning.answer import RegionChoice
from anabranch.planning.models.fission import check, estimate, region_times
from anabranch.planning.profile import OperatorProfile, Overheads, Profile, StreamProfile, chain

DELTA, C_P = 1.0, 50.0
A, B, C = OperatorProfile("a", 100.0, 0.5), OperatorProfile("b", 400.0), OperatorProfile("c", 60.0)
ABC = chain([A, B, C], Overheads(DELTA, C_P))


def region(*pipelines, replicas=1):
    return RegionChoice(tuple(tuple(pipeline) for pipeline in pipelines), replicas)


def test_a_pipeline_costs_what_reaches_its_operators():
    found = estimate(ABC, [region("abc")], cores=4)
    assert found.throughput == pytest.approx(1 / (100 + 0.5 * 400 + 0.5 * 60))
    assert found.utilization == pytest.approx(1.0)


def test_pipelines_pay_for_tuples_that_they_hand_over_and_take():
    times = region_times(ABC, region("a", "bc"))
    first, second = 100 + DELTA * 0.5, 0.5 * (DELTA + 400 + 60)
    assert times.turn == pytest.approx(max(first, second))
    assert times.work == pytest.approx(first + second)
    assert times.slowest_pipeline == 1


def test_regions_pay_for_the_switch_on_top_of_their_slowest_pipeline():
    found = estimate(ABC, [region("a"), region("bc", replicas=4)], cores=8)
    first = 100 + DELTA * 0.5
    second = 0.5 * (DELTA + C_P * log2(4) + 460 / 4)
    assert [times.turn for times in found.regions] == pytest.approx([first, second])
    assert found.unbounded == pytest.approx(1 / 108)
    work = first + 0.5 * (DELTA + C_P * log2(4) + 460)
    assert found.utilization == pytest.approx(work / 108)
    assert found.bottleneck.region.operators == ("b", "c")


def test_of_equal_regions_the_last_is_the_bottleneck():
    profile = chain([OperatorProfile("a", 2.0), OperatorProfile("b", 2.0)])
    found = estimate(profile, [region("a"), region("b")], cores=2)
    assert found.bottleneck.region.operators == ("b",)


def test_more_work_than_cores_scales_the_throughput_down():
    profile = chain([OperatorProfile("a", 1.0)])
    six = [region("a", replicas=6)]
    assert estimate(profile, six, cores=8).throughput == pytest.approx(6.0)
    scaled = estimate(profile, six, cores=4)
    assert scaled.unbounded == pytest.approx(6.0)
    assert scaled.throughput == pytest.approx(4.0)
    assert scaled.utilization == pytest.approx(4.0)


def test_replicas_above_the_bound_cost_and_do_not_help():
    bounded = OperatorProfile("a", 100.0, max_replicas=2)
    profile = chain([bounded, OperatorProfile("b", 1.0)], Overheads(0.0, 5.0))
    assert region_times(profile, region("ab", replicas=2)).turn == pytest.approx(5 + 101 / 2)
    assert region_times(profile, region("ab", replicas=4)).turn == pytest.approx(10 + 101 / 2)


def test_what_several_replicas_cost_more_is_shared_by_them():
    profile = chain([OperatorProfile("a", 100.0, replicas_cost=0.25)], Overheads(0.0, 5.0))
    once, thrice = (region_times(profile, region("a", replicas=n)) for n in (1, 3))
    assert (once.turn, once.work) == (100.0, 100.0)
    assert thrice.turn == pytest.approx(5 * log2(3) + 125 / 3)
    assert thrice.work == pytest.approx(5 * log2(3) + 125)


def test_keys_without_a_common_part_bound_a_run_to_one_replica():
    host = OperatorProfile("a", 1.0, state=StateKind.PARTITIONED, key=("host",))
    user = OperatorProfile("b", 1.0, state=StateKind.PARTITIONED, key=("user",))
    both = OperatorProfile("b", 1.0, state=StateKind.PARTITIONED, key=("host", "user"))
    with pytest.raises(PlanError, match="use 1"):
        check(chain([host, user]), [region("ab", replicas=2)])
    check(chain([host, both]), [region("ab", replicas=2)])


def test_a_graph_adds_up_streams_and_pays_for_each_that_leaves():
    # a → b, a → c (half of it), both → d
    operators = tuple(
        OperatorProfile(name, cost) for name, cost in zip("abcd", (1, 4, 6, 2), strict=True)
    )
    streams = (
        StreamProfile("a", "b", 1.0),
        StreamProfile("a", "c", 0.5),
        StreamProfile("b", "d", 2.0),
        StreamProfile("c", "d", 1.0),
    )
    profile = Profile(operators, streams, Overheads(0.1, 0.2))
    found = estimate(
        profile, [region("a"), region("b", replicas=2), region("c"), region("d")], cores=100
    )
    turns = [times.turn for times in found.regions]
    assert turns[0] == pytest.approx(1 + 0.1 * 1.5)
    assert turns[1] == pytest.approx(0.1 * (1 + 2) + 0.2 + 4 / 2)
    assert turns[2] == pytest.approx(0.5 * (0.1 * (1 + 1) + 6))
    assert turns[3] == pytest.approx(2.5 * (0.1 + 2))
    assert found.throughput == pytest.approx(1 / turns[3])
    work = turns[0] + turns[2] + turns[3] + 0.1 * 3 + 0.2 + 4
    assert found.utilization == pytest.approx(work / turns[3])


def test_two_sources_are_taken_at_their_rates():
    operators = (
        OperatorProfile("a", 1.0, rate=0.25),
        OperatorProfile("b", 1.0, rate=0.75),
        OperatorProfile("c", 3.0),
    )
    streams = (StreamProfile("a", "c", 1.0), StreamProfile("b", "c", 1.0))
    found = estimate(Profile(operators, streams), [region("a"), region("b"), region("c")], 3)
    assert [times.turn for times in found.regions] == pytest.approx([0.25, 0.75, 3.0])


LOG_WATCH = (
    ("RawLines", StateKind.STATEFUL, 1.0, 1.52, ()),
    ("Lines", StateKind.STATELESS, 1.0, 3.87, ()),
    ("ParsedLines", StateKind.STATELESS, 1.0, 15.15, ()),
    ("RawEvents", StateKind.STATELESS, 0.87, 9.39, ()),
    ("Events", StateKind.STATELESS, 1.0, 13.81, ()),
    ("Range", StateKind.PARTITIONED, 0.20, 9.04, ("host",)),
    ("Cutoff", StateKind.STATELESS, 0.99, 24.82, ()),
    ("RealTime", StateKind.STATELESS, 1.0, 27.04, ()),
    ("Breakins", StateKind.PARTITIONED, 0.00027, 17.33, ("user",)),
    ("Results", StateKind.STATEFUL, 1.0, 493.17, ()),
)


def test_a_line_of_log_watch_takes_61_8_microseconds():
    profile = chain([OperatorProfile(n, c, s, k, a) for n, k, s, c, a in LOG_WATCH], unit="us")
    found = estimate(profile, [region([name for name, *_ in LOG_WATCH])], cores=12)
    assert 1 / found.throughput == pytest.approx(61.8, abs=0.05)


@pytest.mark.parametrize(
    ("regions", "complaint"),
    [
        ([region("ab")], "each of"),
        ([region("ab"), region("bc")], "each of"),
        ([region("ac"), region("b")], "one way on and in"),
        ([region("abc", replicas=0)], "replicas"),
    ],
)
def test_what_is_no_plan_is_refused(regions, complaint):
    with pytest.raises(PlanError, match=complaint):
        check(ABC, regions)


class Printed:
    """The paper's recursions as they stand: eq. 2 to 14, for a chain of regions of pipelines."""

    def __init__(self, regions, delta, c_p):
        self.regions, self.delta, self.c_p = regions, delta, c_p

    def pipeline_selectivity(self, i, j):
        return prod(o.selectivity for o in self.regions[i][0][j])

    def region_selectivity(self, i):
        return prod(self.pipeline_selectivity(i, j) for j in range(len(self.regions[i][0])))

    def pipeline_cost(self, i, j):  # eq. 2
        operators = self.regions[i][0][j]
        return sum(
            prod(o.selectivity for o in operators[:k]) * one.cost for k, one in enumerate(operators)
        )

    def pipeline_switch(self, i, j):  # eq. 5
        last = len(self.regions[i][0]) - 1
        leaving = self.pipeline_selectivity(i, j) if j < last else 0
        return self.delta * ((1 if j > 0 else 0) + leaving)

    def region_rate(self, i):  # eq. 3, 4, 6
        rate = inf
        for j in range(len(self.regions[i][0])):
            alone = 1 / (self.pipeline_cost(i, j) + self.pipeline_switch(i, j))
            rate = self.pipeline_selectivity(i, j) * (rate if rate < alone else alone)
        return rate / self.region_selectivity(i)

    def region_switch(self, i):  # eq. 10
        leaving = self.region_selectivity(i) if i < len(self.regions) - 1 else 0
        return self.delta * ((1 if i > 0 else 0) + leaving)

    def region_rate_within(self, i):  # eq. 7, 8, 9
        pipelines, replicas = self.regions[i]
        scaled = min(
            min(replicas, inf if one.max_replicas is None else one.max_replicas)
            for pipeline in pipelines
            for one in pipeline
        )
        parallel = 1 / (self.c_p * log2(replicas) + 1 / (self.region_rate(i) * scaled))
        return 1 / (self.region_switch(i) + 1 / parallel)

    def rate(self):  # eq. 11, 12
        rate, passed = inf, 1.0
        for i in range(len(self.regions)):
            within = self.region_rate_within(i)
            rate = self.region_selectivity(i) * (rate if rate < within else within)
            passed *= self.region_selectivity(i)
        return rate / passed

    def utilization(self):  # eq. 14
        total, reaching = 0.0, 1.0
        for i, (pipelines, replicas) in enumerate(self.regions):
            inner, inside = 0.0, 1.0
            for j in range(len(pipelines)):
                inner += inside * (self.pipeline_switch(i, j) + self.pipeline_cost(i, j))
                inside *= self.pipeline_selectivity(i, j)
            total += reaching * (self.c_p * log2(replicas) + self.region_switch(i) + inner)
            reaching *= inside
        return self.rate() * total

    def bounded_rate(self, cores):  # eq. 13
        return self.rate() * min(1.0, cores / self.utilization())


numbers = st.floats(0.01, 300.0)


@st.composite
def plans_of_chains(draw):
    """Regions as lists of pipelines of operators, each with replicas."""
    regions, count = [], 0
    for sizes in draw(st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=3), min_size=1)):
        pipelines = []
        for size in sizes:
            names = [f"o{count + k}" for k in range(size)]
            count += size
            pipelines.append(
                [
                    OperatorProfile(
                        name,
                        draw(numbers),
                        draw(st.floats(0.05, 3.0)),
                        max_replicas=draw(st.none() | st.integers(1, 9)),
                    )
                    for name in names
                ]
            )
        regions.append((pipelines, draw(st.integers(1, 6))))
    return regions


@given(plans_of_chains(), st.floats(0, 100), st.floats(0, 100), st.integers(1, 16))
def test_the_closed_form_is_what_the_papers_recursions_say(regions, delta, c_p, cores):
    operators = [one for pipelines, _ in regions for p in pipelines for one in p]
    profile = chain(operators, Overheads(delta, c_p))
    plan = [
        region(*([one.name for one in p] for p in pipelines), replicas=replicas)
        for pipelines, replicas in regions
    ]
    found = estimate(profile, plan, cores)
    printed = Printed(regions, delta, c_p)
    assert found.unbounded == pytest.approx(printed.rate(), rel=1e-9)
    assert found.throughput == pytest.approx(printed.bounded_rate(cores), rel=1e-9)
    used = min(printed.utilization(), cores)
    assert found.utilization == pytest.approx(used, rel=1e-9)
