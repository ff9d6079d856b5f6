"""Joker's policy shown what the paper measured: figures 10 and 20, with its own throughputs.

The simulator knows nothing of what made a split gain 4 % on the paper's machine. Here the policy
sees the paper's figures instead, plan by plan, and has to take the same steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.adapt.controller import Controller
from anabranch.adapt.policies.organic import Organic
from anabranch.adapt.policy import Cadence
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
from anabranch.planning.plan import Plan
from papers.joker.applications import LIMITS, Application, monitoring, selectivities
from papers.joker.runs import Shapes, Step, shapes_of, steps_of

EVERY_PERIOD = Organic(stateless=False, pace=Cadence(settle=0, periods=1, most=1))
PERIODS = 40
SATURATED = 0.7
"""A busy share below the threshold: whoever reads has no more to give."""


@dataclass(frozen=True)
class Told:
    """What is measured under a plan.

    Attributes:
        rate_per_s: Tuples read.
        busy: Busy share of a region's pipelines; 0.5 when left out.
        costs: Parts of a pipeline's time that its steps take; nothing when left out.
    """

    rate_per_s: float
    busy: Mapping[str, float]
    costs: Mapping[str, float]

    def observed(self, plan: Plan, second: int) -> Observation:
        """A second of it."""
        rows = int(self.rate_per_s)
        pipelines, steps = [], []
        for region in plan.regions:
            share = self.busy.get(region.region, 0.5)
            for run in region.pipelines:
                costs = [self.costs.get(step, 0.0) for step in run]
                overhead = share * (1 - sum(costs))
                pipelines.append(PipelineMetrics(region.region, run, share, overhead))
                steps += [
                    StepMetrics(step, rows, rows, cost * share * region.replicas)
                    for step, cost in zip(run, costs, strict=True)
                ]
        return Observation(
            second,
            second,
            rows,
            rows,
            BatchTimes(1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0),
            0.0,
            0.0,
            tuple(steps),
            tuple(pipelines),
            tuple(RegionMetrics(r.region, r.replicas, rows) for r in plan.regions),
            tuple(SourceMetrics(s.source, rows, rows) for s in plan.sources),
        )


@dataclass
class _Run:
    """A run in which nothing happens but what is told."""

    plan: Plan
    wish: Plan | None = None
    decisions: list[tuple[Decision, float, Plan]] = field(default_factory=list)

    def reconfigure(self, plan: Plan) -> None:
        """Request another plan."""
        self.wish = plan


def replay(application: Application, told: Callable[[Shapes], Told]) -> tuple[Step, ...]:
    """The steps that the policy takes when it is told this of each plan."""
    flow = application.flow()
    run = _Run(Plan.sequential(flow))
    rate = 0.0

    def note(decision: Decision) -> None:
        run.decisions.append((decision, rate, run.plan))

    controller = Controller(Topology.of(flow), EVERY_PERIOD, run, LIMITS, tell=note)
    for second in range(PERIODS):
        if run.wish is not None:
            before, run.plan, run.wish = run.plan, run.wish, None
            controller.hear(
                Reconfiguration(second, second, 0.0, (), 0, before.to_json(), run.plan.to_json())
            )
        now = told(shapes_of(run.plan))
        rate = now.rate_per_s
        controller.hear(Observed(now.observed(run.plan, second)))
    return tuple(steps_of(run.decisions))


# Figure 10

ONE, TWO = (7,), (3, 4)
FIGURE_10_PER_S: Mapping[tuple[Sequence[int], int], float] = {
    (ONE, 1): 80e3,
    (TWO, 1): 80e3 * 1.04,
    (ONE, 2): 80e3 * 1.67,
    (TWO, 2): 80e3 * 1.67 * 1.09,
    (ONE, 3): 80e3 * 1.67 * 1.46,
    (TWO, 3): 230e3,
}


def figure_10() -> tuple[Step, ...]:
    """The selectivity experiment."""
    costs = {f"m{n}": 0.23 for n in range(1, 5)} | {f"s{n}": 0.01 for n in range(1, 4)}

    def told(shapes: Shapes) -> Told:
        saturated = shapes["m1"] == (TWO, 3)
        busy = SATURATED if saturated else 0.98
        return Told(FIGURE_10_PER_S[shapes["m1"]], {"m1": busy}, costs)

    return replay(selectivities(), told)


# Figure 20

FIGURE_20 = (
    {"filter": ((2,), 1), "window": ((3,), 2)},
    {"filter": ((1, 1), 1), "window": ((3,), 3)},
)
"""The plans of figures 20b and 20c."""


def figure_20() -> tuple[Step, ...]:
    """Network monitoring."""
    costs = {"filter": 0.35, "parse": 0.4, "window": 0.7, "cut-off": 0.05, "diff": 0.05}

    def told(shapes: Shapes) -> Told:
        if shapes == FIGURE_20[1]:
            return Told(2.1e6 * 2.86, {"filter": SATURATED, "window": SATURATED}, costs)
        if shapes == FIGURE_20[0]:
            return Told(2.1e6 * 2.3, {"filter": 0.9, "window": 0.9}, costs)
        return Told(2.1e6, {"filter": 0.6, "window": 0.95}, costs)

    return replay(monitoring(), told)
