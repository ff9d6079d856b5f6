"""Threshold: one more replica for the most loaded region, one region at a time.

The baseline of the stepwise profiling paper (Liu et al., 2017, §6.1.3): capacity is the part of the
time that an operator works (eq. 2), and the most overloaded operator above 0.8 gets another task in
every round. Deviations:
- Operators of a region share their replicas, so the busiest pipeline speaks for its region.
- Where the most loaded region cannot grow, the next one above the mark does.
- The paper never takes a task away; here a region below a low mark gives a replica back, unless
  the mark is 0. It does so only if the others stay below the high mark without it.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.adapt.estimates.headroom import one_more
from anabranch.adapt.history import History
from anabranch.adapt.policy import Cadence, Outcome, Proposal, Trial, Verdict

PACE = Cadence(settle=2, periods=3, most=10)


@dataclass(frozen=True)
class Threshold:
    """Grows above a mark, gives back below another one; judges nothing.

    Attributes:
        high: Busy share above which a region gets one more replica.
        low: Busy share below which it gives one back; 0 for never.
        pace: How long it looks.

    Example:
        >>> Threshold().high, Threshold(low=0.0).name
        (0.8, 'threshold')
    """

    high: float = 0.8
    low: float = 0.3
    pace: Cadence = PACE
    name: str = "threshold"

    def begin(self) -> None:
        """It remembers nothing."""

    def decide(self, memory: None, seen: History) -> tuple[None, Proposal | None]:
        """One more replica where it is needed most, or else one less where it is needed least."""
        loads = {region.name: max(seen.busy(region.name)) for region in seen.topology.working}
        return None, self._grow(seen, loads) or self._shrink(seen, loads)

    def judge(self, memory: None, seen: History, trial: Trial) -> tuple[None, Verdict]:
        """Whatever was done stays."""
        return None, Verdict(Outcome.KEPT)

    def _grow(self, seen: History, loads: dict[str, float]) -> Proposal | None:
        for name in sorted(loads, key=lambda region: -loads[region]):
            if loads[name] <= self.high:
                return None
            grown = one_more(seen, seen.plan, name)
            if grown is not None:
                replicas = seen.plan.region(name).replicas
                expected = loads[name] * replicas / (replicas + 1)
                why = (
                    f"region {name}: busy {loads[name]:.2f} > {self.high:.2f}, "
                    f"{replicas} → {replicas + 1} replicas promise {expected:.2f}"
                )
                return Proposal(grown, why, trial=False)
        return None

    def _shrink(self, seen: History, loads: dict[str, float]) -> Proposal | None:
        for name in sorted(loads, key=lambda region: loads[region]):
            replicas = seen.plan.region(name).replicas
            if loads[name] >= self.low:
                return None
            if replicas == 1:
                continue
            expected = loads[name] * replicas / (replicas - 1)
            if expected < self.high:
                why = (
                    f"region {name}: busy {loads[name]:.2f} < {self.low:.2f}, "
                    f"{replicas} → {replicas - 1} replicas promise {expected:.2f}"
                )
                return Proposal(seen.plan.with_replicas(name, replicas - 1), why, trial=False)
        return None
