"""The default policy: jump by the engine's model, then let measurement confirm or revert.

DS2 computes where to go in one step, but never looks back; Joker looks back after each small step,
and so takes many. This policy does both. True costs are measured while the flow runs; the engine's
model says which plan is best for them: replicas, pipelines, readers and batch size at once. The
jump is a trial, judged by what the sources read before and after, and reverted if it did not help.

It does not thrash: between the load that makes it widen a plan and the one that makes it narrow it
lies a band; narrowing waits until the load has been low for a while; what was reverted is not tried
again until the load changes, and after a revert it waits longer each time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from anabranch.adapt.estimates.forecast import Forecast, saturated
from anabranch.adapt.estimates.measured import measured_profile
from anabranch.adapt.guards import LOAD_CHANGE, far, threads
from anabranch.adapt.history import History
from anabranch.adapt.policy import Cadence, Outcome, Proposal, Trial, Verdict
from anabranch.planning.plan import Plan

PACE = Cadence(settle=3, periods=3, most=3)


@dataclass(frozen=True)
class Learnt:
    """What the policy remembers.

    Attributes:
        low: Decisions in a row at which a narrower plan would have done.
        failures: Reverts in a row.
        wait: Decisions to let pass before the next trial.
        trust: Part of the model's promises that was had when that could last be seen.
    """

    low: int = 0
    failures: int = 0
    wait: int = 0
    trust: float | None = None


@dataclass(frozen=True)
class Auto:
    """Jumps, and looks back.

    Attributes:
        most_used: A plan that is used more than this gets wider.
        aim: Part of its capacity that the next plan shall be used.
        least_used: A plan is narrowed only if the narrower one is used less than this.
        gain: Least gain that makes a wider plan worth it, promised and measured.
        sparing: Least part of the threads that makes a plan with fewer worth it.
        patience: Decisions at which a narrower plan must do before it is tried.
        longest_wait: The most decisions that it waits after reverts.
    """

    most_used: float = 0.88
    aim: float = 0.78
    least_used: float = 0.68
    gain: float = 0.03
    sparing: float = 0.15
    patience: int = 3
    longest_wait: int = 64
    pace: Cadence = PACE

    name = "auto"

    def begin(self) -> Learnt:
        """Nothing learnt."""
        return Learnt()

    def decide(self, memory: Learnt, seen: History) -> tuple[Learnt, Proposal | None]:
        """A wider plan where the one in force does not keep up, a narrower one where it could."""
        forecast = Forecast.of(seen, memory.trust)
        if forecast is None:
            return self._idle(memory, seen)
        memory = replace(memory, trust=forecast.trust)
        if memory.wait and seen.barred:  # another load frees what is barred, and ends the wait
            return replace(memory, wait=memory.wait - 1), None
        if forecast.used_share > self.most_used:
            return replace(memory, low=0), self._wider(forecast)
        narrower = self._narrower(forecast)
        if narrower is None:
            return replace(memory, low=0), None
        if memory.low + 1 < self.patience:
            return replace(memory, low=memory.low + 1), None
        return replace(memory, low=0), narrower

    def _idle(self, memory: Learnt, seen: History) -> tuple[Learnt, Proposal | None]:
        """Where nothing comes for a while, one copy of everything will do."""
        plan = narrowest(seen.plan)
        if seen.rate_per_s or seen.backlog != 0 or plan == seen.plan or plan in seen.barred:
            return memory, None
        if memory.low + 1 < self.patience:
            return replace(memory, low=memory.low + 1), None
        why = f"nothing comes, {changes(seen.plan, plan)} is enough"
        return replace(memory, low=0), Proposal(plan, why)

    def _wider(self, forecast: Forecast) -> Proposal | None:
        seen, wanted = forecast.seen, forecast.wanted_per_s
        if wanted is not None:
            wanted = max(wanted / self.aim, wanted + forecast.draining_per_s)
        plan = forecast.best(wanted)
        gain = forecast.gain(plan)
        spared = threads(seen.plan) - threads(plan)
        leaner = gain > 1 - self.gain / 2 and spared >= self.sparing * threads(seen.plan)
        least = self.gain if forecast.saturated else 2 * self.gain
        if plan in seen.barred or not (gain >= 1 + least or leaner):
            return None
        waiting = f", {seen.backlog:,} rows wait" if seen.backlog else ""
        return Proposal(
            plan, f"{used(forecast)}{waiting}, {changes(seen.plan, plan)} promises {gain:.2f}×"
        )

    def _narrower(self, forecast: Forecast) -> Proposal | None:
        seen, wanted = forecast.seen, forecast.wanted_per_s
        if wanted is None:
            return None
        plan = forecast.best(wanted / self.least_used)
        spared = threads(seen.plan) - threads(plan)
        enough = forecast.capacity_per_s * forecast.gain(plan) >= wanted / self.most_used
        worth = spared >= self.sparing * threads(seen.plan)
        if not worth or not enough or plan in seen.barred:
            return None
        return Proposal(
            plan, f"{used(forecast)}, {changes(seen.plan, plan)} spares {spared} threads"
        )

    def judge(self, memory: Learnt, seen: History, trial: Trial) -> tuple[Learnt, Verdict]:
        """Kept if what was promised came: more tuples a second, or as many with fewer threads."""
        before, plan = trial.before, trial.proposal.plan
        fewer = threads(plan) < threads(before.plan)
        gained = seen.rate_per_s / max(before.rate_per_s, 1e-9) - 1
        if not saturated(seen):
            words = f"all that comes is served, {seen.rate_per_s:,.0f} rows/s"
            return replace(memory, failures=0), Verdict(Outcome.KEPT, words)
        words = f"{'gained' if gained >= 0 else 'lost'} {abs(gained):.0%}"
        if gained >= (-self.gain if fewer else self.gain):
            return replace(memory, failures=0), Verdict(Outcome.KEPT, words)
        if work_changed(before, seen):  # that may be why, so it does not count as a failure
            words += " while tuples changed their cost"
            return replace(memory, low=0, wait=1), Verdict(Outcome.REVERTED, words)
        failures = memory.failures + 1
        wait = min(2**failures, self.longest_wait)
        memory = replace(memory, low=0, failures=failures, wait=wait)
        return memory, Verdict(Outcome.REVERTED, words, self._half(memory, trial))

    def _half(self, memory: Learnt, trial: Trial) -> Proposal | None:
        """Half of a step that was too long, if there is one and it promises something."""
        before = trial.before
        plan = halfway(before.plan, trial.proposal.plan)
        forecast = Forecast.of(before, memory.trust)
        if forecast is None or plan in (before.plan, trial.proposal.plan):
            return None
        gain = forecast.gain(plan)
        if gain < 1 + self.gain:
            return None
        why = f"half of that, {changes(before.plan, plan)} promises {gain:.2f}×"
        return Proposal(plan, why)


def work_changed(before: History, after: History) -> bool:
    """Whether a tuple takes another time than before, so that rates do not compare."""
    profiles = measured_profile(before), measured_profile(after)
    works = [sum(p.visits[o.name] * o.held for o in p.operators) for p in profiles if p is not None]
    return len(works) == 2 and far(works[0], works[1], LOAD_CHANGE)


def halfway(before: Plan, after: Plan) -> Plan:
    """Half of the further replicas and readers of a plan, and pipelines as they were."""
    plan = before
    for region in after.regions:
        now = before.region(region.region).replicas
        if region.replicas > now:
            plan = plan.with_replicas(region.region, now + (region.replicas - now) // 2)
            plan = plan.with_range_rows(region.region, region.range_rows)
    for source in after.sources:
        readers = before.source(source.source).replicas
        if source.replicas > readers:
            more = (source.replicas - readers) // 2
            plan = plan.with_source(source.source, replicas=readers + more)
    return plan


def narrowest(plan: Plan) -> Plan:
    """One copy and one pipeline of everything, batches as they are."""
    for region in plan.regions:
        steps = sum(len(pipeline) for pipeline in region.pipelines)
        plan = plan.with_replicas(region.region, 1).with_pipelines(region.region, steps)
    for source in plan.sources:
        plan = plan.with_source(source.source, replicas=1)
    return plan


def used(forecast: Forecast) -> str:
    """How much of a plan is used, in words."""
    return f"{forecast.used_share:.2f} of the plan used at {forecast.seen.rate_per_s:,.0f} rows/s"


def changes(before: Plan, after: Plan) -> str:
    """What a change of plan is, in words."""
    return "; ".join(before.diff(after)) or "the same plan"
