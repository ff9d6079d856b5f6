from dataclasses import replace

import numpy as np
import pytest

from anabranch.graph import StateKind
from anabranch.planning.answer import common_key
from anabranch.planning.profile import Overheads
from papers.pipelined_fission.random_profiles import (
    LEAST_COST,
    LEAST_SELECTIVITY,
    TABLE_1,
    random_chain,
    random_graph,
)


@pytest.fixture(scope="module")
def many():
    rng = np.random.default_rng(17)
    return [one for _ in range(1000) for one in random_chain(rng).operators]


def test_a_chain_is_one_run_of_as_many_operators_as_asked_for():
    drawn = random_chain(np.random.default_rng(1), replace(TABLE_1, operators=5))
    assert drawn.chains == (("o1", "o2", "o3", "o4", "o5"),)
    assert drawn.overheads == Overheads(1.0, 50.0)


@pytest.mark.parametrize("draw", [random_chain, random_graph])
def test_a_seed_decides_everything(draw):
    assert draw(np.random.default_rng(3)) == draw(np.random.default_rng(3))
    assert draw(np.random.default_rng(3)) != draw(np.random.default_rng(4))


def test_kinds_come_in_the_fractions_of_table_1(many):
    shares = {state: sum(one.state is state for one in many) / len(many) for state in StateKind}
    assert shares[StateKind.STATELESS] == pytest.approx(0.4, abs=0.02)
    assert shares[StateKind.PARTITIONED] == pytest.approx(0.2, abs=0.02)
    assert shares[StateKind.STATEFUL] == pytest.approx(0.4, abs=0.02)


def test_costs_and_selectivities_have_the_means_and_stay_within_the_bounds(many):
    costs = np.array([one.cost for one in many])
    passed = np.array([one.selectivity for one in many])
    assert np.mean(costs) == pytest.approx(200, rel=0.03)
    assert np.mean(passed) == pytest.approx(0.8, rel=0.03)
    assert costs.min() >= LEAST_COST
    assert passed.min() >= LEAST_SELECTIVITY
    assert costs.max() <= 500
    assert passed.max() <= 2.0


def test_one_key_by_default_and_more_when_asked_for(many):
    assert common_key([one for one in many if one.state is StateKind.PARTITIONED]) == {"k1"}
    rng = np.random.default_rng(5)
    settings = replace(TABLE_1, operators=50, partitioned=0.6, keys=3)
    keys = {one.key for one in random_chain(rng, settings).operators}
    assert len(keys) > 3
    assert max(len(key) for key in keys) > 1


def test_replicas_of_partitioned_operators_are_bounded_when_asked_for():
    rng = np.random.default_rng(6)
    drawn = random_chain(rng, replace(TABLE_1, operators=100, most_replicas=3)).operators
    bounds = {one.max_replicas for one in drawn if one.state is StateKind.PARTITIONED}
    assert bounds == {1, 2, 3}
    assert {one.max_replicas for one in drawn if one.state is not StateKind.PARTITIONED} == {None}


def test_graphs_have_joins_branches_and_several_sources():
    rng = np.random.default_rng(8)
    drawn = [random_graph(rng) for _ in range(50)]
    assert any(len(one.into(o.name)) > 1 for one in drawn for o in one.operators)
    assert any(len(one.out_of(o.name)) > 1 for one in drawn for o in one.operators)
    assert any(sum(not one.into(o.name) for o in one.operators) > 1 for one in drawn)
    assert any(len(run) > 1 for one in drawn for run in one.chains)
