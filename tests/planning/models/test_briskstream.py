"""BriskStream's model against the paper, by hand, and against itself replica by replica."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import PlanError
from anabranch.planning.answer import RegionChoice
from anabranch.planning.machine import Machine
from anabranch.planning.models.placed_rates import Fetch, RateModel
from anabranch.planning.models.placed_units import workload_of
from anabranch.planning.profile import OperatorProfile, Profile, StreamProfile, chain
from papers.briskstream.inputs import application, server
from papers.briskstream.model import fetch_ns, rates
from tests.sampling import some

FAR = ((0.0, 300.0), (300.0, 0.0))


def placed(name, *sockets):
    return RegionChoice(((name,),), len(sockets), sockets)


def two_sockets(cores=4, bandwidth=()):
    return Machine("two", 2, cores, latency_ns=FAR, bandwidth_mb_s=bandwidth)


def read_and_count(read=100.0, count=200.0, **of_count):
    operators = [OperatorProfile("read", read), OperatorProfile("count", count, **of_count)]
    return chain(operators)


@pytest.mark.parametrize(
    ("socket", "splitter", "counter"),
    [(1, 1991.14, 665.23), (3, 1994.85, 665.92), (4, 2923.65, 837.92), (7, 3196.35, 888.42)],
)
def test_table_3_to_a_hundredth_of_a_nanosecond(socket, splitter, counter):
    server_a = server("server-a")
    estimates = [
        execute + fetch_ns(size, server_a, 0, socket, whole=False)
        for execute, size in ((1588.50, 216), (590.67, 40))
    ]
    assert estimates == pytest.approx([splitter, counter], abs=0.01)


def test_table_3_follows_from_the_rates_of_the_whole_application():
    plan = [placed(n, 0) for n in ("spout", "parser", "splitter", "sink")] + [placed("counter", 4)]
    found = rates(application("wc"), plan, server("server-a"), whole_lines=False)
    counter = found.by_operators["counter",]
    assert counter.execute + counter.fetch == pytest.approx(837.92, abs=0.01)


def test_the_printed_equation_counts_whole_cache_lines():
    machine = two_sockets()
    assert fetch_ns(65, machine, 0, 1) == 600.0
    assert fetch_ns(64, machine, 0, 1) == 300.0
    assert fetch_ns(65, machine, 1, 1) == 0.0


def test_an_over_supplied_operator_is_the_bottleneck_and_bounds_the_sink():
    found = rates(read_and_count(), [placed("read", 0), placed("count", 0)], two_sockets())
    assert found.throughput == pytest.approx(1 / 200)
    assert found.bottlenecks == (("count",),)
    # The reader could keep a core busy, but is held back to what the counter handles.
    assert found.utilization == pytest.approx(1.0 + 100 / 200)


def test_replicas_on_the_far_socket_are_slower_and_get_as_much():
    profile = read_and_count(tuple_bytes=64)
    plan = [placed("read", 0), placed("count", 0, 1)]
    count = rates(profile, plan, two_sockets()).by_operators["count",]
    assert count.arriving == pytest.approx(1 / 100)
    assert count.by_socket == pytest.approx((1 / 200, 1 / 500))


def test_an_outside_rate_is_all_that_sources_read():
    plan = [placed("read", 0, 0), placed("count", 0, 0)]
    found = rates(read_and_count(), plan, two_sockets(), input_rate=0.004)
    assert found.throughput == pytest.approx(0.004)
    assert found.bottlenecks == ()
    assert found.utilization == pytest.approx(0.004 * 300)


def test_more_work_than_cores_slows_everything_down():
    plan = [placed("read", 0), placed("count", 0, 0)]
    found = rates(read_and_count(), plan, two_sockets(cores=2))
    (violation,) = found.violations
    assert (violation.resource, violation.place, violation.asked) == ("cpu", (0,), 3.0)
    assert found.throughput == pytest.approx(0.01)
    assert found.bounded == pytest.approx(0.01 * 2 / 3)
    assert found.utilization == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("operator", "bandwidth", "resource", "place"),
    [
        ({"memory_bytes": 3000.0}, ((10_000.0, 1e9), (1e9, 10_000.0)), "memory", (0,)),
        ({"tuple_bytes": 64.0}, ((1e9, 200.0), (1e9, 1e9)), "link", (0, 1)),
    ],
)
def test_memory_and_links_bound_too(operator, bandwidth, resource, place):
    profile = read_and_count(**operator)
    counts = placed("count", 0, 0) if resource == "memory" else placed("count", 1, 1)
    found = rates(profile, [placed("read", 0), counts], two_sockets(bandwidth=bandwidth))
    (violation,) = found.violations
    assert (violation.resource, violation.place) == (resource, place)
    assert found.bounded == pytest.approx(found.throughput * violation.there / violation.asked)


def test_fused_operators_execute_all_and_fetch_once():
    first = OperatorProfile("split", 100.0, 10.0, tuple_bytes=64)
    profile = chain([OperatorProfile("read", 50.0), first, OperatorProfile("count", 5.0)])
    fused = RegionChoice((("split", "count"),), 1, (1,))
    found = rates(profile, [placed("read", 0), fused], two_sockets())
    unit = found.by_operators["split", "count"]
    assert (unit.execute, unit.fetch) == pytest.approx((150.0, 300.0))
    assert found.throughput == pytest.approx(10 / 450)


def test_costs_scale_with_the_clock_and_rates_come_in_the_unit_of_the_profile():
    profile = chain([OperatorProfile("read", 2.0)], unit="us")
    faster = Profile(profile.operators, (), None, "us", ghz=1.0)
    machine = Machine("fast", 1, 1, ghz=2.0)
    assert rates(faster, [placed("read", 0)], machine).throughput == pytest.approx(1.0)
    assert rates(profile, [placed("read", 0)], machine).throughput == pytest.approx(0.5)


def test_without_a_placement_fetching_takes_the_mean_over_pairs_of_sockets():
    profile = read_and_count(tuple_bytes=64)
    plan = [RegionChoice((("read",),), 2), RegionChoice((("count",),), 2)]
    count = rates(profile, plan, two_sockets()).by_operators["count",]
    assert count.fetch == pytest.approx(150.0)


def test_a_branch_left_behind_counts_in_what_a_plan_really_gets():
    operators = tuple(OperatorProfile(n, c) for n, c in (("read", 10), ("out", 10), ("audit", 40)))
    fork = Profile(operators, (StreamProfile("read", "out", 1), StreamProfile("read", "audit", 1)))
    found = rates(fork, [placed(n, 0) for n in fork.by_name], two_sockets())
    assert found.throughput == pytest.approx(1 / 10 + 1 / 40)
    assert found.bounded == pytest.approx(2 / 40)


def test_beliefs_about_fetching():
    profile, plan = read_and_count(tuple_bytes=64), [placed("read", 0), placed("count", 0)]
    always = rates(profile, plan, two_sockets(), fetch=Fetch.ALWAYS)
    never = rates(profile, [plan[0], placed("count", 1)], two_sockets(), fetch=Fetch.NEVER)
    assert always.throughput == pytest.approx(1 / 500)
    assert never.throughput == pytest.approx(1 / 200)


@pytest.mark.parametrize("sockets", [(0, 2), (0,)])
def test_a_placement_that_does_not_match_is_refused(sockets):
    wrong = RegionChoice((("count",),), 2, sockets)
    with pytest.raises(PlanError, match="socket below 2 for each of 2 replicas"):
        rates(read_and_count(), [placed("read", 0), wrong], two_sockets())


def replica_by_replica(profile, machine, placements):
    """Equations 1 and 2 as printed, for every single replica and producer."""
    emitted = {}
    handled = {}
    for operator in profile.operators:
        sockets = placements[operator.name]
        for number, socket in enumerate(sockets):
            incoming = [
                (
                    rate * s.selectivity / len(sockets),
                    fetch_ns(operator.tuple_bytes, machine, i, socket),
                )
                for s in profile.into(operator.name)
                for i, rate in emitted[s.producer]
            ]
            if profile.into(operator.name):
                num = sum(rate for rate, _ in incoming)
                time = sum(rate * (operator.cost + fetch) for rate, fetch in incoming)
                rate = num if time <= 1 else num / time
            else:
                rate = 1 / operator.cost
            emitted.setdefault(operator.name, []).append((socket, rate))
            handled[operator.name, number] = rate
    sinks = [o.name for o in profile.operators if not profile.out_of(o.name)]
    return sum(rate for (name, _), rate in handled.items() if name in sinks)


@st.composite
def placed_graphs(draw):
    sockets = draw(st.integers(1, 3))
    latency = draw(
        st.lists(
            st.lists(st.floats(0, 500), min_size=sockets, max_size=sockets),
            min_size=sockets,
            max_size=sockets,
        )
    )
    names = [f"o{n}" for n in range(draw(st.integers(2, 5)))]
    operators = tuple(
        OperatorProfile(n, draw(st.floats(1, 500)), tuple_bytes=draw(st.floats(0, 300)))
        for n in names
    )
    pairs = set(pairwise(names))
    pairs |= {(a, b) for a in names for b in names if a < b and draw(st.booleans())}
    streams = tuple(StreamProfile(a, b, draw(st.floats(0.1, 5))) for a, b in sorted(pairs))
    where = {
        n: tuple(draw(st.lists(st.integers(0, sockets - 1), min_size=1, max_size=5))) for n in names
    }
    machine = Machine("drawn", sockets, 4, latency_ns=tuple(map(tuple, latency)))
    return Profile(operators, streams), machine, where


@settings(max_examples=some(200))
@given(placed_graphs())
def test_rates_by_socket_are_those_of_single_replicas(case):
    profile, machine, where = case
    found = rates(profile, [placed(n, *sockets) for n, sockets in where.items()], machine)
    assert found.throughput == pytest.approx(replica_by_replica(profile, machine, where))


@settings(max_examples=some(50))
@given(placed_graphs())
def test_replicas_that_are_anywhere_fetch_for_nothing_and_ask_nothing_of_a_socket(case):
    profile, machine, where = case
    workload = workload_of(profile, machine)
    counts = np.zeros((1, len(where), machine.sockets + 1))
    counts[0, :, machine.sockets] = [len(where[o.name]) for o in profile.operators]
    anywhere = RateModel(workload, machine).rates(counts)
    believed = RateModel(workload, machine, Fetch.NEVER).rates(counts)
    assert anywhere.throughput == pytest.approx(believed.throughput)
    assert anywhere.overload.tolist() == [0.0]
