"""Scripted measurements: what policies are shown in tests, with no clock and no engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.adapt.controller import Controller
from anabranch.adapt.history import History, Limits
from anabranch.adapt.policy import Policy
from anabranch.adapt.topology import Topology
from anabranch.events import (
    BatchTimes,
    Decision,
    Observation,
    Observed,
    PipelineMetrics,
    Reconfiguration,
    RegionMetrics,
    SourceMetrics,
    StepMetrics,
)
from anabranch.flow import Flow
from anabranch.planning.models.model import Model
from anabranch.planning.plan import Plan

ROOMY = Limits(cores=24, replicas=16, threads=200)


def observation(
    plan: Plan,
    *,
    at_s: float = 1.0,
    rate: float = 1000.0,
    busy: Mapping[str, Sequence[float]] | None = None,
    overhead: Mapping[str, Sequence[float]] | None = None,
    steps: Mapping[str, tuple[int, int, float]] | None = None,
    rates: Mapping[str, float] | None = None,
    backlog: int | None = None,
    latency_ms: float = 10.0,
) -> Observation:
    """One second under a plan.

    Args:
        plan: The plan in force.
        at_s: When.
        rate: Tuples that each source reads.
        busy: Busy share of each pipeline, by region; 0.5 when left out.
        overhead: The same of time spent in no step; 0 when left out.
        steps: Tuples in, tuples out and busy seconds, by step; `rate`, `rate`, 0.1 when left out.
        rates: Tuples that a region takes in; `rate` when left out.
        backlog: Tuples that wait at each source.
        latency_ms: Of half of the tuples; nearly all have twice that.
    """
    busy, overhead, steps, rates = busy or {}, overhead or {}, steps or {}, rates or {}
    pipelines, found = [], []
    for region in plan.regions:
        known = busy.get(region.region, [0.5] * len(region.pipelines))
        spent = overhead.get(region.region, [0.0] * len(region.pipelines))
        for run, share, over in zip(region.pipelines, known, spent, strict=True):
            pipelines.append(PipelineMetrics(region.region, run, share, over))
            found += [StepMetrics(s, *steps.get(s, (int(rate), int(rate), 0.1))) for s in run]
    regions = [RegionMetrics(r.region, r.replicas, rates.get(r.region, rate)) for r in plan.regions]
    sources = [SourceMetrics(s.source, int(rate), rate, backlog) for s in plan.sources]
    return Observation(
        at_s,
        int(at_s),
        int(rate) * len(sources),
        int(rate),
        BatchTimes(1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0),
        latency_ms,
        2 * latency_ms,
        tuple(found),
        tuple(pipelines),
        tuple(regions),
        tuple(sources),
    )


def seen(
    flow: Flow,
    plan: Plan,
    *window: Observation,
    limits: Limits = ROOMY,
    model: Model | None = None,
) -> History:
    """What a policy sees; one quiet second when no observation is given."""
    return History(Topology.of(flow), plan, window or (observation(plan),), limits, model)


@dataclass
class ScriptedRun:
    """A run whose measurements follow from the plan in force, as a script says.

    Args:
        flow: What runs.
        plan: How to begin.
        script: From the plan in force and the second to what is observed.
    """

    flow: Flow
    plan: Plan
    script: Callable[[Plan, int], Observation]
    refuses: Callable[[Plan], bool] = lambda plan: False
    plans: list[Plan] = field(default_factory=list)
    journal: list[Decision] = field(default_factory=list)
    _wish: Plan | None = None

    def reconfigure(self, plan: Plan) -> None:
        """Take a wish; it is in force in the next second."""
        if self.refuses(plan):
            raise RuntimeError("no such place")
        self._wish = plan

    def tuned_by(
        self, policy: Policy, limits: Limits = ROOMY, model: Model | None = None
    ) -> Controller:
        """A controller that tunes it."""
        return Controller(Topology.of(self.flow), policy, self, limits, model, self.journal.append)

    def go(self, controller: Controller, seconds: int, start: int = 0) -> None:
        """Let seconds pass."""
        for second in range(start, start + seconds):
            if self._wish is not None:
                before, self.plan, self._wish = self.plan, self._wish, None
                if before != self.plan:
                    self.plans.append(self.plan)
                    moved = tuple(before.diff(self.plan))
                    told = Reconfiguration(
                        second, second, 1.0, moved, 0, before.to_json(), self.plan.to_json()
                    )
                    controller.hear(told)
            controller.hear(Observed(self.script(self.plan, second)))
