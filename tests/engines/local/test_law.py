"""The law on the local engine: any plan, any change at any moment, the same result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, seed, settings

from anabranch.io.offsets import Run
from anabranch.runtime.dispenser import Dispenser
from anabranch.runtime.messages import Finished
from anabranch.testing.compare import difference
from anabranch.testing.sequential import run_sequential
from tests.engines.local.changing import run_changing
from tests.law.arriving import let_come
from tests.law.flows import Arrivals, Case, cases
from tests.sampling import SOAK, in_soak, sampled

SHARDS = 2
CASES = in_soak(120, share=2)


def holds(case: Case, workers: int) -> None:
    with recorded_interleavings() as recorded:
        got, engine = run_changing(case.flow, [case.plan, *case.changes], case.seed, workers)
    sources = {n: each for n, each in case.flow.sources().items() if each.interleaved}
    interleavings = {name: recorded.get(name, []) for name in sources}
    for name, source in sources.items():
        let_come(source, interleavings[name])
    expected = run_sequential(case.flow, interleavings=interleavings)
    found = difference(case.flow, expected, got)
    assert found is None, f"{case}\n{found}\n{engine.reconfigurations()}"


@contextmanager
def recorded_interleavings() -> Iterator[dict[str, list[Run]]]:
    """By source, the runs of rows that dispensers record."""
    found: dict[str, list[Run]] = {}
    finished = Dispenser.finished

    def noting(self: Dispenser, report: Finished, now_s: float) -> None:
        known = len(self.runs)
        finished(self, report, now_s)
        found.setdefault(self.name, []).extend(self.runs[known:])

    with patch.object(Dispenser, "finished", noting):
        yield found


@sampled
@pytest.mark.timeout(0)
@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.parametrize("workers", [0, 2, 3])
def test_the_local_engine_gives_the_sequential_result(workers: int, shard: int) -> None:
    law(None if SOAK else 10 * workers + shard, CASES // SHARDS, workers)()


def law(number: int | None, examples: int, workers: int) -> Any:
    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=False,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(case=cases(arrivals=Arrivals.UNANNOUNCED))
    def property_(case: Case) -> None:
        holds(case, workers)

    return property_ if number is None else seed(number)(property_)
