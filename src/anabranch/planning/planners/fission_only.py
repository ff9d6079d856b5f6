"""The best plan without pipelines: what replicas alone can do.

Each replica is one thread, and operators side by side with one replica share theirs; else the two
would be a pipeline (Pipelined Fission, §5).
"""

from __future__ import annotations

from anabranch.planning.answer import Answer
from anabranch.planning.planners.exact import solve
from anabranch.planning.planners.planner import Problem
from anabranch.planning.planners.search.region_options import Freedom


def fission_only(problem: Problem) -> Answer:
    """The best plan in which every replica is one thread."""
    return solve(problem, Freedom(pipelines=False), "fission-only")
