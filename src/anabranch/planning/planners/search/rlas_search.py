"""The search behind `rlas` and its variants that believe in a fixed fetching time.

The printed algorithms (scaling, branch and bound) give a first plan. On the paper's applications it
is a tenth to a fifth below the best that is found here: groups of replicas are placed greedily
along the streams, and scaling only ever adds. So three things are done that the paper
does not do, all within a budget of placements looked at:

- further starts: sockets filled one after the other in the order of the streams, for a few guesses
  of what fetching adds to the work;
- local improvement of every start: replicas move, change their unit, come or go;
- with what is left of the budget, the best plan is shaken and improved again and again.

The best plan of all is kept, one that satisfies every constraint before any that does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, log

import numpy as np
from numpy.typing import NDArray

from anabranch.planning.models.placed_rates import EVENLY, BatchRates, Counts, RateModel
from anabranch.planning.planners.search.placement_moves import (
    Budget,
    SearchLimits,
    filled,
    improve,
    shaken,
    worth,
)
from anabranch.planning.planners.search.placing import unplaced

BUDGET = 1_200_000
"""Units of placements to look at: less than a second."""

GUESSES = ((0.9, 0.5), (0.9, 0.0), (0.97, 1.25))
"""Part of all replicas to begin with, and part of the mean fetching time to count as work."""

SHAKES = 4
MOST_SHAKEN = 200


def search(model: RateModel, room: SearchLimits, compress: int = 5, seed: int = 0) -> Counts:
    """Replicas by unit and socket: the best plan that was found.

    Args:
        model: What to believe.
        room: How many replicas there may be.
        compress: Replicas of a unit that branch and bound places together.
        seed: Of the choices that are drawn.
    """
    draw = np.random.default_rng(seed)
    budget = Budget(BUDGET)
    best, best_worth = None, -np.inf
    for start in starts(model, room, compress):
        found = improve(model, start, room, budget, draw)
        if (value := _worth(model, found, room)) > best_worth:
            best, best_worth = found, value
    assert best is not None, "there is always a start"
    for _ in range(MOST_SHAKEN):
        if budget.left <= 0:
            break
        found = improve(model, shaken(best, room, SHAKES, draw), room, budget, draw)
        if (value := _worth(model, found, room)) > best_worth:
            best, best_worth = found, value
    return best


def starts(model: RateModel, room: SearchLimits, compress: int) -> Iterator[Counts]:
    """Where improvement begins: the printed algorithm's plan, then simple ones."""
    printed = scale(model, room, compress)
    if printed is not None:
        yield printed
    for share, fetching in GUESSES:
        replicas = by_work(model, room, share, fetching)
        yield filled(replicas, nearest_first(model), -(-room.limit // model.sockets))


def nearest_first(model: RateModel) -> list[int]:
    """Sockets in an order in which each is the nearest to those before it."""
    latency = model.latency[:-1, :-1]
    order = [0]
    while len(order) < model.sockets:
        away = latency[order].sum(axis=0)
        away[order] = np.inf
        order.append(int(away.argmin()))
    return order


def _worth(model: RateModel, counts: Counts, room: SearchLimits) -> float:
    return float(worth(model.rates(counts[None]), room)[0])


# Iterative scaling: place, replicate the bottleneck next to the sinks, again (algorithm 1).
#
# A bottleneck is offered more than it handles; it gets ⌈offered / handled⌉ more replicas. A source
# that reads as fast as it can is a bottleneck when nobody else is. Where a placement fails, the
# unit that did not fit is replicated further (appendix C.1), so that smaller pieces may fit.
#
# Deviation, of the kind that C.1 suggests: scaling starts from a part of all replicas, dealt out by
# work, not from one of each.

STARTING_SHARE = 0.6
MOST_NODES = 15
MOST_ROUNDS = 30


def scale(model: RateModel, room: SearchLimits, compress: int = 5) -> Counts | None:
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


def _grow(replicas: list[int], wanted: list[tuple[int, int]], room: SearchLimits) -> bool:
    """Replicate the first unit that can be; whether there was one."""
    for unit, more in wanted:
        possible = min(more, room.most[unit] - replicas[unit], room.limit - sum(replicas))
        if possible > 0:
            replicas[unit] += possible
            return True
    return False


def by_work(
    model: RateModel, room: SearchLimits, share: float, fetch_share: float = 0.0
) -> list[int]:
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


# Branch and bound over placements of given replicas (BriskStream, §4 and algorithm 2).
#
# A node is a placement with replicas still *anywhere*: next to all their producers and consumers,
# asking nothing of any socket. Its rates are the bounding function. The three heuristics:
#
# - Collocation: what is decided next is where the two ends of a stream go, not a single unit.
# - Best fit and no redundancy: where all producers are placed, only the best way is followed; of
#   ways with the same bound that load sockets alike, only one.
# - Compression: replicas of a unit are placed in groups.
#
# The paper takes the bounding function for a true bound. It is none when a producer is on several
# sockets: made faster where it is far, it sends more from afar, and its consumer gets slower.
# Pruning by it is therefore a heuristic, too.
#
# Deviations: decisions are taken in the order of the streams, so that rates of producers are known
# when a consumer is placed; two bounds are the same if they differ by less than a hundredth, since
# latencies of a real machine, as measured, are never quite equal; and the number of nodes is
# bounded, the best child of a node being looked at first, so that the search always ends with the
# best placement seen. Of equally good sockets, the fullest comes first ("least remaining").

SAME = 0.01
"""Bounds that differ by less than this part are equal to the search."""


@dataclass(frozen=True)
class Placed:
    """What the search found.

    Attributes:
        counts: Replicas by unit and socket; None if no placement satisfies the constraints.
        stuck: Unit that did not fit anywhere when the search went deepest; None if all did.
        nodes: How many nodes were looked into.
    """

    counts: Counts | None
    stuck: int | None
    nodes: int


def place(model: RateModel, replicas: Sequence[int], compress: int, most_nodes: int) -> Placed:
    """The best placement that satisfies every constraint, within so many nodes."""
    return _Search(model, compress).run(unplaced(replicas, model.sockets), most_nodes)


class _Search:
    def __init__(self, model: RateModel, compress: int) -> None:
        self.model = model
        self.compress = compress
        self.streams = model.workload.streams
        self.into = model.workload.into
        self.anywhere = model.sockets
        self.deepest = np.inf
        self.stuck: int | None = None

    def run(self, root: Counts, most_nodes: int) -> Placed:
        best: Counts | None = None
        best_rate = 0.0
        seen: set[bytes] = set()
        stack = [(np.inf, root)]
        nodes = 0
        while stack and nodes < most_nodes:
            bound, node = stack.pop()
            if bound <= best_rate:
                continue
            if not node[:, self.anywhere].any():
                best, best_rate = node[:, : self.anywhere], bound
                continue
            nodes += 1
            for child in self.children(node):
                key = child[1].tobytes()
                if key not in seen:
                    seen.add(key)
                    stack.append(child)
        return Placed(best, None if best is not None else self.stuck, nodes)

    def children(self, node: Counts) -> list[tuple[float, Counts]]:
        """Ways to take the next decision, the best one last."""
        units = self.decision(node)
        ways = self.ways(node, units)
        rates = self.model.rates(ways)
        fits = rates.fits
        if not fits.any():
            self.remember_stuck(node, units)
            return []
        near = fits & self.together(ways - node, units)
        settled = self.settled(node, units)
        chosen = near if settled and near.any() else fits
        order = self.order(rates, np.flatnonzero(chosen).tolist())
        kept = order[:1] if settled else self.without_equals(ways, rates, order)
        return [(float(rates.carried[way]), ways[way]) for way in reversed(kept)]

    def decision(self, node: Counts) -> tuple[int, ...]:
        """The units whose next groups are placed now: ends of a stream, or what is left over."""
        waiting = node[:, self.anywhere] > 0
        for stream in self.streams:
            ends = tuple(u for u in (stream.producer, stream.consumer) if waiting[u])
            if ends:
                return ends
        return (int(np.flatnonzero(waiting)[0]),)

    def settled(self, node: Counts, units: tuple[int, ...]) -> bool:
        """Whether nothing placed later can change what the units get."""
        left = node[:, self.anywhere].copy()
        for unit in units:
            left[unit] = max(0.0, left[unit] - self.compress)
        producers = {s.producer for unit in units for s in self.into[unit]}
        return not any(left[producer] for producer in producers)

    def ways(self, node: Counts, units: tuple[int, ...]) -> Counts:
        """All ways to place the next group of each unit."""
        grid = np.indices((self.anywhere,) * len(units)).reshape(len(units), -1)
        ways = np.repeat(node[None], grid.shape[1], axis=0)
        for unit, sockets in zip(units, grid, strict=True):
            group = min(self.compress, node[unit, self.anywhere])
            ways[:, unit, self.anywhere] -= group
            ways[np.arange(len(sockets)), unit, sockets] += group
        return ways

    def together(self, added: Counts, units: tuple[int, ...]) -> NDArray[np.bool_]:
        """Which ways put all the units on one socket."""
        used = (added[:, list(units), : self.anywhere] > 0).any(axis=1).sum(axis=1)
        return np.asarray(used == 1)

    def order(self, rates: BatchRates, chosen: list[int]) -> list[int]:
        """The best bound first; of equals, what leaves the least room on the sockets it uses."""
        loads = np.sort(rates.cpu, axis=1)[:, ::-1]
        bounds = rates.carried
        return sorted(
            chosen,
            key=lambda way: (-self.rounded(float(bounds[way])), *(-loads[way]).tolist(), way),
        )

    def without_equals(self, ways: Counts, rates: BatchRates, order: list[int]) -> list[int]:
        kept: dict[tuple[int, bytes], int] = {}
        for way in order:
            loads = np.sort(ways[way].sum(axis=0)[: self.anywhere])
            kept.setdefault((self.rounded(float(rates.carried[way])), loads.tobytes()), way)
        return list(kept.values())

    @staticmethod
    def rounded(rate: float) -> int:
        return round(log(max(rate, 1e-300)) / SAME)

    def remember_stuck(self, node: Counts, units: tuple[int, ...]) -> None:
        left = float(node[:, self.anywhere].sum())
        if left < self.deepest:
            self.deepest, self.stuck = left, units[-1]
