"""Moves of the policy `stepwise`: what to strengthen next, and whether throughput has changed.

Evidence: whether throughput has changed, or only fluctuates.

A two-sample t-test at 5 %, as in §6.1.2 of the stepwise profiling paper, without assuming that
both configurations fluctuate alike. Where nothing fluctuates at all, a test would call any
difference significant; so a change has to be of some size, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from math import isqrt
from statistics import fmean, stdev

from anabranch.adapt.estimates.headroom import one_more, one_more_reader
from anabranch.adapt.history import History
from anabranch.adapt.policies.stepwise_features import Features, Samples
from anabranch.adapt.policy import Proposal
from anabranch.events import Observation
from anabranch.planning.plan import Plan

SIGNIFICANCE = 0.05
LEAST_CHANGE = 0.01


class Trend(Enum):
    """What became of a throughput."""

    INCREASED = "increased"
    UNCHANGED = "unchanged"
    DECREASED = "decreased"


def compared(
    before: Sequence[float],
    after: Sequence[float],
    significance: float = SIGNIFICANCE,
    least: float = LEAST_CHANGE,
) -> Trend:
    """Whether samples of a throughput tell of a change.

    Args:
        before: Samples under one configuration.
        after: Samples under another.
        significance: Probability by which a change may be seen where there is none.
        least: Part of the throughput before that counts as a change.

    Example:
        >>> calm = [100, 101, 99, 100, 102, 98]
        >>> compared(calm, [104, 105, 103, 106, 104, 105]).value, compared(calm, [99, 103]).value
        ('increased', 'unchanged')
    """
    if not before or not after:
        return Trend.UNCHANGED
    old, new = fmean(before), fmean(after)
    if abs(new - old) <= least * abs(old) or not _significant(before, after, significance):
        return Trend.UNCHANGED
    return Trend.INCREASED if new > old else Trend.DECREASED


def _significant(before: Sequence[float], after: Sequence[float], significance: float) -> bool:
    if min(len(before), len(after)) < 2:
        return False  # one value alone says nothing of how much they vary
    some, others = stdev(before), stdev(after)
    if some + others == 0:
        return True
    # Takes a second, which those with other policies need not spend.
    from scipy.stats import ttest_ind_from_stats

    found = ttest_ind_from_stats(
        fmean(before), some, len(before), fmean(after), others, len(after), equal_var=False
    )
    return bool(found.pvalue < significance)


# Moves: which side to strengthen next, and the plans that do it.
#
# `next_move` is Algorithm 2 of the stepwise profiling paper (§4.2) as printed. Operators grow by
# ratios, one replica in turn until each has its share or there is no room; sources get one more
# reader each; a throttle bounds the tuples that are under way.


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


def next_move(change: Trend, last: Side, latency_met: bool, far_below_best: bool) -> Move:
    """Algorithm 2.

    Args:
        change: What the last change did to the throughput.
        last: What the last change was.
        latency_met: Whether results come in time.
        far_below_best: Whether throughput is below α times the best.
    """
    if change is Trend.INCREASED or last is Side.NOTHING:
        return Move.SOURCE if latency_met else Move.SINKS
    if change is Trend.UNCHANGED and last is Side.THROTTLE:
        return Move.END if latency_met else Move.THROTTLE_MORE
    if change is Trend.DECREASED and far_below_best:
        return Move.BACK_AND_THROTTLE
    if last is Side.THROTTLE:
        return Move.THROTTLE_LESS
    return Move.SOURCE if last is Side.SINKS else Move.SINKS


def grown_by(seen: History, plan: Plan, ratios: Mapping[str, int]) -> Plan | None:
    """Replicas added in turn, to each region as many as its ratio says; None if none fits."""
    given = dict.fromkeys(ratios, 0)
    grown = plan
    for turn in range(max(ratios.values(), default=0)):
        for region, ratio in ratios.items():
            more = one_more(seen, grown, region) if turn < ratio else None
            if more is not None:
                grown, given[region] = more, given[region] + 1
    return grown if any(given.values()) else None


def with_replicas(seen: History, plan: Plan, wanted: Mapping[str, int]) -> Plan:
    """So many replicas of each region, as far as there is room."""
    once = plan
    for region in wanted:
        once = once.with_replicas(region, 1)
    more = {name: min(number, seen.most_replicas(name)) - 1 for name, number in wanted.items()}
    return grown_by(seen, once, more) or once


def read_more(seen: History, plan: Plan) -> Plan | None:
    """One more reader of each source that can have one; None if none can."""
    grown = plan
    for source in seen.topology.sources:
        grown = one_more_reader(seen, grown, source.name) or grown
    return grown if grown != plan else None


def throttled(seen: History, plan: Plan, tuples: int | None) -> Plan:
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


# Progress: what stepwise profiling remembers from one turn of its loop to the next.


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
    def of(seen: History) -> Record:
        """What was seen, as a record."""
        return Record(seen.plan, seen.rates, latency_ms(seen))

    @property
    def rate(self) -> float:
        """Throughput on average."""
        return fmean(self.rates)


@dataclass(frozen=True)
class Profiling:
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

    def asking_for(self, plan: Plan, seen: History) -> Profiling:
        """After a wish for a plan."""
        return replace(self, wish=plan, before=seen.plan)

    def expects(self, plan: Plan) -> bool:
        """Whether a plan in force is one that this policy knows of."""
        return self.wish is None or plan in (self.wish, self.before)


Turn = tuple[Profiling, Proposal | None]
"""What a look comes to."""

UNSETTLED = 2.0


def settled(seen: History) -> bool:
    """Whether latency is what it was on average over the window, and not on its way elsewhere."""
    last, mean = _complete_ms(seen, seen.now), latency_ms(seen)
    return last <= UNSETTLED * mean and mean <= UNSETTLED * last


def latency_ms(seen: History) -> float:
    """Latency on average over the window."""
    return fmean(_complete_ms(seen, each) for each in seen.window)


def _complete_ms(seen: History, period: Observation) -> float:
    """Until the last result of a tuple: the paper's complete latency.

    Where all results go one way, that of half of the tuples tells it; where streams fork, that may
    be a short way, and nearly all have to be counted.
    """
    above = [name for region in seen.topology.names for name in seen.topology.upstream(region)]
    forks = len(set(above)) < len(above)
    return period.latency_p99_ms if forks else period.latency_p50_ms
