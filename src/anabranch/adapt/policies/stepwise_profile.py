"""Application features: what each region needs beside the others, whatever the machine.

Liu et al., A stepwise auto-profiling method for performance optimization of streaming applications,
TAAS 2017, §4.1: the least processing time of operators, the relative size of streams, Table 1's
classes, Algorithm 1 and eq. 1. Readings and deviations:
- Line 16 of Algorithm 1 divides by the smallest task load, line 23 by the largest.
- Eq. 1 rounds down; at least 1 is kept. "Reduced if possible" is read as division by the greatest
  common divisor: three operators alike grow by one task each, as the paper's Linear topology does.
- The unit is the region, since operators of a region share its replicas: its task load is that of
  its dearest pipeline, which is a thread as the paper's task is one.
- A stream's size is its number of tuples.
- Classes are found by measurement: output that hardly grows with the input is logic-dependent. That
  needs inputs that differ; where they do not, only what the user names is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import reduce
from math import ceil, gcd, inf, isqrt
from statistics import fmean, pstdev, stdev

from anabranch.adapt.estimates.headroom import one_more, one_more_reader
from anabranch.adapt.history import History
from anabranch.adapt.policy import Proposal
from anabranch.events import Observation
from anabranch.planning.plan import Plan
from anabranch.planning.regions import RegionKind

STEADY = 0.05
"""Relative deviation of selectivities up to which output is in proportion to input."""
VARIED = 0.1
"""Relative deviation of inputs from which on they can tell whether output grows with them."""
GROWS = 0.5
"""Part by which output has to follow a change of input in order to grow with it."""


class Correlation(Enum):
    """How the output of an operator depends on its input (Table 1)."""

    PROPORTIONAL = "proportional"
    WORKLOAD = "workload-dependent"
    LOGIC = "logic-dependent"


Passed = tuple[float, float]
"""Tuples per second into a step and out of it, in one period."""


def correlation(samples: Iterable[Passed]) -> Correlation:
    """The class of an operator, by what went in and came out period by period.

    Example:
        >>> [
        ...     correlation(s).value
        ...     for s in ([(10, 20), (30, 60)], [(10, 90), (30, 350)], [(10, 5), (30, 5)])
        ... ]
        ['proportional', 'workload-dependent', 'logic-dependent']
    """
    known = [(came, gave) for came, gave in samples if came > 0]
    if not known:
        return Correlation.PROPORTIONAL
    came, gave = [c for c, _ in known], [g for _, g in known]
    mean_in, mean_out = fmean(came), fmean(gave)
    if mean_out == 0:
        return Correlation.LOGIC
    spread = fmean((c - mean_in) ** 2 for c in came)
    if spread > (VARIED * mean_in) ** 2:
        together = fmean((c - mean_in) * (g - mean_out) for c, g in known)
        if together / spread * mean_in / mean_out < GROWS:
            return Correlation.LOGIC
    passed = [g / c for c, g in known]
    return (
        Correlation.PROPORTIONAL
        if pstdev(passed) <= STEADY * fmean(passed)
        else (Correlation.WORKLOAD)
    )


def dominated(upstream: Mapping[str, Collection[str]], logic: Collection[str]) -> frozenset[str]:
    """Those that every way from a source leads to through something logic-dependent.

    Args:
        upstream: What each takes from, in an order in which producers come first; sources take
            from nothing.
        logic: What is logic-dependent.

    Example:
        >>> sorted(dominated({"a": (), "top": "a", "x": ("top",), "y": ("x", "a")}, {"top"}))
        ['x']
    """
    found: set[str] = set()
    for name, above in upstream.items():
        if above and all(each in found or each in logic for each in above):
            found.add(name)
    return frozenset(found)


def ratios_and_degrees(
    loads: Mapping[str, float], non_parallel: Collection[str], non_scalable: Collection[str]
) -> tuple[dict[str, float], dict[str, int]]:
    """Algorithm 1: ratios of those that grow together, replicas of those that do not.

    Args:
        loads: Task loads: least processing time by relative size of the streams that come in.
        non_parallel: Who can have one replica only.
        non_scalable: To whom more does not come when the application takes in more.

    Example:
        >>> ratios_and_degrees(
        ...     {"parse": 2.0, "count": 4.0, "rank": 1.0, "total": 0.5},
        ...     non_parallel={"total"},
        ...     non_scalable={"rank"},
        ... )
        ({'parse': 0.5, 'count': 1.0}, {'rank': 2, 'total': 1})
    """
    parallel = {name: load for name, load in loads.items() if name not in non_parallel}
    total_flow = min((1 / loads[n] for n in non_parallel if loads.get(n, 0) > 0), default=inf)
    least = min((load for load in parallel.values() if load > 0), default=1.0)
    most = max(parallel.values(), default=0.0)
    ratios: dict[str, float] = {}
    degrees: dict[str, int] = {}
    for name, load in parallel.items():
        if name not in non_scalable:
            ratios[name] = load / most if most > 0 else 1.0
        elif total_flow == inf:
            degrees[name] = max(1, ceil(load / least))
        else:
            degrees[name] = max(1, ceil(load * total_flow))
    return ratios, degrees | {name: 1 for name in loads if name in non_parallel}


def whole_ratios(ratios: Mapping[str, float], unit: float) -> dict[str, int]:
    """Eq. 1: ratios as small whole numbers, in units of task load.

    Example:
        >>> whole_ratios({"parse": 0.71, "split": 0.67, "count": 1.0}, unit=0.3)
        {'parse': 2, 'split': 2, 'count': 3}
        >>> whole_ratios({"a": 1.0, "b": 0.98}, unit=0.3)
        {'a': 1, 'b': 1}
    """
    # A hair more: 0.9 / 0.3 is below 3 in floating point.
    found = {name: max(1, int(ratio / unit + 1e-9)) for name, ratio in ratios.items()}
    common = reduce(gcd, found.values(), 0) or 1
    return {name: number // common for name, number in found.items()}


Samples = Mapping[str, tuple[Passed, ...]]
"""What went in and came out of each step, period by period."""


def samples_of(seen: History) -> Samples:
    """What was seen of each step's input and output."""
    found: dict[str, tuple[Passed, ...]] = {}
    for each in seen.window:
        seconds = max(each.times.total_s + each.times.commit_s, 1e-9)
        for step in each.steps:
            passed = (step.rows_in / seconds, step.rows_out / seconds)
            found[step.step] = (*found.get(step.step, ()), passed)
    return found


@dataclass(frozen=True)
class Features:
    """What was learnt in the first step of profiling.

    Attributes:
        ratios: By how many replicas regions grow together.
        degrees: Replicas of regions that do not grow with them.
        least_us: The least processing time of each step.
        classes: The class of each step.
    """

    ratios: Mapping[str, int]
    degrees: Mapping[str, int]
    least_us: Mapping[str, float]
    classes: Mapping[str, Correlation]

    def __str__(self) -> str:
        """One line of a journal."""
        grown = f"{':'.join(self.ratios)} = {':'.join(map(str, self.ratios.values()))}"
        fixed = [f"{name} {number}" for name, number in self.degrees.items()]
        return "ratios " + grown + (f", fixed: {', '.join(fixed)}" if fixed else "")


def features_of(
    seen: History, unit: float, logic: Collection[str] = (), earlier: Samples | None = None
) -> Features | None:
    """The features of an application; None while too little has come through to tell.

    Args:
        seen: Best at a low load, when nothing waits for anything else.
        unit: Task load in which ratios are counted, `slice` in the paper.
        logic: Steps that are known to be logic-dependent.
        earlier: What steps passed on under another load.
    """
    working = seen.topology.working
    steps = [step for region in working for step in region.steps]
    rows = {step: seen.steps[step].rows_in if step in seen.steps else 0 for step in steps}
    total = sum(rows.values())
    if not total or not any(seen.steps[s].busy_s > 0 for s in steps if s in seen.steps):
        return None
    least = {s: (seen.steps[s].cost_us or 0.0) if s in seen.steps else 0.0 for s in steps}
    samples, before = samples_of(seen), earlier or {}
    classes = {
        s: Correlation.LOGIC
        if s in logic
        else correlation((*before.get(s, ()), *samples.get(s, ())))
        for s in steps
    }
    loads = {
        region.name: max(
            sum(least[s] * rows[s] / total for s in pipeline)
            for pipeline in seen.plan.region(region.name).pipelines
        )
        for region in working
    }
    ratios, degrees = ratios_and_degrees(
        loads, {r.name for r in working if not r.replicable}, _non_scalable(seen, classes)
    )
    return Features(whole_ratios(ratios, unit), degrees, least, classes)


def _non_scalable(seen: History, classes: Mapping[str, Correlation]) -> frozenset[str]:
    regions = [r for r in seen.topology.regions if r.kind is not RegionKind.SINK]
    logic = {r.name for r in regions if any(classes.get(s) is Correlation.LOGIC for s in r.steps)}
    return dominated({r.name: seen.topology.upstream(r.name) for r in regions}, logic)


# Evidence: whether throughput has changed, or only fluctuates.
#
# A two-sample t-test at 5 %, as in §6.1.2 of the stepwise profiling paper, without assuming that
# both configurations fluctuate alike. Where nothing fluctuates at all, a test would call any
# difference significant; so a change has to be of some size, too.

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
