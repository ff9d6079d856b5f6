"""Placements are compared with the same replicas, those of RLAS unless others are given (§6.4)."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.planning.planners.planner import Problem
from anabranch.planning.planners.rlas import rlas
from anabranch.planning.planners.search.placing import Placing


def with_replicas(
    problem: Problem, replicas: Sequence[int] | None, input_rate: float | None
) -> tuple[Placing, Sequence[int]]:
    """The problem, and the replicas of each unit to place."""
    placing = Placing.of(problem, input_rate)
    return placing, replicas or placing.replicas(rlas(problem, input_rate=input_rate))
