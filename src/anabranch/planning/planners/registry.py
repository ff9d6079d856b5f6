"""Planners by name."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.errors import unknown
from anabranch.planning.planners.exact import exact, fission_only, pipelining_only
from anabranch.planning.planners.exhaustive import exhaustive
from anabranch.planning.planners.fission import fission
from anabranch.planning.planners.placement_baselines import first_fit, os_placement, round_robin
from anabranch.planning.planners.planner import Planner
from anabranch.planning.planners.rlas import rlas, rlas_fix_l, rlas_fix_u
from anabranch.planning.planners.rlas_certified import rlas_certified
from anabranch.planning.planners.sequential import sequential

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
