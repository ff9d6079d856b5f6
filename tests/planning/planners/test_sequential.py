import pytest

from anabranch.planning.machine import Machine
from anabranch.planning.planners.planner import Problem
from anabranch.planning.planners.sequential import sequential
from anabranch.planning.profile import OperatorProfile, Overheads, Profile, StreamProfile, chain


def test_a_chain_is_one_thread_and_pays_for_no_switch():
    profile = chain(
        [OperatorProfile("a", 2.0, 0.5), OperatorProfile("b", 4.0)], Overheads(10.0, 50.0)
    )
    found = sequential(Problem(profile, Machine.of_cores(8)))
    assert found.threads == 1
    assert found.throughput == pytest.approx(1 / 4)
    assert found.utilization == pytest.approx(1.0)


def test_a_graph_has_a_thread_for_each_run_and_pays_between_them():
    operators = tuple(OperatorProfile(name, 1.0) for name in "abc")
    streams = (StreamProfile("a", "c", 1.0), StreamProfile("b", "c", 1.0))
    profile = Profile(operators, streams, Overheads(0.5))
    found = sequential(Problem(profile, Machine.of_cores(8)))
    assert [region.operators for region in found.regions] == [("a",), ("b",), ("c",)]
    assert found.throughput == pytest.approx(1 / (2 * (1.0 + 0.5)))


def test_regions_that_are_fixed_stay():
    profile = chain([OperatorProfile(name, 1.0) for name in "abc"])
    fixed = (("a", "b"), ("c",))
    found = sequential(Problem(profile, Machine.of_cores(2), regions=fixed))
    assert tuple(region.operators for region in found.regions) == fixed
    assert found.throughput == pytest.approx(1 / 2)
