"""What planners that place replicas on sockets share: the question, and how to answer it.

Each operator is a unit of its own, as in BriskStream; where a problem has regions for good, each of
them is one unit of fused operators. There are at most as many replicas as cores, and as threads if
the problem bounds them, but one of each unit. A machine with fewer cores than units, of which the
paper has none, gets as many replicas as the problem allows threads, and overload is no reason to
refuse a plan there, only what it costs; if operators are still more, whole chains are fused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from anabranch.planning.answer import Answer, RegionChoice
from anabranch.planning.models.briskstream import placed_rate
from anabranch.planning.models.placed_rates import Counts, Fetch, RateModel
from anabranch.planning.models.placed_units import Workload, workload_of
from anabranch.planning.planners.planner import Problem
from anabranch.planning.planners.search.placement_moves import SearchLimits
from anabranch.planning.profile import NANOSECONDS


@dataclass(frozen=True)
class Placing:
    """A problem as planners of placements see it.

    Attributes:
        problem: What was asked.
        workload: Units and streams.
        room: How many replicas there may be.
        input_rate: Tuples from outside, in the inverse of the profile's unit; None for any number.
    """

    problem: Problem
    workload: Workload
    room: SearchLimits
    input_rate: float | None = None

    @staticmethod
    def of(problem: Problem, input_rate: float | None = None) -> Placing:
        """The problem, with its units and limits."""
        runs = problem.regions
        if runs is None and len(problem.profile.operators) > problem.most_threads:
            runs = problem.profile.chains
        workload = workload_of(problem.profile, problem.machine, runs)
        limit = min(problem.machine.cores, problem.most_threads)
        crowded = limit < len(workload.units)
        if crowded:
            limit = max(problem.most_threads, len(workload.units))
        spare = limit - len(workload.units)
        most = tuple(
            1 + (spare if unit.most is None else min(spare, unit.most - 1))
            for unit in workload.units
        )
        return Placing(problem, workload, SearchLimits(limit, most, crowded), input_rate)

    @property
    def per_ns(self) -> float:
        """Factor from rates per nanosecond to those of the profile's unit."""
        return NANOSECONDS[self.problem.profile.unit or "ns"]

    def model(self, fetch: Fetch = Fetch.BY_DISTANCE) -> RateModel:
        """The model that a planner believes in."""
        outside = None if self.input_rate is None else self.input_rate / self.per_ns
        return RateModel(self.workload, self.problem.machine, fetch, input_per_ns=outside)

    def answer(self, counts: Counts, bound: float | None = None, placed: bool = True) -> Answer:
        """Replicas by unit and socket as an answer, with what the true model says of them."""
        found = placed_rate(self.model(), counts)
        regions = tuple(
            RegionChoice(
                (unit.operators,), round(float(row.sum())), _sockets(row) if placed else ()
            )
            for unit, row in zip(self.workload.units, counts, strict=True)
        )
        return Answer(regions, found.bounded * self.per_ns, found.utilization, bound, at_sinks=True)

    def replicas(self, answer: Answer) -> tuple[int, ...]:
        """Replicas of each unit in an answer."""
        by_operators = {region.operators: region.replicas for region in answer.regions}
        return tuple(by_operators[unit.operators] for unit in self.workload.units)

    def counts(self, answer: Answer) -> Counts:
        """Replicas by unit and socket in an answer that has placements."""
        by_operators = {region.operators: region.placement for region in answer.regions}
        sockets = self.problem.machine.sockets
        rows = [
            np.bincount(by_operators[unit.operators], minlength=sockets)
            for unit in self.workload.units
        ]
        return np.array(rows, dtype=np.float64)


def _sockets(row: Sequence[float] | Counts) -> tuple[int, ...]:
    return tuple(socket for socket, count in enumerate(row) for _ in range(round(float(count))))


def unplaced(replicas: Sequence[int], sockets: int) -> Counts:
    """Replicas that are all still anywhere: in the column behind the sockets."""
    counts = np.zeros((len(replicas), sockets + 1))
    counts[:, sockets] = replicas
    return counts
