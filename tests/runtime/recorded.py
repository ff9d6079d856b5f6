"""What the units of an interleaved run do, recorded, and STRETCH's properties checked on it (§3).

A moment is a number from one counter. The driver runs one unit at a time, so that "before" means
the same for all of them; the seed decides what comes before what.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

import pytest

from anabranch.flow import Flow
from anabranch.planning.plan import Plan
from anabranch.planning.regions import Region, RegionKind
from anabranch.runtime.channel import Channel, owned_buckets
from anabranch.runtime.host import Host
from anabranch.runtime.layout import Topology
from anabranch.runtime.messages import Begin, UnitId
from anabranch.runtime.unit import Unit
from anabranch.state.positions import START, Jumbo, Root
from anabranch.state.tables.store import ObjectStore
from anabranch.testing.interleaved import Interleaved


@dataclass(frozen=True)
class Work:
    """One call of the kernels of a unit.

    Attributes:
        epoch: The epoch of the unit.
        unit: Who works.
        roots: Of all tuples, in the order in which the unit got them.
        frontier: How far the unit has come with them.
        promised: What all of its links had passed then.
        buckets: The buckets that it owned.
        steps: The steps that it ran.
        moment: When.
    """

    epoch: int
    unit: UnitId
    roots: tuple[Root, ...]
    frontier: Root
    promised: Root
    buckets: tuple[int, ...]
    steps: tuple[str, ...]
    moment: int


@dataclass
class Story:
    """What happened in one region.

    Attributes:
        region: The region.
        ordered: Whether it needs the order of its input.
        timed: Whether its input has event time.
        plans: By epoch, the whole plan.
        work: All that its units did.
        held: At several moments, by unit and step, the buckets whose state a unit holds.
    """

    region: Region
    ordered: bool
    timed: bool
    plans: dict[int, Plan] = field(default_factory=dict)
    work: list[Work] = field(default_factory=list)
    held: list[dict[tuple[UnitId, str], set[int]]] = field(default_factory=list)

    def epochs(self, pipeline: int = 0) -> dict[int, list[Work]]:
        """By epoch, the work of the first pipelines, or of others."""
        found: dict[int, list[Work]] = defaultdict(list)
        for work in self.work:
            if work.unit.pipeline == pipeline:
                found[work.epoch].append(work)
        return dict(sorted(found.items()))


class Recorder:
    """Watches every unit of interleaved runs for as long as the patch lasts."""

    def __init__(self, patch: pytest.MonkeyPatch, flow: Flow) -> None:
        topology = Topology(flow)
        self.stories = {
            name: Story(
                region,
                topology.ordered[name],
                topology.contexts[region.steps[0]].inputs[0].time is not None,
            )
            for name, region in topology.regions.items()
            if region.kind is not RegionKind.SOURCE
        }
        self._clock = count()
        self._hosts: list[Host] = []
        self._running: Unit | None = None
        self._watch_epochs(patch)
        self._watch_work(patch)

    def _watch_epochs(self, patch: pytest.MonkeyPatch) -> None:
        begin, enter = Host._begin, Host._try_to_enter
        recorder = self

        def begun(host: Host, message: Begin) -> None:
            if host not in recorder._hosts:
                recorder._hosts.append(host)
            for story in recorder.stories.values():
                story.plans[message.epoch] = message.plan
            begin(host, message)

        def entered(host: Host, name: UnitId) -> None:
            enter(host, name)
            recorder.stories[name.region].held.append(recorder._held(name.region))

        patch.setattr(Host, "_begin", begun)
        patch.setattr(Host, "_try_to_enter", entered)

    def _watch_work(self, patch: pytest.MonkeyPatch) -> None:
        run, run_channel = Unit.run, Channel.run
        recorder = self

        def watched(unit: Unit, *arguments: Any) -> None:
            recorder._running = unit
            run(unit, *arguments)

        def worked(channel: Channel, pipeline: int, inputs: Any, frontier: Root, tap: Any) -> Any:
            unit = recorder._running
            assert unit is not None
            recorder.stories[unit.id.region].work.append(
                Work(
                    unit.epoch,
                    unit.id,
                    _roots(inputs),
                    frontier,
                    unit._gate.frontier,
                    channel.buckets,
                    tuple(channel.kernels),
                    next(recorder._clock),
                )
            )
            return run_channel(channel, pipeline, inputs, frontier, tap)

        patch.setattr(Unit, "run", watched)
        patch.setattr(Channel, "run", worked)

    def _held(self, region: str) -> dict[tuple[UnitId, str], set[int]]:
        """By unit and step, the buckets whose state a unit holds, whatever it owns."""
        found: dict[tuple[UnitId, str], set[int]] = {}
        for host in self._hosts:
            for name, unit in host.units.items():
                for step, kernel in unit.channel.kernels.items():
                    stores = [s for s in kernel.stores if isinstance(s, ObjectStore)]
                    if name.region == region and stores:
                        found[name, step] = {b for s in stores for b, e in s._buckets.items() if e}
        return found


def _roots(inputs: Sequence[Jumbo | None]) -> tuple[Root, ...]:
    there = [jumbo for jumbo in inputs if jumbo is not None]
    return tuple(Root(*row[:4]) for jumbo in there for row in jumbo.positions.rows())


def record(
    patch: pytest.MonkeyPatch,
    flow: Flow,
    plan: Plan,
    changes: Sequence[Plan],
    seed: int,
    *,
    may_fail: bool = False,
) -> dict[str, Story]:
    """Run with changes of plan, and return the story of each region, of failed runs if allowed."""
    recorder = Recorder(patch, flow)
    with suppress(Exception) if may_fail else nullcontext():
        Interleaved(flow, plan, Random(seed), list(changes), 0, 4, None).run()
    return recorder.stories


# The properties: each tells the first thing that breaks it


def violations(stories: dict[str, Story]) -> Iterator[str]:
    """Everything that breaks P1 to P6."""
    for name, story in stories.items():
        for check in PROPERTIES:
            found = check(story)
            if found is not None:
                yield f"{check.__doc__[:2]} of {name}: {found}"


def one_order(story: Story) -> str | None:
    """P1: all units of an epoch process their tuples in the same order."""
    if not story.ordered:
        return None
    for epoch, works in story.epochs().items():
        seen: dict[UnitId, list[Root]] = defaultdict(list)
        for work in works:
            seen[work.unit] += work.roots
        if any(roots != sorted(roots) for roots in seen.values()):
            return f"in epoch {epoch}, not in order"
        if story.region.kind is RegionKind.SHARED:
            replicas = range(story.plans[epoch].region(story.region.name).replicas)
            got = [seen[UnitId(story.region.name, replica)] for replica in replicas]
            if any(roots != got[0] for roots in got):
                return f"in epoch {epoch}, not all replicas got the same tuples"
    return None


def own_buckets(story: Story) -> str | None:
    """P2: each bucket is accessed by one unit only."""
    if not story.region.mapped:
        return None
    for pipeline in {work.unit.pipeline for work in story.work}:
        for epoch, works in story.epochs(pipeline).items():
            owners: dict[int, set[UnitId]] = defaultdict(set)
            for work in works:
                for bucket in work.buckets:
                    owners[bucket].add(work.unit)
            shared = sorted(bucket for bucket, who in owners.items() if len(who) > 1)
            if shared:
                return f"in epoch {epoch}, several units own {shared}"
    for held in story.held:
        by_step: dict[str, list[int]] = defaultdict(list)
        for (_, step), buckets in held.items():
            by_step[step] += buckets
        for step, buckets in by_step.items():
            if len(set(buckets)) < len(buckets):
                return f"several units hold the state of one bucket of {step}"
    return None


def merged_when_ready(story: Story) -> str | None:
    """P3: tuples of several streams are merged into one sequence, and processed when ready."""
    if not story.ordered:
        return None
    passed: dict[tuple[int, UnitId], Root] = defaultdict(lambda: START)
    for works in story.epochs().values():
        for work in works:
            own = work.epoch, work.unit
            if any(root < passed[own] for root in work.roots):
                return f"{work.unit} gets what is before {passed[own]}, which it had passed"
            if any(root >= work.promised for root in work.roots):
                return f"{work.unit} gets more than is ready at {work.promised}"
            passed[own] = work.frontier
    return None


def after_the_last(story: Story) -> str | None:
    """P4: a bucket's first work in an epoch comes after its last work in the epoch before."""
    last: dict[tuple[str, int], tuple[int, int]] = {}  # by step and bucket, epoch and moment
    for work in sorted(story.work, key=lambda each: (each.epoch, each.moment)):
        for step in work.steps:
            for bucket in work.buckets:
                epoch, moment = last.get((step, bucket), (-1, -1))
                if work.moment < moment:
                    return f"bucket {bucket} was used in epoch {epoch} after epoch {work.epoch}"
                last[step, bucket] = work.epoch, work.moment
    return None


def whole_switches(story: Story) -> str | None:
    """P5: a change of plan happens whole: every unit works as the plan of its epoch says."""
    for work in story.work:
        plan = story.plans[work.epoch].region(story.region.name)
        own = work.unit.pipeline
        if work.unit.replica >= plan.replicas or work.steps != plan.pipelines[own]:
            return f"{work.unit} runs {work.steps} in epoch {work.epoch}"
        if story.region.mapped and work.buckets != owned_buckets(
            story.region, plan, work.unit.replica
        ):
            return f"{work.unit} owns {work.buckets} in epoch {work.epoch}"
    return None


def one_timestamp(story: Story) -> str | None:
    """P6: tuples of one timestamp belong to one epoch."""
    if not (story.timed and story.ordered):
        return None  # without event time every tuple has a number of its own
    last: int | None = None
    for epoch, works in story.epochs().items():
        times = [root.time for work in works for root in work.roots]
        if times and last is not None and min(times) <= last:
            return f"time {last} was processed before epoch {epoch} and in it"
        last = max(times, default=last)
    return None


PROPERTIES = (
    one_order,
    own_buckets,
    merged_when_ready,
    after_the_last,
    whole_switches,
    one_timestamp,
)
