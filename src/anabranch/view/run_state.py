"""How a run stands at one moment: the value that the terminal and the lines are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anabranch.events import Decision, Observation, Reconfiguration, Shape
from anabranch.planning.plan import Plan
from anabranch.planning.serial import SerialWork, serial_work
from anabranch.view.text import moved_line

MINUTE_S = 60.0
"""How far back the curve of the rate goes."""
LEAST_BUSY = 0.5
"""What is less busy than this holds nothing up."""

Pipeline = tuple[str, tuple[str, ...]]
"""A region, and the steps of one of its pipelines; a source stands for its own readers."""


@dataclass(frozen=True)
class ReadSpan:
    """Rows that were read in some time of the run."""

    began_s: float
    ended_s: float
    rows: int


@dataclass(frozen=True)
class JournalEntry:
    """A line of the journal: a decision, or a plan that is in force."""

    at_s: float
    text: str

    @staticmethod
    def of_decision(decision: Decision) -> JournalEntry:
        """What a policy did."""
        return JournalEntry(decision.at_s, f"{decision.policy}: {decision.why}, {decision.outcome}")

    @staticmethod
    def of_change(change: Reconfiguration) -> JournalEntry:
        """What changed, and how long rows stood still."""
        return JournalEntry(change.at_s, f"plan: {moved_line(change)}")

    def __str__(self) -> str:
        return f"{self.at_s:7.1f} s  {self.text}"


@dataclass(frozen=True)
class RunState:
    """How a run stands.

    Attributes:
        name: What runs.
        engine: What runs it; None before it has started.
        shape: What the flow looks like; empty before it has started.
        plan: The plan in force.
        seen: The newest observation.
        rate_per_s: Rows read a second, lately.
        rows_in: Rows read so far.
        rows_out: Rows written so far.
        skipped: Rows that were left out because they were malformed or a step raised.
        late: Rows that came too late.
        minute: What was read in the last minute, oldest first.
        journal: The newest decisions and plan changes, newest last.
        news: How many events were heard: another number, another picture.
    """

    name: str
    engine: str | None
    shape: Shape
    plan: Plan | None
    seen: Observation | None
    rate_per_s: float
    rows_in: int
    rows_out: int
    skipped: int
    late: int
    minute: tuple[ReadSpan, ...]
    journal: tuple[JournalEntry, ...]
    news: int

    @property
    def title(self) -> str:
        """What runs, where, and what it waits for if it does."""
        if self.engine is None:
            return f"{self.name}: starting …"
        where = f"{self.name} on {self.engine}"
        return where if self.seen is not None else f"{where}: waiting for the first rows"

    @property
    def rows(self) -> str:
        """Rows in words."""
        left_out = ((self.skipped, "skipped"), (self.late, "late"))
        lost = [f", {count:,} {what}" for count, what in left_out if count]
        return f"{self.rows_in:,} in, {self.rows_out:,} out{''.join(lost)}"

    def busy(self) -> dict[Pipeline, float]:
        """Busy shares of the sources and pipelines that were seen, by region and steps."""
        return busy_shares(self.seen) if self.seen is not None else {}

    def serial(self) -> SerialWork:
        """What no plan can divide, with its part of the work that was seen last."""
        return serial_seen(self.shape, self.seen, self.plan)


def busy_shares(seen: Observation) -> dict[Pipeline, float]:
    """How busy each source and pipeline is; a region's busiest one, in its busiest replica.

    Averages of a region's pipelines say which of them its hottest replica is held up by. Sources
    whose readers nobody watched are left out.

    Example:
        >>> from anabranch.events import BatchTimes, PipelineMetrics, RegionMetrics, SourceMetrics
        >>> times = BatchTimes(1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        >>> busy = (PipelineMetrics("a", ("a",), 0.4, 0.0), PipelineMetrics("a", ("b",), 0.3, 0.0))
        >>> hot = (RegionMetrics("a", 2, 10.0, replica_busy=(0.7, 0.1)),)
        >>> read = (SourceMetrics("s", 5, 5.0, busy_share=0.2), SourceMetrics("t", 5, 5.0))
        >>> seen = Observation(1.0, 0, 0, 0, times, 0.0, 0.0, (), busy, hot, read)
        >>> busy_shares(seen)
        {('s', ('s',)): 0.2, ('a', ('a',)): 0.7, ('a', ('b',)): 0.3}
    """
    shares: dict[Pipeline, float] = {
        (each.source, (each.source,)): each.busy_share
        for each in seen.sources
        if each.busy_share is not None
    }
    shares |= {(each.region, each.steps): each.busy_share for each in seen.pipelines}
    for region in seen.regions:
        own = [pipeline for pipeline in shares if pipeline[0] == region.region]
        if own:
            busiest = max(own, key=lambda pipeline: shares[pipeline])
            shares[busiest] = max([shares[busiest], *region.replica_busy])
    return shares


def serial_seen(shape: Shape, seen: Observation | None, plan: Plan | None) -> SerialWork:
    """Return what no plan can divide, with its part of the time that all threads worked.

    Example:
        >>> from anabranch.events import BatchTimes, PipelineMetrics, SourceMetrics, StepShape
        >>> steps = (StepShape("s", "source", region="s"), StepShape("a", "operator", region="a"))
        >>> shape = Shape((steps[0], replace(steps[1], serial="is stateful")))
        >>> times = BatchTimes(1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        >>> busy = (PipelineMetrics("a", ("a",), 0.1, 0.0),)
        >>> read = (SourceMetrics("s", 5, 5.0, busy_share=0.9),)
        >>> seen = Observation(1.0, 0, 0, 0, times, 0.0, 0.0, pipelines=busy, sources=read)
        >>> serial_seen(shape, seen, None).regions
        (SerialRegion(region='a', why='is stateful', share=0.1),)
    """
    return serial_work(shape, None if seen is None else work_seen(seen, plan))


def work_seen(seen: Observation, plan: Plan | None) -> dict[tuple[str, ...], float]:
    """Return how many threads each source and pipeline kept at work, by its steps."""
    readers = {each.source: each.replicas for each in plan.sources} if plan is not None else {}
    replicas = {each.region: each.replicas for each in seen.regions}
    work: dict[tuple[str, ...], float] = {
        (each.source,): each.busy_share * readers.get(each.source, 1)
        for each in seen.sources
        if each.busy_share is not None
    }
    return work | {p.steps: p.busy_share * replicas.get(p.region, 1) for p in seen.pipelines}


def bottleneck(seen: Observation | None) -> Pipeline | None:
    """The source or pipeline that is busiest; None where none has much to do.

    Example:
        >>> from anabranch.events import BatchTimes, PipelineMetrics, SourceMetrics
        >>> times = BatchTimes(1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        >>> busy = (PipelineMetrics("a", ("a",), 0.7, 0.0), PipelineMetrics("b", ("b",), 0.9, 0.0))
        >>> bottleneck(Observation(1.0, 0, 0, 0, times, 0.0, 0.0, pipelines=busy))
        ('b', ('b',))
        >>> read = (SourceMetrics("s", 5, 5.0, busy_share=0.95),)
        >>> bottleneck(Observation(1.0, 0, 0, 0, times, 0.0, 0.0, (), busy, (), read))
        ('s', ('s',))
    """
    shares = busy_shares(seen) if seen is not None else {}
    busiest = max(shares, key=lambda pipeline: shares[pipeline], default=None)
    return busiest if busiest is not None and shares[busiest] >= LEAST_BUSY else None


def is_full(seen: Observation, before: Observation | None) -> bool:
    """Whether an observation shows a run at work: not the rest that a run leaves when it ends.

    Example:
        >>> from anabranch.events import BatchTimes
        >>> times = BatchTimes(1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        >>> second = Observation(1.0, 0, 500, 0, times, 0.0, 0.0, latency_p999_ms=1.0)
        >>> rest = replace(second, at_s=1.1, rows_in=40, times=replace(times, total_s=0.1))
        >>> is_full(second, None), is_full(rest, second), is_full(replace(second, rows_in=0), None)
        (True, False, False)
    """
    # A batch may be short; where there are none, periods are equal but for the last.
    whole = seen.in_batches or before is None or 2 * seen.times.total_s >= before.times.total_s
    return seen.rows_in > 0 and whole


def steady(seen: Observation | None, before: Observation | None) -> Observation | None:
    """The observation to show: the one before instead of the rest that a run leaves at its end."""
    if seen is None or before is None or seen.in_batches or is_full(seen, before):
        return seen
    is_rest = 2 * seen.times.total_s < before.times.total_s
    return with_counts(before, seen) if is_rest else seen


def with_counts(full: Observation, last: Observation) -> Observation:
    """An observation with what the last one counted since the start: keys, lost rows."""
    counted = {step.step: step for step in last.steps}
    steps = tuple(
        replace(
            now,
            rows_in=step.rows_in,
            rows_out=step.rows_out,
            busy_s=step.busy_s,
            waited_s=step.waited_s,
        )
        for step in full.steps
        for now in [counted.get(step.step, step)]
    )
    return replace(full, steps=steps)


def rates(minute: Sequence[ReadSpan], columns: int) -> list[float | None]:
    """Rows a second over the last minute, oldest first; None where there was no run yet.

    Example:
        >>> rates([ReadSpan(0.0, 15.0, 300), ReadSpan(15.0, 30.0, 600)], 4)
        [None, None, 20.0, 40.0]
    """
    if not minute:
        return [None] * columns
    width_s = MINUTE_S / columns
    first_s = minute[-1].ended_s - MINUTE_S
    rows, seconds = [0.0] * columns, [0.0] * columns
    for stretch in minute:
        length_s = stretch.ended_s - stretch.began_s
        if length_s <= 0:
            continue
        first = max(0, int((stretch.began_s - first_s) // width_s))
        last = min(columns - 1, int((stretch.ended_s - first_s) // width_s))
        for column in range(first, last + 1):
            left_s = first_s + column * width_s
            overlap_s = min(stretch.ended_s, left_s + width_s) - max(stretch.began_s, left_s)
            if overlap_s > 0:
                rows[column] += stretch.rows * overlap_s / length_s
                seconds[column] += overlap_s
    return [n / s if s > 0 else None for n, s in zip(rows, seconds, strict=True)]
