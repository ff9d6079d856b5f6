"""STRETCH's thresholds (§9.3): more threads above the upper one, fewer below the bottom one.

Above *upper*, a region gets the fewest replicas whose load is not above *target*. Below *bottom*,
it loses replicas: as Table 2 has it, down to the load divided by the target, rounded down.

The load of a region is the work that comes to it, in replicas: the busy share of its busiest
pipeline times its replicas, and more where tuples pile up in front of the sources, since a thread
cannot be busier than always (Table 2 speaks of 120 %).

Deviations: a flow has several regions, and all that are beyond a threshold change together; and a
region never gets so few replicas that their load would be above *upper* at once, which the paper's
numbers keep to, but rounding down does not when replicas are few.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor

from anabranch.adapt.guards import threads
from anabranch.adapt.history import History
from anabranch.adapt.policy import Cadence, Outcome, Proposal, Trial, Verdict
from anabranch.planning.regions import Region

PACE = Cadence(settle=2, periods=3, most=3)
DIGITS = 9
"""Sums of parts may be off by a hair: a load of 60.000000001 replicas is 60."""


@dataclass(frozen=True)
class Stretch:
    """Upper, target and bottom.

    Attributes:
        upper: Load of a replica above which there are too few.
        target: Load of a replica to go to.
        bottom: Load of a replica below which there are too many.
    """

    upper: float = 0.9
    target: float = 0.7
    bottom: float = 0.45
    pace: Cadence = PACE

    name = "stretch"

    def begin(self) -> None:
        """It remembers nothing."""

    def decide(self, memory: None, seen: History) -> tuple[None, Proposal | None]:
        """Every region that is beyond a threshold gets another number of replicas."""
        plan, told = seen.plan, []
        # Whoever gives threads back goes first, then whoever needs them most.
        for load, region in sorted(self._loads(seen), key=lambda each: each[0] > self.bottom):
            before = plan.region(region.name)
            wanted = min(self.replicas(before.replicas, load), seen.most_replicas(region.name))
            room = (seen.limits.threads - threads(plan)) // len(before.pipelines)
            wanted = min(wanted, before.replicas + max(0, room))
            if wanted == before.replicas:
                continue
            plan = plan.with_replicas(region.name, wanted)
            beyond = f"> {self.upper:.2f}" if load > self.upper else f"< {self.bottom:.2f}"
            change = f"{before.replicas} → {wanted} replicas"
            expected = f"promise {load * before.replicas / wanted:.2f}"
            told.append(f"region {region.name}: load {load:.2f} {beyond}, {change} {expected}")
        return None, Proposal(plan, "; ".join(told), trial=False) if told else None

    def judge(self, memory: None, seen: History, trial: Trial) -> tuple[None, Verdict]:
        """It does not look back."""
        return None, Verdict(Outcome.KEPT, "not judged")

    def replicas(self, replicas: int, load: float) -> int:
        """How many replicas there should be, when each of those there are has a load.

        Example:
            >>> Stretch().replicas(18, 1.2), Stretch().replicas(18, 0.3), Stretch().replicas(9, 0.8)
            (31, 7, 9)
        """
        work = load * replicas
        if load > self.upper:
            return ceil(round(work / self.target, DIGITS))
        if load < self.bottom:
            least = ceil(round(work / self.upper, DIGITS))
            return min(replicas, max(1, least, floor(round(work / self.target, DIGITS))))
        return replicas

    def _loads(self, seen: History) -> list[tuple[float, Region]]:
        """Load of a replica of each region that can be replicated, the highest first."""
        read = max(seen.rate_per_s, 1e-9)
        excess = max(1.0, seen.offered_per_s / read) if seen.rate_per_s else 1.0
        found = [
            (round(excess * max(seen.busy(region.name)), DIGITS), region)
            for region in seen.topology.working
            if region.replicable
        ]
        return sorted(found, key=lambda each: -each[0])
