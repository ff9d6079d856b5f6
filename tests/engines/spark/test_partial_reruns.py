"""A machine is lost with what its tasks had sent: Spark runs those tasks again, for some readers.

Others have read what the first attempt sent. So what a task sends to whom must not depend on the
order in which its own input came, which is another one each time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

import anabranch as ab
from anabranch.engines.spark import station as station_module
from anabranch.engines.spark import task as task_module
from anabranch.engines.spark.job import outcome_of
from anabranch.engines.spark.layout import Layout
from anabranch.engines.spark.program import Batch, Outcome
from anabranch.plan.plan import Plan
from anabranch.testing.compare import difference
from anabranch.testing.sequential import run_sequential
from tests.engines.spark.in_process import InProcess
from tests.law.flows import Case, cases

CASES = 60


class LosingMachines(InProcess):
    """Every task runs twice, and each task of the next stage gets what one of the attempts sent."""

    def _job(self, layout: Layout, batch: Batch) -> Outcome:
        inbox: dict[int, list[pa.RecordBatch]] = {task: [] for task in range(layout.tasks[0])}
        for stage in range(layout.last_stage + 1):
            following = layout.tasks[stage + 1] if stage < layout.last_stage else 1
            sent: dict[int, list[pa.RecordBatch]] = {task: [] for task in range(following)}
            for task, rows in inbox.items():
                attempts = [self._shuffled_task(batch, stage, task, rows) for _ in range(2)]
                for target, got in sent.items():
                    chosen = self._rng.choice(attempts)
                    got += [row for row in chosen if row.column(0)[0].as_py() == target]
            inbox = sent
        return outcome_of(inbox[0])

    def _shuffled_task(
        self, batch: Batch, stage: int, task: int, rows: list[pa.RecordBatch]
    ) -> list[pa.RecordBatch]:
        sent = self._task(batch, stage, task, self._rng.sample(rows, len(rows)))
        return [rows.slice(number, 1) for rows in sent for number in range(len(rows))]


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
