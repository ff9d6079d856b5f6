"""RLAS with a certificate: a plan, and a bound that no plan within the replica limit exceeds.

The bound comes from linear programs (HiGHS) that every plan satisfies, narrowed down by branch and
bound: `search/placement_relaxation.py` says why it holds. It is over
all replica counts, placements and overloads of the model that `rlas` uses. Where the relaxation
would have units is one more place to start a plan from; the better plan is the answer.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from anabranch.planning.answer import Answer
from anabranch.planning.models.placed_rates import Counts, Floats, RateModel
from anabranch.planning.planners.planner import Problem
from anabranch.planning.planners.search.placement_moves import Budget, SearchLimits, improve, worth
from anabranch.planning.planners.search.placement_relaxation import Relaxation, Relaxed, ShareBounds
from anabranch.planning.planners.search.placing import Placing
from anabranch.planning.planners.search.rlas_search import by_work, search

# An upper bound on what any plan can promise, by branch and bound over a relaxation.
#
# The relaxation (`placement_relaxation.py`) treats sockets that are alike, alike, and so would have
# every unit a little everywhere and yet next to everything. Branching on how much of a unit is on a
# socket takes that away. A node is a box of shares with the least rate that is proved impossible in
# it; the bound is the greatest of them. The node with the greatest rate is split next, at the share
# whose products are farthest from products, weighted by what fetching costs there; where few
# replicas are allowed, first at a number of replicas that is not whole. Before that, cuts that hold
# everywhere are added as long as they help.
#
# Effort is bounded by the size of all linear programs, not by a clock, so that the same question
# gets the same answer.

STEP = 0.98
"""Rates are tried this factor apart."""

EFFORT = 1_000_000
"""Coefficients of all linear programs together: five to twenty seconds."""

ROOT_ROUNDS, NODE_ROUNDS = 6, 1
"""How often a program is sharpened by cuts before a rate counts as possible."""

CLOSE = 1.002
"""A bound that is so close to the plan's rate is close enough."""

FEW, BROKEN = 16, 1e-4
"""Up to so many replicas, numbers of replicas that are not whole are split first."""

NARROW = 0.02
"""Shares that are known so well are not split."""


@dataclass(frozen=True)
class Bounded:
    """A bound on rates, and where the relaxation would have units.

    Attributes:
        rate: No plan brings the application to more.
        shares: Of the relaxation's last solution, by unit and socket; None without one.
    """

    rate: float
    shares: Floats | None


@dataclass(frozen=True)
class _Node:
    rate: float
    box: ShareBounds
    found: Relaxed


class _Search:
    def __init__(self, model: RateModel, room: SearchLimits, reached: float, effort: int) -> None:
        self.relaxation = Relaxation(model, room)
        self.reached = reached
        self.effort = effort

    @property
    def tired(self) -> bool:
        return self.relaxation.entries >= self.effort

    def solve(self, rate: float, box: ShareBounds, rounds: int) -> Relaxed:
        found = self.relaxation.solve(rate, box)
        for _ in range(rounds):
            if found.impossible or self.tired or not self.relaxation.sharpen(found):
                break
            found = self.relaxation.solve(rate, box)
        return found

    def lowered(self, rate: float, box: ShareBounds, inherited: Relaxed, rounds: int) -> _Node:
        """A node, its rate lowered as long as that is proved impossible."""
        found = inherited
        while rate > self.reached and not self.tired:
            lower = max(rate * STEP, self.reached)
            found = self.solve(lower, box, rounds)
            if not found.impossible:
                break
            rate = lower
        return _Node(rate, box, found)

    def root(self) -> _Node:
        """All plans; first halve the way from the plan's rate to the ideal one, without cuts."""
        box = self.relaxation.whole
        high, low = self.relaxation.ideal(), self.reached
        found = Relaxed(False)
        while high > low / STEP and not self.tired:
            middle = float(np.sqrt(high * low))
            tried = self.relaxation.solve(middle, box)
            if tried.impossible:
                high = middle
            else:
                low, found = middle, tried
        return self.lowered(max(high, self.reached), box, found, ROOT_ROUNDS)

    def run(self) -> Bounded:
        root = self.root()
        order = count()
        heap = [(-root.rate, next(order), root)]
        shares = root.found.shares
        while not self.tired and -heap[0][0] > self.reached * CLOSE:
            node = heap[0][2]
            parts = self.split(node)
            if not parts:
                break
            heapq.heappop(heap)
            for box in parts:
                child = self.lowered(node.rate, box, node.found, NODE_ROUNDS)
                heapq.heappush(heap, (-child.rate, next(order), child))
            shares = node.found.shares
        return Bounded(-heap[0][0], shares)

    def split(self, node: _Node) -> tuple[ShareBounds, ...]:
        """Two boxes that together have all plans of the node's."""
        found = node.found
        if found.shares is None or found.replicas is None or found.products is None:
            return ()
        if self.relaxation.room.limit <= FEW:
            broken = np.abs(found.replicas - np.round(found.replicas))
            where = _greatest(broken)
            if broken[where] > BROKEN:
                return node.box.whole_numbers(where, float(found.replicas[where]))
        widths = node.box.high - node.box.low
        wrong = np.where(widths > NARROW, widths * self.wrongness(found.shares, found.products), 0)
        where = _greatest(wrong)
        if wrong[where] <= 0:
            return ()
        return node.box.halves(where, float(node.box.low[where] + node.box.high[where]) / 2)

    def wrongness(self, shares: Floats, products: dict[tuple[int, int], Floats]) -> Floats:
        """How far from products of shares the program's are, weighted by cache lines."""
        relaxation = self.relaxation
        wrong = np.zeros(shares.shape)
        for streams in relaxation.fetching:
            for s in streams:
                product = np.outer(shares[s.producer], shares[s.consumer])
                cost = relaxation.visits[s.consumer] * relaxation.model.lines[s.consumer]
                off = np.abs(products[s.producer, s.consumer] - product) * cost
                wrong[s.producer] += off.sum(axis=1)
                wrong[s.consumer] += off.sum(axis=0)
        return wrong


def _greatest(values: Floats) -> tuple[int, int]:
    unit, socket = np.unravel_index(int(values.argmax()), values.shape)
    return int(unit), int(socket)


def bound(model: RateModel, room: SearchLimits, reached: float, effort: int = EFFORT) -> Bounded:
    """A rate that no plan can exceed, in tuples that the application takes in per nanosecond.

    Args:
        model: The true model.
        room: How many replicas there may be.
        reached: The rate of a plan that is known.
        effort: Coefficients of all linear programs together.
    """
    return _Search(model, room, reached, effort).run()


IMPROVEMENT = 200_000


def rlas_certified(
    problem: Problem,
    compress: int = 5,
    input_rate: float | None = None,
    seed: int = 0,
    effort: int = EFFORT,
) -> Answer:
    """RLAS's plan, or a better one, with a bound on the throughput of all plans.

    The throughput is that of sinks, summed up, at the rate that every unit keeps up with.

    Args:
        problem: What to plan.
        compress: Replicas of a unit that are placed together at first.
        input_rate: Tuples from outside; None for as many as the sources can read.
        seed: Of the choices that the improvement draws.
        effort: Coefficients of all linear programs together; more makes the bound tighter.

    Example:
        >>> from anabranch.planning.machine import Machine
        >>> from anabranch.planning.profile import OperatorProfile, chain
        >>> profile = chain([OperatorProfile("read", 100.0), OperatorProfile("count", 300.0)])
        >>> answer = rlas_certified(Problem(profile, Machine.of_cores(4)))
        >>> answer.throughput <= answer.bound, round(answer.gap, 3)
        (True, 0.0)
    """
    placing = Placing.of(problem, input_rate)
    model, room = placing.model(), placing.room
    plan = search(model, room, compress, seed)
    throughput = float(model.rates(plan[None]).bounded[0])
    reached = throughput / placing.workload.sink_visits
    found = bound(model, room, reached, effort)
    if found.shares is not None:
        start = rounded(by_work(model, room, 0.95, 1.0), found.shares)
        draw = np.random.default_rng(seed)
        other = improve(model, start, room, Budget(IMPROVEMENT), draw)
        plan = better(model, room, plan, other)
    answer = placing.answer(plan)
    most = found.rate * placing.workload.sink_visits * placing.per_ns
    return replace(answer, bound=max(most, answer.throughput))


def rounded(replicas: list[int], shares: Floats) -> Counts:
    """Replicas on sockets by shares, the greatest remainders rounded up."""
    wanted = shares / shares.sum(axis=1, keepdims=True) * np.array(replicas)[:, None]
    counts = np.floor(wanted)
    for row, want, total in zip(counts, wanted, replicas, strict=True):
        missing = total - round(float(row.sum()))
        for socket in np.argsort(row - want, kind="stable")[:missing]:
            row[socket] += 1
    return np.asarray(counts)


def better(model: RateModel, room: SearchLimits, one: Counts, other: Counts) -> Counts:
    """The plan that is worth more."""
    values = worth(model.rates(np.stack([one, other])), room)
    return other if values[1] > values[0] else one
