"""Planners by name, one file each."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.errors import unknown
from anabranch.plan.planners.exact import exact
from anabranch.plan.planners.exhaustive import exhaustive
from anabranch.plan.planners.first_fit import first_fit
from anabranch.plan.planners.fission import fission
from anabranch.plan.planners.fission_only import fission_only
from anabranch.plan.planners.os_placement import os_placement
from anabranch.plan.planners.pipelining_only import pipelining_only
from anabranch.plan.planners.planner import Planner
from anabranch.plan.planners.rlas import rlas
from anabranch.plan.planners.rlas_certified import rlas_certified
from anabranch.plan.planners.rlas_fix_l import rlas_fix_l
from anabranch.plan.planners.rlas_fix_u import rlas_fix_u
from anabranch.plan.planners.round_robin import round_robin
from anabranch.plan.planners.sequential import sequential

PLANNERS: Mapping[str, Planner] = {
    "sequential": sequential,
    "fission": fission,
    "exact": exact,
    "pipelining-only": pipelining_only,
    "fission-only": fission_only,
    "exhaustive": exhaustive,
    "rlas": rlas,
    "rlas-fix-l": rlas_fix_l,
    "rlas-fix-u": rlas_fix_u,
    "first-fit": first_fit,
    "round-robin": round_robin,
    "os": os_placement,
    "rlas-certified": rlas_certified,
}


def planner(name: str) -> Planner:
    """The planner of a name."""
    if name not in PLANNERS:
        raise unknown("planner", name, PLANNERS)
    return PLANNERS[name]
