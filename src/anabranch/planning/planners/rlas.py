"""RLAS: replicas and their sockets, found together (BriskStream, §4 and appendix C).

Branch and bound places replicas, iterative scaling adds them where the bottleneck is;
`search/rlas_search.py` has the printed algorithms, and what is done beyond them, and why.
"""

from __future__ import annotations

from anabranch.planning.answer import Answer
from anabranch.planning.models.placed_rates import Fetch
from anabranch.planning.planners.planner import Problem
from anabranch.planning.planners.search.placing import Placing
from anabranch.planning.planners.search.rlas_search import search


def rlas(
    problem: Problem, compress: int = 5, input_rate: float | None = None, seed: int = 0
) -> Answer:
    """The plan that RLAS finds.

    The throughput is that of sinks, summed up, at the rate that every unit keeps up with; the
    plan satisfies every constraint on CPU, memory and links if any plan that was looked at does.

    Args:
        problem: What to plan.
        compress: Replicas of a unit that are placed together at first.
        input_rate: Tuples from outside; None for as many as the sources can read.
        seed: Of the choices that the improvement draws.

    Example:
        >>> from anabranch.planning.machine import Machine
        >>> from anabranch.planning.profile import OperatorProfile, chain
        >>> profile = chain([OperatorProfile("read", 100.0), OperatorProfile("count", 300.0)])
        >>> answer = rlas(Problem(profile, Machine.of_cores(4)))
        >>> [region.replicas for region in answer.regions], round(answer.throughput, 4)
        ([1, 3], 0.01)
    """
    placing = Placing.of(problem, input_rate)
    return placing.answer(search(placing.model(), placing.room, compress, seed))


# RLAS_fix(L): RLAS that believes every tuple is fetched from the farthest socket (§6.4).


def rlas_fix_l(
    problem: Problem, compress: int = 5, input_rate: float | None = None, seed: int = 0
) -> Answer:
    """The plan found in that belief, with the throughput that it really has.

    The throughput is that of sinks, summed up, at the rate that every unit keeps up with; where
    the plan asks more of the machine than there is, slowed down by the worst overload.
    """
    placing = Placing.of(problem, input_rate)
    return placing.answer(search(placing.model(Fetch.ALWAYS), placing.room, compress, seed))


# RLAS_fix(U): RLAS that believes fetching is free (§6.4).


def rlas_fix_u(
    problem: Problem, compress: int = 5, input_rate: float | None = None, seed: int = 0
) -> Answer:
    """The plan found in that belief, with the throughput that it really has.

    The throughput is that of sinks, summed up, at the rate that every unit keeps up with; where
    the plan asks more of the machine than there is, slowed down by the worst overload.
    """
    placing = Placing.of(problem, input_rate)
    return placing.answer(search(placing.model(Fetch.NEVER), placing.room, compress, seed))
