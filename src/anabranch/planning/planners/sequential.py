"""No parallelism: one thread for each run of the problem, the measure of every other plan."""

from __future__ import annotations

from anabranch.planning.answer import Answer, RegionChoice
from anabranch.planning.models.fission import estimate
from anabranch.planning.planners.planner import Problem


def sequential(problem: Problem) -> Answer:
    """Each run is one region of one pipeline with one replica.

    Example:
        >>> from anabranch.planning.machine import Machine
        >>> from anabranch.planning.profile import OperatorProfile, chain
        >>> profile = chain([OperatorProfile("parse", 3.0), OperatorProfile("count", 1.0)])
        >>> sequential(Problem(profile, Machine.of_cores(8))).throughput
        0.25
    """
    regions = tuple(RegionChoice((run,)) for run in problem.runs)
    found = estimate(problem.profile, regions, problem.machine.capacity)
    return Answer(regions, found.throughput, found.utilization)
