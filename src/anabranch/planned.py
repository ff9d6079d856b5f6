"""Plan a flow: what `ab.plan` does. It measures the steps where no profile of them is given.

The planners and models themselves are in `planning/`, which runs nothing.
"""

from __future__ import annotations

from anabranch.engines.cpu_topology import usable_cpus
from anabranch.engines.measuring.profiling import profile_flow
from anabranch.errors import require_kind
from anabranch.flow import Flow
from anabranch.planning.flow_problem import as_plan, problem_for, require_flow
from anabranch.planning.machine import Machine, with_overheads
from anabranch.planning.plan import Plan
from anabranch.planning.planners.registry import planner as find_planner
from anabranch.planning.profile import Profile


def plan(
    flow: Flow,
    *,
    planner: str | None = None,
    profile: Profile | None = None,
    machine: Machine | None = None,
    threads: int | None = None,
) -> Plan:
    """Return a plan for a flow: one replica of everything, or the best that a planner finds.

    Args:
        flow: The application.
        planner: Its name, as `anabranch plan` knows it; when left out, `exact` if anything else is
            given, else one replica of everything.
        profile: What its steps cost; each is run by itself on the flow's data when left out.
        machine: Where it shall run, and what parallelism costs there; when left out, this machine,
            where it costs nothing.
        threads: The most threads; twice the cores and one per region when left out.

    Example:
        >>> from anabranch.apps import word_count
        >>> plan(word_count.build(text="a b a")).region("count").replicas
        1
    """
    require_flow(flow)
    require_kind("profile", profile, Profile)
    require_kind("machine", machine, Machine)
    require_kind("threads", threads, int)
    if all(given is None for given in (planner, profile, machine, threads)):
        return Plan.sequential(flow)
    place = machine or Machine.of_cores(len(usable_cpus()))
    known = with_overheads(profile or profile_flow(flow), place)
    problem = problem_for(flow, known, place, threads)
    return as_plan(flow, find_planner(planner or "exact")(problem))
