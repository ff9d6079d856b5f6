"""DS2: how many replicas each region needs, the whole graph in one step.

Kalavri and others, Three steps is all you need: fast, accurate, automatic scaling decisions for
distributed streaming dataflows, OSDI 2018. Replicas of an operator are what has to be served
divided by the true rate of one replica, rounded up (§3.2); a decision counts after some agreeing
ones (*activation*, §4.2), and once nothing changes any more while the sources fall short of their
rate by more than the *target rate ratio*, what the model misses is made up for once.

Skew is ignored, and pipelines stay as they are: as published. Deviations:

- The published software reads the rates of the sources from a file. Here they are measured: what is
  read and what piles up; where nothing but the run holds a source back, what it could read.
- What has to be served is cut to what a plan within the limits can serve, with regions that cannot
  be replicated counted: more replicas elsewhere would wait for them.
- Instead of leaving out every decrease by one, which would keep the second replica of a region for
  ever, a decrease goes no further than leaves `slack` of the replicas free.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from statistics import median_high

from anabranch.adapt.estimates.measured import OfferedWork, demanded
from anabranch.adapt.guards import LOAD_CHANGE, far, threads
from anabranch.adapt.history import History
from anabranch.adapt.policy import Cadence, Outcome, Proposal, Trial, Verdict
from anabranch.planning.plan import Plan

Replicas = tuple[int, ...]

PACE = Cadence(settle=2, periods=3, most=3)


@dataclass(frozen=True)
class Ds2Memory:
    """What the policy remembers.

    Attributes:
        plan: The plan that decisions were made under.
        recent: Those decisions, replicas by region.
        boost: How many times more work is planned for, to make up for what the model misses.
        rate_per_s: The rate that it was found for.
    """

    plan: Plan | None = None
    recent: tuple[Replicas, ...] = ()
    boost: float = 1.0
    rate_per_s: float = 0.0


@dataclass(frozen=True)
class Ds2:
    """Replicas from true rates.

    Attributes:
        activation: Decisions that are put together, by their median, before one counts.
        rate_ratio: How many times the rate read the rate to be served may be.
        slack: Part of the replicas that must be free after a decrease.
        most_boost: How many times more work may be planned for than was measured.
    """

    activation: int = 1
    rate_ratio: float = 1.05
    slack: float = 0.1
    most_boost: float = 2.0
    pace: Cadence = PACE

    name = "ds2"

    def begin(self) -> Ds2Memory:
        """Nothing decided."""
        return Ds2Memory()

    def decide(self, memory: Ds2Memory, seen: History) -> tuple[Ds2Memory, Proposal | None]:
        """All regions at once, when enough decisions agree."""
        demand = demanded(seen)
        if demand is None:
            return memory, None
        boost = 1.0 if far(memory.rate_per_s, demand.rate_per_s, LOAD_CHANGE) else memory.boost
        wanted = self._replicas(seen, demand, boost)
        if boost == 1.0 and wanted == now(seen) and self._falls_short(seen, demand):
            boost = min(self.most_boost, demand.rate_per_s / max(seen.rate_per_s, 1e-9))
            wanted = self._replicas(seen, demand, boost)
        before = memory.recent if memory.plan == seen.plan else ()
        recent = (*before, wanted)[-self.activation :]
        known = Ds2Memory(seen.plan, recent, boost, demand.rate_per_s)
        if len(recent) < self.activation:
            return known, None
        plan = planned(seen.plan, tuple(median_high(each) for each in zip(*recent, strict=True)))
        if plan == seen.plan or threads(plan) > max(seen.limits.threads, threads(seen.plan)):
            return known, None
        return known, Proposal(plan, why(seen, plan, demand, boost), trial=False)

    def judge(self, memory: Ds2Memory, seen: History, trial: Trial) -> tuple[Ds2Memory, Verdict]:
        """It never looks back."""
        return memory, Verdict(Outcome.KEPT, "not judged")

    def _falls_short(self, seen: History, demand: OfferedWork) -> bool:
        """Whether less is read than should be; how much a greedy source should is only a bound."""
        return not demand.greedy and demand.rate_per_s > self.rate_ratio * seen.rate_per_s

    def _replicas(self, seen: History, demand: OfferedWork, boost: float) -> Replicas:
        work = tuple(boost * demand.work[r.region] for r in seen.plan.regions)
        part = servable_part(seen, work)
        least = rounded_up(seen, work, part)
        roomy = rounded_up(seen, work, part / (1 - self.slack))
        calm = tuple(
            max(wanted, min(replicas, room))
            for replicas, wanted, room in zip(now(seen), least, roomy, strict=True)
        )
        return calm if within(seen, calm) else least


def now(seen: History) -> Replicas:
    """The replicas of all regions."""
    return tuple(region.replicas for region in seen.plan.regions)


def bounds(seen: History) -> Replicas:
    """The most replicas that each region may have."""
    return tuple(seen.most_replicas(region.region) for region in seen.plan.regions)


def servable_part(seen: History, work: tuple[float, ...]) -> float:
    """The greatest part of the work, 1 at most, that a plan within the limits can do."""
    most = bounds(seen)
    busy = [(bound, amount) for bound, amount in zip(most, work, strict=True) if amount > 0]
    whole = min([1.0, *(bound / amount for bound, amount in busy)])
    if within(seen, rounded_up(seen, work, whole)):
        return whole
    # Between these, the replicas stay the same.
    steps = {k / amount for bound, amount in busy for k in range(1, bound + 1)}
    for part in sorted((step for step in steps if step < whole), reverse=True):
        if within(seen, rounded_up(seen, work, part)):
            return part
    return 0.0


def rounded_up(seen: History, work: tuple[float, ...], part: float) -> Replicas:
    """Replicas for a part of the work, within the bounds of the regions."""
    return tuple(
        min(bound, max(1, ceil(part * amount - 1e-9)))
        for bound, amount in zip(bounds(seen), work, strict=True)
    )


def within(seen: History, replicas: Replicas) -> bool:
    """Whether there are enough threads."""
    return threads(planned(seen.plan, replicas)) <= seen.limits.threads


def planned(plan: Plan, replicas: Replicas) -> Plan:
    """A plan with other replicas; regions that keep theirs keep their buckets."""
    for region, wanted in zip(plan.regions, replicas, strict=True):
        if wanted != region.replicas:
            plan = plan.with_replicas(region.region, wanted)
    return plan


def why(seen: History, plan: Plan, demand: OfferedWork, boost: float) -> str:
    """What has to be served, and which regions change for it."""
    told = []
    for region in seen.plan.regions:
        name, wanted = region.region, plan.region(region.region).replicas
        if wanted != region.replicas:
            # What a greedy source could read is a bound, often far from what can be served.
            rows = "all" if demand.greedy else f"{demand.rows_per_s[name]:,.0f} rows/s"
            rate = f"{rows} at {demand.true_rate(name):,.0f} rows/s a replica"
            told.append(f"region {name}: {rate} needs {wanted}, not {region.replicas}")
    more = f", {boost:.2f}× to make up for what was missed" if boost > 1 else ""
    return "; ".join(told) + more
