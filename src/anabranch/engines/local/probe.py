"""A probe: what the thread of a pipeline replica has done and is doing (Joker §4.1).

The thread reads its own processor clock, and that on the wall, once per step and jumbo tuple, and
writes plain attributes that the profiler reads from outside without a lock. Joker samples the
running operator instead, because a clock per tuple would cost too much; with jumbo tuples it costs
next to nothing and is exact (`docs/decisions/0019-profiler.md`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from threading import get_ident

from anabranch.state.positions import Jumbo


class Probe:
    """What one thread does.

    Attributes:
        region: Name of the region.
        steps: Steps of the pipeline.
        replica: Number of the replica.
        step: The step that it runs now; None between steps.
        rows: By step, tuples in and out.
        cpu: By step, processor seconds.
        held: By step, seconds that passed in it.
    """

    def __init__(self, region: str, steps: tuple[str, ...], replica: int) -> None:
        """A probe of a thread that has not started."""
        self.region, self.steps, self.replica = region, steps, replica
        self.step: str | None = None
        self.rows: dict[str, list[int]] = {step: [0, 0] for step in steps}
        self.cpu: dict[str, float] = dict.fromkeys(steps, 0.0)
        self.held: dict[str, float] = dict.fromkeys(steps, 0.0)
        self.ended = False
        self.on = True  # whether steps are measured; source rows are always counted
        self._following = dict(pairwise(steps))
        self._since = self._entered_s = 0.0
        self._clock: int | None = None
        self._started_s = self._spent_s = 0.0

    def start(self) -> None:
        """Called by the thread itself when it begins: its clock is its own."""
        if hasattr(time, "pthread_getcpuclockid"):
            self._clock = time.pthread_getcpuclockid(get_ident())
        self._started_s = time.thread_time()

    def end(self) -> None:
        """Called by the thread itself when it is done."""
        self._spent_s = time.thread_time() - self._started_s
        self.step, self.ended = None, True

    def cpu_s(self) -> float:
        """Processor seconds of the thread so far, steps and all the rest."""
        if self.ended:
            return self._spent_s
        if self._clock is None:  # not started, or a system on which others cannot read the clock
            return sum(self.cpu.values())
        try:
            return time.clock_gettime(self._clock) - self._started_s
        except OSError:  # the thread has ended this moment
            return self._spent_s

    def held_s(self) -> dict[str, float]:
        """By step, seconds that have passed in it, the call under way included."""
        found, step, entered_s = dict(self.held), self.step, self._entered_s
        if step is not None and self.on:
            found[step] += max(0.0, time.perf_counter() - entered_s)
        return found

    def begin(self) -> None:
        """A jumbo tuple enters the pipeline."""
        self._since, self._entered_s = time.thread_time(), time.perf_counter()
        self.step = self.steps[0]

    def tap(
        self, step: str, inputs: Sequence[Jumbo | None], outputs: Sequence[Jumbo | None]
    ) -> None:
        """A step has run."""
        self.end_step(step)
        self.count(
            step,
            sum(len(jumbo) for jumbo in inputs if jumbo is not None),
            sum(len(jumbo) for jumbo in outputs if jumbo is not None),
        )

    def end_step(self, step: str) -> None:
        """The time since the step before it was this one's."""
        now, now_s = time.thread_time(), time.perf_counter()
        self.cpu[step] += now - self._since
        self.held[step] += now_s - self._entered_s
        self._since, self._entered_s = now, now_s
        self.step = self._following.get(step)

    def count(self, step: str, rows_in: int, rows_out: int) -> None:
        """Count tuples."""
        counted = self.rows[step]
        counted[0] += rows_in
        counted[1] += rows_out
