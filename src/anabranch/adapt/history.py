"""What a policy sees: the plan in force, and the periods that were observed under it.

Values of several periods are put together here, in one way for all policies: shares and rates are
averaged exponentially over about thirty periods (Joker §4.1), costs and selectivities are those of
all tuples of the window.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from anabranch.adapt.topology import Topology
from anabranch.events import Observation, PipelineMetrics, RegionMetrics, StepMetrics
from anabranch.planning.models.model import Model
from anabranch.planning.plan import Plan

WINDOW_PERIODS = 30


@dataclass(frozen=True)
class Limits:
    """How far policies may go.

    Attributes:
        cores: Cores, or slots for tasks, that there are.
        replicas: The most replicas of a region.
        threads: The most threads of all regions together, of which sources and sinks are some.
    """

    cores: int
    replicas: int
    threads: int

    @staticmethod
    def for_cores(cores: int, topology: Topology) -> Limits:
        """Twice the cores and a thread for each region, or every region as wide as the cores."""
        regions = len(topology.regions)
        return Limits(cores, max(2, 2 * cores), max(2 * cores + regions, cores * regions))


@dataclass(frozen=True)
class History:
    """What was seen under one plan.

    Attributes:
        topology: The regions of the flow.
        plan: The plan in force.
        window: What was observed since it settled, oldest first; at least one period.
        limits: How far a policy may go.
        model: What plans promise on this engine; None where nobody knows.
        barred: Plans that did not hold what they promised under this load; guards refuse them.
    """

    topology: Topology
    plan: Plan
    window: tuple[Observation, ...]
    limits: Limits
    model: Model | None = None
    barred: frozenset[Plan] = frozenset()

    @property
    def now(self) -> Observation:
        """The newest period."""
        return self.window[-1]

    @property
    def seconds(self) -> float:
        """How long the window is."""
        return sum(_length_s(each) for each in self.window)

    def most_replicas(self, region: str) -> int:
        """The most replicas that a region may have: by its kind, its buckets and the limits."""
        found = self.topology.region(region)
        if not found.replicable:
            return 1
        most = min(self.limits.replicas, found.buckets) if found.mapped else self.limits.replicas
        return max(1, most)

    # Pipelines and regions

    def busy(self, region: str) -> tuple[float, ...]:
        """Busy share of each pipeline of a region."""
        return tuple(
            average(each.busy_share for each in self._pipelines(region, steps))
            for steps in self.plan.region(region).pipelines
        )

    def overhead(self, region: str) -> tuple[float, ...]:
        """Part of the time that each pipeline of a region worked in none of its steps."""
        return tuple(
            average(each.overhead_share for each in self._pipelines(region, steps))
            for steps in self.plan.region(region).pipelines
        )

    def waiting(self, region: str) -> tuple[float, ...]:
        """Part of the time that each pipeline of a region waited, and took no core."""
        return tuple(
            average(each.waiting_share for each in self._pipelines(region, steps))
            for steps in self.plan.region(region).pipelines
        )

    def region_rate(self, region: str) -> float:
        """Tuples that a region takes in per second."""
        return average(each.rows_per_s for each in self._regions(region))

    def hottest_replica(self, region: str) -> float:
        """Busy share of the busiest replica of a region; 0 where it is not told."""
        return average(max(each.replica_busy, default=0.0) for each in self._regions(region))

    def _pipelines(self, region: str, steps: tuple[str, ...]) -> Iterable[PipelineMetrics]:
        for seen in self.window:
            yield from (p for p in seen.pipelines if p.region == region and p.steps == steps)

    def _regions(self, region: str) -> Iterable[RegionMetrics]:
        for seen in self.window:
            yield from (r for r in seen.regions if r.region == region)

    # Steps

    @cached_property
    def steps(self) -> dict[str, StepMetrics]:
        """Each step over the whole window; keys and losses are the newest."""
        found: dict[str, StepMetrics] = {}
        for seen in self.window:
            for new in seen.steps:
                old = found.get(new.step)
                found[new.step] = new if old is None else _together(old, new)
        return found

    # Sources

    @property
    def reading(self) -> float:
        """Part of the time that readers read, on average over all of them."""
        readers = sum(each.replicas for each in self.plan.sources)
        spent = sum(each.times.scan_s for each in self.window)
        return min(1.0, spent / max(self.seconds * readers, 1e-9))

    @property
    def rates(self) -> tuple[float, ...]:
        """Tuples that all sources read per second, period by period."""
        return tuple(each.rows_in / max(_length_s(each), 1e-9) for each in self.window)

    @property
    def rate_per_s(self) -> float:
        """Tuples that all sources read per second, over the whole window."""
        return sum(each.rows_in for each in self.window) / max(self.seconds, 1e-9)

    def rows_read(self, source: str) -> int:
        """Tuples that one source read in the window."""
        return sum(s.rows for seen in self.window for s in seen.sources if s.source == source)

    def source_rate(self, source: str) -> float:
        """Tuples that one source reads per second, over the whole window."""
        return self.rows_read(source) / max(self.seconds, 1e-9)

    @property
    def backlog(self) -> int | None:
        """Tuples that wait to be read, of all sources; None unless all of them know."""
        return self.now.backlog_rows

    @property
    def backlog_growth_per_s(self) -> float | None:
        """How fast the backlog grows over the window; None where it is not known."""
        first, last = self.window[0].backlog_rows, self.now.backlog_rows
        passed = self.now.at_s - self.window[0].at_s
        if first is None or last is None or passed <= 0:
            return None
        return (last - first) / passed

    @property
    def offered(self) -> tuple[float, ...]:
        """What comes to the sources per second, period by period."""
        backlogs = [each.backlog_rows for each in self.window]
        found = list(self.rates)
        for number, (old, new) in enumerate(pairwise(backlogs), start=1):
            if old is not None and new is not None:
                grown = (new - old) / max(_length_s(self.window[number]), 1e-9)
                found[number] = max(0.0, found[number] + grown)
        return tuple(found)

    @property
    def offered_per_s(self) -> float:
        """What comes to the sources: what they read, and what they do not keep up with."""
        known = self.offered[1:] or self.offered  # the first period lacks the backlog before it
        return sum(known) / len(known)


def _length_s(seen: Observation) -> float:
    return seen.times.total_s + seen.times.commit_s


def _together(old: StepMetrics, new: StepMetrics) -> StepMetrics:
    return replace(
        new,
        rows_in=old.rows_in + new.rows_in,
        rows_out=old.rows_out + new.rows_out,
        busy_s=old.busy_s + new.busy_s,
        waited_s=old.waited_s + new.waited_s,
    )


def average(values: Iterable[float], periods: int = WINDOW_PERIODS) -> float:
    """An exponential average over about so many periods: the newest value weighs most.

    Example:
        >>> average([1.0, 1.0, 0.0], periods=3), average([])
        (0.42857142857142855, 0.0)
    """
    fading = 1 - 2 / (periods + 1)
    total = weight = 0.0
    for value in values:
        total, weight = fading * total + value, fading * weight + 1
    return total / weight if weight else 0.0
