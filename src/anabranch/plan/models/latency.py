"""Latency of a plan at a rate: gathering a jumbo tuple, working on it, and waiting in between.

A tuple waits until its jumbo tuple is full, then for each region that it passes until the jumbo
tuples before it are done, and for the work on its own. Waiting is that of a single server whose
arrivals are random (M/G/1, Pollaczek and Khinchine): ρ / (1 − ρ) · (1 + cv²) / 2 times the work on
a jumbo tuple, where ρ is the part of its greatest rate at which the region runs and cv says how
much that work varies. The replicas of a region are one server that is as fast as all of them.

The 99th percentile takes waits as exponential and independent: their sum, and 3.6 times the root of
the sum of their squares. That is exact for one region, and too long for several. Threads are said
to find a core when they need one, which holds as long as cores are not all busy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, log, sqrt

from anabranch.plan.answer import RegionChoice, kind_of
from anabranch.plan.models.fission import pipeline_times, region_times, speedup
from anabranch.plan.profile import OperatorProfile, Profile, State

P99_SIGMAS = 2.326
"""A normal distribution has 99 in a hundred below so many deviations above its mean."""
TAIL = log(100) - 1
"""An exponential one, likewise."""
UNKNOWN_VARIATION = 1.0
"""Squared coefficient of variation of a step that nobody measured: as random as arrivals."""


@dataclass(frozen=True)
class RegionLatency:
    """What a region adds, in the unit of the profile: work on a jumbo tuple, and the mean wait."""

    region: RegionChoice
    work: float
    wait: float


@dataclass(frozen=True)
class Latency:
    """Latency on the slowest way through a flow, in the unit of the profile.

    Attributes:
        gathering: Until a jumbo tuple is full.
        regions: On that way.
    """

    gathering: float
    regions: tuple[RegionLatency, ...]

    @property
    def mean(self) -> float:
        """Of a tuple that is first in its jumbo tuple."""
        return self.gathering + sum(each.work + each.wait for each in self.regions)

    @property
    def p99(self) -> float:
        """What 99 in a hundred do not exceed."""
        return self.mean + TAIL * sqrt(sum(each.wait**2 for each in self.regions))

    @property
    def slowest(self) -> RegionLatency:
        """The region that adds most."""
        return max(self.regions, key=lambda each: each.work + each.wait)


def latency(
    profile: Profile, regions: Sequence[RegionChoice], rate: float, batch_rows: float = 1.0
) -> Latency:
    """What a plan takes at a rate, in tuples that the application takes in per unit of time.

    Example:
        >>> from anabranch.plan.profile import chain
        >>> parse = OperatorProfile("parse", 2.0, cost_p99=2.0)  # takes the same every time
        >>> found = latency(chain([parse]), [RegionChoice((("parse",),))], rate=0.25)
        >>> found.gathering, found.regions[0].work, found.regions[0].wait
        (0.0, 2.0, 1.0)
    """
    ways: dict[str, Latency] = {}  # the slowest way up to and with a region, by last operator
    gathering = (batch_rows - 1) / rate
    order = {operator.name: number for number, operator in enumerate(profile.operators)}
    for region in sorted(regions, key=lambda each: order[each.operators[0]]):
        first, last = region.operators[0], region.operators[-1]
        own = _region(profile, region, rate, batch_rows)
        before = [ways[s.producer] for s in profile.into(first)] or [Latency(gathering, ())]
        slowest = max(before, key=lambda way: way.p99)
        ways[last] = Latency(gathering, (*slowest.regions, own))
    return max(ways.values(), key=lambda way: way.p99)


def _region(
    profile: Profile, region: RegionChoice, rate: float, batch_rows: float
) -> RegionLatency:
    members = [profile.by_name[name] for name in region.operators]
    times = region_times(profile, region)
    whole = profile.visits[region.operators[0]] * sum(pipeline_times(profile, region.pipelines))
    if kind_of(members) in (State.PARTITIONED, State.SHARED):
        whole /= speedup(profile, region)  # each replica works on its part of the jumbo tuple
    used = rate * times.turn
    if used >= 1:
        return RegionLatency(region, batch_rows * whole, inf)
    random = (1 + _variation(profile, members)) / 2
    return RegionLatency(
        region, batch_rows * whole, used / (1 - used) * random * batch_rows * times.turn
    )


def _variation(profile: Profile, members: Sequence[OperatorProfile]) -> float:
    """Squared coefficient of variation of the work, by operators' shares in it."""
    work = [profile.visits[o.name] * o.cost for o in members]
    total = sum(work)
    if total <= 0:
        return 0.0
    return sum(w * operator_variation(o) for w, o in zip(work, members, strict=True)) / total


def operator_variation(operator: OperatorProfile) -> float:
    """Squared coefficient of variation of one operator, if its times are log-normal.

    Example:
        >>> operator_variation(OperatorProfile("parse", 1.0, cost_p99=1.0))
        0.0
    """
    spread = deviation(operator)
    return UNKNOWN_VARIATION if spread is None else exp(spread**2) - 1


def deviation(operator: OperatorProfile) -> float | None:
    """Deviation of the logarithm of an operator's time; None if only its median is known."""
    if operator.cost_p99 is None or operator.cost <= 0:
        return None
    return max(0.0, log(operator.cost_p99 / operator.cost)) / P99_SIGMAS
