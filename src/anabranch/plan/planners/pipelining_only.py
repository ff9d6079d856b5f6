"""The best plan without replicas: what pipelines alone can do."""

from __future__ import annotations

from anabranch.plan.answer import Answer
from anabranch.plan.planners.exact import solve
from anabranch.plan.planners.planner import Problem
from anabranch.plan.planners.search.region_options import Freedom


def pipelining_only(problem: Problem) -> Answer:
    """The best plan in which every region has one replica."""
    return solve(problem, Freedom(replicas=False))
