"""Sizing for micro-batches: how long a batch takes that holds what came during the one before.

At a rate, batches grow until one takes as long as its rows took to come. There is such a batch as
long as the cores keep up; a row waits for it at most once as long as it takes, and then that long.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anabranch.planning.answer import Answer
from anabranch.planning.sizing import Fit, Found, Shortfall, Target

LONGEST_S = 600.0
"""Batches that would take longer do not keep up."""
HALVINGS = 16


@dataclass(frozen=True)
class Batches:
    """Micro-batches on so many cores.

    Attributes:
        answer: The plan.
        seconds: How long a batch of so many rows takes.
        work_s: Processor seconds per row.
    """

    answer: Answer
    seconds: Callable[[int], float]
    work_s: float

    def steady_s(self, rate_per_s: float) -> float | None:
        """How long batches take that follow each other at a rate; None if they never keep up.

        Example:
            >>> batches = Batches(Answer((), 0.0, 0.0), lambda rows: 0.2 + rows / 1000, 0.001)
            >>> round(batches.steady_s(500.0), 3), batches.steady_s(1000.0)
            (0.4, None)
        """
        high = self.seconds(1)
        low = 0.0
        while self._takes_longer(high, rate_per_s):
            low, high = high, 2 * high
            if high > LONGEST_S:
                return None
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            longer = self._takes_longer(middle, rate_per_s)
            low, high = (middle, high) if longer else (low, middle)
        return high

    def _takes_longer(self, seconds: float, rate_per_s: float) -> bool:
        """Whether a batch of what comes in some time takes longer than that time."""
        return self.seconds(max(1, round(rate_per_s * seconds))) > seconds

    def greatest_rate(self, near: float) -> float:
        """The rate of batches so long that what is fixed hardly counts."""
        rows = max(1, round(near * LONGEST_S))
        return rows / self.seconds(rows)


def fewest_slots(target: Target, on: Callable[[int], Batches]) -> Found:
    """The fewest cores that do.

    Args:
        target: What is asked for.
        on: Micro-batches on so many cores.
    """
    rate = target.rate_per_s
    shortest_s = most = 0.0
    for cores in range(1, target.most_cores + 1):
        batches = on(cores)
        able, taken_s = batches.greatest_rate(rate), batches.steady_s(rate)
        most = max(most, able)
        if able < rate * (1 + target.headroom) or taken_s is None:
            continue
        if target.in_time(latency_ms(taken_s)):
            return Fit(
                cores,
                batches.answer,
                able,
                rate * batches.work_s,
                latency_ms(taken_s),
                round(rate * taken_s),
            )
        shortest_s = min(shortest_s or taken_s, taken_s)
    if shortest_s:
        because = f"a batch takes {shortest_s * 1e3:,.0f} ms, and a row may wait for the one before"
        return Shortfall("latency", latency_ms(shortest_s), because)
    return Shortfall("rate", most, f"{target.most_cores} cores do not keep up")


def latency_ms(batch_s: float) -> float:
    """What nearly all rows do not exceed: a batch to wait for, and the batch that they are in."""
    return 2 * batch_s * 1e3
