"""No parallelism: one thread for each run of the problem, the measure of every other plan."""

from __future__ import annotations

from anabranch.plan.answer import Answer, RegionChoice
from anabranch.plan.models.fission import estimate
from anabranch.plan.planners.planner import Problem


def sequential(problem: Problem) -> Answer:
    """Each run is one region of one pipeline with one replica.

    Example:
        >>> from anabranch.plan.machine import Machine
        >>> from anabranch.plan.profile import OperatorProfile, chain
        >>> profile = chain([OperatorProfile("parse", 3.0), OperatorProfile("count", 1.0)])
        >>> sequential(Problem(profile, Machine.of_cores(8))).throughput
        0.25
    """
    regions = tuple(RegionChoice((run,)) for run in problem.runs)
    found = estimate(problem.profile, regions, problem.machine.capacity)
    return Answer(regions, found.throughput, found.utilization)
