"""Guards: what stands between a proposal and the stream, whoever the policy is.

A plan that was tried and reverted, or could not be applied, is not tried again until the load has
changed (Joker §4.3): then what was learnt of it may no longer hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.adapt.history import History, Limits
from anabranch.errors import PlanError
from anabranch.planning.plan import Plan

LOAD_CHANGE = 0.2


@dataclass(frozen=True)
class OfferedLoad:
    """What there is to do.

    Attributes:
        rate_per_s: Tuples that come to the sources.
        busy: Threads at work, over all pipelines.
    """

    rate_per_s: float
    busy: float

    @staticmethod
    def of(seen: History) -> OfferedLoad:
        """The load that was seen."""
        planned = seen.plan.regions
        busy = sum(r.replicas * share for r in planned for share in seen.busy(r.region))
        return OfferedLoad(seen.offered_per_s, busy)

    def differs(self, other: OfferedLoad, threshold: float = LOAD_CHANGE) -> bool:
        """Whether rate or work is another one, by more than a part of this one.

        Example:
            >>> (
            ...     OfferedLoad(1000.0, 1.0).differs(OfferedLoad(1150.0, 1.1)),
            ...     OfferedLoad(1000.0, 1.0).differs(OfferedLoad(1300.0, 1.1)),
            ... )
            (False, True)
        """
        return far(self.rate_per_s, other.rate_per_s, threshold) or far(
            self.busy, other.busy, threshold
        )


def far(before: float, now: float, threshold: float) -> bool:
    """Whether a value has changed by more than a part of what it was."""
    return abs(now - before) > threshold * max(abs(before), 1e-9)


Blacklist = Mapping[Plan, OfferedLoad]
"""Plans that did not hold what they promised, and the load under which they did not."""


def remembered(blacklist: Blacklist, load: OfferedLoad) -> Blacklist:
    """What still holds under a load."""
    return {plan: then for plan, then in blacklist.items() if not then.differs(load)}


def refusal(wish: Plan, seen: History, blacklist: Blacklist) -> str | None:
    """Why a plan must not be applied; None if it may be."""
    try:
        wish.validate(seen.topology.flow)
    except PlanError as error:
        return f"the flow does not allow it: {error}"
    if wish in blacklist:
        return "it did not help before, and the load has not changed"
    return beyond(wish, seen.limits, seen.plan)


def beyond(wish: Plan, limits: Limits, now: Plan | None = None) -> str | None:
    """Which limit a plan goes beyond; None if none. What is beyond it already may stay so."""
    before = widths(now) if now is not None else {}
    for name, copies in widths(wish).items():
        most = max(limits.replicas, before.get(name, 0))
        if copies > most:
            return f"{copies} replicas of {name}, at most {most}"
    most = max(limits.threads, threads(now) if now is not None else 0)
    return f"{threads(wish)} threads, at most {most}" if threads(wish) > most else None


def widths(plan: Plan) -> dict[str, int]:
    """Replicas of each region, and readers of each source."""
    return {r.region: r.replicas for r in plan.regions} | {
        s.source: s.replicas for s in plan.sources
    }


def threads(plan: Plan) -> int:
    """Threads that run a plan, readers and writers among them."""
    working = sum(region.replicas * len(region.pipelines) for region in plan.regions)
    return working + sum(source.replicas for source in plan.sources)
