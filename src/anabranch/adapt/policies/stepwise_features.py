"""Application features: what each region needs beside the others, whatever the machine.

Liu et al., A stepwise auto-profiling method for performance optimization of streaming applications,
TAAS 2017, §4.1: the least processing time of operators, the relative size of streams, Table 1's
classes, Algorithm 1 and eq. 1. Readings and deviations:
- Line 16 of Algorithm 1 divides by the smallest task load, line 23 by the largest.
- Eq. 1 rounds down; at least 1 is kept. "Reduced if possible" is read as division by the greatest
  common divisor: three operators alike grow by one task each, as the paper's Linear topology does.
- The unit is the region, since operators of a region share its replicas: its task load is that of
  its dearest pipeline, which is a thread as the paper's task is one.
- A stream's size is its number of tuples.
- Classes are found by measurement: output that hardly grows with the input is logic-dependent. That
  needs inputs that differ; where they do not, only what the user names is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import reduce
from math import ceil, gcd, inf
from statistics import fmean, pstdev

from anabranch.adapt.history import History
from anabranch.planning.regions import RegionKind

STEADY = 0.05
"""Relative deviation of selectivities up to which output is in proportion to input."""
VARIED = 0.1
"""Relative deviation of inputs from which on they can tell whether output grows with them."""
GROWS = 0.5
"""Part by which output has to follow a change of input in order to grow with it."""


class Correlation(Enum):
    """How the output of an operator depends on its input (Table 1)."""

    PROPORTIONAL = "proportional"
    WORKLOAD = "workload-dependent"
    LOGIC = "logic-dependent"


Passed = tuple[float, float]
"""Tuples per second into a step and out of it, in one period."""


def correlation(samples: Iterable[Passed]) -> Correlation:
    """The class of an operator, by what went in and came out period by period.

    Example:
        >>> [
        ...     correlation(s).value
        ...     for s in ([(10, 20), (30, 60)], [(10, 90), (30, 350)], [(10, 5), (30, 5)])
        ... ]
        ['proportional', 'workload-dependent', 'logic-dependent']
    """
    known = [(came, gave) for came, gave in samples if came > 0]
    if not known:
        return Correlation.PROPORTIONAL
    came, gave = [c for c, _ in known], [g for _, g in known]
    mean_in, mean_out = fmean(came), fmean(gave)
    if mean_out == 0:
        return Correlation.LOGIC
    spread = fmean((c - mean_in) ** 2 for c in came)
    if spread > (VARIED * mean_in) ** 2:
        together = fmean((c - mean_in) * (g - mean_out) for c, g in known)
        if together / spread * mean_in / mean_out < GROWS:
            return Correlation.LOGIC
    passed = [g / c for c, g in known]
    return (
        Correlation.PROPORTIONAL
        if pstdev(passed) <= STEADY * fmean(passed)
        else (Correlation.WORKLOAD)
    )


def dominated(upstream: Mapping[str, Collection[str]], logic: Collection[str]) -> frozenset[str]:
    """Those that every way from a source leads to through something logic-dependent.

    Args:
        upstream: What each takes from, in an order in which producers come first; sources take
            from nothing.
        logic: What is logic-dependent.

    Example:
        >>> sorted(dominated({"a": (), "top": "a", "x": ("top",), "y": ("x", "a")}, {"top"}))
        ['x']
    """
    found: set[str] = set()
    for name, above in upstream.items():
        if above and all(each in found or each in logic for each in above):
            found.add(name)
    return frozenset(found)


def ratios_and_degrees(
    loads: Mapping[str, float], non_parallel: Collection[str], non_scalable: Collection[str]
) -> tuple[dict[str, float], dict[str, int]]:
    """Algorithm 1: ratios of those that grow together, replicas of those that do not.

    Args:
        loads: Task loads: least processing time by relative size of the streams that come in.
        non_parallel: Who can have one replica only.
        non_scalable: To whom more does not come when the application takes in more.

    Example:
        >>> ratios_and_degrees(
        ...     {"parse": 2.0, "count": 4.0, "rank": 1.0, "total": 0.5},
        ...     non_parallel={"total"},
        ...     non_scalable={"rank"},
        ... )
        ({'parse': 0.5, 'count': 1.0}, {'rank': 2, 'total': 1})
    """
    parallel = {name: load for name, load in loads.items() if name not in non_parallel}
    total_flow = min((1 / loads[n] for n in non_parallel if loads.get(n, 0) > 0), default=inf)
    least = min((load for load in parallel.values() if load > 0), default=1.0)
    most = max(parallel.values(), default=0.0)
    ratios: dict[str, float] = {}
    degrees: dict[str, int] = {}
    for name, load in parallel.items():
        if name not in non_scalable:
            ratios[name] = load / most if most > 0 else 1.0
        elif total_flow == inf:
            degrees[name] = max(1, ceil(load / least))
        else:
            degrees[name] = max(1, ceil(load * total_flow))
    return ratios, degrees | {name: 1 for name in loads if name in non_parallel}


def whole_ratios(ratios: Mapping[str, float], unit: float) -> dict[str, int]:
    """Eq. 1: ratios as small whole numbers, in units of task load.

    Example:
        >>> whole_ratios({"parse": 0.71, "split": 0.67, "count": 1.0}, unit=0.3)
        {'parse': 2, 'split': 2, 'count': 3}
        >>> whole_ratios({"a": 1.0, "b": 0.98}, unit=0.3)
        {'a': 1, 'b': 1}
    """
    # A hair more: 0.9 / 0.3 is below 3 in floating point.
    found = {name: max(1, int(ratio / unit + 1e-9)) for name, ratio in ratios.items()}
    common = reduce(gcd, found.values(), 0) or 1
    return {name: number // common for name, number in found.items()}


Samples = Mapping[str, tuple[Passed, ...]]
"""What went in and came out of each step, period by period."""


def samples_of(seen: History) -> Samples:
    """What was seen of each step's input and output."""
    found: dict[str, tuple[Passed, ...]] = {}
    for each in seen.window:
        seconds = max(each.times.total_s + each.times.commit_s, 1e-9)
        for step in each.steps:
            passed = (step.rows_in / seconds, step.rows_out / seconds)
            found[step.step] = (*found.get(step.step, ()), passed)
    return found


@dataclass(frozen=True)
class Features:
    """What was learnt in the first step of profiling.

    Attributes:
        ratios: By how many replicas regions grow together.
        degrees: Replicas of regions that do not grow with them.
        least_us: The least processing time of each step.
        classes: The class of each step.
    """

    ratios: Mapping[str, int]
    degrees: Mapping[str, int]
    least_us: Mapping[str, float]
    classes: Mapping[str, Correlation]

    def __str__(self) -> str:
        """One line of a journal."""
        grown = f"{':'.join(self.ratios)} = {':'.join(map(str, self.ratios.values()))}"
        fixed = [f"{name} {number}" for name, number in self.degrees.items()]
        return "ratios " + grown + (f", fixed: {', '.join(fixed)}" if fixed else "")


def features_of(
    seen: History, unit: float, logic: Collection[str] = (), earlier: Samples | None = None
) -> Features | None:
    """The features of an application; None while too little has come through to tell.

    Args:
        seen: Best at a low load, when nothing waits for anything else.
        unit: Task load in which ratios are counted, `slice` in the paper.
        logic: Steps that are known to be logic-dependent.
        earlier: What steps passed on under another load.
    """
    working = seen.topology.working
    steps = [step for region in working for step in region.steps]
    rows = {step: seen.steps[step].rows_in if step in seen.steps else 0 for step in steps}
    total = sum(rows.values())
    if not total or not any(seen.steps[s].busy_s > 0 for s in steps if s in seen.steps):
        return None
    least = {s: (seen.steps[s].cost_us or 0.0) if s in seen.steps else 0.0 for s in steps}
    samples, before = samples_of(seen), earlier or {}
    classes = {
        s: Correlation.LOGIC
        if s in logic
        else correlation((*before.get(s, ()), *samples.get(s, ())))
        for s in steps
    }
    loads = {
        region.name: max(
            sum(least[s] * rows[s] / total for s in pipeline)
            for pipeline in seen.plan.region(region.name).pipelines
        )
        for region in working
    }
    ratios, degrees = ratios_and_degrees(
        loads, {r.name for r in working if not r.replicable}, _non_scalable(seen, classes)
    )
    return Features(whole_ratios(ratios, unit), degrees, least, classes)


def _non_scalable(seen: History, classes: Mapping[str, Correlation]) -> frozenset[str]:
    regions = [r for r in seen.topology.regions if r.kind is not RegionKind.SINK]
    logic = {r.name for r in regions if any(classes.get(s) is Correlation.LOGIC for s in r.steps)}
    return dominated({r.name: seen.topology.upstream(r.name) for r in regions}, logic)
