"""What Joker's algorithm remembers: metrics of pipelines, blacklists, the change under way.

Everything is a value: each function gives another memory and leaves the old one as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from anabranch.adapt.guards import Load
from anabranch.adapt.policies.organic_parts.changes import Change, Pipeline, Shape
from anabranch.adapt.seen import Seen
from anabranch.planning.plan import Plan

PipelineOf = tuple[str, Pipeline]
"""A pipeline, with its region."""


@dataclass(frozen=True)
class Attempt:
    """A change of some regions that was proposed.

    Attributes:
        base: The plan before it.
        changes: What is done to each of these regions.
    """

    base: Plan
    changes: tuple[Change, ...]

    @property
    def regions(self) -> frozenset[str]:
        """The adapting regions."""
        return frozenset(change.region.region for change in self.changes)


@dataclass(frozen=True)
class Remembered:
    """A memory.

    Attributes:
        metrics: By pipeline, rate of its region and its busy share when its load last changed.
        blacklist: By pipeline, shapes of its region that did not help it.
        attempt: What was proposed last, until it is judged.
        stable: Periods in a row in which there was nothing to do.
    """

    metrics: Mapping[PipelineOf, Load] = field(default_factory=dict)
    blacklist: Mapping[PipelineOf, frozenset[Shape]] = field(default_factory=dict)
    attempt: Attempt | None = None
    stable: int = 0

    def refuses(self, region: str, pipeline: Pipeline, shape: Shape) -> bool:
        """Whether a shape did not help a pipeline before."""
        return shape in self.blacklist.get((region, pipeline), frozenset())


def region_rate(seen: Seen, region: str) -> float:
    """Tuples that a region took in per second: all of the window, each period the same."""
    first = seen.topology.region(region).steps[0]
    if first in seen.steps:
        return seen.steps[first].rows_in / max(seen.seconds, 1e-9)
    return seen.region_rate(region)


def readings(seen: Seen, regions: Iterable[str]) -> dict[PipelineOf, Load]:
    """Throughput and busy share of all pipelines of some regions."""
    found = {}
    for name in regions:
        rate = region_rate(seen, name)
        runs = seen.plan.region(name).pipelines
        for run, busy in zip(runs, seen.busy(name), strict=True):
            found[name, run] = Load(rate, busy)
    return found


def updated(memory: Remembered, seen: Seen, threshold: float) -> Remembered:
    """Algorithm 7: pipelines whose load has changed forget their blacklists."""
    now = readings(seen, [region.name for region in seen.topology.working])
    changed = {
        key
        for key, load in now.items()
        if key in memory.metrics and memory.metrics[key].differs(load, threshold)
    }
    old = {key: load for key, load in memory.metrics.items() if key not in changed}
    return replace(
        memory,
        metrics={key: old.get(key, load) for key, load in now.items()},
        blacklist={
            key: shapes
            for key, shapes in memory.blacklist.items()
            if key in now and key not in changed
        },
        stable=0 if changed else memory.stable,
    )


def blacklisted(memory: Remembered, changes: Iterable[Change]) -> Remembered:
    """Algorithm 6: what did not help is not tried again."""
    known = dict(memory.blacklist)
    for change in changes:
        for pipeline, shape in change.tried:
            key = (change.region.region, pipeline)
            known[key] = known.get(key, frozenset()) | {shape}
    return replace(memory, blacklist=known)


def finalized(memory: Remembered, seen: Seen, attempt: Attempt) -> Remembered:
    """Algorithm 5: what helped stands; its pipelines have new metrics and clean blacklists."""
    adapted = {(c.region.region, pipeline) for c in attempt.changes for pipeline, _ in c.tried}
    return replace(
        memory,
        metrics={**memory.metrics, **readings(seen, attempt.regions)},
        blacklist={k: shapes for k, shapes in memory.blacklist.items() if k not in adapted},
        attempt=None,
    )


def cleared(memory: Remembered, seen: Seen) -> Remembered:
    """Forget a proposal that nobody judged.

    Where the plan is still the old one, a guard refused it or it could not be applied: then it is
    not to be proposed again. Where the plan is another one, somebody else has changed it.
    """
    attempt = memory.attempt
    if attempt is None:
        return memory
    refused = attempt.changes if attempt.base == seen.plan else ()
    return replace(blacklisted(memory, refused), attempt=None)
