"""Stepwise: application features, then the platform's capability, then operators one by one.

Liu et al., A stepwise auto-profiling method for performance optimization of streaming applications,
TAAS 2017. Each look is a turn of its MAPE loop; `Progress` is what it knows. The steps in detail:
`features.py` (§4.1), `platform.py` (§4.2), `watch.py` (§4.3, 4.4) of `stepwise_parts`.

Deviations, besides those that the files name:
- There is no generator to turn down or up. For the first step the sources are throttled to a few
  tuples in flight, for the second they give what they have. A known load that is served in time
  ends the profiling wherever it is; it goes on when that is no longer so.
- A replica of the third step that gains nothing is revoked, not only one that harms; after a gain
  all regions are candidates again, as the paper's Diamond run shows.
- Recalibration does not start again and again where profiling has found the machine's limit.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from anabranch.adapt.policies.stepwise_parts.evidence import SIGNIFICANCE, Change, compared
from anabranch.adapt.policies.stepwise_parts.features import features_of, samples_of
from anabranch.adapt.policies.stepwise_parts.moves import throttled, with_replicas
from anabranch.adapt.policies.stepwise_parts.platform import PlatformStep
from anabranch.adapt.policies.stepwise_parts.progress import (
    Phase,
    Progress,
    Record,
    Turn,
    latency_ms,
    settled,
)
from anabranch.adapt.policies.stepwise_parts.watch import Served, capacity, latency_factor, trouble
from anabranch.adapt.policy import Outcome, Pace, Proposal, Trial, Verdict
from anabranch.adapt.reckoning.room import one_more
from anabranch.adapt.seen import Seen
from anabranch.planning.plan import Plan

PACE = Pace(settle=2, periods=10, most=10)
PROBE_S = 0.05
"""Tuples in flight for the first step: those that are read in this time."""
LOW = 0.5
"""A load under which no thread works more than this part of the time needs no throttle."""


@dataclass(frozen=True)
class Stepwise:
    """The stepwise profiling method as a policy.

    Attributes:
        latency_ms: The bound on latency, Y_con in the paper.
        unit: Task load in which ratios are counted, `slice` in the paper.
        k: Multiple of the least processing time that is close enough to it.
        alpha: Part of the best throughput below which a configuration is given up.
        significance: Of the t-test.
        revocations: How many in a row end the third step.
        patience: Looks in a row that must show trouble before everything is profiled again.
        logic: Steps that are known to be logic-dependent, whatever is measured.
        pace: How long it looks.

    Example:
        >>> Stepwise().latency_ms, Stepwise().unit, Stepwise().k, Stepwise().alpha
        (500.0, 0.3, 2.0, 0.9)
    """

    latency_ms: float = 500.0
    unit: float = 0.3
    k: float = 2.0
    alpha: float = 0.9
    significance: float = SIGNIFICANCE
    revocations: int = 2
    patience: int = 3
    logic: Collection[str] = ()
    pace: Pace = PACE
    name: str = "stepwise"

    def begin(self) -> Progress:
        """Nothing is known."""
        return Progress()

    def decide(self, memory: Progress, seen: Seen) -> Turn:
        """One turn of the loop."""
        if reason := self._outdated(memory, seen):
            return self._features(Progress(), seen, f"{reason}, recalibrating: ")
        memory = replace(memory, cores=seen.limits.cores)
        if memory.phase is Phase.FEATURES:
            return self._features(memory, seen)
        if memory.phase is Phase.WATCHING:
            return self._watch(memory, seen)
        load = Served.of(seen, self.latency_ms)
        if load.met:
            why = f"{load.rate_per_s:,.0f} rows/s are served within {self.latency_ms:.0f} ms"
            return self._done(memory, seen, why, limited=False)
        if not (memory.waited or settled(seen)):
            return replace(memory, waited=True), None
        memory = replace(memory, waited=False)
        if memory.phase is Phase.PLATFORM:
            step = PlatformStep(self.latency_ms, self.alpha, self.significance)
            return step.turn(memory, seen)
        return self._operators(memory, seen)

    def judge(self, memory: Progress, seen: Seen, trial: Trial) -> tuple[Progress, Verdict]:
        """Keep one more replica of a region if throughput is higher with it, and in time."""
        before, after = trial.before, seen
        change = compared(before.rates, after.rates, self.significance)
        gained = after.rate_per_s / max(before.rate_per_s, 1e-9) - 1
        late = latency_ms(after) > self.latency_ms >= latency_ms(before)
        region = memory.trying
        memory = replace(memory, trying=None)
        if change is Change.INCREASED and not late:
            kept = replace(
                memory, wish=trial.proposal.plan, before=None, revoked=frozenset(), revocations=0
            )
            return kept, Verdict(Outcome.KEPT, f"gained {gained:.1%}")
        revoked = replace(
            memory,
            wish=before.plan,
            before=None,
            revoked=memory.revoked | ({region} if region else set()),
            revocations=memory.revocations + 1,
        )
        why = f"latency {latency_ms(after):,.0f} ms" if late else f"gained {gained:.1%}"
        return revoked, Verdict(Outcome.REVERTED, f"{why}, throughput {change.value}")

    def _outdated(self, memory: Progress, seen: Seen) -> str | None:
        """What makes all that was learnt worthless, if anything."""
        if memory.cores and memory.cores != seen.limits.cores:
            return f"{memory.cores} → {seen.limits.cores} cores"
        if not memory.expects(seen.plan):
            return "the plan was changed by somebody else"
        return None

    # First step

    def _features(self, memory: Progress, seen: Seen, reason: str = "") -> Turn:
        memory = replace(memory, cores=seen.limits.cores)
        load = Served.of(seen, self.latency_ms)
        if load.met:
            why = f"{reason}{load.rate_per_s:,.0f} rows/s are served, nothing to profile for"
            return self._done(memory, seen, why, limited=False)
        busiest = max((capacity(seen, r.name) for r in seen.topology.working), default=0.0)
        if memory.wish is None and busiest > LOW:
            few = max(1, round(seen.rate_per_s * PROBE_S))
            once = Plan.sequential(seen.topology.flow)
            low = throttled(seen, _like(seen.plan, once), few)
            if low != seen.plan:
                why = f"{reason}features at a low load: everything once, {few:,} tuples in flight"
                asked = replace(memory, samples=samples_of(seen)).asking_for(low, seen)
                return asked, Proposal(low, why, trial=False)
        found = features_of(seen, self.unit, self.logic, memory.samples)
        if found is None:
            return memory, None
        free = throttled(seen, seen.plan, None)
        start = with_replicas(seen, free, {**found.ratios, **found.degrees})
        memory = replace(memory, phase=Phase.PLATFORM, features=found, samples={})
        why = f"{reason}{found}: start there"
        return memory.asking_for(start, seen), Proposal(start, why, trial=False)

    # Third step

    def _operators(self, memory: Progress, seen: Seen) -> Turn:
        if memory.trying is not None:  # not judged, so it was refused
            revoked = memory.revoked | {memory.trying}
            memory = replace(
                memory, trying=None, revoked=revoked, revocations=memory.revocations + 1
            )
        if memory.revocations >= self.revocations:
            why = f"{memory.revocations} revocations in a row"
            return self._done(memory, seen, why, limited=True)
        factors = [
            latency_factor(seen, region, memory.features)
            for region in seen.topology.working
            if memory.features is not None
        ]
        if max(factors, default=0.0) <= self.k:
            why = f"all regions within {self.k:g}× of their least latency"
            return self._done(memory, seen, why, limited=True)
        loads = {r.name: capacity(seen, r.name) for r in seen.topology.working}
        for region in sorted(loads, key=lambda name: -loads[name]):
            grown = None if region in memory.revoked else one_more(seen, seen.plan, region)
            if grown is not None:
                replicas = grown.region(region).replicas
                why = (
                    f"region {region}: capacity {loads[region]:.2f} is the highest not tried, "
                    f"{replicas - 1} → {replicas} replicas"
                )
                memory = replace(memory, trying=region).asking_for(grown, seen)
                return memory, Proposal(grown, why)
        return self._done(memory, seen, "no region can grow", limited=True)

    # Recalibration

    def _done(self, memory: Progress, seen: Seen, why: str, limited: bool) -> Turn:
        """Profiling is over: from now on only watch."""
        best = Record.of(seen) if memory.best is None else memory.best
        if seen.rate_per_s > best.rate or memory.phase is Phase.OPERATORS:
            best = Record.of(seen)
        over = replace(
            memory,
            phase=Phase.WATCHING,
            best=best,
            limited=limited,
            accepted_ms=latency_ms(seen),
            trouble=0,
            wish=seen.plan,
            before=None,
        )
        return over, Proposal(seen.plan, f"profiled: {why}", trial=False)

    def _watch(self, memory: Progress, seen: Seen) -> Turn:
        reason = trouble(seen, memory, self.latency_ms, self.alpha)
        if reason is None:
            return replace(memory, trouble=0), None
        if memory.trouble + 1 < self.patience:
            return replace(memory, trouble=memory.trouble + 1), None
        return self._features(Progress(), seen, f"{reason}, recalibrating: ")


def _like(plan: Plan, other: Plan) -> Plan:
    """Another plan with the batch sizes and pipelines of this one."""
    for source in plan.sources:
        other = other.with_source(source.source, batch_rows=source.batch_rows)
    for region in plan.regions:
        lengths = (len(run) for run in region.pipelines)
        other = other.with_pipelines(region.region, *lengths)
    return other
