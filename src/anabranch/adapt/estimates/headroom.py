"""Headroom: how far regions and sources may still grow, by what the flow and the limits allow."""

from __future__ import annotations

from anabranch.adapt.guards import beyond
from anabranch.adapt.history import History
from anabranch.planning.plan import Plan


def one_more(seen: History, plan: Plan, region: str) -> Plan | None:
    """A plan with one more replica of a region; None where there is no room for it."""
    replicas = plan.region(region).replicas + 1
    if replicas > seen.most_replicas(region):
        return None
    grown = plan.with_replicas(region, replicas)
    return grown if beyond(grown, seen.limits) is None else None


def one_more_reader(seen: History, plan: Plan, source: str) -> Plan | None:
    """A plan with one more reader of a source; None where there is no room for it."""
    readers = plan.source(source).replicas + 1
    if readers > seen.most_replicas(source):
        return None
    grown = plan.with_source(source, replicas=readers)
    return grown if beyond(grown, seen.limits) is None else None
