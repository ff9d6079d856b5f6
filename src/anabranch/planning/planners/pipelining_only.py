"""The best plan without replicas: what pipelines alone can do."""

from __future__ import annotations

from anabranch.planning.answer import Answer
from anabranch.planning.planners.exact import solve
from anabranch.planning.planners.planner import Problem
from anabranch.planning.planners.search.region_options import Freedom


def pipelining_only(problem: Problem) -> Answer:
    """The best plan in which every region has one replica."""
    return solve(problem, Freedom(replicas=False), "pipelining-only")
