"""What the plan in force could do, and what another one would: the model, held to measurements.

A model knows how plans compare; how fast this one is was measured. So a forecast is the measured
capacity times what the model says that the other plan is worth, and errors that both share cancel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.adapt.measured import measured_profile
from anabranch.adapt.seen import Seen
from anabranch.plan.models.model import Model
from anabranch.plan.plan import Plan
from anabranch.plan.profile import Profile

WAITING_PERIODS = 1.5
"""More than this many periods' work that waits means that the plan does not keep up."""
DRAIN_S = 60.0
"""How fast a backlog shall be worked off."""
LEAST_USED = 0.02
RECENT = 2
"""Periods that tell the load of now, should it have changed."""


@dataclass(frozen=True)
class Forecast:
    """One flow, as it was seen under one plan.

    Attributes:
        seen: What was seen.
        profile: What its steps cost.
        model: What plans promise.
    """

    seen: Seen
    profile: Profile
    model: Model

    @staticmethod
    def of(seen: Seen) -> Forecast | None:
        """A forecast; None where there is no model, or too little came through."""
        profile = measured_profile(seen) if seen.model is not None else None
        if profile is None or seen.model is None:
            return None
        return Forecast(seen, profile, seen.model)

    @property
    def saturated(self) -> bool:
        """Whether more waits than the plan handles, or as much comes as can be read."""
        return saturated(self.seen)

    @property
    def capacity_per_s(self) -> float:
        """Tuples a second that the plan in force can do."""
        if self.saturated:
            return latest(self.seen.rates)
        return self.seen.rate_per_s / max(used_share(self.seen), LEAST_USED)

    def promise_per_s(self, plan: Plan) -> float:
        """Tuples a second that another plan would do."""
        return self.capacity_per_s * self.gain(plan)

    def gain(self, plan: Plan) -> float:
        """By how much another plan is better than the one in force."""
        now = self.model.rate_per_s(self.profile, self.seen.plan)
        return self.model.rate_per_s(self.profile, plan) / now

    def best(self, rate_per_s: float | None) -> Plan:
        """The plan to go to for a rate, or for as much as there is to be had."""
        if rate_per_s is None:
            return self.model.best(self.profile, self.seen.plan)
        now = self.model.rate_per_s(self.profile, self.seen.plan)
        # The model counts in its own rates; what it overstates now it overstates then.
        scale = now / max(self.capacity_per_s, 1e-9)
        return self.model.best(self.profile, self.seen.plan, rate_per_s * scale)

    @property
    def wanted_per_s(self) -> float | None:
        """What has to be served, a backlog worked off in time; None for as much as can be."""
        backlog = self.seen.backlog
        if backlog is None:
            return None
        waiting = backlog / DRAIN_S if self.saturated else 0.0
        return max(self.seen.offered[-RECENT:]) + waiting


def saturated(seen: Seen) -> bool:
    """Whether the plan in force does not keep up with what comes."""
    backlog = seen.backlog
    if backlog is None:
        return True
    period_s = seen.seconds / len(seen.window)
    return backlog > WAITING_PERIODS * period_s * max(latest(seen.rates), 1.0)


def used_share(seen: Seen) -> float:
    """Part of its capacity that a plan uses: of the busiest thread, of all cores, of the time.

    Where an engine works in batches, the rest of the time it waits for the next one.
    """
    if seen.now.latency_p999_ms is None:
        passed = seen.now.at_s - seen.window[0].at_s + seen.window[0].times.total_s
        return min(1.0, seen.seconds / max(passed, 1e-9))
    shares = [(r.replicas, share) for r in seen.plan.regions for share in seen.busy(r.region)]
    shares += [(s.replicas, seen.reading) for s in seen.plan.sources]
    busiest = max((share for _, share in shares), default=0.0)
    spread = sum(replicas * share for replicas, share in shares) / seen.limits.cores
    return min(1.0, max(busiest, spread))


def latest(rates: Sequence[float]) -> float:
    """The rate of the newest periods."""
    newest = rates[-RECENT:]
    return sum(newest) / len(newest)
