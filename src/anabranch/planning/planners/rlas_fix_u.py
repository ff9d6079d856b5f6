"""RLAS_fix(U): RLAS that believes fetching is free (§6.4)."""

from __future__ import annotations

from anabranch.planning.answer import Answer
from anabranch.planning.models.placed_rates import Fetch
from anabranch.planning.planners.planner import Problem
from anabranch.planning.planners.search.placing import Placing
from anabranch.planning.planners.search.rlas_search import search


def rlas_fix_u(
    problem: Problem, compress: int = 5, input_rate: float | None = None, seed: int = 0
) -> Answer:
    """The plan found in that belief, with the throughput that it really has.

    The throughput is that of sinks, summed up, at the rate that every unit keeps up with; where
    the plan asks more of the machine than there is, slowed down by the worst overload.
    """
    placing = Placing.of(problem, input_rate)
    return placing.answer(search(placing.model(Fetch.NEVER), placing.room, compress, seed))
