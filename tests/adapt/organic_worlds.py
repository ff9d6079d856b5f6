"""Worlds for Joker's policy: what is measured under a plan, as a function of the plan alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.adapt.policies.organic import Organic
from anabranch.adapt.policy import Cadence
from anabranch.events import Observation
from anabranch.flow import Flow
from anabranch.planning.plan import Plan
from tests.adapt.scripted import ScriptedRun, observation

QUICK = Cadence(settle=0, periods=1, most=1)
"""Every period is a decision or a verdict."""

PAPER = Organic(pace=QUICK, stateless=False)
"""Joker as published, without waiting."""


@dataclass(frozen=True)
class World:
    """What is measured under one plan.

    Attributes:
        rate: Tuples a second.
        busy: By region, busy shares of its pipelines; 0.5 when left out.
        costs: By step, its part of its pipeline's working time; what is missing is overhead.
    """

    rate: float
    busy: Mapping[str, Sequence[float]] = field(default_factory=dict)
    costs: Mapping[str, float] = field(default_factory=dict)

    def observed(self, plan: Plan, second: int) -> Observation:
        """A second of it."""
        overhead: dict[str, list[float]] = {}
        steps = {}
        for region in plan.regions:
            busy = self.busy.get(region.region, [0.5] * len(region.pipelines))
            overhead[region.region] = []
            for run, share in zip(region.pipelines, busy, strict=True):
                used = [self.costs.get(step, 1 / len(run)) for step in run]
                overhead[region.region].append(share * max(0.0, 1 - sum(used)))
                for step, part in zip(run, used, strict=True):
                    worked_s = part * share * region.replicas
                    steps[step] = (int(self.rate), int(self.rate), worked_s)
        return observation(
            plan, at_s=second, rate=self.rate, busy=self.busy, overhead=overhead, steps=steps
        )


def run_in(flow: Flow, plan: Plan, world: Callable[[Plan], World]) -> ScriptedRun:
    """A run whose measurements are those of a world."""
    return ScriptedRun(flow, plan, lambda now, second: world(now).observed(now, second))


def shape(plan: Plan, region: str) -> tuple[tuple[int, ...], int]:
    """Lengths of a region's pipelines, and its replicas."""
    planned = plan.region(region)
    return tuple(map(len, planned.pipelines)), planned.replicas


def lines(run: ScriptedRun) -> list[str]:
    """The journal without times."""
    return [f"{decision.outcome}: {decision.why}" for decision in run.journal]


def chances(seed: int) -> Callable[[Plan], World]:
    """A world of chance: any rate and any busy shares, the same whenever a plan comes back."""

    def world(plan: Plan) -> World:
        shapes = [(r.region, r.pipelines, r.replicas) for r in plan.regions]
        chance = random.Random(f"{seed} {shapes}")
        return World(
            chance.choice([900.0, 1000.0, 1050.0, 1200.0, 2000.0]),
            {
                r.region: [chance.choice([0.1, 0.7, 0.9, 1.0]) for _ in r.pipelines]
                for r in plan.regions
            },
            {s: chance.random() for r in plan.regions for p in r.pipelines for s in p},
        )

    return world
