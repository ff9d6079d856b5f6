"""What plans of a flow promise on Spark, for those who plan while it runs.

There is no structure to exploit as on threads: stages follow each other, and what is dealt out
anew is a stage of its own. So plans are improved one setting at a time, as the model of a batch
(`planning/models/spark.py`) says, until none helps. The batch is a lever like the others: a longer
one pays its fixed cost less often, and makes everybody wait longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from anabranch.engines.spark.prediction import predicted_batch_s
from anabranch.flow import Flow
from anabranch.planning.models.model import Bounds
from anabranch.planning.models.spark import Slots, SparkCosts
from anabranch.planning.plan import Plan
from anabranch.planning.profile import Profile
from anabranch.planning.regions import Region, RegionKind, regions

USUAL = SparkCosts(
    batch_s=0.15,
    stage_s=0.03,
    task_s=0.02,
    shuffle_row_ns=145.0,
    shuffle_byte_ns=5.9,
    sink_byte_ns=20.0,
)
"""What Spark took on the machine that it was measured on; `anabranch calibrate` measures others."""

LONGEST_BATCH_S = 2.0
"""Results of a batch are seen when it is over, so it must not grow without end."""
BATCH_ROWS = tuple(2**n for n in range(14, 23))
WORTH = 0.02
"""A setting that promises less than this part more is not worth a longer batch or a thread."""
MOST_ROUNDS = 8
ENDLESS = Bounds(1_000_000, 1_000_000)
WAVES = 2
"""More tasks than slots may balance uneven ones."""


class SparkModel:
    """What plans promise on Spark; see `Model`.

    Args:
        flow: The application.
        slots: Tasks at once, and cores for them.
        costs: What Spark takes.
    """

    def __init__(self, flow: Flow, slots: Slots, costs: SparkCosts = USUAL) -> None:
        self._flow, self._slots, self._costs = flow, slots, costs
        self._regions = regions(flow)

    def rate_per_s(self, profile: Profile, plan: Plan) -> float:
        """Rows of a batch by its seconds."""
        rows = sum(source.batch_rows for source in plan.sources)
        return rows / self.batch_s(profile, plan)

    def batch_s(self, profile: Profile, plan: Plan) -> float:
        """Seconds of a full batch."""
        rows = sum(source.batch_rows for source in plan.sources)
        return predicted_batch_s(self._flow, plan, profile, self._costs, self._slots, rows)

    def best(
        self,
        profile: Profile,
        plan: Plan,
        rate_per_s: float | None = None,
        bounds: Bounds | None = None,
    ) -> Plan:
        """The best plan from here, then what it does not need taken back again."""
        found = plan
        for _ in range(MOST_ROUNDS):
            better = self._improved(profile, found, bounds or ENDLESS)
            if better == found:
                break
            found = better
        enough = self.rate_per_s(profile, found) * (1 - WORTH)
        wanted = enough if rate_per_s is None else min(rate_per_s, enough)
        return self._pruned(profile, found, wanted)

    def _improved(self, profile: Profile, plan: Plan, bounds: Bounds) -> Plan:
        """One setting after another, each at its best."""
        settings = [self._widths, self._batches]
        settings += [partial(self._replicas, region) for region in self._regions]
        settings += [partial(_pipelines, region) for region in self._regions]
        for ways in settings:
            within = [way for way in ways(plan) if _within(way, bounds)]
            allowed = [way for way in within if self.batch_s(profile, way) <= LONGEST_BATCH_S]
            plan = max([plan, *allowed], key=partial(self.rate_per_s, profile))
        return plan

    def _pruned(self, profile: Profile, plan: Plan, wanted: float) -> Plan:
        """Shorter batches and fewer threads, as long as the rate is still there."""
        settings = [self._batches]
        settings += [partial(_pipelines, region) for region in self._regions]
        settings += [partial(self._replicas, region) for region in self._regions]
        for ways in settings:
            cheaper = (way for way in ways(plan) if _price(way) < _price(plan))
            fast = (way for way in cheaper if self.rate_per_s(profile, way) >= wanted)
            plan = min(fast, key=_price, default=plan)
        return plan

    # Plans that differ in one setting

    def _widths(self, plan: Plan) -> Iterator[Plan]:
        """Everything equally wide: neighbours of one width share tasks."""
        for width in range(1, self._slots.tasks + 1):
            wide = plan
            for region in self._regions:
                wide = _with_width(wide, region, width) or wide
            yield wide

    def _replicas(self, region: Region, plan: Plan) -> Iterator[Plan]:
        for width in range(1, WAVES * self._slots.tasks + 1):
            wide = _with_width(plan, region, width)
            if wide is not None:
                yield wide

    def _batches(self, plan: Plan) -> Iterator[Plan]:
        for rows in BATCH_ROWS:
            other = plan
            for source in plan.sources:
                other = other.with_source(source.source, batch_rows=rows)
            yield other


def _pipelines(region: Region, plan: Plan) -> Iterator[Plan]:
    """One pipeline, or two."""
    if region.kind is RegionKind.SOURCE or len(region.steps) < 2:
        return
    yield plan.with_pipelines(region.name, len(region.steps))
    for cut in range(1, len(region.steps)):
        yield plan.with_pipelines(region.name, cut, len(region.steps) - cut)


def _with_width(plan: Plan, region: Region, width: int) -> Plan | None:
    """A plan with so many replicas of a region; None where there cannot be as many."""
    if width > 1 and (not region.replicable or (region.mapped and width > region.buckets)):
        return None
    if region.kind is RegionKind.SOURCE:
        return plan.with_source(region.name, replicas=width)
    return plan.with_replicas(region.name, width)


def _within(plan: Plan, bounds: Bounds) -> bool:
    widest = max([r.replicas for r in plan.regions] + [s.replicas for s in plan.sources])
    return widest <= bounds.replicas and _price(plan)[1] <= bounds.threads


def _price(plan: Plan) -> tuple[int, int]:
    """Rows that wait for each other, and threads."""
    working = sum(region.replicas * len(region.pipelines) for region in plan.regions)
    readers = sum(source.replicas for source in plan.sources)
    return sum(source.batch_rows for source in plan.sources), working + readers
