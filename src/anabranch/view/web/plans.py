"""The plans of a run, and what was last seen under each: how the graph stood then."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from anabranch.events import Shape
from anabranch.pictures.drawing import draw
from anabranch.planning.plan import Plan
from anabranch.view.web.numbers import moment
from anabranch.view.web.seen import Look, seen_as_object

News = Callable[[], dict[str, Any]]
"""Makes what the page is told, when somebody asks for it."""
MOST_PLANS = 500
"""Plans that can be looked at again."""


@dataclass
class InForce:
    """A plan from when on it was in force, and the last full look under it."""

    number: int
    at_s: float
    plan: Plan
    look: Look | None = None


class Plans:
    """The plans of one run, numbered from 1, and what its flow looks like."""

    def __init__(self, first: Plan, shape: Shape) -> None:
        """The plan that the run starts with."""
        self._shape = shape
        self._kept = deque([InForce(1, 0.0, first)], maxlen=MOST_PLANS)

    @property
    def now(self) -> InForce:
        """The newest one."""
        return self._kept[-1]

    def change(self, plan: Plan, at_s: float) -> int:
        """Another plan is in force; its number."""
        self._kept.append(InForce(self.now.number + 1, at_s, plan))
        return self.now.number

    def then(self, number: int) -> News | None:
        """What tells how the graph stood under a plan; None if it is not known any more."""
        found = next((each for each in self._kept if each.number == number), None)
        if found is None:
            return None
        plan, look, at_s, shape = found.plan, found.look, found.at_s, self._shape

        def told() -> dict[str, Any]:
            seen = None if look is None else seen_as_object(look, shape)
            about = {"number": number, "at_s": moment(at_s), "seen": seen}
            return about | plan_as_object(plan, shape)

        return told


def plan_as_object(plan: Plan, shape: Shape) -> dict[str, Any]:
    """A plan for the page: as text, by region, and drawn."""
    pipelines = {region.region: region.pipelines for region in plan.regions}
    replicas = {r.region: r.replicas for r in plan.regions} | {
        s.source: s.replicas for s in plan.sources
    }
    threads = sum(r.replicas * len(r.pipelines) for r in plan.regions)
    return {
        "plan": {
            "text": repr(plan),
            "threads": threads + sum(source.replicas for source in plan.sources),
            "pipelines": pipelines,
            "replicas": replicas,
        },
        "drawing": asdict(draw(shape, pipelines, replicas)),
    }
