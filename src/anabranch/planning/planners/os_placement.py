"""OS: replicas without a place; the operating system moves threads as it likes (Table 6).

What it does cannot be known. The model reads it as threads spread evenly over the sockets, so that
fetching takes the mean over all pairs of sockets, the own one included, and no socket is asked for
more than another.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from anabranch.planning.answer import Answer
from anabranch.planning.planners.planner import Problem
from anabranch.planning.planners.search.given_replicas import with_replicas


def os_placement(
    problem: Problem, replicas: Sequence[int] | None = None, input_rate: float | None = None
) -> Answer:
    """RLAS's replicas, without sockets.

    The throughput is that of sinks, summed up, slowed down by the worst overload.

    Args:
        problem: What to plan.
        replicas: Of each unit, producers first; None for those of `rlas`.
        input_rate: Tuples from outside; None for as many as the sources can read.
    """
    placing, given = with_replicas(problem, replicas, input_rate)
    sockets = problem.machine.sockets
    spread = np.repeat(np.array(given, dtype=np.float64)[:, None] / sockets, sockets, axis=1)
    return placing.answer(spread, placed=False)
