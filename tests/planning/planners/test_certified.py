"""The certificate: no plan that can be enumerated exceeds the bound."""

import numpy as np
import pytest

from anabranch.planning.machine import Machine
from anabranch.planning.planners.planner import Problem
from anabranch.planning.planners.rlas_certified import bound, rlas_certified, rounded
from anabranch.planning.planners.search.placement_relaxation import (
    LinearRows,
    ProductCuts,
    Relaxation,
    ShareBounds,
)
from anabranch.planning.planners.search.placing import Placing
from anabranch.planning.profile import OperatorProfile, chain
from papers.briskstream.inputs import application, server
from tests.planning.planners.enumerated_plans import every_plan, random_problem
from tests.sampling import few, thorough

FAR = ((0.0, 300.0), (300.0, 0.0))


@pytest.mark.parametrize("seed", few(range(24), 6))
def test_the_bound_holds_on_every_plan_and_rlas_finds_the_best_that_fits(seed):
    problem = random_problem(np.random.default_rng(seed))
    placing = Placing.of(problem)
    found = placing.model().rates(every_plan(placing))
    answer = rlas_certified(problem, effort=150_000)
    best = float(found.bounded.max())
    assert best <= answer.bound * (1 + 1e-9), "a plan exceeds the bound"
    if found.fits.any() and not placing.room.crowded:
        best = float(found.bounded[found.fits].max())
    assert answer.throughput / best == pytest.approx(1.0, abs=0.02), "ratio to the optimum"


@pytest.mark.parametrize("seed", few(range(100, 130), 8))
def test_no_plan_is_called_impossible_at_its_own_rate(seed):
    placing = Placing.of(random_problem(np.random.default_rng(seed)))
    model = placing.model()
    best = float(model.rates(every_plan(placing)).bounded.max()) / placing.workload.sink_visits
    relaxation = Relaxation(model, placing.room)
    for _ in range(5):  # cuts must not exclude it either
        found = relaxation.solve(best * (1 - 1e-6), relaxation.whole)
        assert not found.impossible
        if not relaxation.sharpen(found):
            break


@pytest.mark.parametrize("seed", few(range(200, 240), 10))
def test_no_plan_is_called_impossible_in_a_box_around_its_own_shares(seed):
    draw = np.random.default_rng(seed)
    placing = Placing.of(random_problem(draw))
    model = placing.model()
    plans = every_plan(placing)
    found = model.rates(plans)
    best = int(found.bounded.argmax())
    handled = found.processed[best]
    shares = handled / handled.sum(axis=1, keepdims=True)
    relaxation = Relaxation(model, placing.room)
    whole = relaxation.whole
    below, above = draw.uniform(0, 0.3, (2, *shares.shape))
    box = ShareBounds(
        np.maximum(0, shares - below), np.minimum(1, shares + above), whole.fewest, whole.most
    )
    rate = float(found.bounded[best]) / placing.workload.sink_visits * (1 - 1e-6)
    for _ in range(3):
        solved = relaxation.solve(rate, box)
        assert not solved.impossible
        relaxation.sharpen(solved)
    assert relaxation.solve(rate * 20, box).impossible


def test_cuts_hold_for_products_and_exclude_what_is_none():
    draw = np.random.default_rng(0)
    cuts = ProductCuts([0, 1], sockets=2)
    half = np.full((2, 2), 0.5)
    apart = np.array([[0.0, 0.5], [0.5, 0.0]])  # each unit never where it is itself
    assert cuts.learn(half, {(0, 0): apart, (0, 1): np.diag([0.5, 0.5]), (1, 1): apart})
    rows = LinearRows()
    shares = rows.variables(2, 2)
    products = {pair: rows.variables(2, 2) for pair in ((0, 0), (0, 1), (1, 1))}
    cuts.add_to(rows, shares, products)
    for _ in range(50):
        g = draw.dirichlet([1, 1], 2)
        values = np.zeros(rows.size)
        values[shares] = g
        for (a, b), product in products.items():
            values[product] = np.outer(g[a], g[b])
        assert rows.least(shares[0, 0], values, values).solution is not None
    values[shares] = half
    for pair, product in products.items():
        values[product] = np.diag([0.5, 0.5]) if pair == (0, 1) else apart
    assert rows.least(shares[0, 0], values, values).least == np.inf


def test_the_bound_is_tight_where_nothing_has_to_be_fetched():
    profile = chain([OperatorProfile("read", 100.0), OperatorProfile("count", 300.0)])
    answer = rlas_certified(Problem(profile, Machine("two", 2, 4, latency_ns=FAR)))
    assert answer.gap == pytest.approx(0.0, abs=0.01)


def test_where_sinks_get_nothing_tuples_taken_in_count():
    profile = chain([OperatorProfile("drop", 100.0, 0.0), OperatorProfile("out", 300.0)])
    answer = rlas_certified(Problem(profile, Machine.of_cores(4)))
    assert answer.regions[0].replicas == 3
    assert answer.throughput == answer.taken_in(profile) == pytest.approx(3 / 100)
    assert answer.bound == pytest.approx(answer.throughput)


def test_fetching_that_cannot_be_avoided_lowers_the_bound():
    # Four cores would do 4 / 200 tuples each, if not half of them came from the other socket.
    operators = [OperatorProfile("read", 100.0), OperatorProfile("count", 100.0, tuple_bytes=64)]
    placing = Placing.of(Problem(chain(operators), Machine("two", 2, 2, latency_ns=FAR)))
    best = float(placing.model().rates(every_plan(placing)).bounded.max())
    found = bound(placing.model(), placing.room, reached=best)
    assert best <= found.rate < 0.9 * 4 / 200


@thorough
def test_the_certificate_of_fraud_detection_is_within_a_sixth():
    answer = rlas_certified(Problem(application("fd"), server("server-a")), effort=400_000)
    assert answer.throughput <= answer.bound
    assert answer.gap < 1 / 6


def test_shares_are_rounded_to_as_many_replicas():
    counts = rounded([5, 2], np.array([[0.5, 0.5], [0.9, 0.1]]))
    assert counts.tolist() == [[3, 2], [2, 0]]
