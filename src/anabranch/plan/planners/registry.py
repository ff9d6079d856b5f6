"""Planners by name, one file each."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.errors import UnknownNameError
from anabranch.plan.planners.exact import exact
from anabranch.plan.planners.exhaustive import exhaustive
from anabranch.plan.planners.fission import fission
from anabranch.plan.planners.fission_only import fission_only
from anabranch.plan.planners.pipelining_only import pipelining_only
from anabranch.plan.planners.planner import Planner
from anabranch.plan.planners.sequential import sequential

PLANNERS: Mapping[str, Planner] = {
    "sequential": sequential,
    "fission": fission,
    "exact": exact,
    "pipelining-only": pipelining_only,
    "fission-only": fission_only,
    "exhaustive": exhaustive,
}


def planner(name: str) -> Planner:
    """The planner of a name."""
    if name not in PLANNERS:
        raise UnknownNameError(
            name, f"a planner among {list(PLANNERS)}", repr(name), "choose one of those"
        )
    return PLANNERS[name]
