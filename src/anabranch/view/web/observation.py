"""One observation as the page shows it: what each box is told, and where the bottleneck is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from anabranch.events import (
    Observation,
    RegionMetrics,
    Shape,
    SourceMetrics,
    StepMetrics,
    StreamShape,
)
from anabranch.planning.plan import Plan
from anabranch.view.run_state import Pipeline, bottleneck, busy_shares, serial_seen
from anabranch.view.serial_report import serial_line
from anabranch.view.text import recent_rate_per_s, recent_s
from anabranch.view.web.numbers import moment, short

MOST_BARS = 64


@dataclass(frozen=True)
class Look:
    """What was seen at one moment, under the plan that was in force."""

    seen: Observation
    plan: Plan
    rates: RateWindow


def seen_as_object(look: Look, shape: Shape) -> dict[str, Any]:
    """What was seen, by the names of boxes; see `static/store.js`."""
    seen, plan, rates = look.seen, look.plan, look.rates
    replicas = {r.region: r.replicas for r in plan.regions}
    homes = {step.step: step.region for step in shape.steps}
    serial = serial_line(serial_seen(shape, seen, plan))
    busy, slowest = busy_shares(seen), bottleneck(seen)
    steps = {
        step.step: _step(step, rates, seen.times.total_s, replicas.get(homes.get(step.step, ""), 1))
        for step in seen.steps
    }
    overheads = {(p.region, p.steps): p.overhead_share for p in seen.pipelines}
    return {
        "at_s": moment(seen.at_s),
        "batch": seen.batch if seen.in_batches else None,
        "steps": steps,
        "pipelines": _pipelines(busy, plan),
        "overheads": _pipelines(overheads, plan),
        "busy": _by_region(busy),
        "regions": {r.region: _region(r, plan, rates, seen.in_batches) for r in seen.regions},
        "sources": {each.source: _source(each, rates) for each in seen.sources},
        "traffic": traffic(rates, shape.streams),
        "bottleneck": None if slowest is None else slowest[0],
        "serial": None if serial is None else f"Serial: {serial}",
    }


def traffic(rates: RateWindow, streams: Sequence[StreamShape]) -> list[float | None]:
    """Tuples a second on each stream; None where nobody has counted.

    What a step takes in is known exactly where one stream enters it. Elsewhere it is what the
    producer gave, which counts all of its ports.
    """
    entering = [stream.consumer for stream in streams]
    found: list[float | None] = []
    for stream in streams:
        if stream.consumer in rates.taken and entering.count(stream.consumer) == 1:
            found.append(short(rates.taken[stream.consumer]))
        elif stream.producer in rates.given:
            found.append(short(rates.given[stream.producer]))
        else:
            found.append(short(rates.read.get(stream.producer)))
    return found


def skew(rows: Sequence[int]) -> float | None:
    """How much more than its part the greatest of some has; 1 is even, None without any.

    Example:
        >>> skew([10, 10]), skew([30, 10]), skew([])
        (1.0, 1.5, None)
    """
    return max(rows) * len(rows) / sum(rows) if rows and sum(rows) else None


def _source(source: SourceMetrics, rates: RateWindow) -> dict[str, Any]:
    return {
        "rate_per_s": short(rates.read.get(source.source)),
        "backlog": source.backlog_rows,
        "lag_ms": short(source.lag_ms),
    }


def _step(step: StepMetrics, rates: RateWindow, seconds: float, replicas: int) -> dict[str, Any]:
    return {
        "in_per_s": short(rates.taken.get(step.step)),
        "out_per_s": short(rates.given.get(step.step)),
        "cost_us": short(step.cost_us),
        "selectivity": short(step.selectivity),
        "busy": short(step.busy_s / (seconds * replicas)) if seconds > 0 else None,
        "keys": step.keys,
        "skipped": step.skipped,
        "late": step.late,
    }


def _pipelines(shares: Mapping[Pipeline, float], plan: Plan) -> dict[str, float | None]:
    """Shares by the names that the drawing gives to pipelines; none of an earlier plan."""
    names = {
        (region.region, steps): f"{region.region}/{number}"
        for region in plan.regions
        for number, steps in enumerate(region.pipelines)
    }
    names |= {(s.source, (s.source,)): f"{s.source}/0" for s in plan.sources}
    return {names[key]: short(share) for key, share in shares.items() if key in names}


def _by_region(busy: Mapping[Pipeline, float]) -> dict[str, float | None]:
    """Busy shares of regions: a region is as busy as its busiest pipeline."""
    found: dict[str, float] = {}
    for (region, _), share in busy.items():
        found[region] = max(found.get(region, 0.0), share)
    return {region: short(share) for region, share in found.items()}


def _region(
    region: RegionMetrics, plan: Plan, rates: RateWindow, in_batches: bool
) -> dict[str, Any]:
    owners = next((r.bucket_map for r in plan.regions if r.region == region.region), ())
    by_replica: list[int] = []
    if region.bucket_rows and len(owners) == len(region.bucket_rows):
        by_replica = [0] * (max(owners) + 1)
        for owner, rows in zip(owners, region.bucket_rows, strict=True):
            by_replica[owner] += rows
    hot = region.hottest_key
    return {
        "replicas": region.replicas,
        "rows_per_s": short(rates.regions.get(region.region)),
        # Nothing waits between steps where a batch is worked on whole.
        "queue_rows": None if in_batches else short(region.queue_rows),
        "loaded_bytes": region.loaded_bytes,
        "replica_busy": [short(share) for share in region.replica_busy],
        "replica_rows": by_replica,
        "skew": short(skew(by_replica)),
        "bucket_skew": short(skew(region.bucket_rows)),
        "bars": _bars(region.bucket_rows),
        "hot": None if hot is None else {"key": hot.key, "share": short(hot.share)},
    }


def _bars(rows: Sequence[int]) -> list[int]:
    """Tuples by stretches of buckets, as many as can be drawn."""
    width = -(-len(rows) // MOST_BARS) or 1
    return [sum(rows[n : n + width]) for n in range(0, len(rows), width)]


# Rates by one clock: what boxes, lines and the tile of the page say add up.
#
# It is the terminal's clock, which counts the time between two batches, too.


@dataclass(frozen=True)
class RateWindow:
    """Tuples a second over the newest observations, oldest first.

    Example:
        >>> from anabranch.events import BatchTimes, SourceMetrics
        >>> def batch(at_s, rows):
        ...     times = BatchTimes(0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)  # half of the time
        ...     read = (SourceMetrics("lines", rows, rows / 0.5),)
        ...     return Observation(at_s, 0, rows, 0, times, 0.0, 0.0, sources=read)
        >>> rates = RateWindow((batch(0.5, 100), batch(1.5, 200), batch(2.5, 300)))
        >>> rates.whole, rates.read
        (240.0, {'lines': 240.0})
    """

    recent: Sequence[Observation]

    @property
    def whole(self) -> float | None:
        """Tuples read; None before any observation."""
        return recent_rate_per_s(self.recent) if self.recent else None

    @cached_property
    def read(self) -> Mapping[str, float]:
        """Tuples read, by source."""
        pairs = ((s.source, s.rows) for seen in self.recent for s in seen.sources)
        return self._per_s(pairs)

    @cached_property
    def taken(self) -> Mapping[str, float]:
        """Tuples that steps took in."""
        return self._per_s((s.step, s.rows_in) for seen in self.recent for s in seen.steps)

    @cached_property
    def given(self) -> Mapping[str, float]:
        """Tuples that steps gave, over all ports."""
        return self._per_s((s.step, s.rows_out) for seen in self.recent for s in seen.steps)

    @cached_property
    def regions(self) -> Mapping[str, float]:
        """Tuples that regions took in."""
        return self._per_s(
            (region.region, region.rows_per_s * seen.times.total_s)
            for seen in self.recent
            for region in seen.regions
        )

    def _per_s(self, counts: Iterable[tuple[str, float]]) -> dict[str, float]:
        seconds = recent_s(self.recent)
        found: dict[str, float] = {}
        for name, rows in counts:
            found[name] = found.get(name, 0.0) + rows
        return {name: rows / seconds if seconds > 0 else 0.0 for name, rows in found.items()}
