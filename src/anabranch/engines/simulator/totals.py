"""Totals: what each operator and each thread has done so far."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from anabranch.engines.simulator.region import SimulatedRegion
from anabranch.engines.simulator.shares import Floats
from anabranch.planning.models.fission import selectivity
from anabranch.planning.profile import Profile


@dataclass
class OperatorTotals:
    """Tuples in and out of an operator, and processor seconds in it."""

    rows_in: float = 0.0
    rows_out: float = 0.0
    busy_s: float = 0.0


@dataclass
class PipelineTotals:
    """Processor seconds of the threads of a pipeline, and how many in none of its operators.

    Attributes:
        busy_s: Of all replicas.
        overhead_s: Of all replicas, in none of its operators.
        by_replica_s: Of each replica, since there are as many as there are.
    """

    busy_s: float = 0.0
    overhead_s: float = 0.0
    by_replica_s: Floats = field(default_factory=lambda: np.zeros(0))


Key = tuple[str, tuple[str, ...]]


@dataclass
class Totals:
    """Sums since the start.

    Attributes:
        operators: By name.
        pipelines: By region and operators.
    """

    operators: dict[str, OperatorTotals] = field(
        default_factory=lambda: defaultdict(OperatorTotals)
    )
    pipelines: dict[Key, PipelineTotals] = field(
        default_factory=lambda: defaultdict(PipelineTotals)
    )

    def add(self, profile: Profile, region: SimulatedRegion, passed: Floats, unit_s: float) -> None:
        """Count tuples that threads handled while costs were what they are."""
        for number, names in enumerate(region.spec.choice.pipelines):
            handled = float(passed[number].sum())
            if handled <= 0:
                continue
            costs = region.costs.pipelines[number]
            slowed = float((passed[number] * region.slow[number]).sum())
            for name in names:
                operator, rows = self.operators[name], handled * costs.reach[name]
                operator.rows_in += rows
                operator.rows_out += rows * selectivity(profile, name)
                cost_s = profile.by_name[name].cost_with(region.spec.choice.replicas) * unit_s
                operator.busy_s += slowed * costs.reach[name] * cost_s
            pipeline = self.pipelines[region.spec.name, names]
            spent_s = passed[number] * region.cpu_s[number]
            pipeline.busy_s += float(spent_s.sum())
            known_s = pipeline.by_replica_s
            pipeline.by_replica_s = known_s + spent_s if known_s.shape == spent_s.shape else spent_s
            pipeline.overhead_s += float((passed[number] * region.overhead_s[number]).sum())


def whole(tuples: float) -> int:
    """Tuples that are complete; sums of parts may lack a hair."""
    return int(tuples + 1e-6)


class RunningTotals:
    """Adds up what the threads of regions handle until costs change or somebody asks."""

    def __init__(self) -> None:
        self._passed: dict[str, Floats] = {}

    def note(self, region: SimulatedRegion) -> None:
        """A step is over."""
        known = self._passed.get(region.spec.name)
        if known is None:
            self._passed[region.spec.name] = region.passed.copy()
        else:
            known += region.passed

    def taken(self, region: SimulatedRegion) -> Floats:
        """What was noted, which is forgotten with this."""
        return self._passed.pop(region.spec.name, np.zeros(region.shape))
