"""Progress: what stepwise profiling remembers from one turn of its loop to the next."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from statistics import fmean

from anabranch.adapt.policies.stepwise_parts.features import Features, Samples
from anabranch.adapt.policies.stepwise_parts.moves import NO_THROTTLE, Side, Throttle
from anabranch.adapt.policy import Proposal
from anabranch.adapt.seen import Seen
from anabranch.events import Observation
from anabranch.planning.plan import Plan


class Phase(Enum):
    """Where in the method a run is."""

    FEATURES = "application features"
    PLATFORM = "platform capability"
    OPERATORS = "operator capacity"
    WATCHING = "watching"


@dataclass(frozen=True)
class Record:
    """The best configuration so far.

    Attributes:
        plan: The plan.
        rates: Throughput under it, period by period.
        latency_ms: Latency under it.
    """

    plan: Plan
    rates: tuple[float, ...]
    latency_ms: float

    @staticmethod
    def of(seen: Seen) -> Record:
        """What was seen, as a record."""
        return Record(seen.plan, seen.rates, latency_ms(seen))

    @property
    def rate(self) -> float:
        """Throughput on average."""
        return fmean(self.rates)


@dataclass(frozen=True)
class Progress:
    """The memory of the policy.

    Attributes:
        phase: The current step of profiling.
        wish: The plan that was asked for last; None before the first.
        before: The plan before that one, which stays in force where a wish is refused.
        samples: Of the load before it was throttled for the first step.
        features: What the first step found.
        last: The kind of the last change, in the second step.
        rates: Throughput before it.
        best: The best configuration of the second step.
        futile: Changes in a row that gained nothing.
        rounds: Configurations that were tried in the second step.
        throttle: How many tuples may be in flight.
        waited: Whether a second look was taken at a configuration that had not settled.
        trying: The region whose replica is on trial, in the third step.
        revoked: Regions to which one more did not help.
        revocations: How many in a row.
        cores: Cores for which was profiled.
        limited: Whether profiling ended at what the machine can do, not at what was asked for.
        accepted_ms: Latency at the end of profiling.
        trouble: Looks in a row at which the configuration did not do any more.
    """

    phase: Phase = Phase.FEATURES
    wish: Plan | None = None
    before: Plan | None = None
    samples: Samples = field(default_factory=dict)
    features: Features | None = None
    last: Side = Side.NOTHING
    rates: tuple[float, ...] = ()
    best: Record | None = None
    futile: int = 0
    rounds: int = 0
    throttle: Throttle = NO_THROTTLE
    waited: bool = False
    trying: str | None = None
    revoked: frozenset[str] = frozenset()
    revocations: int = 0
    cores: int = 0
    limited: bool = False
    accepted_ms: float = 0.0
    trouble: int = 0

    def asking_for(self, plan: Plan, seen: Seen) -> Progress:
        """After a wish for a plan."""
        return replace(self, wish=plan, before=seen.plan)

    def expects(self, plan: Plan) -> bool:
        """Whether a plan in force is one that this policy knows of."""
        return self.wish is None or plan in (self.wish, self.before)


Turn = tuple[Progress, Proposal | None]
"""What a look comes to."""

UNSETTLED = 2.0


def settled(seen: Seen) -> bool:
    """Whether latency is what it was on average over the window, and not on its way elsewhere."""
    last, mean = _complete_ms(seen, seen.now), latency_ms(seen)
    return last <= UNSETTLED * mean and mean <= UNSETTLED * last


def latency_ms(seen: Seen) -> float:
    """Latency on average over the window."""
    return fmean(_complete_ms(seen, each) for each in seen.window)


def _complete_ms(seen: Seen, period: Observation) -> float:
    """Until the last result of a tuple: the paper's complete latency.

    Where all results go one way, that of half of the tuples tells it; where streams fork, that may
    be a short way, and nearly all have to be counted.
    """
    above = [name for region in seen.topology.names for name in seen.topology.upstream(region)]
    forks = len(set(above)) < len(above)
    return period.latency_p99_ms if forks else period.latency_p50_ms
