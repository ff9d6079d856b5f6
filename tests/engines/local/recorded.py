"""What replicas do, recorded on the real engine, and STRETCH's properties checked on it (§3).

A recorder wraps a few methods of the engine. A moment is a number from one counter that all threads
share, so that "before" means the same for all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import Any

import pytest

from anabranch.runtime.channel import Channel, owned_buckets
from anabranch.engines.local import region as region_module
from anabranch.engines.local.region import RegionRun, Switch
from anabranch.engines.local.replica import PipelineInput, Replica
from anabranch.planning.plan import Plan, RegionPlan
from anabranch.planning.regions import Region, RegionKind
from anabranch.state.positions import START, Root
from anabranch.state.tables.store import ObjectStore


@dataclass(frozen=True)
class Work:
    """One pipeline of one replica on one entry."""

    epoch: int
    replica: int
    pipeline: int
    entry: int
    roots: tuple[Root, ...]  # of all tuples of the entry, in the order the replica saw them
    frontier: Root
    buckets: tuple[int, ...]
    pipelines: tuple[tuple[str, ...], ...]
    begun: int
    done: int


@dataclass
class Story:
    """What happened in one region; epochs are numbered from 0."""

    region: Region
    timed: bool
    plans: list[RegionPlan]
    work: list[Work] = field(default_factory=list)
    held: list[list[set[int]]] = field(default_factory=list)  # by switch and channel, buckets

    def epochs(self, pipeline: int = 0) -> list[list[Work]]:
        """The work of each epoch, in the order of its beginning."""
        by_epoch: dict[int, list[Work]] = defaultdict(list)
        for work in sorted(self.work, key=lambda w: w.begun):
            if work.pipeline == pipeline:
                by_epoch[work.epoch].append(work)
        return [by_epoch[epoch] for epoch in range(len(self.plans))]


class Recorder:
    """Watches every region of one run."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.stories: dict[str, Story] = {}
        self._clock = count()
        self._patch = patch
        self._watch_beginnings()
        self._watch_work()
        self._watch_switches()

    @property
    def switches(self) -> int:
        return sum(len(story.plans) - 1 for story in self.stories.values())

    def _watch_beginnings(self) -> None:
        made = RegionRun.__init__
        recorder = self

        def init(run: Any, flow: Any, contexts: Any, region: Any, plan: Any, *more: Any) -> None:
            timed = contexts[region.steps[0]].inputs[0].time is not None
            recorder.stories[region.name] = Story(region, timed, [plan])
            made(run, flow, contexts, region, plan, *more)

        self._patch.setattr(RegionRun, "__init__", init)

    def _watch_work(self) -> None:
        made, worked = Replica.__init__, Replica._work
        recorder = self

        def init(replica: Any, keeper: Any, channel: Channel) -> None:
            made(replica, keeper, channel)
            replica.epoch = len(recorder.stories[channel.region.name].plans) - 1

        def work(replica: Any, pipeline: int, load: PipelineInput) -> None:
            begun = next(recorder._clock)
            channel = replica.channel
            buckets, pipelines = channel.buckets, channel.pipelines
            try:
                worked(replica, pipeline, load)
            finally:
                recorder.stories[channel.region.name].work.append(
                    Work(
                        replica.epoch,
                        replica.number,
                        pipeline,
                        load.entry.number,
                        _roots(load),
                        load.entry.frontier,
                        buckets,
                        pipelines,
                        begun,
                        next(recorder._clock),
                    )
                )

        self._patch.setattr(Replica, "__init__", init)
        self._patch.setattr(Replica, "_work", work)

    def _watch_switches(self) -> None:
        begun, reassigned = RegionRun._begin_epoch, region_module.reassign
        recorder = self

        def begin(run: Any, switch: Switch) -> None:
            recorder.stories[run.region.name].plans.append(switch.plan)
            begun(run, switch)

        def reassign(old: Any, new: Any, plan: Any) -> None:
            reassigned(old, new, plan)
            story = recorder.stories[new[0].region.name]
            channels = {id(channel): channel for channel in [*old, *new]}
            story.held.append([_held(channel) for channel in channels.values()])

        self._patch.setattr(RegionRun, "_begin_epoch", begin)
        self._patch.setattr(region_module, "reassign", reassign)


def _roots(load: PipelineInput) -> tuple[Root, ...]:
    inputs = [jumbo for jumbo in load.entry.inputs() if jumbo is not None]
    return tuple(Root(*row[:4]) for jumbo in inputs for row in jumbo.positions.rows())


def _held(channel: Channel) -> set[int]:
    """Buckets whose state a channel holds, whatever it believes to own."""
    stores = [store for kernel in channel.kernels.values() for store in kernel.stores]
    return {b for store in stores if isinstance(store, ObjectStore) for b in store._buckets}


# The properties: each tells the first thing that breaks it


def violations(stories: dict[str, Story], applied: list[Plan]) -> Iterator[str]:
    """Everything that breaks P1 to P6; `applied` are the plans of the run, the first included."""
    for name, story in stories.items():
        for check in (one_order, own_buckets, merged_when_ready, after_the_last, one_timestamp):
            found = check(story)
            if found is not None:
                yield f"{check.__doc__[:2]} of {name}: {found}"
        found = whole_switches(story, [plan.region(name) for plan in applied])
        if found is not None:
            yield f"P5 of {name}: {found}"


def one_order(story: Story) -> str | None:
    """P1: all threads of an epoch observe all tuples in the same order."""
    expected = 0  # number of the next entry
    for epoch, works in enumerate(story.epochs()):
        by_replica: dict[int, list[tuple[int, tuple[Root, ...]]]] = defaultdict(list)
        for work in works:
            by_replica[work.replica].append((work.entry, work.roots))
        if story.region.kind is RegionKind.STATELESS:  # each entry goes to one of them
            seen = [sorted(entry for one in by_replica.values() for entry in one)]
        else:
            seen = [by_replica[r] for r in range(story.plans[epoch].replicas)]
        for replica, one in enumerate(seen):
            numbers = [number for number, _ in one]
            if one != seen[0]:
                return f"in epoch {epoch}, replica {replica} saw {numbers}, not as replica 0"
            if numbers != list(range(expected, expected + len(numbers))):
                return f"epoch {epoch} begins with {expected}, replica {replica} saw {numbers}"
        expected += len(seen[0]) + 1  # the switch takes a number
    return None


def own_buckets(story: Story) -> str | None:
    """P2: each bucket is accessed by one thread only."""
    if not story.region.mapped:
        return None
    for epoch, works in enumerate(story.epochs()):
        owners: dict[int, set[int]] = defaultdict(set)
        for work in works:
            for bucket in work.buckets:
                owners[bucket].add(work.replica)
        shared = {bucket: sorted(who) for bucket, who in owners.items() if len(who) > 1}
        if shared:
            return f"in epoch {epoch}, several replicas own {shared}"
    for switch, channels in enumerate(story.held):
        held = [bucket for one in channels for bucket in one]
        twice = sorted({bucket for bucket in held if held.count(bucket) > 1})
        if twice:
            return f"behind switch {switch}, several channels hold the state of {twice}"
    return None


def merged_when_ready(story: Story) -> str | None:
    """P3: tuples of several streams are merged into one sequence, and processed when ready."""
    if not story.region.ordered:
        return None
    passed = START
    entries = {w.entry: w for works in story.epochs() for w in works}
    for number in sorted(entries):
        work = entries[number]
        if list(work.roots) != sorted(work.roots) and len(work.roots):
            return f"entry {number} is not in order"
        early = [root for root in work.roots if root < passed]
        if early:
            return f"entry {number} brings {early[0]}, though {passed} had been passed"
        if any(root >= work.frontier for root in work.roots):
            return f"entry {number} brings more than is ready at {work.frontier}"
        passed = work.frontier
    return None


def after_the_last(story: Story) -> str | None:
    """P4: the first tuple of an epoch is processed after the last one of the epoch before."""
    by_epoch: dict[int, list[Work]] = defaultdict(list)
    for work in story.work:
        by_epoch[work.epoch].append(work)
    done = -1
    for epoch in sorted(by_epoch):
        begun = min(work.begun for work in by_epoch[epoch])
        if begun < done:
            return f"epoch {epoch} began at {begun}, the one before it ended at {done}"
        done = max(work.done for work in by_epoch[epoch])
    return None


def one_timestamp(story: Story) -> str | None:
    """P6: tuples of one timestamp belong to one epoch."""
    if not (story.timed and story.region.ordered):
        return None  # without event time every tuple has a number of its own
    last: int | None = None
    for epoch, works in enumerate(story.epochs()):
        times = [root.time for work in works for root in work.roots]
        if times and last is not None and min(times) <= last:
            return f"time {last} was seen before epoch {epoch} and in it"
        last = max(times, default=last)
    return None


def whole_switches(story: Story, wanted: list[RegionPlan]) -> str | None:
    """P5: a switch is made whole: as every replica works, so does the plan say."""
    expected = [wanted[0], *(after for before, after in pairwise(wanted) if before != after)]
    if story.plans != expected:
        return f"{len(story.plans)} epochs, {len(expected)} plans that differ were applied"
    for work in story.work:
        plan = story.plans[work.epoch]
        if work.replica >= plan.replicas or work.pipelines != plan.pipelines:
            return f"replica {work.replica} works as {work.pipelines} in epoch {work.epoch}"
        if story.region.mapped or story.region.kind is RegionKind.STATEFUL:
            owned = owned_buckets(story.region, plan, work.replica)
            if work.buckets != owned:
                return f"replica {work.replica} owns {work.buckets} in epoch {work.epoch}"
    return None
