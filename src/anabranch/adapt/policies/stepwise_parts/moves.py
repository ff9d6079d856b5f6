"""Moves: which side to strengthen next, and the plans that do it.

`next_move` is Algorithm 2 of the stepwise profiling paper (§4.2) as printed. Operators grow by
ratios, one replica in turn until each has its share or there is no room; sources get one more
reader each; a throttle bounds the tuples that are under way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from math import isqrt

from anabranch.adapt.policies.stepwise_parts.evidence import Change
from anabranch.adapt.reckoning.room import one_more, one_more_reader
from anabranch.adapt.seen import Seen
from anabranch.planning.plan import Plan


class Side(Enum):
    """What the last change did."""

    NOTHING = "nothing"  # the first configuration of all
    SINKS = "operators"
    SOURCE = "source"
    THROTTLE = "throttle"


class Move(Enum):
    """What to do next."""

    SINKS = "more operators"
    SOURCE = "more readers"
    THROTTLE_MORE = "fewer tuples in flight"
    THROTTLE_LESS = "more tuples in flight"
    BACK_AND_THROTTLE = "back to the best, throttled"
    END = "end"


def next_move(change: Change, last: Side, latency_met: bool, far_below_best: bool) -> Move:
    """Algorithm 2.

    Args:
        change: What the last change did to the throughput.
        last: What the last change was.
        latency_met: Whether results come in time.
        far_below_best: Whether throughput is below α times the best.
    """
    if change is Change.INCREASED or last is Side.NOTHING:
        return Move.SOURCE if latency_met else Move.SINKS
    if change is Change.UNCHANGED and last is Side.THROTTLE:
        return Move.END if latency_met else Move.THROTTLE_MORE
    if change is Change.DECREASED and far_below_best:
        return Move.BACK_AND_THROTTLE
    if last is Side.THROTTLE:
        return Move.THROTTLE_LESS
    return Move.SOURCE if last is Side.SINKS else Move.SINKS


def grown_by(seen: Seen, plan: Plan, ratios: Mapping[str, int]) -> Plan | None:
    """Replicas added in turn, to each region as many as its ratio says; None if none fits."""
    given = dict.fromkeys(ratios, 0)
    grown = plan
    for turn in range(max(ratios.values(), default=0)):
        for region, ratio in ratios.items():
            more = one_more(seen, grown, region) if turn < ratio else None
            if more is not None:
                grown, given[region] = more, given[region] + 1
    return grown if any(given.values()) else None


def with_replicas(seen: Seen, plan: Plan, wanted: Mapping[str, int]) -> Plan:
    """So many replicas of each region, as far as there is room."""
    once = plan
    for region in wanted:
        once = once.with_replicas(region, 1)
    more = {name: min(number, seen.most_replicas(name)) - 1 for name, number in wanted.items()}
    return grown_by(seen, once, more) or once


def read_more(seen: Seen, plan: Plan) -> Plan | None:
    """One more reader of each source that can have one; None if none can."""
    grown = plan
    for source in seen.topology.sources:
        grown = one_more_reader(seen, grown, source.name) or grown
    return grown if grown != plan else None


def throttled(seen: Seen, plan: Plan, tuples: int | None) -> Plan:
    """No more than so many tuples under way, over all sources by what they read; None for any."""
    total = seen.rate_per_s
    for source in plan.sources:
        part = seen.source_rate(source.source) / total if total > 0 else 1 / len(plan.sources)
        limit = None if tuples is None else max(1, round(tuples * part))
        plan = plan.with_source(source.source, in_flight_limit=limit)
    return plan


@dataclass(frozen=True)
class Throttle:
    """How strong a throttle is, and what is known of others.

    Attributes:
        tuples: Tuples in flight; None for no throttle.
        in_time: The most tuples in flight under which results came in time.
        too_late: The fewest under which they did not.
        tries: How many were tried.
    """

    tuples: int | None = None
    in_time: int | None = None
    too_late: int | None = None
    tries: int = 0

    def told(self, latency_met: bool) -> Throttle:
        """With what was seen under it."""
        if self.tuples is None:
            return self
        if latency_met:
            best = max(self.tuples, self.in_time or 0)
            return Throttle(self.tuples, best, self.too_late, self.tries)
        worst = min(self.tuples, self.too_late or self.tuples)
        return Throttle(self.tuples, self.in_time, worst, self.tries)

    def stronger(self, first: int) -> Throttle:
        """Fewer tuples: half-way to those that are in time; `first` if there was no throttle."""
        if self.tuples is None:
            return Throttle(max(1, first), self.in_time, self.too_late, self.tries + 1)
        return self._to(self.tuples // 2 if self.in_time is None else self._middle())

    def weaker(self) -> Throttle:
        """More tuples: half-way to those that are too late."""
        now = self.tuples or 1
        return self._to(now * 2 if self.too_late is None else self._middle())

    def _middle(self) -> int:
        return isqrt((self.in_time or 1) * (self.too_late or 1))

    def _to(self, tuples: int) -> Throttle:
        return Throttle(max(1, tuples), self.in_time, self.too_late, self.tries + 1)


NO_THROTTLE = Throttle()
