"""Plans to start from, before anything was measured."""

from __future__ import annotations

from collections.abc import Collection

from anabranch.flow import Flow
from anabranch.io.source import Source
from anabranch.planning.plan import Plan
from anabranch.planning.regions import Region, RegionKind, regions

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


def readers_side_by_side(flow: Flow, cores: int, batch_rows: int = BATCH_ROWS) -> Plan:
    """Several replicas only where the rows are known to allow it; one of everything else.

    A source that can be divided has as many readers as there are cores. A stateless region that
    reads nothing but such sources has as many replicas, and so has a sink of such rows. Whether
    other regions gain by replicas depends on the keys and on the costs, which nobody knows before
    something was measured.

    Example:
        >>> from anabranch.apps import word_count
        >>> plan = readers_side_by_side(word_count.build(), cores=2)
        >>> plan.source("lines").replicas, plan.region("split").replicas
        (2, 2)
        >>> plan.region("count").replicas
        1
    """
    plan, sources = Plan.sequential(flow), flow.sources()
    divided: set[str] = set()
    wide: set[str] = set()
    for region in regions(flow):
        if region.kind is RegionKind.SOURCE:
            readers = _readers(region, sources[region.name], cores)
            plan = plan.with_source(region.name, replicas=readers, batch_rows=batch_rows)
            if readers > 1:
                divided.add(region.name)
        elif region.kind is RegionKind.STATELESS and _reads_only(flow, region, divided):
            plan = plan.with_replicas(region.name, cores)
            wide.update(region.steps)
        elif region.kind is RegionKind.SINK and _reads_only(flow, region, divided | wide):
            plan = plan.with_replicas(region.name, cores if region.replicable else 1)
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
            readers = _readers(region, sources[region.name], cores)
            plan = plan.with_source(region.name, replicas=readers, batch_rows=batch_rows)
        elif region.replicable:
            most = region.buckets if region.mapped else cores
            plan = plan.with_replicas(region.name, min(cores, most))
            if region.kind is RegionKind.SINK and cores > 1:  # each batch is another one's turn
                plan = plan.with_range_rows(region.name, batch_rows)
    return plan


def _readers(region: Region, source: Source, cores: int) -> int:
    """As many readers as cores, if the source can be divided among them."""
    parts = source.parts()
    divisible = len(parts) >= cores or all(source.extent(part).seekable for part in parts)
    return cores if region.replicable and divisible else 1


def _reads_only(flow: Flow, region: Region, steps: Collection[str]) -> bool:
    """Return whether every input of a region comes from one of these steps."""
    inputs = flow.graph.steps[region.steps[0]].inputs
    return all(each is not None and each.step in steps for each in inputs)
