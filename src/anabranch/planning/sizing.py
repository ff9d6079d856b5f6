"""Sizing: how many cores a rate and a latency need, and how sure that is.

What is needed is found by who knows the engine: on threads `sizing_threads.py`, in micro-batches
`sizing_batches.py`. How sure that is: they are asked again with costs that are lower and higher by
as much as the models were off on this project's engines (`docs/benchmarks.md`: half of the plans
that were measured are predicted within a tenth, three in four within 15 %); the higher ones are
also a deviation above the median, as the profile's 99th percentiles tell. The interval is what
these two need.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import exp, inf

from anabranch.errors import PlanError, Subject
from anabranch.planning.answer import Answer
from anabranch.planning.models.latency import deviation
from anabranch.planning.profile import OperatorProfile, Profile

MODEL_ERROR = 0.15
"""Three in four of the plans that were measured are predicted within this."""
HEADROOM = 0.2
MOST_CORES = 64


@dataclass(frozen=True)
class Target:
    """What an application shall do.

    Attributes:
        rate_per_s: Tuples a second that its sources read together.
        latency_ms: What 99 in a hundred tuples may take at most; None for any time.
        headroom: Part of the rate that the plan shall be able to carry on top.
        most_cores: Cores beyond which nobody looks.
    """

    rate_per_s: float
    latency_ms: float | None = None
    headroom: float = HEADROOM
    most_cores: int = MOST_CORES

    def __post_init__(self) -> None:
        """Check values."""
        for name, value in (("rate", self.rate_per_s), ("latency-ms", self.latency_ms)):
            if value is not None and not 0 < value < inf:
                raise PlanError(
                    Subject("argument", name),
                    "a number above 0",
                    str(value),
                    "say what is asked for",
                )
        if not 0 <= self.headroom < inf:
            raise PlanError(
                Subject("argument", "headroom"),
                "a part of 0 or more",
                str(self.headroom),
                "0.2 is a fifth on top",
            )

    def in_time(self, latency_ms: float) -> bool:
        """Whether a latency is short enough, which one without end never is.

        Example:
            >>> Target(100.0).in_time(1e6), Target(100.0).in_time(inf)
            (True, False)
        """
        return latency_ms < inf and (self.latency_ms is None or latency_ms <= self.latency_ms)


@dataclass(frozen=True)
class Fit:
    """Cores that do, and how.

    Attributes:
        cores: How many.
        answer: The plan.
        rate_per_s: The most that it carries.
        busy_cores: Cores at work at the rate that is asked for.
        latency_ms: What 99 in a hundred tuples do not exceed at that rate.
        batch_rows: Rows of a jumbo tuple at most, or of a micro-batch.
    """

    cores: int
    answer: Answer
    rate_per_s: float
    busy_cores: float
    latency_ms: float
    batch_rows: int


@dataclass(frozen=True)
class Shortfall:
    """Why no number of cores does.

    Attributes:
        what: `rate` or `latency`.
        best: The greatest rate a second, or the shortest latency in milliseconds.
        because: What bounds it.
    """

    what: str
    best: float
    because: str


Found = Fit | Shortfall


@dataclass(frozen=True)
class Sizing:
    """What an application needs for a target.

    Attributes:
        name: What it is called.
        target: For what.
        fit: What it needs, or why nothing does.
        well: The same if costs are as low as they may be.
        badly: The same if they are as high.
    """

    name: str
    target: Target
    fit: Found
    well: Found
    badly: Found


def size(name: str, profile: Profile, target: Target, find: Callable[[Profile], Found]) -> Sizing:
    """Find what an application needs, and between what that lies.

    Args:
        name: What it is called.
        profile: What its operators cost.
        target: What it shall do.
        find: The least that does, if operators cost what a profile says.
    """
    fit, well, badly = (find(each) for each in (profile, *bounds(profile)))
    return Sizing(name, target, fit, well, badly)


def bounds(profile: Profile) -> tuple[Profile, Profile]:
    """The same profile if costs are as low, and as high, as they may be.

    Example:
        >>> from anabranch.planning.profile import chain
        >>> low, high = bounds(chain([OperatorProfile("parse", 100.0)]))
        >>> round(low.by_name["parse"].cost), round(high.by_name["parse"].cost)
        (85, 115)
    """
    return _times(profile, lambda operator: 1 - MODEL_ERROR), _times(
        profile, lambda operator: (1 + MODEL_ERROR) * exp(deviation(operator) or 0.0)
    )


def _times(profile: Profile, factor: Callable[[OperatorProfile], float]) -> Profile:
    operators = tuple(
        replace(o, cost=o.cost * factor(o), cost_p99=o.cost_p99 and o.cost_p99 * factor(o))
        for o in profile.operators
    )
    return replace(profile, operators=operators)
