"""Latencies by figures that can be found by hand; classes are about 7 % wide."""

import time

import pytest

from anabranch.engines.simulator.scenario import Load, SwitchCost
from anabranch.planning.answer import RegionChoice
from anabranch.planning.machine import Machine
from anabranch.planning.profile import Overheads, chain
from tests.engines.simulator.measured import alone, in_ms, keyed, operator, simulation

ROUGHLY = 0.08
SLOWLY = (Load(((0.0, 10.0),)),)


def p50(run):
    return run.waits.latencies.percentile(0.5)


def test_below_the_limit_a_tuple_takes_its_service_times():
    run = simulation(in_ms(operator("a", 3), operator("b", 4)), alone("a", "b"), loads=SLOWLY)
    run.advance(5.0)
    assert p50(run) == pytest.approx(7.0, rel=ROUGHLY)


def test_a_full_queue_takes_as_long_as_it_is_long():
    """1000 tuples wait for a thread that handles 250 a second."""
    profile = in_ms(operator("a", 1), operator("b", 4))
    run = simulation(profile, alone("a", "b"), queue_tuples=1000, jumbo_tuples=1)
    run.advance(30.0)
    run.waits.latencies.forget()
    run.advance(10.0)
    assert p50(run) == pytest.approx(4000, rel=ROUGHLY)


def test_jumbo_tuples_leave_when_all_of_them_is_done():
    profile = in_ms(operator("a", 1))
    run = simulation(profile, alone("a"), jumbo_tuples=100)
    run.advance(5.0)
    assert p50(run) == pytest.approx(100, rel=ROUGHLY)


def test_a_jumbo_tuple_grows_with_what_is_made_of_it():
    """100 tuples at 1 ms; four of each come out, at 0.1 ms."""
    profile = in_ms(operator("a", 1, 4.0), operator("b", 0.1))
    run = simulation(profile, [RegionChoice((("a",), ("b",)))], jumbo_tuples=100)
    run.advance(5.0)
    assert p50(run) == pytest.approx(100 + 40, rel=ROUGHLY)


def test_keys_deal_a_jumbo_tuple_out_to_the_replicas():
    profile = in_ms(operator("a", 0.01), keyed("b", 1))
    regions = [RegionChoice((("a",),)), RegionChoice((("b",),), 4)]
    run = simulation(profile, regions, jumbo_tuples=100, queue_tuples=1e-6)
    run.advance(5.0)
    assert p50(run) == pytest.approx(1 + 25, rel=ROUGHLY)


def test_the_tail_belongs_to_the_hot_replica():
    """The hot replica has 40 % of the tuples, and a full queue; the others have none."""
    profile = in_ms(operator("a", 0.01), keyed("b", 1, hottest_key_share=0.3))
    regions = [RegionChoice((("a",),)), RegionChoice((("b",),), 7)]
    run = simulation(profile, regions, queue_tuples=500, jumbo_tuples=1)
    run.advance(20.0)
    run.waits.latencies.forget()
    run.advance(5.0)
    assert p50(run) < 5
    assert run.waits.latencies.percentile(0.99) == pytest.approx(500, rel=0.1)


def test_tuples_from_another_node_are_on_the_network():
    nodes = Machine("nodes", sockets=2, cores_per_socket=2, nodes=2, network_us=5000.0)
    profile = in_ms(operator("a", 1), operator("b", 1))
    for socket, expected in ((0, 2.0), (1, 7.0)):
        regions = [RegionChoice((("a",),), 1, (0,)), RegionChoice((("b",),), 1, (socket,))]
        run = simulation(profile, regions, nodes, loads=SLOWLY)
        run.advance(5.0)
        assert p50(run) == pytest.approx(expected, rel=ROUGHLY)


def test_a_pause_shows_in_the_tail():
    loads = (Load(((0.0, 200.0),)),)
    profile = in_ms(operator("a", 0.1), operator("b", 1))
    run = simulation(
        profile, alone("a", "b"), loads=loads, queue_tuples=1000, switch=SwitchCost(1000.0)
    )
    run.advance(5.0)
    run.waits.latencies.forget()
    run.switch([*alone("a"), RegionChoice((("b",),), 2)])
    run.advance(3.0)
    assert run.waits.latencies.percentile(0.99) > 300
    assert p50(run) < 900


def test_a_minute_of_24_threads_takes_less_than_two_seconds():
    """With noise, so that no step is like the one before for long; the best third counts."""
    operators = [operator("a", 5.0), operator("b", 40.0, 2.0), keyed("c", 20.0), keyed("d", 8.0)]
    profile = chain(operators, Overheads(0.2, 0.1), unit="us")
    regions = [
        RegionChoice((("a",),)),
        RegionChoice((("b",),), 9),
        RegionChoice((("c",), ("d",)), 7),
    ]
    assert sum(region.threads for region in regions) == 24
    run = simulation(profile, regions, 24, noise=0.1, queue_tuples=4096)
    spent_s = []
    for _ in range(3):
        began = time.process_time()
        run.advance(20.0)
        spent_s.append(time.process_time() - began)
    assert 3 * min(spent_s) < 2.0
