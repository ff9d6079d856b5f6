"""Iterative scaling: place, replicate the bottleneck next to the sinks, again (algorithm 1).

A bottleneck is offered more than it handles; it gets ⌈offered / handled⌉ more replicas. A source
that reads as fast as it can is a bottleneck when nobody else is. Where a placement fails, the unit
that did not fit is replicated further (appendix C.1), so that smaller pieces may fit.

Deviation, of the kind that C.1 suggests: scaling starts from a part of all replicas, dealt out by
work, not from one of each.
"""

from __future__ import annotations

from math import ceil

import numpy as np

from anabranch.planning.models.placed_rates import EVENLY, BatchRates, Counts, RateModel
from anabranch.planning.planners.search.placement_branches import place
from anabranch.planning.planners.search.placement_moves import Room

STARTING_SHARE = 0.6
MOST_NODES = 15
MOST_ROUNDS = 30


def scale(model: RateModel, room: Room, compress: int = 5) -> Counts | None:
    """The best placement on the way from few replicas to many; None if none fits."""
    replicas = by_work(model, room, STARTING_SHARE)
    best: Counts | None = None
    best_rate = 0.0
    for _ in range(MOST_ROUNDS):
        placed = place(model, replicas, compress, MOST_NODES + sum(replicas) // compress)
        if placed.counts is None:
            wanted = [] if placed.stuck is None else [(placed.stuck, 1)]
        else:
            rates = model.rates(placed.counts[None])
            if float(rates.carried[0]) > best_rate:
                best, best_rate = placed.counts, float(rates.carried[0])
            wanted = bottlenecks(model, rates)
        if not _grow(replicas, wanted, room):
            break
    return best


def bottlenecks(model: RateModel, rates: BatchRates) -> list[tuple[int, int]]:
    """Units offered more than they handle with the replicas to add, the nearest to sinks first."""
    offered, handled = rates.arriving[0].sum(axis=1), rates.processed[0].sum(axis=1)
    found = [
        (unit, ceil(float(offered[unit] / handled[unit])))
        for unit in reversed(range(len(handled)))
        if offered[unit] > handled[unit] * (1 + EVENLY)
    ]
    if model.input_per_ns is None:
        found += [(unit, 1) for unit in model.workload.sources]
    return found


def _grow(replicas: list[int], wanted: list[tuple[int, int]], room: Room) -> bool:
    """Replicate the first unit that can be; whether there was one."""
    for unit, more in wanted:
        possible = min(more, room.most[unit] - replicas[unit], room.limit - sum(replicas))
        if possible > 0:
            replicas[unit] += possible
            return True
    return False


def by_work(model: RateModel, room: Room, share: float, fetch_share: float = 0.0) -> list[int]:
    """A part of all replicas, dealt out by what the units have to do.

    Args:
        model: Units and machine.
        room: How many replicas there may be.
        share: Part of them to deal out.
        fetch_share: Part of the mean time to fetch from a socket to count as work.
    """
    distance = fetch_share * float(model.latency[:-1, :-1].mean())
    units = model.workload.units
    fetching = [
        distance * lines if streams else 0.0
        for lines, streams in zip(model.lines, model.workload.into, strict=True)
    ]
    work = np.array(
        [
            visits * (unit.execute_ns + fetch)
            for visits, unit, fetch in zip(model.workload.visits, units, fetching, strict=True)
        ]
    )
    wanted = np.floor(share * room.limit * work / work.sum())
    replicas = [max(1, min(top, int(n))) for top, n in zip(room.most, wanted, strict=True)]
    while sum(replicas) > room.limit:
        replicas[replicas.index(max(replicas))] -= 1
    return replicas
