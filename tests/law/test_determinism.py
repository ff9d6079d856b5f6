"""The law: whatever the flow, data, plan, interleaving, changes and crashes, the result is the
sequential one. `make soak` draws more cases, and other ones each time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from anabranch.testing.compare import difference
from anabranch.testing.interleaved import run_interleaved
from anabranch.testing.sequential import run_sequential
from tests.law.flows import Arrivals, Case, cases
from tests.sampling import SOAK, in_soak, sampled

SHARDS = 8
CASES = in_soak(512, share=1)


def holds(case: Case) -> None:
    got = run_interleaved(
        case.flow, case.plan, case.seed, changes=case.changes, crashes=case.crashes
    )
    expected = run_sequential(case.flow, interleavings=got.interleavings)
    found = difference(case.flow, expected, got)
    assert found is None, f"{case}\n{found}\n{got.events}"


@sampled
@pytest.mark.timeout(0)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_run_equals_the_sequential_run(shard: int) -> None:
    law(cases(arrivals=Arrivals.SOME), None if SOAK else shard, CASES // SHARDS)()


def law(
    strategy: Any, number: int | None, examples: int, phases: Any = tuple(Phase)
) -> Callable[[], Any]:
    """The law on cases of a strategy, drawn from a seed or, without a number, afresh."""

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=False,
        database=None,
        phases=phases,
        report_multiple_bugs=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(case=strategy)
    def property_(case: Case) -> None:
        holds(case)

    return property_ if number is None else seed(number)(property_)
