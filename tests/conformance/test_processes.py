"""Flows in another process, with another hash seed, time zone and folder: the sequential result."""

from __future__ import annotations

import pytest

from anabranch.testing.another_process import OtherProcess, other_surroundings
from anabranch.testing.compare import difference
from tests.conformance.flows import NAMES, SAMPLE, subject
from tests.sampling import ALL, sampled

pytestmark = sampled


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    found = next(other_surroundings(seed=0, folder=str(tmp_path_factory.mktemp("elsewhere"))))
    with OtherProcess(found) as process:
        yield process


@pytest.mark.xdist_group("another process")  # one for all of them
@pytest.mark.parametrize("name", NAMES if ALL else SAMPLE)
def test_the_result_is_the_sequential_one(name, other):
    seen = subject(name)
    found = difference(seen.flow, seen.expected, other.run(seen.flow)[0])
    assert found is None, str(found)
