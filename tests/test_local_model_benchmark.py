"""The local engine's model: what is paid per jumbo tuple, against sums worked out by hand."""

import sys
from pathlib import Path

import pytest

from anabranch.engines.measuring.calibration import Calibrated
from anabranch.graph import StateKind
from anabranch.planning.answer import RegionChoice
from anabranch.planning.models import fission
from anabranch.planning.profile import OperatorProfile, chain

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from local_model import LocalCosts, estimate, local_costs

FREE = LocalCosts(0.0, 0.0, 0.0, batch_rows=1000)
HANDED = LocalCosts(100_000.0, 0.0, 0.0, batch_rows=1000)  # 0.1 µs a tuple of the source

WORDS = chain(
    [
        OperatorProfile("lines", 0.0),
        OperatorProfile("split", 2.0, selectivity=10.0),
        OperatorProfile("count", 0.3, state=StateKind.PARTITIONED, key=("word",)),
    ],
    unit="us",
)


def plan(split=1, count=1, cut=False):
    if cut:
        return [RegionChoice((("lines",),)), RegionChoice((("split",), ("count",)), count)]
    return [
        RegionChoice((("lines",),)),
        RegionChoice((("split",),), split),
        RegionChoice((("count",),), count),
    ]


@pytest.mark.parametrize("cores", [1, 2, 8])
@pytest.mark.parametrize("chosen", [plan(), plan(split=3), plan(count=4), plan(cut=True)])
def test_without_overheads_it_is_the_papers_model(chosen, cores):
    ours, theirs = estimate(WORDS, chosen, cores, FREE), fission.estimate(WORDS, chosen, cores)
    assert ours.throughput == pytest.approx(theirs.throughput)
    assert ours.utilization == pytest.approx(theirs.utilization)


def test_a_way_costs_the_same_however_many_tuples_go_it():
    # Ten words a line come to the counter, in one jumbo tuple for each that was read.
    turns = [r.turn for r in estimate(WORDS, plan(), 8, HANDED).regions]
    assert turns == pytest.approx([0.1, 2.0 + 0.2, 3.0 + 0.1])


def test_larger_jumbo_tuples_cost_less_a_tuple():
    large = LocalCosts(100_000.0, 0.0, 0.0, batch_rows=10_000)
    turns = [r.turn for r in estimate(WORDS, plan(), 8, large).regions]
    assert turns == pytest.approx([0.01, 2.0 + 0.02, 3.0 + 0.01])


def test_stateless_replicas_take_turns_and_share_the_handing_over():
    region = estimate(WORDS, plan(split=2), 8, HANDED).regions[1]
    assert region.turn == pytest.approx((2.0 + 0.2) / 2)
    assert region.work == pytest.approx(2.2)


def test_partitioned_replicas_all_handle_every_jumbo_tuple():
    region = estimate(WORDS, plan(count=2), 8, HANDED).regions[2]
    assert region.turn == pytest.approx(1.5 + 0.1)
    assert region.work == pytest.approx(3.0 + 0.2)


def test_replication_is_paid_by_kind_and_tuple():
    costs = LocalCosts(0.0, 10.0, 50.0, batch_rows=1000)
    regions = estimate(WORDS, plan(split=4, count=4), 8, costs).regions
    assert regions[1].turn == pytest.approx(2.0 / 4 + 2 * 0.01)
    assert regions[2].turn == pytest.approx(3.0 / 4 + 2 * 10 * 0.05)


def test_pipelines_pay_between_them():
    region = estimate(WORDS, plan(cut=True), 8, HANDED).regions[1]
    assert region.turn == pytest.approx(3.0 + 0.1)
    assert region.work == pytest.approx(5.0 + 0.1 * 3)


def test_cores_bound_what_all_threads_do():
    found = estimate(WORDS, plan(), 1, FREE)
    assert found.throughput == pytest.approx(1 / 5)
    assert found.utilization == pytest.approx(1)


def test_costs_follow_from_a_calibration_and_are_never_negative():
    found = Calibrated((10.0, 12.5, 15.0), (-2.0, -1.0, 5.0), (40.0, 50.0, 60.0))
    assert local_costs(found, 8192) == LocalCosts(12.5 * 8192, 0.0, 50.0, 8192)
