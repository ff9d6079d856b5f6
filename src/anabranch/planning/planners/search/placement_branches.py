"""Branch and bound over placements of given replicas (BriskStream, §4 and algorithm 2).

A node is a placement with replicas still *anywhere*: next to all their producers and consumers,
asking nothing of any socket. Its rates are the bounding function. The three heuristics:

- Collocation: what is decided next is where the two ends of a stream go, not a single unit.
- Best fit and no redundancy: where all producers are placed, only the best way is followed; of
  ways with the same bound that load sockets alike, only one.
- Compression: replicas of a unit are placed in groups.

The paper takes the bounding function for a true bound. It is none when a producer is on several
sockets: made faster where it is far, it sends more from afar, and its consumer gets slower. Pruning
by it is therefore a heuristic, too.

Deviations: decisions are taken in the order of the streams, so that rates of producers are known
when a consumer is placed; two bounds are the same if they differ by less than a hundredth, since
latencies of a real machine, as measured, are never quite equal; and the number of nodes is
bounded, the best child of a node being looked at first, so that the search always ends with the
best placement seen. Of equally good sockets, the fullest comes first ("least remaining").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

from anabranch.planning.models.placed_rates import BatchRates, Counts, RateModel
from anabranch.planning.planners.search.placing import unplaced

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
