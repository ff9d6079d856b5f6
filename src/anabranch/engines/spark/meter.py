"""What a task measures of itself: rows and time by step, time by kind of work."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from anabranch.state.positions import Jumbo


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


class Meter:
    """Time that a task spends on each kind of work, in seconds."""

    def __init__(self) -> None:
        """Nothing measured yet."""
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.bytes: defaultdict[str, int] = defaultdict(int)

    @contextmanager
    def of(self, work: str) -> Iterator[None]:
        """Time of what is done inside."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[work] += time.perf_counter() - start

    def timed(self, work: str, items: Iterator[Any]) -> Iterator[Any]:
        """The same items; the time it takes to get them counts."""
        while True:
            with self.of(work):
                try:
                    item = next(items)
                except StopIteration:
                    return
            yield item
