"""From a flow to a problem for planners, and from their answer back to a plan of the flow.

A flow's regions are fixed (`regions.py`), so planners choose their pipelines, replicas and places
and never move a border.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from anabranch.errors import BuildError, PlanError, Subject
from anabranch.flow import Flow, Stream
from anabranch.planning.answer import Answer, RegionChoice
from anabranch.planning.machine import Machine
from anabranch.planning.models.fission import estimate
from anabranch.planning.models.model import Bounds
from anabranch.planning.plan import Plan, RegionPlan
from anabranch.planning.planners.exact import exact
from anabranch.planning.planners.planner import Problem
from anabranch.planning.planners.search.region_options import Option, cuttings, options
from anabranch.planning.profile import NANOSECONDS, OperatorProfile, Overheads, Profile
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
    """The most replicas that a flow allows and that can gain anything; None for no bound."""
    if region.serial is not None:
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
        if region.kind is RegionKind.SINK and choice.replicas > 1:
            rows = max(source.batch_rows for source in plan.sources)
            plan = plan.with_range_rows(region.name, rows)
        plan = plan.with_pipelines(region.name, *(len(p) for p in choice.pipelines))
        if choice.placement:
            placement = tuple(f"socket{number}" for number in choice.placement)
            plan = _placed(plan, replace(plan.region(region.name), placement=placement))
    plan.validate(flow)
    return plan


def _placed(plan: Plan, changed: RegionPlan) -> Plan:
    kept = (changed if each.region == changed.region else each for each in plan.regions)
    return replace(plan, regions=tuple(kept))


# The fission model of one flow on one machine, for those who plan while it runs.
#
# Regions of a flow are fixed, so each can be looked at by itself: the ways to run it that could be
# part of a best plan are few (`search/region_options.py`), and the cheapest one that is fast enough
# for a rate is found without a search.

MOST_REPLICAS_PER_CORE = 2
ENOUGH = 0.99


class FlowModel:
    """What plans of a flow promise on threads; see `Model`.

    Args:
        flow: The application.
        machine: Where it runs.
        overheads: What parallelism costs, in nanoseconds; what profiles say when left out.
    """

    def __init__(self, flow: Flow, machine: Machine, overheads: Overheads | None = None) -> None:
        self._flow, self._machine, self._overheads = flow, machine, overheads

    def rate_per_s(self, profile: Profile, plan: Plan) -> float:
        """The greatest rate that a plan promises."""
        known = self._problem(profile, None).profile
        found = estimate(known, choices(self._flow, plan), self._machine.capacity)
        return found.throughput * per_s(profile)

    def best(
        self,
        profile: Profile,
        plan: Plan,
        rate_per_s: float | None = None,
        bounds: Bounds | None = None,
    ) -> Plan:
        """The cheapest plan that promises a rate, or the one that promises most."""
        problem = self._problem(profile, bounds)
        if rate_per_s is not None:
            found = cheapest(problem, per_s(profile) / rate_per_s if rate_per_s else inf)
            if found is not None:
                return as_plan(self._flow, found, plan)
        most = exact(problem)
        # Threads that hardly add to the rate are left out.
        found = cheapest(problem, 1 / (ENOUGH * most.throughput))
        return as_plan(self._flow, found or most, plan)

    def _problem(self, profile: Profile, bounds: Bounds | None) -> Problem:
        most = MOST_REPLICAS_PER_CORE * self._machine.cores
        if bounds is not None:
            most = min(most, bounds.replicas)
        operators = tuple(
            replace(o, max_replicas=min(most, o.max_replicas or most)) for o in profile.operators
        )
        known = replace(profile, operators=operators)
        if self._overheads is not None:
            unit = NANOSECONDS[profile.unit or "ns"]
            switch, replication = self._overheads.thread_switch, self._overheads.replication
            known = replace(known, overheads=Overheads(switch / unit, replication / unit))
        found = problem_for(self._flow, known, self._machine)
        if bounds is None:
            return found
        threads = max(found.least_threads, min(found.most_threads, bounds.threads))
        return replace(found, threads=threads)


def per_s(profile: Profile) -> float:
    """Units of a profile's time in a second."""
    return 1e9 / NANOSECONDS[profile.unit or "ns"]


def choices(flow: Flow, plan: Plan) -> list[RegionChoice]:
    """A plan as models take it: regions with pipelines and replicas."""
    found = []
    for region in regions(flow):
        if region.kind is RegionKind.SOURCE:
            found.append(RegionChoice((region.steps,), plan.source(region.name).replicas))
        else:
            planned = plan.region(region.name)
            found.append(RegionChoice(planned.pipelines, planned.replicas))
    return found


def cheapest(problem: Problem, turn: float) -> Answer | None:
    """The plan with fewest threads in which no region needs longer than a turn; None if none."""
    profile, chosen = problem.profile, []
    for run in problem.runs:
        ways = cuttings(profile, run, True)[len(run)]
        found = options(profile, run, ways, problem.most_threads, True)
        fast = [option for option in found if option.turn <= turn]
        if not fast:
            return None
        chosen.append(min(fast, key=_cost))
    plan = tuple(option.choice for option in chosen)
    promised = estimate(profile, plan, problem.machine.capacity)
    slower = promised.throughput < (1 - 1e-9) / turn
    if slower or sum(option.threads for option in chosen) > problem.most_threads:
        return None
    return Answer(plan, promised.throughput, promised.utilization)


def _cost(option: Option) -> tuple[int, float, int]:
    """Threads first, then work; of equals, pipelines move no state."""
    return option.threads, option.work, option.replicas
