"""Room: how far regions and sources may still grow, by what the flow and the limits allow."""

from __future__ import annotations

from anabranch.adapt.guards import beyond
from anabranch.adapt.seen import Seen
from anabranch.plan.plan import Plan


def most_replicas(seen: Seen, region: str) -> int:
    """The most replicas that a region, which may be a source, can have by itself."""
    found = seen.topology.region(region)
    if not found.replicable:
        return 1
    return max(
        1, min(seen.limits.replicas, found.buckets if found.mapped else seen.limits.replicas)
    )


def one_more(seen: Seen, plan: Plan, region: str) -> Plan | None:
    """A plan with one more replica of a region; None where there is no room for it."""
    replicas = plan.region(region).replicas + 1
    if replicas > most_replicas(seen, region):
        return None
    grown = plan.with_replicas(region, replicas)
    return grown if beyond(grown, seen.limits) is None else None


def one_more_reader(seen: Seen, plan: Plan, source: str) -> Plan | None:
    """A plan with one more reader of a source; None where there is no room for it."""
    readers = plan.source(source).replicas + 1
    if readers > most_replicas(seen, source):
        return None
    grown = plan.with_source(source, replicas=readers)
    return grown if beyond(grown, seen.limits) is None else None
