"""The law on the Spark engine's batches: any plan, any change, any trouble, the same result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings

from anabranch.testing.compare import difference
from anabranch.testing.sequential import run_sequential
from tests.engines.spark.in_process import InProcess
from tests.law.flows import Arrivals, Case, cases
from tests.sampling import in_soak, sampled

SHARDS = 4
TROUBLE = (0.0, 0.1, 0.6)
CASES = in_soak(160, share=10)


def holds(case: Case, directory: Path) -> None:
    trouble = TROUBLE[case.seed % len(TROUBLE)]
    run = InProcess(case.flow, directory, case.seed, kills=case.crashes, trouble=trouble)
    got = run.run([case.plan, *case.changes])
    expected = run_sequential(case.flow, interleavings=got.interleavings)
    found = difference(case.flow, expected, got)
    assert found is None, f"{case}\n{found}\n{got.events}"


@sampled
@pytest.mark.timeout(0)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_batches_give_the_sequential_result(shard: int, tmp_path: Path) -> None:
    law(shard, CASES // SHARDS, tmp_path)()


def law(number: int, examples: int, tmp_path: Path) -> Any:
    @seed(number)
    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=False,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(case=cases(arrivals=Arrivals.SOME))
    def property_(case: Case) -> None:
        holds(case, tmp_path / "checkpoint")

    return property_
