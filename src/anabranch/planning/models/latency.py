"""Latency of a plan at a rate: gathering a jumbo tuple, waiting for its turn, working on it.

A source hands a jumbo tuple on when it is full, or when its first row has lingered for as long as
the engine lets it (`gathered_rows`). In each region that it passes, it waits until those before it
are done, and then it is worked on. The replicas of a region are one server that is as fast as all
of them.

A wait is that of one server with random arrivals (M/G/1). Its mean is Pollaczek and Khinchine's:
ρ / (1 − ρ) · (1 + cv²) / 2 · s, where s is the time that the server takes for a jumbo tuple, ρ the
part of its greatest rate at which it runs, and cv how much s varies. Its distribution is taken as
P(wait > t) = ρ · exp(−t / m), with m = s · (1 + cv²) / 2 / (1 − ρ), which has that mean; so 99 in a
hundred wait no longer than m · ln(100 ρ), or not at all if ρ is below a hundredth. Work is
log-normal. All parts are taken as independent: to the sum of their means comes the root of the sum
of the squares of what their 99th percentiles lie above their means.

Where that is right and wrong:
- The wait is exact if work is exponential (M/M/1). If work always takes the same (M/D/1), it comes
  out a third too long where little is to do, and right where there is much.
- The sum is exact for one part alone. A region whose wait and work count alike comes out up to
  15 % too long (M/M/1 has ln(100) · s / (1 − ρ)), several alike regions too long as well.
- Arrivals that are regular wait less than random ones, those in bursts wait longer.
- Work is the profile's cost for each row; what a step takes for a call, however few rows it gets,
  has to be in there.
- Threads are said to find a core when they need one, which holds as long as cores are not all busy.
- A source that is asked in vain, such as a queue, may be asked again later than the engine lingers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, log, sqrt

from anabranch.graph import StateKind
from anabranch.planning.answer import RegionChoice, kind_of
from anabranch.planning.models.fission import pipeline_times, region_times, speedup, waiting
from anabranch.planning.profile import OperatorProfile, Profile

P99_SIGMAS = 2.326
"""A normal distribution has 99 in a hundred below so many deviations above its mean."""
UNKNOWN_VARIATION = 1.0
"""Squared coefficient of variation of a step that nobody measured: as random as arrivals."""
NEVER_IDLE = 1 - 1e-9
"""A region that is busy for this part of the time has a queue that grows without end."""


@dataclass(frozen=True)
class RegionLatency:
    """What a region adds, in the unit of the profile.

    Attributes:
        region: The region.
        work: On a jumbo tuple, on average.
        wait: Until its turn, on average.
        work_p99: What 99 in a hundred jumbo tuples do not exceed.
        wait_p99: Likewise.
    """

    region: RegionChoice
    work: float
    wait: float
    work_p99: float
    wait_p99: float


@dataclass(frozen=True)
class Latency:
    """Latency on the slowest way through a flow, in the unit of the profile.

    Attributes:
        gathering: Until a jumbo tuple is handed on.
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
        if self.mean == inf:
            return inf
        above = [each.work_p99 - each.work for each in self.regions]
        above += [each.wait_p99 - each.wait for each in self.regions]
        return self.mean + sqrt(sum(max(0.0, each) ** 2 for each in above))

    @property
    def slowest(self) -> RegionLatency:
        """The region that adds most."""
        return max(self.regions, key=lambda each: each.work + each.wait)


def gathered_rows(rate: float, batch_rows: float, linger: float) -> float:
    """Rows of a jumbo tuple that is handed on when it is full, or has lingered for some time.

    Example:
        >>> gathered_rows(rate=1000.0, batch_rows=256, linger=0.002)
        3.0
        >>> gathered_rows(rate=1e6, batch_rows=256, linger=0.002)
        256
    """
    return min(batch_rows, 1 + rate * linger)


def latency(
    profile: Profile, regions: Sequence[RegionChoice], rate: float, batch_rows: float = 1.0
) -> Latency:
    """What a plan takes at a rate, in tuples that the application takes in per unit of time.

    Args:
        profile: What operators cost.
        regions: The plan.
        rate: Of all sources together, which are taken as one.
        batch_rows: Rows that a jumbo tuple has when it is handed on.

    Example:
        >>> from anabranch.planning.profile import chain
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
    visits = profile.visits[region.operators[0]]
    whole = visits * sum(pipeline_times(profile, region.pipelines))
    # Threads and replicas take that for each other.
    handed_on = times.work + visits * waiting(profile, region.operators) - whole
    if kind_of(members) in (StateKind.PARTITIONED, StateKind.SHARED):
        whole /= speedup(profile, region)  # each replica works on its part of the jumbo tuple
    work, varies = batch_rows * (whole + handed_on), _variation(profile, members)
    wait, wait_p99 = _waits(rate * times.turn, batch_rows * times.turn, varies)
    return RegionLatency(region, work, wait, work * _log_normal_p99(varies), wait_p99)


def _waits(used: float, served: float, varies: float) -> tuple[float, float]:
    """The mean wait, and the one that 99 in a hundred do not exceed.

    Args:
        used: Part of the time that the server is busy.
        served: Time that it takes for a jumbo tuple.
        varies: Squared coefficient of variation of that time.
    """
    if used >= NEVER_IDLE:
        return inf, inf
    if_busy = served * (1 + varies) / 2 / (1 - used)
    return used * if_busy, if_busy * log(max(1.0, 100 * used))


def _log_normal_p99(varies: float) -> float:
    """How many times its mean a log-normal value may be, in 99 of a hundred cases."""
    variance = log(1 + varies)
    return exp(P99_SIGMAS * sqrt(variance) - variance / 2)


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
