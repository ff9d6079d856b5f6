"""STRETCH's models: how far sharing by reference and copying scale (§8), how many threads (§9.3).

Three kinds of threads form a line: T^I takes tuples in, n threads T^P work on them, T^O puts out
what they make. T^P's work is divided by n. T^I pays for every thread that gets its tuples, and T^O
for merging n streams, n·log n. *Virtual* shared-nothing pays a tenth of what *pure* does for both.

Readings: the logarithm is to base 2, since Table 1 does not say; costs are in units of d^I. A load
below the target (§9.3) is what the threads that Table 2 adds come to, but not those that it leaves
over: their number is rounded down. The table is followed, not the sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, isfinite, log2
from typing import NamedTuple

from anabranch.errors import PlanError, Subject


@dataclass(frozen=True)
class LineCosts:
    """Time per tuple of the three kinds of threads; the defaults are Table 1's, d^I being 1.

    Attributes:
        take_in: d^I, of T^I alone.
        process: d^P, of all T^P threads together.
        put_out: d^O, of T^O alone.
        share: What T^I pays for each T^P thread: d^R (copying) or d^C (contention), over n.
        merge: What T^O pays for merging, over n·log2 n: d^M.
    """

    take_in: float = 1.0
    process: float = 16.0
    put_out: float = 1.0
    share: float = 0.0
    merge: float = 0.0

    def __post_init__(self) -> None:
        """Costs are times, and something has to bound the line."""
        costs = (self.take_in, self.process, self.put_out, self.share, self.merge)
        if not all(isfinite(cost) and cost >= 0 for cost in costs) or min(costs[:3]) <= 0:
            raise PlanError(
                Subject("argument", "line"),
                "costs of 0 or more, those of the three kinds of threads above 0",
                repr(self),
                "measure them in any unit of time",
            )


VIRTUAL = LineCosts(share=0.01, merge=0.01)
"""V_SN: every T^P thread reads the same tuples."""

PURE = LineCosts(share=0.1, merge=0.1)
"""P_SN: every T^P thread gets its own copy."""


class Rates(NamedTuple):
    """The greatest rates of T^I, of all T^P threads together and of T^O, in tuples per time."""

    take_in: float
    process: float
    put_out: float

    @property
    def line(self) -> float:
        """The rate of the whole line: that of its bottleneck."""
        return min(self)

    @property
    def bottleneck(self) -> str:
        """Who holds the line up."""
        return ("T^I", "T^P", "T^O")[self.index(self.line)]


def rates(costs: LineCosts, threads: int) -> Rates:
    """The greatest rates with so many T^P threads.

    Example:
        >>> rates(PURE, 8).bottleneck, round(rates(PURE, 8).line, 3)
        ('T^O', 0.294)
        >>> rates(VIRTUAL, 8).bottleneck, round(rates(VIRTUAL, 8).line, 3)
        ('T^P', 0.5)
    """
    if threads < 1:
        raise PlanError(
            Subject("argument", "threads"), "at least one thread", str(threads), "ask for 1 or more"
        )
    return Rates(
        1 / (costs.take_in + costs.share * threads),
        threads / costs.process,
        1 / (costs.put_out + costs.merge * threads * log2(threads)),
    )


def series(costs: LineCosts, threads: Iterable[int]) -> list[Rates]:
    """One curve of figure 3 for each kind of threads."""
    return [rates(costs, n) for n in threads]


def scales_to(costs: LineCosts) -> int:
    """The most T^P threads that are still the bottleneck: more of them do not help as they should.

    0 when T^P is none from the start, so that T^I or T^O is what should be scaled.

    Example:
        >>> scales_to(PURE), scales_to(VIRTUAL)
        (6, 11)
    """
    threads = 0
    while (following := rates(costs, threads + 1)).process <= following.line:
        threads += 1
    return threads


def fitted(measured: Mapping[int, tuple[float, float, float]]) -> LineCosts:
    """Costs that explain what the three kinds of threads spent on a tuple, by number of threads.

    One thread shows the costs themselves, the greatest number what sharing and merging add.

    Example:
        >>> fitted({1: (1.1, 16.0, 1.0), 4: (1.4, 16.0, 1.8)})
        LineCosts(take_in=1.0, process=16.0, put_out=1.0, share=0.1, merge=0.1)
    """
    if 1 not in measured:
        raise PlanError(
            Subject("argument", "measured"),
            "a run with one thread",
            str(list(measured)),
            "measure it, too",
        )
    most = max(measured)
    alone, crowded = measured[1], measured[most]
    share = merge = 0.0
    if most > 1:
        share = max(0.0, crowded[0] - alone[0]) / (most - 1)
        merge = max(0.0, crowded[2] - alone[2]) / (most * log2(most))
    digits = 12  # what subtraction leaves behind
    return LineCosts(
        round(max(alone[0] - share, alone[0] / 2), digits),
        alone[1],
        alone[2],
        round(share, digits),
        round(merge, digits),
    )


def line_rate_on(cores: int, costs: LineCosts, threads: int) -> float:
    """The rate of a line whose threads share so many cores, which the paper has plenty of.

    Example:
        >>> line_rate_on(36, PURE, 2) == rates(PURE, 2).line
        True
        >>> round(1 / line_rate_on(2, PURE, 2), 3)
        9.2
    """
    found = rates(costs, threads)
    work = 1 / found.take_in + costs.process + 1 / found.put_out
    return min(found.line, cores / work)


def virtual_is_better(threads: int, virtual: LineCosts = VIRTUAL, pure: LineCosts = PURE) -> bool:
    """Whether V_SN still scales where both T^I and T^O of P_SN hold its line up (§8, the last).

    P_SN stops to scale as soon as one of them does, so there are more n at which V_SN is faster.

    Example:
        >>> [n for n in range(1, 20) if virtual_is_better(n)]
        [9, 10, 11]
        >>> [n for n in range(1, 20) if rates(VIRTUAL, n).line > rates(PURE, n).line][:2]
        [7, 8]
    """
    ours, theirs = rates(virtual, threads), rates(pure, threads)
    return (
        ours.take_in > ours.process > theirs.take_in
        and ours.put_out > ours.process > theirs.put_out
    )


@dataclass(frozen=True)
class Thresholds:
    """Loads at which threads are added or taken away, as parts of what all can do (§9.3)."""

    upper: float = 0.9
    target: float = 0.7
    bottom: float = 0.45

    def __post_init__(self) -> None:
        """In this order, else decisions would undo each other."""
        if not 0 < self.bottom <= self.target <= self.upper:
            raise PlanError(
                Subject("argument", "thresholds"),
                "0 < bottom ≤ target ≤ upper",
                repr(self),
                "put them in order",
            )


def threads_for(threads: int, load: float, thresholds: Thresholds | None = None) -> int:
    """How many threads there should be, when so many bear a load (1: all that they can).

    Example:
        >>> [threads_for(n, 1.2) for n in (5, 9, 18, 30, 40)]
        [9, 16, 31, 52, 69]
        >>> [threads_for(n, 0.3) for n in (5, 9, 18, 30, 40)]
        [2, 3, 7, 12, 17]
    """
    given = thresholds or Thresholds()
    if threads < 1 or not (isfinite(load) and load >= 0):
        raise PlanError(
            Subject("argument", "threads"),
            "one or more and a load of 0 or more",
            f"{threads}, {load}",
            "count again",
        )
    # In exact decimals: 1.2 · 7 / 0.7 is 12, and must not be rounded up to 13.
    wanted = _exact(load) * threads / _exact(given.target)
    if load > given.upper:
        return ceil(wanted)
    return max(1, floor(wanted)) if load < given.bottom else threads


def _exact(decimal: float) -> Fraction:
    return Fraction(repr(float(decimal)))
