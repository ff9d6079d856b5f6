"""A machine is lost with what its tasks had sent: Spark runs those tasks again, for some readers.

Others have read what the first attempt sent. So what a task sends to whom must not depend on the
order in which its own input came, which is another one each time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

import anabranch as ab
from anabranch.engines.spark import replica as station_module
from anabranch.engines.spark import task as task_module
from anabranch.engines.spark.task_inputs import Batch
from anabranch.planning.plan import Plan
from anabranch.testing.compare import difference
from anabranch.testing.sequential import run_sequential
from tests.engines.spark.in_process import InProcess, Rows, single_rows, target_of
from tests.law.flows import Case, cases
from tests.sampling import sampled, some

CASES = some(60)


class LosingMachines(InProcess):
    """Every task runs twice, and each task of the next stage gets what one of the attempts sent."""

    def _task(self, batch: Batch, stage: int, task: int, rows: Rows) -> Rows:
        attempts: list[Rows] = []
        for _ in range(2):
            shuffled = self._rng.sample(rows, len(rows))
            attempts.append(single_rows(super()._task(batch, stage, task, shuffled)))
        targets = sorted({target_of(row) for sent in attempts for row in sent})
        chosen = {target: self._rng.choice(attempts) for target in targets}
        return [row for target in targets for row in chosen[target] if target_of(row) == target]


@pytest.fixture(autouse=True)
def _small_jumbos(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that there are several to deal out."""
    monkeypatch.setattr(task_module, "SCAN_ROWS", 2)
    monkeypatch.setattr(station_module, "RUN_ROWS", 3)


@pytest.mark.parametrize("number", range(5))
def test_stateless_regions_behind_each_other_lose_nothing(number: int, tmp_path: Path) -> None:
    flow = ab.Flow("tee")
    rows = flow.source("rows", ab.memory([{"x": x} for x in range(60)])).map(
        "all", lambda b: {}, keeps="x"
    )
    rows.map("left", lambda b: {}, keeps="x").sink("lefts", ab.collect())
    rows.map("right", lambda b: {}, keeps="x").sink("rights", ab.collect())
    plan = Plan.sequential(flow).with_source("rows", replicas=2, batch_rows=30)
    plan = plan.with_replicas("all", 3).with_replicas("left", 2).with_replicas("right", 4)
    expected = run_sequential(flow)
    got = LosingMachines(flow, tmp_path / "checkpoint", number).run([plan])
    assert difference(flow, expected, got) is None


@sampled
@pytest.mark.timeout(0)
def test_any_flow_gives_the_sequential_result(tmp_path: Path) -> None:
    law(tmp_path)()


def law(tmp_path: Path) -> Any:
    @seed(7)
    @settings(
        max_examples=CASES,
        deadline=None,
        derandomize=False,
        database=None,
        phases=(Phase.generate,),
        report_multiple_bugs=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(case=cases())
    def property_(case: Case) -> None:
        expected = run_sequential(case.flow)
        run = LosingMachines(case.flow, tmp_path / "checkpoint", case.seed, kills=case.crashes)
        got = run.run([case.plan, *case.changes])
        assert difference(case.flow, expected, got) is None

    return property_
