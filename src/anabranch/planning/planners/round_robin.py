"""Round-robin: replicas in the order of the streams, dealt out to sockets in turn (Table 6)."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.planning.answer import Answer
from anabranch.planning.planners.planner import Problem
from anabranch.planning.planners.search.given_replicas import with_replicas
from anabranch.planning.planners.search.relaxed_placement import place_by


def round_robin(
    problem: Problem, replicas: Sequence[int] | None = None, input_rate: float | None = None
) -> Answer:
    """RLAS's replicas, placed so; a socket without room is passed over.

    The throughput is that of sinks, summed up, slowed down by the worst overload.

    Args:
        problem: What to plan.
        replicas: Of each unit, producers first; None for those of `rlas`.
        input_rate: Tuples from outside; None for as many as the sources can read.
    """
    placing, given = with_replicas(problem, replicas, input_rate)
    model = placing.model()
    sockets = model.sockets
    return placing.answer(
        place_by(model, given, lambda number: ((number + k) % sockets for k in range(sockets)))
    )
