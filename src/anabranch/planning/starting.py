"""Plans to start from, before anything was measured."""

from __future__ import annotations

from anabranch.flow import Flow
from anabranch.planning.plan import Plan
from anabranch.planning.regions import RegionKind, regions

BATCH_ROWS = 500_000


LOCAL_BATCH_ROWS = 262_144
"""Of the sizes that were measured on one machine this made most applications fastest."""


def one_of_everything(flow: Flow, batch_rows: int = LOCAL_BATCH_ROWS) -> Plan:
    """One replica of everything: what cannot make anything slower, until it is measured.

    Example:
        >>> from anabranch.apps import word_count
        >>> plan = one_of_everything(word_count.build())
        >>> plan.region("count").replicas, plan.source("lines").batch_rows
        (1, 262144)
    """
    plan = Plan.sequential(flow)
    for source in plan.sources:
        plan = plan.with_source(source.source, batch_rows=batch_rows)
    return plan


def side_by_side(flow: Flow, cores: int, batch_rows: int = BATCH_ROWS) -> Plan:
    """As many replicas as cores wherever several are allowed; batches worth their fixed cost.

    Example:
        >>> from anabranch.apps import word_count
        >>> plan = side_by_side(word_count.build(), cores=2)
        >>> plan.region("count").replicas, plan.source("lines").replicas
        (2, 2)
    """
    plan, sources = Plan.sequential(flow), flow.sources()
    for region in regions(flow):
        if region.kind is RegionKind.SOURCE:
            source = sources[region.name]
            parts = source.parts()
            divisible = len(parts) >= cores or all(source.extent(p).seekable for p in parts)
            readers = cores if region.replicable and divisible else 1
            plan = plan.with_source(region.name, replicas=readers, batch_rows=batch_rows)
        elif region.replicable:
            most = region.buckets if region.mapped else cores
            plan = plan.with_replicas(region.name, min(cores, most))
    return plan
