"""What an engine's model is to those who plan while a flow runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from anabranch.planning.plan import Plan
from anabranch.planning.profile import Profile


@dataclass(frozen=True)
class Bounds:
    """How far a plan may go: replicas of each region, and threads of all, readers among them."""

    replicas: int
    threads: int


class Model(Protocol):
    """What the plans of one flow promise on one engine and machine.

    An implementer owes: the same answer to the same question; rates in tuples a second that all
    sources together read, whatever the unit of the profile; plans that validate for the flow, and
    differ from the one in force only where that is meant (buckets move as little as possible).
    """

    def rate_per_s(self, profile: Profile, plan: Plan) -> float:
        """The greatest rate that a plan promises, if steps cost what the profile says."""

    def best(
        self,
        profile: Profile,
        plan: Plan,
        rate_per_s: float | None = None,
        bounds: Bounds | None = None,
    ) -> Plan:
        """The plan to go to from the one in force.

        With a rate, the one with fewest threads that promises as much; without, or where no plan
        promises it, the one that promises most. Never beyond the bounds, if there are some.
        """
