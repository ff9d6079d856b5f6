"""Flows of idle operators, made of a profile, so that a profile alone has plans.

The operators have the names, states and keys of the profile, and let every tuple through. In front
of each operator that nothing comes into stands a source, behind each that nothing comes out of a
sink; both cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from anabranch.flow import Flow, Order, SinkKernel, Stream
from anabranch.graph import StateKind
from anabranch.io.collect_sink import collect
from anabranch.io.memory_source import memory
from anabranch.operators.base import Kernel, KernelContext
from anabranch.operators.union import Union, UnionKernel
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
