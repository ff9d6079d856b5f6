"""RLAS with a certificate: a plan, and a bound that no plan within the replica limit exceeds.

The bound comes from linear programs (HiGHS) that every plan satisfies, narrowed down by branch and
bound: `placement_relaxation.py` says why it holds, `placement_bound.py` how it is found. It is over
all replica counts, placements and overloads of the model that `rlas` uses. Where the relaxation
would have units is one more place to start a plan from; the better plan is the answer.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from anabranch.planning.answer import Answer
from anabranch.planning.models.placed_rates import Counts, Floats, RateModel
from anabranch.planning.planners.planner import Problem
from anabranch.planning.planners.search.placement_bound import EFFORT, bound
from anabranch.planning.planners.search.placement_moves import Budget, Room, improve, worth
from anabranch.planning.planners.search.placing import Placing
from anabranch.planning.planners.search.replica_scaling import by_work
from anabranch.planning.planners.search.rlas_search import search

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


def better(model: RateModel, room: Room, one: Counts, other: Counts) -> Counts:
    """The plan that is worth more."""
    values = worth(model.rates(np.stack([one, other])), room)
    return other if values[1] > values[0] else one
