"""Joker's organic adaptation: resolve bottlenecks by pipelines and replicas, keep what helps.

Kahveci and Gedik, Joker: Elastic stream processing with organic adaptation, §4.1 to 4.5, algorithms
1 to 7. Every region with a bottleneck pipeline is changed, all of them in one step; whether that
helped is judged by the throughput of the changed regions nearest to the sources. What does not help
is reverted and blacklisted until the load changes. It only ever adds threads.

Readings and deviations:
- A split is tried if its utility *minus one* reaches the threshold: a utility is a ratio, and as
  printed algorithm 3 would accept every split.
- Algorithm 7 sets a pipeline's metrics only when its load has changed, so that a slow drift adds
  up; a trial is judged against what was seen right before it.
- Throughput counts all tuples of the window, each period the same. The paper averages
  exponentially over 30 s; a window here is a third as long by default (`pace`).
- Stateless and shared regions are replicated, too, since order is restored behind them; the paper
  replicates regions with partitioned state alone (`stateless=False`).
- Sources keep their readers, sinks are not looked at.
- Where larger steps (§4.5) are not possible or did not help, smaller ones are tried.
- After three periods with nothing to do it is done, until the load of a pipeline changes.
- What a guard refuses, or an engine fails to apply, is blacklisted like what does not help.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from anabranch.adapt.policies.organic_parts.changes import (
    Actions,
    Bottleneck,
    Change,
    busy_pipelines,
    expand,
    split,
    with_region,
)
from anabranch.adapt.policies.organic_parts.memory import (
    Attempt,
    Remembered,
    blacklisted,
    cleared,
    finalized,
    region_rate,
    updated,
)
from anabranch.adapt.policy import Outcome, Pace, Proposal, Trial, Verdict
from anabranch.adapt.seen import Seen
from anabranch.planning.plan import Plan
from anabranch.planning.regions import Region

PACE = Pace(settle=3, periods=10, most=10)
"""Three seconds to settle, as Joker's runs need; then each decision looks at ten of its own."""


@dataclass(frozen=True)
class Organic:
    """Joker's policy.

    Attributes:
        actions: Which changes are tried, and in which order.
        busy: Busy share above which a pipeline is a bottleneck.
        utility: What a split has to promise: 0.2 for a fifth more.
        gain: Throughput that a change has to bring on top, or it is reverted.
        load_change: Part by which throughput or busy share has to differ for another load.
        pieces: Into how many pipelines one is split at most.
        step: How many replicas are added at once.
        stable: Periods without anything to do after which it is done.
        stateless: Whether regions without partitioned state are replicated.
        pace: How long it looks.

    Example:
        >>> Organic(actions=Actions.FISSION_FIRST, step=2).name
        'organic'
    """

    actions: Actions = Actions.FUSION_FIRST
    busy: float = 0.8
    utility: float = 0.2
    gain: float = 0.1
    load_change: float = 0.2
    pieces: int = 2
    step: int = 1
    stable: int = 3
    stateless: bool = True
    pace: Pace = PACE
    name: str = "organic"

    def begin(self) -> Remembered:
        """Nothing is known."""
        return Remembered()

    def decide(self, memory: Remembered, seen: Seen) -> tuple[Remembered, Proposal | None]:
        """Algorithm 1, nothing under way: change all regions with bottlenecks."""
        memory = updated(cleared(memory, seen), seen, self.load_change)
        if memory.stable >= self.stable:
            return memory, None
        plan, changes = seen.plan, []
        for region in seen.topology.working:
            change = self._resolve(memory, seen, region, plan)
            if change is not None:
                plan = with_region(plan, change.region)
                changes.append(change)
        if not changes:
            return replace(memory, stable=memory.stable + 1), None
        attempt = Attempt(seen.plan, tuple(changes))
        return replace(memory, attempt=attempt, stable=0), Proposal(plan, _why(attempt))

    def judge(self, memory: Remembered, seen: Seen, trial: Trial) -> tuple[Remembered, Verdict]:
        """Algorithm 1, a change under way: keep it, or try something else where it did not help."""
        attempt = memory.attempt
        if attempt is None:
            return memory, Verdict(Outcome.KEPT, "nobody remembers why")
        nearest = seen.topology.nearest_to_sources(attempt.regions)
        gains = {name: _gain(trial.before, seen, name) for name in nearest}
        why = _gained(gains)
        stuck = next((name for name, gain in gains.items() if gain <= self.gain), None)
        if stuck is None:
            return finalized(memory, seen, attempt), Verdict(Outcome.KEPT, why)
        memory, again = self._again(memory, attempt, trial, stuck)
        return memory, Verdict(Outcome.REVERTED, why, again)

    def _again(
        self, memory: Remembered, attempt: Attempt, trial: Trial, stuck: str
    ) -> tuple[Remembered, Proposal | None]:
        """Another change for the region that is not resolved; None if there is none."""
        failed = [c for c in attempt.changes if c.region.region == stuck]
        others = tuple(c for c in attempt.changes if c.region.region != stuck)
        memory = blacklisted(replace(memory, attempt=None), failed)
        plan = with_region(trial.proposal.plan, attempt.base.region(stuck))
        region = trial.before.topology.region(stuck)
        change = self._resolve(memory, trial.before, region, plan)
        if change is None:
            return blacklisted(memory, others), None
        other = Attempt(attempt.base, (*others, change))
        proposal = Proposal(with_region(plan, change.region), _why(other))
        return replace(memory, attempt=other), proposal

    def _resolve(self, memory: Remembered, seen: Seen, region: Region, plan: Plan) -> Change | None:
        """Algorithm 2: a change for a region if it has a bottleneck."""
        busy = busy_pipelines(seen, region.name, self.busy)
        if not busy:
            return None
        bottleneck = Bottleneck(
            region,
            seen,
            plan,
            tuple(busy),
            f"region {region.name}: busy {max(busy.values()):.2f} > {self.busy:.2f}",
            lambda pipeline, shape: memory.refuses(region.name, pipeline, shape),
        )
        fusion = self.actions is not Actions.FISSION_ONLY
        fission = self.actions is not Actions.FUSION_ONLY
        cut = split(bottleneck, self.utility, self.pieces) if fusion else None
        if self.actions is not Actions.FISSION_FIRST and cut is not None:
            return cut
        return (expand(bottleneck, self.step, self.stateless) if fission else None) or cut


def _why(attempt: Attempt) -> str:
    return "; ".join(change.why for change in attempt.changes)


def _gain(before: Seen, now: Seen, region: str) -> float:
    was, has = region_rate(before, region), region_rate(now, region)
    if was <= 0:
        return float("inf") if has > 0 else 0.0
    return has / was - 1


def _gained(gains: dict[str, float]) -> str:
    """By how much throughput has grown, in words."""
    if len(gains) == 1:
        return f"gained {next(iter(gains.values())):.0%}".replace("%", " %")
    each = (f"{gain:.0%} at {name}".replace("%", " %") for name, gain in gains.items())
    return "gained " + ", ".join(each)
