"""Flows of idle operators, made of a profile, so that a profile alone has plans.

The operators have the names, states and keys of the profile, and let every tuple through. In front
of each operator that nothing comes into stands a source, behind each that nothing comes out of a
sink; both cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from anabranch.engines.simulator.costs import RegionSpec
from anabranch.engines.simulator.observing import Names, Watched
from anabranch.errors import PlanError, Subject
from anabranch.flow import Flow, Order, SinkKernel, Stream
from anabranch.graph import Role, StateKind
from anabranch.io.collect_sink import collect
from anabranch.io.memory_source import memory
from anabranch.operators.base import Kernel, KernelContext
from anabranch.operators.row_wise.union import Union, UnionKernel
from anabranch.planning.answer import RegionChoice
from anabranch.planning.machine import Machine
from anabranch.planning.plan import Plan, RegionPlan
from anabranch.planning.profile import OperatorProfile, Profile

INPUT, OUTPUT = ".input", ".output"
VALUE = "value"


class Idle(Union):
    """Lets everything through, and has the state that a profile says."""

    def __init__(self, operator: OperatorProfile, ports: int) -> None:
        """Say what it is."""
        super().__init__(ports)
        self.state = operator.state
        if operator.state is StateKind.PARTITIONED:
            self.key = operator.key

    def levels(self, depth: int) -> int:
        """The port, where there are several."""
        return super().levels(depth) if self.in_ports > 1 else depth

    def kernel(self, context: KernelContext) -> Kernel:
        """A running copy."""
        return UnionKernel(context) if self.in_ports > 1 else SinkKernel(context)


def flow_of(profile: Profile, order: Order | str = Order.KEY) -> Flow:
    """A flow with the operators of a profile.

    Example:
        >>> from anabranch.planning.plan import Plan
        >>> from anabranch.planning.profile import chain
        >>> count = OperatorProfile("count", 1.0, state=StateKind.PARTITIONED, key=("word",))
        >>> flow = flow_of(chain([OperatorProfile("split", 2.0, 10.0), count]))
        >>> flow
        Flow 'profile': split.input → split → count → count.output
        >>> Plan.sequential(flow).with_replicas("count", 4).region("count").pipelines
        (('split', 'count'),)
    """
    columns = {c for o in profile.operators for c in o.key} or {VALUE}
    schema = pa.schema([(name, pa.int64()) for name in sorted(columns)])
    flow = Flow(profile.app or "profile", order=order)
    streams: dict[str, Stream] = {}
    for operator in profile.operators:
        producers = [stream.producer for stream in profile.into(operator.name)]
        given = [streams[name] for name in producers] or [
            flow.source(operator.name + INPUT, memory([], schema))
        ]
        idle = Idle(operator, len(given))
        streams[operator.name] = given[0].apply(operator.name, idle, *given[1:])
    for name in last_operators(profile):
        streams[name].sink(name + OUTPUT, collect())
    return flow


def last_operators(profile: Profile) -> Sequence[str]:
    """Operators that nothing comes out of."""
    return [o.name for o in profile.operators if not profile.out_of(o.name)]


# Plans of flows as the simulation sees them: regions of profiled operators on sockets.

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
