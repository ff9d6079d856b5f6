"""What a task measures of itself: rows and time by step, time by kind of work."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from anabranch.engines.spark.task_report import StepWork, Work
from anabranch.state.positions import Jumbo

Item = TypeVar("Item")


class StepMeter:
    """Counts what the steps of one pipeline do; one thread runs a pipeline."""

    def __init__(self, steps: Sequence[str]) -> None:
        """Nothing counted yet."""
        self.steps: dict[str, list[float]] = {step: [0, 0, 0.0] for step in steps}
        self._since = 0.0

    def start(self) -> None:
        """A call of the pipeline begins."""
        self._since = time.perf_counter()

    def tap(
        self, step: str, inputs: Sequence[Jumbo | None], outputs: Sequence[Jumbo | None]
    ) -> None:
        """A step has run: it gets the time since the one before it."""
        now = time.perf_counter()
        counted = self.steps[step]
        counted[0] += sum(len(j) for j in inputs if j is not None)
        counted[1] += sum(len(j) for j in outputs if j is not None)
        counted[2] += now - self._since
        self._since = now

    def work(self) -> dict[str, StepWork]:
        """By step."""
        return {
            step: StepWork(int(rows_in), int(rows_out), seconds)
            for step, (rows_in, rows_out, seconds) in self.steps.items()
        }


class Meter:
    """Seconds that a task spends on each kind of work, and the state that it reads."""

    def __init__(self) -> None:
        """Nothing measured yet."""
        self.seconds: defaultdict[Work, float] = defaultdict(float)
        self.state_loaded_bytes = 0

    @contextmanager
    def of(self, work: Work) -> Iterator[None]:
        """Time of what is done inside."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[work] += time.perf_counter() - start

    def timed(self, work: Work, items: Iterator[Item]) -> Iterator[Item]:
        """The same items; the time it takes to get them counts."""
        while True:
            with self.of(work):
                try:
                    item = next(items)
                except StopIteration:
                    return
            yield item
