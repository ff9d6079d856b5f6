"""Meters: what the units of one process have done (Joker §4.1).

The process reads its processor clock and the wall clock once per step and jumbo tuple. Joker
samples the running operator instead, because a clock per tuple would cost too much; with jumbo
tuples it costs next to nothing and is exact (`docs/decisions/0019-profiler.md`). Totals are sent to
the coordinator from time to time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from anabranch.operators.base import Counters
from anabranch.runtime.bucket_loads import Loads
from anabranch.runtime.messages import UnitId
from anabranch.state.positions import Jumbo


@dataclass
class StepTotals:
    """What a step has done on one unit since the start.

    Attributes:
        rows_in: Tuples in.
        rows_out: Tuples out.
        cpu_s: Processor seconds.
        held_s: Seconds on the wall.
    """

    rows_in: int = 0
    rows_out: int = 0
    cpu_s: float = 0.0
    held_s: float = 0.0


class Meter:
    """Measures one unit; see `Watch`.

    Args:
        steps: Its steps.
        enter: Called with the step that begins; None when all are over.
        cpu_clock: Gives processor seconds.
    """

    def __init__(
        self,
        steps: tuple[str, ...],
        enter: Callable[[str | None], None],
        cpu_clock: Callable[[], float],
    ) -> None:
        self.steps, self._cpu_clock = steps, cpu_clock
        self.totals = {step: StepTotals() for step in steps}
        self.cpu_s = 0.0
        self._enter = enter
        self._following = dict(pairwise(steps))
        self._since_cpu_s = self._since_s = 0.0

    def begin(self) -> None:
        """Note that the first step begins."""
        self._since_cpu_s, self._since_s = self._cpu_clock(), time.perf_counter()
        self._enter(self.steps[0])

    def tap(
        self, step: str, inputs: Sequence[Jumbo | None], outputs: Sequence[Jumbo | None]
    ) -> None:
        """Note that a step has run."""
        totals = self.end_step(step)
        totals.rows_in += sum(len(jumbo) for jumbo in inputs if jumbo is not None)
        totals.rows_out += sum(len(jumbo) for jumbo in outputs if jumbo is not None)

    def read(self, jumbo: Jumbo | None) -> None:
        """Note that a reader has read once."""
        self.end_step(self.steps[0]).rows_out += 0 if jumbo is None else len(jumbo)

    def end_step(self, step: str) -> StepTotals:
        """Add the time since the step before it to a step, and return its totals."""
        cpu_s, now_s = self._cpu_clock(), time.perf_counter()
        totals = self.totals[step]
        totals.cpu_s += cpu_s - self._since_cpu_s
        totals.held_s += now_s - self._since_s
        self._since_cpu_s, self._since_s = cpu_s, now_s
        self._enter(self._following.get(step))
        return totals


@dataclass(frozen=True)
class UnitReading:
    """The totals of one unit.

    Attributes:
        steps: By step.
        cpu_s: Processor seconds, in steps and around them.
        queue: Deliveries and tuples that wait upstream of it.
        keys: By step with state by key, how many keys it holds.
        counters: By step, what was counted in the epoch under way.
    """

    steps: Mapping[str, StepTotals]
    cpu_s: float
    queue: tuple[int, int] = (0, 0)
    keys: Mapping[str, int] = field(default_factory=dict)
    counters: Mapping[str, Counters] = field(default_factory=dict)


@dataclass(frozen=True)
class Measured:
    """What a process reports of itself.

    Attributes:
        units: By unit, its totals; units that have left keep theirs.
        loads: By region, how the tuples that were dealt out since the last report fall on buckets.
        rows_written: By sink, how many tuples have come to it.
        process_s: Processor seconds of the process since the run began.
        memory_bytes: Its memory, of shared pages its part; None where that is not known.
    """

    units: Mapping[UnitId, UnitReading]
    loads: Mapping[str, Loads]
    rows_written: Mapping[str, int]
    process_s: float
    memory_bytes: int | None
