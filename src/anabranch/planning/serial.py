"""Serial work: what one place does, whatever a plan says, and how many cores that lets help.

Regions work side by side, each on other rows. So a stream is as fast as the slowest of its serial
pipelines, and cores beyond *all work / that pipeline's work* have nothing to do (Amdahl's law for a
stream; where the stages of a micro-batch run one after another, even fewer cores help).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from anabranch.events import Shape, StepShape
from anabranch.graph import StateKind
from anabranch.planning.profile import OperatorProfile, Profile
from anabranch.planning.regions import Serial

Work = Mapping[tuple[str, ...], float]
"""By steps that share a thread, the time that they take, in any one unit."""

LIMITED = "has work for one replica only, as its profile says"
"""A source that cannot be entered in the middle, or a single key."""


@dataclass(frozen=True)
class SerialRegion:
    """A region all of whose rows pass one place.

    Attributes:
        region: Its name.
        why: The reason, in words that follow the name.
        share: Its part of all work; None where costs are not known.
    """

    region: str
    why: str
    share: float | None = None


@dataclass(frozen=True)
class SerialWork:
    """The serial regions of a flow.

    Attributes:
        regions: The one with most work first.
        slowest: The greatest part of all work that one thread of them has; None where costs are
            not known.
    """

    regions: tuple[SerialRegion, ...]
    slowest: float | None = None

    @property
    def share(self) -> float | None:
        """Their part of all work; None where costs are not known."""
        return None if self.slowest is None else sum(each.share or 0.0 for each in self.regions)

    @property
    def most_cores(self) -> float | None:
        """How many cores can help, and how many times as fast the stream can be; None: no bound."""
        return 1 / self.slowest if self.slowest else None

    def as_object(self) -> dict[str, Any]:
        """As the command line writes it."""
        regions = [{"region": r.region, "why": r.why, "share": r.share} for r in self.regions]
        return {"share": self.share, "most_cores": self.most_cores, "regions": regions}


def serial_work(shape: Shape, work: Work | None = None) -> SerialWork:
    """Return the serial regions of a flow, and what they bound.

    Args:
        shape: The flow, with the reasons.
        work: What its steps take; None where nobody knows.

    Example:
        >>> from anabranch.events import StepShape
        >>> steps = (
        ...     StepShape("parse", "operator", region="parse"),
        ...     StepShape("count", "operator", region="count", serial="is stateful"),
        ... )
        >>> found = serial_work(Shape(steps), {("parse",): 9.0, ("count",): 1.0})
        >>> found.regions, found.most_cores
        ((SerialRegion(region='count', why='is stateful', share=0.1),), 10.0)
    """
    why = {step.region: step.serial for step in shape.steps if step.serial}
    total = sum(work.values()) if work else 0.0
    if not work or not total:
        return SerialWork(tuple(SerialRegion(name, words) for name, words in why.items()))
    homes = {step.step: step.region for step in shape.steps}
    shares = dict.fromkeys(why, 0.0)
    slowest = 0.0
    for steps, taken in work.items():
        region = homes.get(steps[0], "")
        if region in shares:
            shares[region] += taken / total
            slowest = max(slowest, taken / total)
    regions = [SerialRegion(name, why[name], share) for name, share in shares.items()]
    return SerialWork(tuple(sorted(regions, key=lambda r: -(r.share or 0.0))), slowest)


def serial_of(profile: Profile, shape: Shape | None = None) -> SerialWork:
    """Return the serial work of an application that was profiled.

    Args:
        profile: What its operators cost.
        shape: Its flow; a profile alone has a region for each operator.

    Example:
        >>> from anabranch.planning.profile import chain
        >>> total = OperatorProfile("total", 1.0, state=StateKind.STATEFUL)
        >>> serial_of(chain([OperatorProfile("parse", 9.0), total])).regions
        (SerialRegion(region='total', why='is stateful', share=0.1),)
    """
    alone = shape is None
    shape = shape or Shape(tuple(StepShape(o.name, "", region=o.name) for o in profile.operators))
    steps = tuple(
        replace(step, serial=step.serial or _why(profile.by_name.get(step.step), alone))
        for step in shape.steps
    )
    work: Work = {(o.name,): profile.visits[o.name] * o.held for o in profile.operators}
    return serial_work(replace(shape, steps=steps), work)


def _why(operator: OperatorProfile | None, alone: bool) -> str:
    """Return why replicas of an operator do not help, as its profile says; "" where they do.

    Args:
        operator: The operator.
        alone: Whether nothing but the profile says what kind of state it has.
    """
    if operator is None:
        return ""
    if alone and operator.state is StateKind.STATEFUL:
        return Serial.STATEFUL.value
    return LIMITED if operator.max_replicas == 1 else ""
