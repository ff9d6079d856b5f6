"""Sockets, nodes, memory and links, by figures that can be found by hand."""

from dataclasses import replace

import pytest

from anabranch.errors import PlanError
from anabranch.planning.answer import RegionChoice
from anabranch.planning.machine import Machine
from anabranch.planning.profile import chain
from tests.engines.simulator.measured import in_ms, keyed, operator, settled_rate, simulation

FAR = Machine("far", sockets=2, cores_per_socket=4, latency_ns=((0.0, 300.0), (300.0, 0.0)))
NARROW = replace(FAR, latency_ns=(), bandwidth_mb_s=((1000.0, 10.0), (10.0, 1000.0)))
READ = operator("read", 100.0)


def placed(*sockets: int) -> list[RegionChoice]:
    """A reader on socket 0, and a counter on each of some sockets."""
    return [
        RegionChoice((("read",),), 1, (0,)),
        RegionChoice((("count",),), len(sockets), sockets),
    ]


def pair(**count):
    return chain([READ, keyed("count", 200.0, **count)], unit="ns")


@pytest.mark.parametrize(
    ("tuple_bytes", "fetch_ns"), [(0, 0.0), (64, 300.0), (65, 600.0), (216, 1200.0)]
)
def test_a_tuple_from_another_socket_costs_the_latency_of_every_cache_line(tuple_bytes, fetch_ns):
    run = simulation(pair(tuple_bytes=tuple_bytes), placed(1), FAR)
    assert settled_rate(run, 1.0) == pytest.approx(1e9 / (200 + fetch_ns))
    assert settled_rate(simulation(pair(tuple_bytes=216), placed(0), FAR), 1.0) == pytest.approx(
        5e6
    )


def test_who_is_far_away_holds_back_who_is_near():
    run = simulation(pair(tuple_bytes=64), placed(0, 1), FAR)
    assert settled_rate(run, 1.0) == pytest.approx(2 * 1e9 / 500)


def test_replicas_without_a_place_are_spread_over_the_sockets():
    regions = [RegionChoice((("read",),)), RegionChoice((("count",),))]
    run = simulation(pair(tuple_bytes=64), regions, FAR)
    assert settled_rate(run, 1.0) == pytest.approx(1e9 / (200 + 150))


def test_fetching_counts_as_work_and_as_overhead():
    run = simulation(pair(tuple_bytes=64), placed(1), FAR)
    run.advance(1.0)
    count = run.totals.pipelines["count", ("count",)]
    assert count.busy_s == pytest.approx(1.0, rel=0.01)
    assert count.overhead_s / count.busy_s == pytest.approx(300 / 500)


def test_a_link_carries_no_more_than_its_bandwidth():
    """100 bytes a tuple over 10 MB/s."""
    assert settled_rate(simulation(pair(tuple_bytes=100), placed(1), NARROW), 1.0) == (
        pytest.approx(1e5)
    )
    near = simulation(pair(tuple_bytes=100), placed(0), NARROW)
    assert settled_rate(near, 1.0) == pytest.approx(5e6)


def test_memory_of_a_socket_moves_no_more_than_its_bandwidth():
    """1000 bytes a tuple at 1000 MB/s, for each of two counters."""
    run = simulation(pair(memory_bytes=1000.0), placed(0, 1), NARROW)
    assert settled_rate(run, 1.0) == pytest.approx(2e6)


def test_a_node_sends_no_more_than_its_network():
    nodes = Machine("nodes", sockets=2, cores_per_socket=4, nodes=2, network_mb_s=5.0)
    run = simulation(pair(tuple_bytes=100), placed(1), nodes)
    assert settled_rate(run, 1.0) == pytest.approx(5e4)
    one = replace(nodes, nodes=1)
    assert settled_rate(simulation(pair(tuple_bytes=100), placed(1), one), 1.0) > 4.9e6


def test_the_cores_of_a_socket_are_shared_by_who_sits_there():
    """Four threads on the two cores of socket 0, while socket 1 has nothing to do."""
    machine = Machine("small", sockets=2, cores_per_socket=2)
    profile = in_ms(operator("a", 1))
    crowded = simulation(profile, [RegionChoice((("a",),), 4, (0, 0, 0, 0))], machine)
    assert settled_rate(crowded) == pytest.approx(2000)
    spread = simulation(profile, [RegionChoice((("a",),), 4, (0, 0, 1, 1))], machine)
    assert settled_rate(spread) == pytest.approx(4000)


def test_threads_without_a_place_go_where_cores_are_free():
    machine = Machine("small", sockets=2, cores_per_socket=2)
    profile = in_ms(operator("a", 1), keyed("b", 1))
    regions = [RegionChoice((("a",),), 2, (0, 0)), RegionChoice((("b",),), 2)]
    assert settled_rate(simulation(profile, regions, machine)) == pytest.approx(2000)
    more = [RegionChoice((("a",),), 4, (0, 0, 1, 1)), RegionChoice((("b",),), 4)]
    assert settled_rate(simulation(profile, more, machine)) == pytest.approx(2000)


def test_all_cores_at_once_may_be_slower_than_one_by_one():
    machine = Machine("shared caches", 1, 2, parallel_share=0.75)
    run = simulation(in_ms(operator("a", 1)), [RegionChoice((("a",),), 2)], machine)
    assert settled_rate(run) == pytest.approx(1500)


def test_another_clock_makes_costs_shorter():
    profile = replace(in_ms(operator("a", 1)), ghz=2.0)
    run = simulation(profile, [RegionChoice((("a",),))], Machine("fast", 1, 2, ghz=3.0))
    assert settled_rate(run) == pytest.approx(1500)


@pytest.mark.parametrize("sockets", [(0, 2), (0,)])
def test_places_have_to_exist_for_each_replica(sockets):
    with pytest.raises(PlanError, match="count"):
        simulation(pair(), [placed(0)[0], RegionChoice((("count",),), 2, sockets)], FAR)
