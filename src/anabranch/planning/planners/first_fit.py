"""First-fit: replicas in the order of the streams, each on the first socket with room (Table 6)."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.planning.answer import Answer
from anabranch.planning.planners.planner import Problem
from anabranch.planning.planners.search.given_replicas import with_replicas
from anabranch.planning.planners.search.relaxed_placement import place_by


def first_fit(
    problem: Problem, replicas: Sequence[int] | None = None, input_rate: float | None = None
) -> Answer:
    """RLAS's replicas, placed so; constraints are relaxed until all have a place.

    The throughput is that of sinks, summed up, slowed down by the worst overload.

    Args:
        problem: What to plan.
        replicas: Of each unit, producers first; None for those of `rlas`.
        input_rate: Tuples from outside; None for as many as the sources can read.
    """
    placing, given = with_replicas(problem, replicas, input_rate)
    model = placing.model()
    return placing.answer(place_by(model, given, lambda number: range(model.sockets)))
