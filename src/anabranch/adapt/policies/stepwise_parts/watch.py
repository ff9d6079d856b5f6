"""Watching: how loaded operators are, whether a load is served, and when to profile again.

Sections 4.3 (capacity, eq. 2) and 4.4 of the stepwise profiling paper. A deviation: the paper's
operator latency is time spent in an operator, which grows when operators fight for cores; here such
time does not count as work, but jumbo tuples wait. So an operator's latency, as a multiple of the
least one, is what a jumbo tuple takes times the jumbo tuples that are ahead of it and itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.adapt.policies.stepwise_parts.features import Features
from anabranch.adapt.policies.stepwise_parts.progress import Progress, latency_ms
from anabranch.adapt.seen import Seen, average
from anabranch.planning.regions import Region

GROWING = 0.01
"""Part of the rate by which a backlog has to change in order to grow or shrink."""
WORSE = 1.5
"""A latency beyond the bound that was all that could be had may become so much worse."""


def capacity(seen: Seen, region: str) -> float:
    """Part of the time that a region's busiest pipeline works (eq. 2)."""
    return max(seen.busy(region))


def latency_factor(seen: Seen, region: Region, features: Features) -> float:
    """How many times its least processing time a jumbo tuple spends in a region."""
    slower = [1.0]
    for step in region.steps:
        least, now = features.least_us.get(step, 0.0), seen.steps.get(step)
        if least > 0 and now is not None and now.cost_us is not None:
            slower.append(now.cost_us / least)
    waiting = average(
        r.queue_jumbos for each in seen.window for r in each.regions if r.region == region.name
    )
    return max(slower) * (1 + waiting / seen.plan.region(region.name).replicas)


@dataclass(frozen=True)
class Served:
    """How a load is served.

    Attributes:
        in_time: Whether latency keeps its bound.
        known: Whether it is known what waits.
        waiting: Tuples that wait to be read.
        growth_per_s: By how much that grows.
        rate_per_s: Tuples that are read.
        bound_ms: The bound.
    """

    in_time: bool
    known: bool
    waiting: int
    growth_per_s: float
    rate_per_s: float
    bound_ms: float

    @staticmethod
    def of(seen: Seen, bound_ms: float) -> Served:
        """What was seen of it."""
        backlog, growth = seen.backlog, seen.backlog_growth_per_s or 0.0
        in_time = latency_ms(seen) <= bound_ms
        return Served(in_time, backlog is not None, backlog or 0, growth, seen.rate_per_s, bound_ms)

    @property
    def waits(self) -> bool:
        """Whether more waits than can be read within the bound."""
        return self.waiting > self.rate_per_s * self.bound_ms / 1e3

    @property
    def grows(self) -> bool:
        """Whether what waits becomes more, and is more than a little."""
        return self.known and self.waits and self.growth_per_s > GROWING * self.rate_per_s

    @property
    def met(self) -> bool:
        """Whether all that comes is read, in time; not known where nobody counts what waits."""
        shrinks = self.growth_per_s < -GROWING * self.rate_per_s
        return self.known and self.in_time and (not self.waits or shrinks)


def trouble(seen: Seen, memory: Progress, bound_ms: float, alpha: float) -> str | None:
    """Why a configuration does not do any more; None if it does.

    Where profiling ended at what the machine can do, a backlog that grows is no news, unless the
    throughput of that time is not reached any more.
    """
    now = latency_ms(seen)
    bound = max(bound_ms, WORSE * memory.accepted_ms) if memory.limited else bound_ms
    load = Served.of(seen, bound_ms)
    best = memory.best.rate if memory.limited and memory.best is not None else None
    if load.grows and (best is None or load.rate_per_s < alpha * best):
        return f"backlog {load.waiting:,} rows grows by {load.growth_per_s:,.0f} rows/s"
    return f"latency {now:,.0f} ms > {bound:,.0f} ms" if now > bound else None
