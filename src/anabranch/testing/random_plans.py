"""Plans drawn at random, for every bound a flow allows."""

from __future__ import annotations

from random import Random

from anabranch.flow import Flow
from anabranch.planning.plan import Plan
from anabranch.planning.regions import RegionKind, regions

MOST_REPLICAS = 4
RANGE_ROWS = (1, 2, 8, 1 << 18)


def random_plan(flow: Flow, rng: Random) -> Plan:
    """Return a plan with any replicas, pipelines and bucket owners that the regions allow."""
    plan = Plan.sequential(flow)
    for region in regions(flow):
        if region.kind is RegionKind.SOURCE:
            if region.replicable:
                plan = plan.with_source(region.name, replicas=rng.randint(1, 2))
            continue
        if region.replicable and rng.random() < 0.8:
            most = min(MOST_REPLICAS, region.buckets) if region.mapped else MOST_REPLICAS
            plan = plan.with_replicas(region.name, rng.randint(1, most))
            plan = _shuffled_owners(plan, region.name, rng)
            if region.kind is RegionKind.SINK:
                plan = plan.with_range_rows(region.name, rng.choice(RANGE_ROWS))
        if len(region.steps) > 1 and rng.random() < 0.6:
            plan = plan.with_pipelines(region.name, *_cut(len(region.steps), rng))
    return plan


def _shuffled_owners(plan: Plan, region: str, rng: Random) -> Plan:
    """Sometimes a lopsided bucket map, as load balancing would make one."""
    own = plan.region(region)
    if not own.bucket_map or rng.random() < 0.5:
        return plan
    return plan.with_bucket_map(region, tuple(rng.randrange(own.replicas) for _ in own.bucket_map))


def _cut(steps: int, rng: Random) -> list[int]:
    lengths = [1]
    for _ in range(steps - 1):
        if rng.random() < 0.5:
            lengths.append(1)
        else:
            lengths[-1] += 1
    return lengths
