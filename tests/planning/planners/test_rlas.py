"""RLAS: its parts on small cases, and the bar of the paper's four applications on two servers."""

import numpy as np
import pytest

from anabranch.graph import StateKind
from anabranch.planning.machine import Machine
from anabranch.planning.planners.placement_baselines import first_fit, os_placement, round_robin
from anabranch.planning.planners.planner import Problem
from anabranch.planning.planners.rlas import rlas, rlas_fix_l, rlas_fix_u
from anabranch.planning.planners.search.placement_moves import (
    Budget,
    SearchLimits,
    changes,
    improve,
)
from anabranch.planning.planners.search.placing import Placing
from anabranch.planning.planners.search.rlas_search import bottlenecks, by_work, place, scale
from anabranch.planning.profile import OperatorProfile, chain
from papers.briskstream.figures import random_placements
from papers.briskstream.inputs import APPLICATIONS, SERVERS, application, server
from papers.briskstream.model import rates
from tests.sampling import thorough

FAR = ((0.0, 300.0), (300.0, 0.0))


def small(cores=4, **of_count):
    read, count = OperatorProfile("read", 100.0), OperatorProfile("count", 300.0, **of_count)
    return Problem(chain([read, count]), Machine("two", 2, cores, latency_ns=FAR))


def drawn_plans(placing, count, seed):
    sockets = placing.problem.machine.sockets
    return random_placements(placing.workload, sockets, placing.room.limit, count, seed)


def test_branch_and_bound_keeps_neighbours_together_while_there_is_room():
    placing = Placing.of(small(tuple_bytes=64))
    found = place(placing.model(), (1, 3), compress=1, most_nodes=100)
    assert found.counts.tolist() == [[1, 0], [3, 0]]


def test_branch_and_bound_names_what_did_not_fit():
    placing = Placing.of(small(cores=1, tuple_bytes=64))
    found = place(placing.model(), (1, 2), compress=2, most_nodes=100)
    assert found.counts is None
    assert found.stuck == 1


def test_what_did_not_fit_in_one_piece_is_replicated_further():
    # Two cores' worth of groups of five: only finer groups fit.
    placing = Placing.of(small(cores=3))
    assert scale(placing.model(), placing.room, compress=5) is not None


def test_bottlenecks_come_from_the_sink_on_with_the_ratio_rounded_up():
    placing = Placing.of(small())
    model = placing.model()
    over_supplied = model.rates(np.array([[[1.0, 0.0], [1.0, 0.0]]]))
    assert bottlenecks(model, over_supplied) == [(1, 3), (0, 1)]


def test_replicas_by_work_stay_within_what_each_unit_may_have():
    placing = Placing.of(small())
    assert by_work(placing.model(), SearchLimits(8, (8, 2)), 1.0) == [2, 2]
    assert by_work(placing.model(), SearchLimits(8, (8, 8)), 1.0) == [2, 6]


def test_changes_move_turn_add_and_remove_one_replica():
    counts = np.array([[1.0, 0.0], [2.0, 0.0]])
    near = {tuple(map(tuple, found.tolist())) for found in changes(counts, SearchLimits(4, (4, 4)))}
    assert near == {
        ((0, 1), (2, 0)),
        ((1, 0), (1, 1)),
        ((1, 0), (1, 0)),
        ((2, 0), (1, 0)),
        ((1, 1), (1, 0)),
        ((2, 0), (2, 0)),
        ((1, 1), (2, 0)),
        ((1, 0), (3, 0)),
        ((1, 0), (2, 1)),
    }


def test_improvement_never_ends_below_its_start_and_within_the_limit():
    placing = Placing.of(Problem(application("sd"), server("server-b")))
    model = placing.model()
    for number, start in enumerate(drawn_plans(placing, 5, seed=3)):
        draw = np.random.default_rng(number)
        found = improve(model, start, placing.room, Budget(50_000), draw)
        before, after = model.rates(np.stack([start, found])).bounded
        assert after >= before
        assert found.sum() <= placing.room.limit


def test_what_cannot_be_replicated_is_not():
    for limits in ({"state": StateKind.STATEFUL}, {"max_replicas": 1}, {"state": StateKind.SHARED}):
        answer = rlas(small(**limits))
        assert answer.regions[1].replicas == 1


def test_threads_bound_replicas_and_too_few_of_them_fuse_chains():
    problem = Problem(small().profile, small().machine, threads=3)
    assert rlas(problem).threads <= 3
    (fused,) = rlas(Problem(small().profile, small().machine, threads=1)).regions
    assert fused.pipelines == (("read", "count"),)


def test_a_machine_with_fewer_cores_than_operators_still_uses_them_all():
    answer = rlas(Problem(application("lr"), Machine.of_cores(8)))
    assert answer.utilization > 7
    assert answer.threads <= 16


def test_regions_of_a_flow_are_replicated_and_placed_as_a_whole():
    machine = small().machine
    answer = rlas(Problem(small().profile, machine, regions=(("read", "count"),)))
    (region,) = answer.regions
    assert region.pipelines == (("read", "count"),)
    assert len(region.placement) == region.replicas == 8
    assert answer.throughput == pytest.approx(8 / 400)


def test_the_same_question_gets_the_same_answer():
    problem = Problem(application("fd"), server("server-b"))
    assert rlas(problem) == rlas(problem)


@thorough
@pytest.mark.parametrize("where", SERVERS)
@pytest.mark.parametrize("app", APPLICATIONS)
def test_rlas_meets_all_constraints_and_beats_every_other_way(app, where):
    profile, machine = application(app), server(where)
    problem = Problem(profile, machine)
    placing = Placing.of(problem)
    answer = rlas(problem)
    found = rates(profile, answer.regions, machine)
    assert found.violations == ()
    assert found.bounded == pytest.approx(answer.throughput)
    assert answer.threads <= machine.cores

    replicas = placing.replicas(answer)
    others = {
        "fix-l": rlas_fix_l(problem).throughput,
        "fix-u": rlas_fix_u(problem).throughput,
        "first-fit": first_fit(problem, replicas).throughput,
        "round-robin": round_robin(problem, replicas).throughput,
        "os": os_placement(problem, replicas).throughput,
        "random": float(placing.model().rates(drawn_plans(placing, 1000, seed=7)).bounded.max())
        * placing.per_ns,
    }
    assert {name: rate for name, rate in others.items() if rate > answer.throughput} == {}
