"""Stepwise: application features, then the platform's capability, then operators one by one.

Liu et al., A stepwise auto-profiling method for performance optimization of streaming applications,
TAAS 2017. Each look is a turn of its MAPE loop; `Profiling` is what it knows. The first
step (§4.1) is in `stepwise_features.py`.

Deviations, besides those that are named below:
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

from anabranch.adapt.estimates.headroom import one_more
from anabranch.adapt.history import History, average
from anabranch.adapt.policies.stepwise_features import Features, features_of, samples_of
from anabranch.adapt.policies.stepwise_moves import (
    SIGNIFICANCE,
    Move,
    Phase,
    Profiling,
    Record,
    Side,
    Trend,
    Turn,
    compared,
    grown_by,
    latency_ms,
    next_move,
    read_more,
    settled,
    throttled,
    with_replicas,
)
from anabranch.adapt.policy import Cadence, Outcome, Proposal, Trial, Verdict
from anabranch.planning.plan import Plan
from anabranch.planning.regions import Region

PACE = Cadence(settle=2, periods=10, most=10)
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
    pace: Cadence = PACE
    name: str = "stepwise"

    def begin(self) -> Profiling:
        """Nothing is known."""
        return Profiling()

    def decide(self, memory: Profiling, seen: History) -> Turn:
        """One turn of the loop."""
        if reason := self._outdated(memory, seen):
            return self._features(Profiling(), seen, f"{reason}, recalibrating: ")
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

    def judge(self, memory: Profiling, seen: History, trial: Trial) -> tuple[Profiling, Verdict]:
        """Keep one more replica of a region if throughput is higher with it, and in time."""
        before, after = trial.before, seen
        change = compared(before.rates, after.rates, self.significance)
        gained = after.rate_per_s / max(before.rate_per_s, 1e-9) - 1
        late = latency_ms(after) > self.latency_ms >= latency_ms(before)
        region = memory.trying
        memory = replace(memory, trying=None)
        if change is Trend.INCREASED and not late:
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

    def _outdated(self, memory: Profiling, seen: History) -> str | None:
        """What makes all that was learnt worthless, if anything."""
        if memory.cores and memory.cores != seen.limits.cores:
            return f"{memory.cores} → {seen.limits.cores} cores"
        if not memory.expects(seen.plan):
            return "the plan was changed by somebody else"
        return None

    # First step

    def _features(self, memory: Profiling, seen: History, reason: str = "") -> Turn:
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

    def _operators(self, memory: Profiling, seen: History) -> Turn:
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

    def _done(self, memory: Profiling, seen: History, why: str, limited: bool) -> Turn:
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

    def _watch(self, memory: Profiling, seen: History) -> Turn:
        reason = trouble(seen, memory, self.latency_ms, self.alpha)
        if reason is None:
            return replace(memory, trouble=0), None
        if memory.trouble + 1 < self.patience:
            return replace(memory, trouble=memory.trouble + 1), None
        return self._features(Profiling(), seen, f"{reason}, recalibrating: ")


def _like(plan: Plan, other: Plan) -> Plan:
    """Another plan with the batch sizes and pipelines of this one."""
    for source in plan.sources:
        other = other.with_source(source.source, batch_rows=source.batch_rows)
    for region in plan.regions:
        lengths = (len(run) for run in region.pipelines)
        other = other.with_pipelines(region.region, *lengths)
    return other


# Platform capability: how far operators and sources can be strengthened on this machine.
#
# Section 4.2 of the stepwise profiling paper. `stepwise_moves.py` has Algorithm 2; here are its
# bookkeeping and its end. Deviations:
# - The step ends when strengthening operators and sources gained nothing one after the other: the
#   performance limit as §4.2 describes it, which Algorithm 2 finds only by over-scaling until
#   throughput drops. The best configuration comes back. Rounds are bounded by the paper's estimate.
# - A throttle's strength is found by bisection in a few tries. Where the bound cannot be kept
#   without losing more than 1 - α of the best throughput, the best throughput counts.

THROTTLE_TRIES = 4
FUTILE = 2
"""Changes without a gain that end the step: one of each side."""


@dataclass(frozen=True)
class PlatformStep:
    """The second step of profiling.

    Attributes:
        latency_ms: The bound on latency.
        alpha: Part of the best throughput below which a configuration is given up.
        significance: Of the t-test.
    """

    latency_ms: float
    alpha: float
    significance: float

    def turn(self, memory: Profiling, seen: History) -> Turn:
        """Look at a configuration, and find the next one."""
        in_time = latency_ms(seen) <= self.latency_ms
        change = self._effect(memory, seen)
        best = memory.best
        if best is None or (change is Trend.INCREASED and seen.rate_per_s > best.rate):
            best = Record.of(seen)
        far_below = seen.rate_per_s < self.alpha * best.rate
        futile = 0 if change is Trend.INCREASED else memory.futile + 1
        memory = replace(
            memory,
            best=best,
            futile=futile,
            rounds=memory.rounds + 1,
            throttle=memory.throttle.told(in_time),
        )
        said = f"throughput {change.value} to {seen.rate_per_s:,.0f}/s, {latency_ms(seen):,.0f} ms"
        move = next_move(change, memory.last, in_time, far_below)
        if move in (Move.SINKS, Move.SOURCE):
            grown = None if self._exhausted(memory, seen) else self._grown(memory, seen, move)
            if grown is not None:
                plan, side = grown
                why = f"{said}: {_words(seen.plan, plan)}"
                return self._ask(memory, seen, plan, side, why)
            move = Move.BACK_AND_THROTTLE
        return self._throttle(memory, seen, move, in_time and not far_below, said)

    def _effect(self, memory: Profiling, seen: History) -> Trend:
        """What the last change did; one that was refused did nothing."""
        if memory.last is Side.NOTHING:
            return Trend.INCREASED
        if seen.plan != memory.wish:
            return Trend.UNCHANGED
        return compared(memory.rates, seen.rates, self.significance)

    def _exhausted(self, memory: Profiling, seen: History) -> bool:
        """Whether both sides were strengthened in vain, or more rounds than need be were made."""
        ratios = memory.features.ratios if memory.features else {}
        most = sum(seen.most_replicas(name) for name in ratios)
        bound = 3 * most / max(1, sum(ratios.values()))
        return memory.futile >= FUTILE or memory.rounds > max(3, bound)

    def _grown(self, memory: Profiling, seen: History, move: Move) -> tuple[Plan, Side] | None:
        """A stronger plan: the side that is wanted, else the other; None if there is no room."""
        ratios = memory.features.ratios if memory.features else {}
        sinks, source = grown_by(seen, seen.plan, ratios), read_more(seen, seen.plan)
        options = [(sinks, Side.SINKS), (source, Side.SOURCE)]
        for plan, side in options if move is Move.SINKS else options[::-1]:
            if plan is not None:
                return plan, side
        return None

    def _throttle(
        self, memory: Profiling, seen: History, move: Move, good: bool, said: str
    ) -> Turn:
        """Find how many tuples may be in flight; `good` if they are few enough and many enough."""
        best, throttle = memory.best, memory.throttle
        assert best is not None, "a configuration was seen"
        if best.latency_ms <= self.latency_ms and throttle.tuples is None:
            return self._ends(memory, seen, best.plan, f"{said}: the best was in time")
        if move is Move.END or (throttle.tries >= THROTTLE_TRIES and good):
            return self._ends(memory, seen, seen.plan, f"{said}: in time")
        if throttle.tries >= THROTTLE_TRIES or throttle.tuples == 1:
            why = f"{said}: {self.latency_ms:.0f} ms cannot be kept without losing throughput"
            return self._ends(memory, seen, best.plan, why)
        first = round(best.rate * self.latency_ms / 1e3)  # Little's law
        in_time = latency_ms(seen) <= self.latency_ms
        chosen = throttle.weaker() if throttle.tuples and in_time else throttle.stronger(first)
        if chosen.tuples == throttle.tuples:
            target = seen.plan if good else best.plan
            return self._ends(memory, seen, target, f"{said}: no better throttle")
        plan = throttled(seen, best.plan, chosen.tuples)
        memory = replace(memory, throttle=chosen)
        why = f"{said}: {chosen.tuples:,} tuples in flight"
        memory, proposal = self._ask(memory, seen, plan, Side.THROTTLE, why)
        return replace(memory, rates=best.rates), proposal

    def _ask(self, memory: Profiling, seen: History, plan: Plan, side: Side, why: str) -> Turn:
        asked = replace(memory, last=side, rates=seen.rates).asking_for(plan, seen)
        return asked, Proposal(plan, why, trial=False)

    def _ends(self, memory: Profiling, seen: History, plan: Plan, why: str) -> Turn:
        memory = replace(memory, phase=Phase.OPERATORS).asking_for(plan, seen)
        return memory, Proposal(plan, f"platform capability reached, {why}", trial=False)


def _words(before: Plan, after: Plan) -> str:
    """What changes, without the buckets."""
    return "; ".join(line.split(", ")[0] for line in before.diff(after))


# Watching: how loaded operators are, whether a load is served, and when to profile again.
#
# Sections 4.3 (capacity, eq. 2) and 4.4 of the stepwise profiling paper. A deviation: the paper's
# operator latency is time spent in an operator, which grows when operators fight for cores; here
# such time does not count as work, but jumbo tuples wait. So an operator's latency, as a multiple
# of the least one, is what a jumbo tuple takes times the jumbo tuples that are ahead of it and
# itself.

GROWING = 0.01
"""Part of the rate by which a backlog has to change in order to grow or shrink."""
WORSE = 1.5
"""A latency beyond the bound that was all that could be had may become so much worse."""


def capacity(seen: History, region: str) -> float:
    """Part of the time that a region's busiest pipeline works (eq. 2)."""
    return max(seen.busy(region))


def latency_factor(seen: History, region: Region, features: Features) -> float:
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
    def of(seen: History, bound_ms: float) -> Served:
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


def trouble(seen: History, memory: Profiling, bound_ms: float, alpha: float) -> str | None:
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
