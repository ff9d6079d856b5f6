"""Methods on small simulated clusters: places, sleepers, and rounds as they were."""

from itertools import pairwise

import pytest

from anabranch.planning.plan import Plan
from papers.stepwise.cluster import (
    Cluster,
    figure_11,
    linear,
    mixed_line,
    placed,
    sentiment_analysis,
    synthetic_word_count,
    unplaced,
)
from papers.stepwise.profiling import METHODS, STELA, STEPWISE, THRESHOLD, scale_up
from tests.sampling import thorough


def test_tasks_are_dealt_out_to_nodes_in_turn_and_sleepers_to_themselves():
    topology = synthetic_word_count()
    plan = Plan.sequential(topology.flow()).with_replicas("parse", 3).with_replicas("wait", 2)
    found = placed(plan, topology, nodes=2)
    places = {region.region: region.placement for region in found.regions}
    assert places["parse"] == ("socket0", "socket1", "socket0")
    assert places["split"] == ("socket1",)
    assert places["wait"] == ("socket2", "socket3")  # behind the two nodes
    assert unplaced(found) == plan


def test_each_operator_of_a_topology_is_a_region_of_its_own():
    for topology in (*figure_11(), mixed_line(6)):
        regions = [r.region for r in Plan.sequential(topology.flow()).regions]
        assert [r for r in regions if not r.endswith(".output")] == list(topology.operators)


def test_sentiment_analysis_has_eleven_operators_in_eight_stages():
    profile = sentiment_analysis().profile
    depth = {}
    for operator in profile.operators:
        above = [depth[stream.producer] for stream in profile.into(operator.name)]
        depth[operator.name] = 1 + max(above, default=0)
    assert (len(depth), max(depth.values())) == (11, 8)


def test_sleeping_takes_time_but_no_core():
    """Nine sleepers of a millisecond, and 1 ms of work for each tweet on one node of two cores."""
    topology = synthetic_word_count()
    cluster = Cluster(topology, nodes=1)
    cluster.reconfigure(cluster.plan.with_replicas("wait", 9))
    cluster.start(lambda event: None)
    cluster.wait(30.0)
    filled = cluster.engine.rows[0]
    cluster.wait(20.0)
    assert (cluster.engine.rows[0] - filled) / 20.0 == pytest.approx(2000.0, rel=0.1)


@pytest.fixture(scope="module")
def runs():
    return {method: scale_up(linear(), method, nodes=2, rounds=8) for method in METHODS}


@thorough
def test_stepwise_begins_with_the_ratios_and_ends_at_what_four_cores_can_do(runs):
    found = runs[STEPWISE]
    assert found.rounds[0].tasks == (1, 1, 1, 1)
    assert found.final > 1.2 * found.first
    assert found.final == pytest.approx(4 / 3 * 1e3, rel=0.12)  # 3 ms of work on four cores
    assert "features at a low load" in found.journal[0]


@thorough
def test_threshold_adds_a_task_a_round_and_stela_up_to_one_for_each_node(runs):
    for method, most in ((THRESHOLD, 1), (STELA, 2)):
        tasks = [sum(each.tasks) for each in runs[method].rounds]
        assert {b - a for a, b in pairwise(tasks)} <= set(range(1, most + 1))
        assert len(tasks) > 2


@thorough
def test_the_same_seed_gives_the_same_run(runs):
    assert scale_up(linear(), STELA, nodes=2, rounds=8) == runs[STELA]
