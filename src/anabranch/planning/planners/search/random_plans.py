"""Random plans, to compare planners with (BriskStream, §6.4 and figure 14).

Units get one replica more, drawn at random, until the limit is reached; every replica is placed on
a socket drawn at random.
"""

from __future__ import annotations

import numpy as np

from anabranch.planning.models.placed_rates import Counts
from anabranch.planning.planners.search.placing import Placing


def random_plans(placing: Placing, number: int, seed: int) -> Counts:
    """Replicas by plan, unit and socket.

    Example:
        >>> from anabranch.planning.machine import Machine
        >>> from anabranch.planning.planners.planner import Problem
        >>> from anabranch.planning.profile import OperatorProfile, chain
        >>> profile = chain([OperatorProfile("read", 1.0), OperatorProfile("count", 3.0)])
        >>> placing = Placing.of(Problem(profile, Machine("two", 2, 4)))
        >>> random_plans(placing, 3, seed=1).sum(axis=(1, 2)).tolist()
        [8.0, 8.0, 8.0]
    """
    draw = np.random.default_rng(seed)
    return np.array([_random_plan(placing, draw) for _ in range(number)])


def _random_plan(placing: Placing, draw: np.random.Generator) -> Counts:
    most = np.array(placing.room.most)
    replicas = np.ones(len(most), dtype=np.int64)
    while replicas.sum() < placing.room.limit and (replicas < most).any():
        replicas[draw.choice(np.flatnonzero(replicas < most))] += 1
    sockets = placing.problem.machine.sockets
    rows = [np.bincount(draw.integers(sockets, size=n), minlength=sockets) for n in replicas]
    return np.array(rows, dtype=np.float64)
