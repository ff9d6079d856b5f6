"""A run that behaves as the fission model says, for policies that jump by it: no clock, no engine.

The system behind the measurements may differ from what the model knows: `contention` makes every
further thread worth less, `offered` changes with the second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from anabranch.adapt.guards import threads
from anabranch.engines.simulator.flows import flow_of
from anabranch.events import (
    BatchTimes,
    Observation,
    PipelineMetrics,
    RegionMetrics,
    SourceMetrics,
    StepMetrics,
)
from anabranch.flow import Flow
from anabranch.graph import StateKind
from anabranch.planning.flow_problem import FlowModel
from anabranch.planning.machine import Machine
from anabranch.planning.plan import Plan
from anabranch.planning.profile import OperatorProfile, Overheads, Profile, chain
from tests.adapt.scripted import ScriptedRun

PARSE_COUNT_TOP = chain(
    [
        OperatorProfile("parse", 30.0, 2.0),
        OperatorProfile("count", 20.0, state=StateKind.PARTITIONED, key=("word",)),
        OperatorProfile("top", 4.0, state=StateKind.STATEFUL),
    ],
    unit="us",
)
"""70 microseconds a tuple that can be shared out, 8 that cannot."""


@dataclass
class Modelled:
    """A system of one source.

    Args:
        profile: What its operators cost, in microseconds.
        cores: Of the machine.
        offered: Tuples a second that come, by second; None for as many as can be read.
        contention: Part of the rate that every thread beyond the first few takes away.
        dearer: Whether contention shows as dearer tuples, as where threads share a memory bus.
        fixed_s: Time that every batch takes whatever is in it; 0 where there are no batches.
    """

    profile: Profile
    cores: int = 8
    offered: Callable[[int], float | None] = lambda second: None
    contention: float = 0.0
    dearer: bool = False
    fixed_s: float = 0.0
    flow: Flow = field(init=False)
    model: FlowModel = field(init=False)
    backlog: float = 0.0
    known: dict[Plan, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make its flow and its model."""
        self.flow = flow_of(self.profile)
        self.model = FlowModel(self.flow, Machine.of_cores(self.cores), Overheads())

    def run(self, plan: Plan | None = None) -> ScriptedRun:
        """A run from a plan, by default one copy of everything."""
        return ScriptedRun(self.flow, plan or Plan.sequential(self.flow), self.observe)

    def capacity(self, plan: Plan) -> float:
        """Tuples a second that a plan really does."""
        if plan not in self.known:
            extra = max(0, threads(plan) - len(plan.regions) - len(plan.sources))
            alone = self.model.rate_per_s(self.whole, plan)
            self.known[plan] = alone * (1 - self.contention) ** extra
        return self.known[plan]

    @cached_property
    def whole(self) -> Profile:
        """The profile with the source and the sink of the flow."""
        first, last = self.profile.operators[0], self.profile.operators[-1]
        source = OperatorProfile(f"{first.name}.input", 0.0)
        sink = OperatorProfile(f"{last.name}.output", 0.0, state=StateKind.STATEFUL)
        return chain([source, *self.profile.operators, sink], unit="us")

    def observe(self, plan: Plan, second: int) -> Observation:
        """What an engine would see in this second."""
        capacity, load = self.capacity(plan), self.offered(second)
        rate = capacity if load is None else min(capacity, load + self.backlog)
        waiting = None
        if load is not None:
            self.backlog = max(0.0, self.backlog + load - rate)
            waiting = int(self.backlog)
        alone = self.model.rate_per_s(self.whole, plan)
        slower = alone / capacity if self.dearer else 1.0
        visits = self.whole.visits
        copies = {s: r.replicas for r in plan.regions for steps in r.pipelines for s in steps}
        held = {o.name: o.cost_with(copies.get(o.name, 1)) + o.wait for o in self.whole.operators}
        busy = {s: slower * held_us * rate * visits[s] / 1e6 for s, held_us in held.items()}
        idle = {o.name: slower * o.wait * rate * visits[o.name] / 1e6 for o in self.whole.operators}
        steps, pipelines, found = [], [], []
        for region in plan.regions:
            taken = rate * visits[region.pipelines[0][0]]
            found.append(RegionMetrics(region.region, region.replicas, taken))
            for pipeline in region.pipelines:
                share = sum(busy[step] for step in pipeline) / region.replicas
                waits = sum(idle[step] for step in pipeline) / region.replicas
                pipelines.append(
                    PipelineMetrics(region.region, pipeline, min(1.0, share), 0.0, min(1.0, waits))
                )
                for step in pipeline:
                    rows = int(rate * visits[step])
                    made = int(rows * self.whole.by_name[step].selectivity)
                    steps.append(StepMetrics(step, rows, made, busy[step], waited_s=idle[step]))
        source = plan.sources[0].source
        return Observation(
            float(second + 1),
            second,
            int(rate),
            int(rate),
            self._times(rate / capacity),
            1.0,
            2.0,
            tuple(steps),
            tuple(pipelines),
            tuple(found),
            (SourceMetrics(source, int(rate), rate, waiting),),
            None if self.fixed_s else 3.0,
        )

    def _times(self, used: float) -> BatchTimes:
        """A second of work, or a batch that is followed by the next one at once."""
        if not self.fixed_s:
            return BatchTimes(1.0, 0.0, 0.0, 0.0, used, 0.0, 0.0)
        # Whatever the load, a batch follows the other; what is not work is fixed.
        return BatchTimes(1.0, 1.0 - used, 0.0, 0.0, used, 0.0, 0.0)
