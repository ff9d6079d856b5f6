"""Joker's figures 22 to 32: its policy beside the plans of Pipelined Fission's heuristic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anabranch.planning.flow_problem import as_plan
from anabranch.planning.plan import Plan
from anabranch.planning.planners.fission import fission
from anabranch.planning.planners.planner import Problem
from anabranch.planning.profile import Overheads
from anabranch.planning.regions import RegionKind, regions
from papers.claims import Claim, cannot, judge
from papers.joker.applications import MACHINE, OVERHEADS, Application, compared
from papers.joker.runs import Shapes, adapt, rate_under, shapes_of, threads_of

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


SMALL = 0.2
"""Factors up to this are called small."""


def model_claims(found: Sequence[Compared]) -> list[Claim]:
    """The claims of all figures about plans of a model."""
    by_factor = {each.factor: each for each in found}
    small = [each for each in found if each.factor <= SMALL]
    return [
        judge(
            "figures 22–25",
            "at small factors both parallelize the first region only",
            "; ".join(
                f"{each.factor:g}: {sizes(each.joker.shapes)}, model {sizes(each.model.shapes)}"
                for each in small
            ),
            all(_first_only(p.shapes) for each in small for p in (each.joker, each.model)),
            "one pipeline and one replica in all other regions",
        ),
        cannot(
            "figures 22–31",
            "the plans, one by one",
            "see the table",
            "the operators of figure 21 are in a picture; all but one were chosen here",
        ),
        _downstream(by_factor[0.8]),
        _bounded(by_factor[1.0]),
        *_throughputs(found),
    ]


def _downstream(each: Compared) -> Claim:
    last = each.joker.shapes["mult5"]
    return judge(
        "figures 28–29",
        "at 0.8 the model replicates the region downstream, and Joker changes both regions",
        f"Joker {sizes(each.joker.shapes)}, model {sizes(each.model.shapes)}",
        _parallel(last)
        and _parallel(each.joker.shapes["mult1"])
        and each.model.shapes["mult5"][1] > 1,
        "several replicas downstream by the model; more than one thread in both regions by Joker",
    )


def _bounded(each: Compared) -> Claim:
    of_bound = [p.rate_per_s / each.stateful_per_s for p in (each.joker, each.model)]
    return judge(
        "figures 30–31",
        "at 1.0 the stateful region bounds both",
        f"Joker reaches {of_bound[0]:.0%} of what it lets through, the model {of_bound[1]:.0%}",
        min(of_bound) >= 0.9,
        "90 % or more of what one thread of that region can do",
    )


def _throughputs(found: Sequence[Compared]) -> list[Claim]:
    ratios = {each.factor: each.joker.rate_per_s / each.model.rate_per_s for each in found}
    wrong = {each.factor: each.joker.rate_per_s / each.mistaken.rate_per_s for each in found}
    threads = [(each.joker.threads, each.model.threads) for each in found]
    return [
        judge(
            "figure 32",
            "Joker's throughput is comparable to that of the model's plans",
            ", ".join(f"{ratio:.0%} at {factor:g}" for factor, ratio in ratios.items()),
            min(ratios.values()) >= 0.9,
            "90 % or more at every factor; the model is told the true overheads here, and Joker "
            "stops where one more replica brings less than a tenth",
        ),
        judge(
            "figure 32",
            "Joker uses more threads than the model's plans",
            ", ".join(f"{joker} and {model}" for joker, model in threads),
            all(joker >= model for joker, model in threads),
            "as many or more at every factor",
        ),
        judge(
            "figure 32",
            "a model whose parameters do not fit the runtime can do worse than Joker",
            f"told {MISTAKEN:g} times the overheads: "
            + ", ".join(f"Joker {ratio:.2f}× at {factor:g}" for factor, ratio in wrong.items()),
            max(wrong.values()) > 1.1,
            "Joker more than a tenth better at some factor",
        ),
    ]


def sizes(shapes: Shapes) -> str:
    """Return pipelines × replicas of each region.

    Example:
        >>> sizes({"a": ((2, 1), 3), "b": ((1,), 1)})
        '2 × 3, 1 × 1'
    """
    return ", ".join(f"{len(cuts)} × {replicas}" for cuts, replicas in shapes.values())


def _parallel(shape: tuple[tuple[int, ...], int]) -> bool:
    return len(shape[0]) * shape[1] > 1


def _first_only(shapes: Shapes) -> bool:
    first, *others = shapes.values()
    return _parallel(first) and not any(map(_parallel, others))
