"""Joker's figures 22 to 32: its policy beside the plans of Pipelined Fission's heuristic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anabranch.planning.for_flow import as_plan
from anabranch.planning.plan import Plan
from anabranch.planning.planners.fission import fission
from anabranch.planning.planners.planner import Problem
from anabranch.planning.profile import Overheads
from anabranch.planning.regions import RegionKind, regions
from anabranch.reproduce.joker.adapted import Shapes, adapt, rate_under, shapes_of, threads_of
from anabranch.reproduce.joker.applications import compared
from anabranch.reproduce.joker.setting import MACHINE, OVERHEADS, Application

FACTORS = (0.1, 0.2, 0.4, 0.8, 1.0)
MISTAKEN = 10.0
"""The heuristic is also asked with overheads that are so many times the true ones."""


@dataclass(frozen=True)
class Planned:
    """A plan, and what it reads per second."""

    shapes: Shapes
    threads: int
    rate_per_s: float


@dataclass(frozen=True)
class Compared:
    """One factor of the selectivities.

    Attributes:
        factor: What selectivities are multiplied with.
        joker: Where the policy ended.
        model: The heuristic's plan, told the true overheads.
        mistaken: The same, told wrong ones.
        stateful_per_s: What the stateful region lets through at most.
    """

    factor: float
    joker: Planned
    model: Planned
    mistaken: Planned
    stateful_per_s: float


def compare(factors: Sequence[float] = FACTORS) -> tuple[Compared, ...]:
    """All factors."""
    return tuple(_compared(factor) for factor in factors)


def _compared(factor: float) -> Compared:
    application = compared(factor)
    run = adapt(application)
    return Compared(
        factor,
        Planned(run.shapes, run.threads, run.after_per_s),
        _planned(application, 1.0),
        _planned(application, MISTAKEN),
        _stateful_per_s(application),
    )


def _planned(application: Application, times: float) -> Planned:
    plan = heuristic(application, times)
    return Planned(shapes_of(plan), threads_of(plan), rate_under(application, plan))


def heuristic(application: Application, times: float) -> Plan:
    """The plan of Pipelined Fission's heuristic, told so many times the true overheads."""
    flow = application.flow()
    told = Overheads(OVERHEADS.thread_switch * times, OVERHEADS.replication * times)
    runs = tuple(r.steps for r in regions(flow) if r.kind is not RegionKind.SINK)
    profile = replace(application.profile(), overheads=told)
    return as_plan(flow, fission(Problem(profile, MACHINE, None, runs)))


def _stateful_per_s(application: Application) -> float:
    """Tuples of the source for which the region that cannot be replicated has the time."""
    profile = application.profile()
    middle = profile.by_name["mult4"]
    handed_us = OVERHEADS.thread_switch * (1 + middle.selectivity)
    return 1e6 / (profile.visits["mult4"] * (middle.cost + handed_us))
