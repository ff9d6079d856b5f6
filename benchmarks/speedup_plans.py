"""The plans that `speedup.py` chooses from: those for one core, and those for two.

The local engine places regions on workers; Spark lays a plan out itself, so there replicas are all
that plans differ in. On Spark a batch has the same share of every source.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from anabranch.engines.spark.layout import with_ranges
from anabranch.flow import Flow
from anabranch.planning.bucket_map import rebalance_by_load
from anabranch.planning.plan import Plan
from anabranch.planning.regions import RegionKind, region_edges, regions
from anabranch.planning.starting import readers_side_by_side, side_by_side

LOCAL_BATCH_ROWS = (16_384, 65_536, 262_144)
LEAST_BATCHES = 16
"""Fewer batches than these would leave nothing to do side by side."""
SPARK_BATCHES = (8, 4)
"""In how many batches Spark reads everything; there is work for some seconds in all."""
BUSY_SHARE = 0.1
"""From this part of all work on, a region is busy."""
MOST_PLANS = 8
IMBALANCE = 0.02
MOST_REGIONS = 12
"""Regions whose worker is chosen; the others follow the region upstream."""
HAND_OVER_SHARE = 0.02
"""What a stream between two workers costs, as a part of all work."""


@dataclass(frozen=True)
class NamedPlan:
    """A plan, what tables call it, and further arguments of `ab.start` that belong to it."""

    name: str
    plan: Plan
    options: Mapping[str, Any] = field(default_factory=dict)


def batch_sizes(rows: Mapping[str, int]) -> list[int]:
    """Rows a batch that are worth a try, ascending, for sources of so many rows."""
    most = max(1, max(rows.values()) // LEAST_BATCHES)
    sizes = (max(1, most // 4), most) if most <= LOCAL_BATCH_ROWS[0] else LOCAL_BATCH_ROWS
    return sorted({min(size, most) for size in sizes})


def plans_for_one(flow: Flow, sizes: Sequence[int]) -> list[NamedPlan]:
    """One replica of everything, with batches of each size."""
    return [NamedPlan(_batches(size), with_batches(Plan.sequential(flow), size)) for size in sizes]


def plans_for_two(
    flow: Flow,
    workers: int,
    sizes: Sequence[int],
    usual: int,
    busy_s: Mapping[str, float],
) -> list[NamedPlan]:
    """At most `MOST_PLANS` - 1 plans for several cores; `balanced` makes the last one of the best.

    Args:
        flow: What is planned.
        workers: How many cores there are.
        sizes: Rows a batch that are worth a try.
        usual: The size that was best on one core.
        busy_s: Seconds that each step took on one core.
    """
    one = with_batches(Plan.sequential(flow), usual)
    both = side_by_side(flow, workers, usual)
    plans = [
        NamedPlan("apart", apart_by_cost(flow, one, busy_s)),
        NamedPlan("busiest, apart", around_busiest(flow, one, workers, busy_s)),
        NamedPlan("by work", replicate_busiest(flow, one, workers, busy_s, by_work=True)),
        NamedPlan("busiest", replicate_busiest(flow, one, workers, busy_s)),
        NamedPlan("replicas", replace(one, regions=both.regions)),
        *(
            NamedPlan(f"readers and replicas, {_batches(size)}", side_by_side(flow, workers, size))
            for size in sizes[-2:]
        ),
    ]
    different: list[NamedPlan] = []
    for each in plans:
        if all((each.plan, each.options) != (known.plan, known.options) for known in different):
            different.append(each)
    return different[: MOST_PLANS - 1]


def spark_plans_for_one(flow: Flow, rows: Mapping[str, int]) -> list[NamedPlan]:
    """One replica of everything, with sources of so many rows read in some numbers of batches."""
    one = Plan.sequential(flow)
    return [NamedPlan(f"{n} batches", in_batches(one, rows, n)) for n in SPARK_BATCHES]


def spark_plans_for_two(
    flow: Flow, cores: int, best: Plan, busy_s: Mapping[str, float]
) -> list[NamedPlan]:
    """At most `MOST_PLANS` - 1 plans for several cores; `balanced` makes the last one of the best.

    Args:
        flow: What is planned.
        cores: How many there are.
        best: The plan that was best on one core; its batches are kept.
        busy_s: Seconds that each step took there.
    """
    readers = readers_side_by_side(flow, cores)
    wide = side_by_side(flow, cores)
    plans = {
        "readers": readers,
        "readers and clocks": _widened(flow, readers, cores, {RegionKind.CLOCK}),
        "readers and busiest": replicate_busiest(flow, readers, cores, busy_s),
        "readers and busy": _busy_widened(flow, readers, cores, busy_s),
        "busiest": replicate_busiest(flow, best, cores, busy_s),
        "all but sinks": _widened(flow, readers, cores, set(RegionKind) - {RegionKind.SINK}),
        "everything": wide,
    }
    different: dict[str, NamedPlan] = {}
    for name, plan in plans.items():
        for source in best.sources:
            plan = plan.with_source(source.source, batch_rows=source.batch_rows)
        plan = with_ranges(flow, plan)
        different.setdefault(plan.to_json(), NamedPlan(name, plan))
    return list(different.values())


def in_batches(plan: Plan, rows: Mapping[str, int], batches: int) -> Plan:
    """The plan with sources of so many rows read in some batches."""
    for source, count in rows.items():
        plan = plan.with_source(source, batch_rows=-(-count // batches))
    return plan


def _widened(flow: Flow, plan: Plan, replicas: int, kinds: Collection[RegionKind]) -> Plan:
    """The plan with several replicas of all regions of some kinds that may have them."""
    for region in regions(flow):
        if region.kind in kinds and region.kind is not RegionKind.SOURCE and region.replicable:
            most = region.buckets if region.mapped else replicas
            plan = plan.with_replicas(region.name, min(replicas, most))
    return plan


def _busy_widened(flow: Flow, plan: Plan, replicas: int, busy_s: Mapping[str, float]) -> Plan:
    """The plan with several replicas of every region that takes much of the time."""
    for region in regions(flow):
        spent_s = sum(busy_s.get(step, 0.0) for step in region.steps)
        busy = spent_s >= BUSY_SHARE * sum(busy_s.values())
        if busy and region.replicable and region.kind is not RegionKind.SOURCE:
            plan = plan.with_replicas(region.name, replicas)
    return plan


def balanced(best: NamedPlan, bucket_rows: Mapping[str, Sequence[int]]) -> NamedPlan | None:
    """The best plan with buckets that are owned by load; None where they are as they are.

    Args:
        best: The plan.
        bucket_rows: By region, the tuples that came to each bucket.
    """
    plan = best.plan
    for name, rows in bucket_rows.items():
        own = plan.region(name)
        owners = rebalance_by_load(own.bucket_map, rows, own.replicas, IMBALANCE)
        if owners != own.bucket_map:
            plan = plan.with_bucket_map(name, owners)
    return None if plan == best.plan else replace(best, name=f"{best.name}, balanced", plan=plan)


def with_batches(plan: Plan, size: int) -> Plan:
    """The plan with batches of one size from every source."""
    for source in plan.sources:
        plan = plan.with_source(source.source, batch_rows=size)
    return plan


def apart_by_cost(flow: Flow, plan: Plan, busy_s: Mapping[str, float]) -> Plan:
    """The plan with its regions on two workers that have about the same work.

    Regions with next to no work stay with the region upstream.

    Example:
        >>> from anabranch.apps import word_count
        >>> flow = word_count.build()
        >>> costs = {"lines": 1.0, "split": 2.0, "count.combine": 1.0, "count": 2.0, "out": 1.0}
        >>> plan = apart_by_cost(flow, Plan.sequential(flow), costs)
        >>> plan.region("split").workers, plan.region("count").workers
        ((0,), (1,))
    """
    found = regions(flow)
    costs = {r.name: sum(busy_s.get(step, 0.0) for step in r.steps) for r in found}
    edges = region_edges(flow, found)
    hand_over_s = HAND_OVER_SHARE * sum(costs.values())
    heavy = sorted(costs, key=lambda name: -costs[name])[:MOST_REGIONS]
    upstream = {edge.consumer: edge.producer for edge in reversed(edges)}

    def placed(workers: Sequence[int]) -> dict[str, int]:
        where = dict(zip(heavy, workers, strict=True))
        for region in found:
            if region.name not in where:
                where[region.name] = where.get(upstream.get(region.name, ""), 0)
        return where

    def slowest(where: Mapping[str, int]) -> float:
        loads = [sum(costs[name] for name in where if where[name] == each) for each in (0, 1)]
        crossed = sum(where[edge.producer] != where[edge.consumer] for edge in edges)
        return max(loads) + hand_over_s * crossed

    choices = product((0,), *[(0, 1)] * (len(heavy) - 1))
    best = min((placed(workers) for workers in choices), key=slowest)
    turned = best[found[0].name]
    for name, worker in best.items():
        plan = plan.with_workers(name, worker ^ turned)
    return plan


def replicate_busiest(
    flow: Flow, plan: Plan, replicas: int, busy_s: Mapping[str, float], *, by_work: bool = False
) -> Plan:
    """The plan with several replicas of the busiest region that may have them.

    Args:
        flow: What is planned.
        plan: One replica of everything.
        replicas: How many the region gets.
        busy_s: Seconds that each step took on one core.
        by_work: Whether the replica beside all other regions gets fewer buckets, so that all
            workers have as much to do.

    Example:
        >>> from anabranch.apps import word_count
        >>> flow = word_count.build()
        >>> one, costs = Plan.sequential(flow), {"split": 1.0, "count": 4.0}
        >>> replicate_busiest(flow, one, 2, costs, by_work=True).region("count").bucket_map.count(0)
        96
    """
    possible = [r for r in regions(flow) if r.replicable and r.kind is not RegionKind.SOURCE]
    if not possible:
        return plan
    costs = {r.name: sum(busy_s.get(step, 0.0) for step in r.steps) for r in regions(flow)}
    busiest = max(possible, key=lambda r: costs[r.name])
    plan = plan.with_replicas(busiest.name, replicas)
    if not (by_work and busiest.mapped and costs[busiest.name]):
        return plan
    others = sum(costs.values()) - costs[busiest.name]
    first = max(0.0, (costs[busiest.name] - (replicas - 1) * others) / replicas)
    count = max(1, round(busiest.buckets * first / costs[busiest.name]))
    owners = [0] * count + [1 + n % (replicas - 1) for n in range(busiest.buckets - count)]
    return plan.with_bucket_map(busiest.name, tuple(owners))


def around_busiest(flow: Flow, plan: Plan, replicas: int, busy_s: Mapping[str, float]) -> Plan:
    """Several replicas of the busiest region; what is downstream of it is on the last worker.

    Example:
        >>> from anabranch.apps import word_count
        >>> flow = word_count.build()
        >>> plan = around_busiest(flow, Plan.sequential(flow), 2, {"split": 2.0})
        >>> plan.region("split").replicas, plan.region("count").workers
        (2, (1,))
    """
    wide = replicate_busiest(flow, plan, replicas, busy_s)
    names = [region.name for region in regions(flow)]
    busiest = next((each.region for each in wide.regions if each.replicas > 1), names[-1])
    for name in names[names.index(busiest) + 1 :]:
        wide = wide.with_workers(name, replicas - 1)
    return wide


def _batches(size: int) -> str:
    return f"{size:,} rows a batch"
