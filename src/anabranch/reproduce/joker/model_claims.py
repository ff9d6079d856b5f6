"""What the paper says of figures 22 to 32, beside the plans and throughputs here."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.reproduce.claims import Claim, cannot, judge
from anabranch.reproduce.joker.adapted import Shapes
from anabranch.reproduce.joker.models import MISTAKEN, Compared

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
                f"{each.factor:g}: {_plan(each.joker.shapes)}, model {_plan(each.model.shapes)}"
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
        f"Joker {_plan(each.joker.shapes)}, model {_plan(each.model.shapes)}",
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


def _plan(shapes: Shapes) -> str:
    return ", ".join(f"{len(cuts)} × {replicas}" for cuts, replicas in shapes.values())


def _parallel(shape: tuple[tuple[int, ...], int]) -> bool:
    return len(shape[0]) * shape[1] > 1


def _first_only(shapes: Shapes) -> bool:
    first, *others = shapes.values()
    return _parallel(first) and not any(map(_parallel, others))
