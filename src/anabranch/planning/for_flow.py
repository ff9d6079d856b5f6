"""From a flow to a problem for planners, and from their answer back to a plan of the flow.

A flow's regions are fixed (`regions.py`), so planners choose their pipelines, replicas and places
and never move a border.
"""

from __future__ import annotations

from dataclasses import replace

from anabranch.errors import BuildError, PlanError, Subject
from anabranch.flow import Flow, Stream
from anabranch.planning.answer import Answer
from anabranch.planning.machine import Machine
from anabranch.planning.plan import Plan, RegionPlan
from anabranch.planning.planners.planner import Problem
from anabranch.planning.profile import OperatorProfile, Profile
from anabranch.planning.regions import Region, RegionKind, regions


def require_flow(flow: object) -> None:
    """Refuse what is no Flow, with the way to one."""
    if isinstance(flow, Flow):
        return
    remedy = "build one with ab.Flow(name), and pass that"
    if isinstance(flow, Stream):
        remedy = "pass the flow that the stream belongs to"
    elif callable(flow):
        remedy = "call the function that builds it"
    raise BuildError(
        Subject("argument", "flow"), "a Flow", f"{type(flow).__name__} {flow!r:.80}", remedy
    )


def problem_for(
    flow: Flow, profile: Profile, machine: Machine, threads: int | None = None
) -> Problem:
    """What to ask a planner about a flow whose profile was taken."""
    found = regions(flow)
    steps = {step for region in found for step in region.steps}
    if steps != set(profile.by_name):
        raise PlanError(
            Subject("flow", flow.name),
            f"a profile with the steps {sorted(steps)}",
            str(sorted(profile.by_name)),
            f"take one with `anabranch profile {flow.name}`",
        )
    bounds = {region.steps[0]: _most_replicas(region) for region in found}
    operators = tuple(_bounded(one, bounds.get(one.name)) for one in profile.operators)
    return Problem(
        replace(profile, operators=operators),
        machine,
        threads,
        tuple(region.steps for region in found),
    )


def _most_replicas(region: Region) -> int | None:
    """What the flow allows; None for no bound."""
    if not region.replicable:
        return 1
    return region.buckets if region.mapped else None


def _bounded(operator: OperatorProfile, bound: int | None) -> OperatorProfile:
    bounds = [each for each in (operator.max_replicas, bound) if each is not None]
    return replace(operator, max_replicas=min(bounds, default=None))


def as_plan(flow: Flow, answer: Answer, start: Plan | None = None) -> Plan:
    """The plan of a flow that an answer describes; the rest is as in the plan to start from."""
    plan = start or Plan.sequential(flow)
    by_steps = {region.steps: region for region in regions(flow)}
    for choice in answer.regions:
        region = by_steps.get(choice.operators)
        if region is None:
            raise PlanError(
                Subject("flow", flow.name),
                f"regions among {[list(steps) for steps in by_steps]}",
                str(list(choice.operators)),
                "plan the flow itself: a profile's regions may be cut elsewhere",
            )
        if region.kind is RegionKind.SOURCE:
            plan = plan.with_source(region.name, replicas=choice.replicas)
            continue
        plan = plan.with_replicas(region.name, choice.replicas)
        plan = plan.with_pipelines(region.name, *(len(p) for p in choice.pipelines))
        if choice.placement:
            placement = tuple(f"socket{number}" for number in choice.placement)
            plan = _placed(plan, replace(plan.region(region.name), placement=placement))
    plan.validate(flow)
    return plan


def _placed(plan: Plan, changed: RegionPlan) -> Plan:
    kept = (changed if each.region == changed.region else each for each in plan.regions)
    return replace(plan, regions=tuple(kept))
