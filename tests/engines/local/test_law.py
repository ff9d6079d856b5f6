"""The law on real threads: any plan, any change at any moment, the same result."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings

from anabranch.testing.compare import difference
from anabranch.testing.sequential import run_sequential
from tests.engines.local.on_threads import run_on_threads
from tests.law.flows import Case, cases
from tests.sampling import SOAK, in_soak, sampled

SHARDS = 4
CASES = in_soak(240, share=2)


def holds(case: Case) -> None:
    expected = run_sequential(case.flow)
    got, engine = run_on_threads(case.flow, [case.plan, *case.changes], case.seed)
    found = difference(case.flow, expected, got)
    assert found is None, f"{case}\n{found}\n{engine.reconfigurations()}"


@sampled
@pytest.mark.timeout(0)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_threads_give_the_sequential_result(shard: int) -> None:
    law(None if SOAK else shard, CASES // SHARDS)()


def law(number: int | None, examples: int) -> Any:
    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=False,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(case=cases())
    def property_(case: Case) -> None:
        holds(case)

    return property_ if number is None else seed(number)(property_)
