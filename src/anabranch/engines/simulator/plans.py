"""Plans of flows as the simulation sees them: regions of profiled operators on sockets."""

from __future__ import annotations

from anabranch.engines.simulator.costs import RegionSpec
from anabranch.engines.simulator.observing import Names, Watched
from anabranch.errors import PlanError, Subject
from anabranch.flow import Flow
from anabranch.graph import Role
from anabranch.planning.answer import RegionChoice
from anabranch.planning.machine import Machine
from anabranch.planning.plan import Plan, RegionPlan
from anabranch.planning.profile import Profile

PLACE = "socket"


def require_profiled(flow: Flow, profile: Profile) -> None:
    """Raise unless a profile is one of a flow: only sources and sinks may be missing."""
    operators = flow.names(Role.OPERATOR)
    missing = [name for name in operators if name not in profile.by_name]
    strange = [name for name in profile.by_name if name not in flow.graph.steps]
    if missing or strange:
        raise PlanError(
            Subject("flow", flow.name),
            f"a profile of the steps {list(operators)}",
            f"one without {missing}" if missing else f"one with {strange}",
            "profile this application, or simulate the profile by itself",
        )


def specs_of(flow: Flow, plan: Plan, profile: Profile, machine: Machine) -> list[RegionSpec]:
    """The regions of a plan, without steps that the profile does not know."""
    found = []
    queue = _queue_tuples(plan)
    for source in plan.sources:
        if source.source in profile.by_name:
            choice = RegionChoice(((source.source,),), source.replicas)
            found.append(RegionSpec(source.source, choice))
    for region in plan.regions:
        sockets = tuple(_socket(region, place, machine) for place in region.placement)
        if any(name not in profile.by_name for name in region.pipelines[0]):
            continue  # a sink that costs nothing
        choice = RegionChoice(region.pipelines, region.replicas, sockets)
        visits = profile.visits[region.pipelines[0][0]]
        limit = None if queue is None else queue * visits
        found.append(RegionSpec(region.region, choice, region.bucket_map, limit))
    return found


def watched(plan: Plan) -> list[Watched]:
    """The regions of a plan as observations show them."""
    return [Watched(r.region, r.pipelines, r.replicas) for r in plan.regions]


def names_of(flow: Flow, profile: Profile) -> Names:
    """Which operators stand for sources and sinks that the profile does not know."""
    steps = flow.graph.steps
    sources = {}
    for name in flow.names(Role.SOURCE):
        followers = [step for step, _ in flow.graph.successors(name)]
        standing_in = name if name in profile.by_name else followers[0]
        if standing_in not in profile.by_name:
            raise PlanError(
                name, "its cost in the profile, as a sink reads it", "none", "profile the flow"
            )
        sources[name] = standing_in
    sinks = {}
    for name in flow.names(Role.SINK):
        origin = steps[name].inputs[0]
        if name not in profile.by_name and origin is not None:
            sinks[name] = origin.step
    return Names(sources, sinks)


def named_by_operators(profile: Profile) -> Names:
    """The names of a profile that stands for itself: operators that nothing comes into read."""
    return Names({o.name: o.name for o in profile.operators if not profile.into(o.name)})


def _queue_tuples(plan: Plan) -> float | None:
    """Tuples in front of a thread when no more of a source may be under way than its limit."""
    limits = [s.in_flight_limit for s in plan.sources if s.in_flight_limit is not None]
    threads = sum(region.replicas * len(region.pipelines) for region in plan.regions)
    return min(limits) / threads if limits and threads else None


def _socket(region: RegionPlan, place: str, machine: Machine) -> int:
    number = place.removeprefix(PLACE)
    if place.startswith(PLACE) and number.isdigit() and int(number) < machine.sockets:
        return int(number)
    raise PlanError(
        Subject("region", region.region),
        f"places from {PLACE}0 to {PLACE}{machine.sockets - 1}",
        repr(place),
        f"name a socket of {machine.name}, or leave the placement out",
    )
