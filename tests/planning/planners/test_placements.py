"""First-fit, round-robin and the operating system's placement."""

import pytest

from anabranch.planning.machine import Machine
from anabranch.planning.planners.placement_baselines import first_fit, os_placement, round_robin
from anabranch.planning.planners.planner import Problem
from anabranch.planning.planners.rlas import rlas
from anabranch.planning.profile import OperatorProfile, chain

FAR = ((0.0, 300.0), (300.0, 0.0))
PROFILE = chain([OperatorProfile("read", 100.0), OperatorProfile("count", 100.0, tuple_bytes=64)])


def problem(cores=2, bandwidth=()):
    machine = Machine("two", 2, cores, latency_ns=FAR, bandwidth_mb_s=bandwidth)
    return Problem(PROFILE, machine)


def placements(answer):
    return [region.placement for region in answer.regions]


def test_first_fit_fills_a_socket_before_the_next():
    answer = first_fit(problem(), replicas=(2, 2))
    assert placements(answer) == [(0, 0), (1, 1)]
    assert answer.throughput == pytest.approx(2 / 400)


def test_first_fit_goes_on_where_a_link_has_no_room():
    # 1 MB/s leaves nothing to send, so that consumers must stay with the producer.
    narrow = ((1e6, 1.0), (1.0, 1e6))
    answer = first_fit(problem(cores=3, bandwidth=narrow), replicas=(1, 2))
    assert placements(answer) == [(0,), (0, 0)]


def test_first_fit_relaxes_what_there_is_until_all_have_a_place():
    answer = first_fit(problem(cores=1), replicas=(2, 2))
    assert sorted(s for sockets in placements(answer) for s in sockets) == [0, 0, 1, 1]


def test_round_robin_deals_out_in_turn():
    answer = round_robin(problem(), replicas=(1, 3))
    assert placements(answer) == [(0,), (0, 1, 1)]


def test_round_robin_passes_over_a_socket_without_room():
    narrow = ((1e6, 1.0), (1.0, 1e6))
    answer = round_robin(problem(cores=3, bandwidth=narrow), replicas=(1, 2))
    assert placements(answer) == [(0,), (0, 0)]


def test_the_operating_system_gets_no_sockets_and_the_mean_distance():
    answer = os_placement(problem(), replicas=(2, 2))
    assert placements(answer) == [(), ()]
    assert answer.throughput == pytest.approx(2 / 250)


def test_replicas_are_those_of_rlas_if_nobody_says():
    replicas = [region.replicas for region in rlas(problem()).regions]
    for planner in (first_fit, round_robin, os_placement):
        assert [region.replicas for region in planner(problem()).regions] == replicas
