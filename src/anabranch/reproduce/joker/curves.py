"""Joker's figures 5, 6, 8, 9 and 12: how much the adaptation gains, by what operators cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from anabranch.adapt.policies.organic import Organic
from anabranch.adapt.policies.organic_parts.changes import Actions
from anabranch.reproduce.joker.adapted import Adapted, Shapes, adapt
from anabranch.reproduce.joker.applications import TOPOLOGIES, costly_and_cheap, one_region
from anabranch.reproduce.joker.setting import JOKER, Application

MULTIPLICATIONS = "multiplications of each operator"
GAINS = (0.1, 0.2, 0.4)


@dataclass(frozen=True)
class Point:
    """Where an adaptation ended.

    Attributes:
        x: What was varied.
        speedup: Throughput over that of one thread a region.
        threads: Threads in the end, sources among them.
        shapes: Regions in the end.
        together: Whether several regions were changed in one step that was kept.
    """

    x: float
    speedup: float
    threads: int
    shapes: Shapes
    together: bool


@dataclass(frozen=True)
class Curves:
    """A figure: what is varied, and points by name of the series."""

    figure: str
    varied: str
    series: dict[str, tuple[Point, ...]]

    def speedups(self, name: str) -> list[float]:
        """One series."""
        return [point.speedup for point in self.series[name]]

    @property
    def xs(self) -> list[float]:
        """What was varied."""
        return [point.x for point in next(iter(self.series.values()))]


def figure_5(multiplications: Sequence[float]) -> Curves:
    """A region of four operators, by each order of actions."""
    series = {
        actions.value: _points(
            (m, one_region(*[m] * 4), replace(JOKER, actions=actions)) for m in multiplications
        )
        for actions in Actions
    }
    return Curves("figure 5", MULTIPLICATIONS, series)


def fission_only_with(buckets: int, multiplications: float) -> float:
    """What replicas alone bring to figure 5's region when its state has so many parts."""
    application = replace(one_region(*[multiplications] * 4), buckets=buckets)
    return adapt(application, replace(JOKER, actions=Actions.FISSION_ONLY)).speedup


def figure_6(multiplications: Sequence[float], operators: Sequence[int]) -> Curves:
    """Regions of several lengths."""
    series = {
        f"{n} operators": _points((m, one_region(*[m] * n), JOKER) for m in multiplications)
        for n in operators
    }
    return Curves("figure 6", MULTIPLICATIONS, series)


def figure_8(multiplications: Sequence[float]) -> Curves:
    """Several regions: trees and chains."""
    series = {
        name: _points((m, build(m), JOKER) for m in multiplications)
        for name, build in TOPOLOGIES.items()
    }
    return Curves("figure 8", MULTIPLICATIONS, series)


def figure_9(multiplications: Sequence[float]) -> Curves:
    """A region that costs eight times as much as the one behind it."""
    points = _points((m, costly_and_cheap(m), JOKER) for m in multiplications)
    return Curves("figure 9", "multiplications of the costly operator", {"fusion first": points})


def figure_12(multiplications: Sequence[float]) -> Curves:
    """Figure 5's region with several thresholds of what a change has to gain."""
    series = {
        f"gain {gain:g}": _points(
            (m, one_region(*[m] * 4), replace(JOKER, gain=gain)) for m in multiplications
        )
        for gain in GAINS
    }
    return Curves("figure 12", MULTIPLICATIONS, series)


def _points(cases: Iterable[tuple[float, Application, Organic]]) -> tuple[Point, ...]:
    return tuple(_point(x, adapt(application, policy)) for x, application, policy in cases)


def _point(x: float, run: Adapted) -> Point:
    return Point(x, run.speedup, run.threads, run.shapes, changes_together(run))


def changes_together(run: Adapted) -> bool:
    """Whether some step that was kept changed more than one region.

    A region changes against the step before it that was kept, or against one of everything.
    """
    now: Shapes = {name: ((sum(cuts),), 1) for name, (cuts, _) in run.shapes.items()}
    for step in run.steps:
        if step.kept:
            if sum(now[name] != shape for name, shape in step.shapes.items()) > 1:
                return True
            now = step.shapes
    return False
