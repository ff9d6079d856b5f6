"""When `process_all_available` believes that all is processed; batches that had nothing to do."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.engines.handle import Run
from tests.view.web.made import observed


class Batched:
    """An engine of which only observations tell whether it has caught up, one at every look."""

    def __init__(self, rows: list[int]) -> None:
        self.rows_of, self.run = rows, Run("batched", self)  # type: ignore[arg-type]
        self.told, self.seconds = 0, 0.0

    def caught_up(self) -> None:
        return None

    def wait(self, timeout_s: float | None = None) -> bool:
        if self.told < len(self.rows_of):
            self.run.hear(observed(float(self.told), self.rows_of[self.told]))
            self.told += 1
        return False


@pytest.mark.parametrize(
    ("rows", "batches"),
    [
        ([0, 5, 0, 0, 0], 4),  # the first was planned before the rows came
        ([0, 0, 5], 2),
        ([7, 0, 3, 0, 0], 5),
    ],
)
def test_one_batch_without_rows_is_not_enough(rows: list[int], batches: int) -> None:
    engine = Batched(rows)
    assert engine.run.process_all_available(10.0)
    assert engine.told == batches


def test_batches_before_the_call_do_not_count() -> None:
    engine: Any = Batched([0, 0, 0, 0])
    engine.wait()
    engine.wait()
    assert engine.run.process_all_available(10.0)
    assert engine.told == 4


def test_rows_that_keep_coming_end_its_patience() -> None:
    engine = Batched([1, 0, 1, 0, 1, 0])
    assert not engine.run.process_all_available(0.2)


def test_progress_is_that_of_the_last_batch_that_had_rows_with_its_number() -> None:
    engine = Batched([0, 5, 0, 3, *[0] * 200])
    assert engine.run.last_progress is None
    for _ in engine.rows_of:
        engine.wait()
    last = engine.run.last_progress
    assert last is not None
    assert (last.batch, last.rows_in) == (3, 3)
    seen = [(each.batch, each.rows_in) for each in engine.run.recent_progress]
    assert seen == [(0, 0), (1, 5), (3, 3)]
