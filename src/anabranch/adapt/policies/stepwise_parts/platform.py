"""Platform capability: how far operators and sources can be strengthened on this machine.

Section 4.2 of the stepwise profiling paper. `moves.py` has Algorithm 2; here are its
bookkeeping and its end. Deviations:
- The step ends when strengthening operators and sources gained nothing one after the other: the
  performance limit as §4.2 describes it, which Algorithm 2 finds only by over-scaling until
  throughput drops. The best configuration comes back. Rounds are bounded by the paper's estimate.
- A throttle's strength is found by bisection in a few tries. Where the bound cannot be kept without
  losing more than 1 - α of the best throughput, the best throughput counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from anabranch.adapt.policies.stepwise_parts.evidence import Change, compared
from anabranch.adapt.policies.stepwise_parts.moves import (
    Move,
    Side,
    grown_by,
    next_move,
    read_more,
    throttled,
)
from anabranch.adapt.policies.stepwise_parts.progress import (
    Phase,
    Progress,
    Record,
    Turn,
    latency_ms,
)
from anabranch.adapt.policy import Proposal
from anabranch.adapt.seen import Seen
from anabranch.planning.plan import Plan

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

    def turn(self, memory: Progress, seen: Seen) -> Turn:
        """Look at a configuration, and find the next one."""
        in_time = latency_ms(seen) <= self.latency_ms
        change = self._effect(memory, seen)
        best = memory.best
        if best is None or (change is Change.INCREASED and seen.rate_per_s > best.rate):
            best = Record.of(seen)
        far_below = seen.rate_per_s < self.alpha * best.rate
        futile = 0 if change is Change.INCREASED else memory.futile + 1
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

    def _effect(self, memory: Progress, seen: Seen) -> Change:
        """What the last change did; one that was refused did nothing."""
        if memory.last is Side.NOTHING:
            return Change.INCREASED
        if seen.plan != memory.wish:
            return Change.UNCHANGED
        return compared(memory.rates, seen.rates, self.significance)

    def _exhausted(self, memory: Progress, seen: Seen) -> bool:
        """Whether both sides were strengthened in vain, or more rounds than need be were made."""
        ratios = memory.features.ratios if memory.features else {}
        most = sum(seen.most_replicas(name) for name in ratios)
        bound = 3 * most / max(1, sum(ratios.values()))
        return memory.futile >= FUTILE or memory.rounds > max(3, bound)

    def _grown(self, memory: Progress, seen: Seen, move: Move) -> tuple[Plan, Side] | None:
        """A stronger plan: the side that is wanted, else the other; None if there is no room."""
        ratios = memory.features.ratios if memory.features else {}
        sinks, source = grown_by(seen, seen.plan, ratios), read_more(seen, seen.plan)
        options = [(sinks, Side.SINKS), (source, Side.SOURCE)]
        for plan, side in options if move is Move.SINKS else options[::-1]:
            if plan is not None:
                return plan, side
        return None

    def _throttle(self, memory: Progress, seen: Seen, move: Move, good: bool, said: str) -> Turn:
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

    def _ask(self, memory: Progress, seen: Seen, plan: Plan, side: Side, why: str) -> Turn:
        asked = replace(memory, last=side, rates=seen.rates).asking_for(plan, seen)
        return asked, Proposal(plan, why, trial=False)

    def _ends(self, memory: Progress, seen: Seen, plan: Plan, why: str) -> Turn:
        memory = replace(memory, phase=Phase.OPERATORS).asking_for(plan, seen)
        return memory, Proposal(plan, f"platform capability reached, {why}", trial=False)


def _words(before: Plan, after: Plan) -> str:
    """What changes, without the buckets."""
    return "; ".join(line.split(", ")[0] for line in before.diff(after))
