"""A region on threads: its gate, its replicas, and how it switches from one epoch to the next.

The switch is STRETCH's (§6.1). An epoch-switch tuple goes into the gate, behind what was released.
Every replica works off what stands before it and stops there (P4); the last one to arrive changes
the owners of buckets by reference, announces and removes readers and sources, and starts the
replicas of the new epoch right behind it. Until then nobody goes on, so a switch happens whole or,
if the run ends before, not at all (P5).

Deviation: a region switches at a place of its own, not at one place for the whole graph; the gates
behind it need not know. So a change of plan holds up the regions that it concerns, and only them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from threading import Event, Lock

import pyarrow as pa

from anabranch.runtime.bucket_loads import BucketLoads
from anabranch.runtime.channel import Channel, reassign
from anabranch.engines.local.entry import Control, Entry
from anabranch.engines.local.gate import Closed, ElasticGate
from anabranch.engines.local.outlet import Outlet
from anabranch.engines.local.probe import Probe
from anabranch.engines.local.replica import Replica
from anabranch.runtime.routing import Router
from anabranch.flow import Flow
from anabranch.operators.base import Counters, KernelContext
from anabranch.planning.plan import RegionPlan
from anabranch.planning.regions import Region, RegionKind
from anabranch.state.positions import Jumbo, Root

StartThread = Callable[[Probe, Callable[[], None]], None]


class Switch:
    """An epoch-switch tuple: the plan that holds behind it, and how long it held tuples up."""

    def __init__(
        self,
        plan: RegionPlan,
        fresh: Sequence[Channel],
        missing: int,
        wake: Callable[[], None],
    ) -> None:
        """Channels of new replicas; so many old ones have to arrive; `wake` hears of the end."""
        self.plan, self.fresh, self.missing = plan, list(fresh), missing
        self._wake = wake
        self.done = Event()
        self.stood_s = 0.0
        self.place: Root | None = None
        self._since: float | None = None

    def seen(self) -> None:
        """A replica stops here: from the first one on, tuples stand still."""
        if self._since is None:
            self._since = time.perf_counter()

    def finish(self) -> None:
        """Everybody goes on."""
        self.stood_s = time.perf_counter() - (self._since or time.perf_counter())
        self.done.set()
        self._wake()


class RegionRun:
    """All replicas of one region.

    Args:
        flow: The application.
        contexts: Where each step stands.
        region: The region.
        plan: How it begins.
        gate: What it reads from.
        outlet: Where its results go.
    """

    def __init__(
        self,
        flow: Flow,
        contexts: Mapping[str, KernelContext],
        region: Region,
        plan: RegionPlan,
        gate: ElasticGate,
        outlet: Outlet,
    ) -> None:
        self.flow, self._contexts = flow, dict(contexts)
        self.region, self.plan, self.gate, self._outlet = region, plan, gate, outlet
        self._channels = [self._channel(plan, r) for r in range(plan.replicas)]
        self.replicas = [Replica(self, channel) for channel in self._channels]
        keyed = region.kind is RegionKind.PARTITIONED
        self.loads = BucketLoads(region.buckets, region.key) if keyed else None
        self._router = Router(region, plan, self.loads)
        self._gone: dict[str, Counters] = {step: Counters() for step in region.steps}
        self._lock = Lock()
        self._tracked = self._closed = False
        self.gate.announce_readers(range(plan.replicas))

    def start(self, start: StartThread) -> None:
        """Start the threads."""
        self._start = start
        for replica in self.replicas:
            replica.start(start)

    def close(self) -> None:
        """Let the threads end; an epoch that has not begun does not."""
        self.gate.close()
        with self._lock:
            self._closed = True
            for replica in self.replicas:
                replica.close()
        if self._outlet.turns is not None:
            self._outlet.turns.close()

    # What replicas ask for

    def inputs(self, entry: Entry, replica: int) -> Sequence[Jumbo | None]:
        """All of an entry, or the share of the replica's buckets."""
        if self.region.kind is RegionKind.PARTITIONED and self._router.replicas > 1:
            return entry.share(self._router, replica)
        return entry.inputs()

    def admit(self, entry: Entry) -> None:
        """Replicas that take turns do not run too far ahead of each other."""
        if self._outlet.turns is not None:
            self._outlet.turns.admit(entry.number)

    def deliver(
        self, replica: int, entry: Entry, outputs: Sequence[Jumbo | None], reached: Sequence[Root]
    ) -> None:
        """Pass results on."""
        born_s = entry.born_s
        if born_s is None:  # what time alone sets off is born now
            born_s = time.monotonic()
        self._outlet.send(replica, entry.number, outputs, reached, born_s)

    def arrive(self, control: Control) -> None:
        """A replica has finished its epoch; the last one to do so begins the next."""
        if not isinstance(control, Switch):
            raise TypeError("the epoch-switch tuple of another engine")
        with self._lock:
            control.missing -= 1
            if self._closed:
                raise Closed
            if not control.missing:
                self._begin_epoch(control)

    # Epochs

    def switch(self, plan: RegionPlan, wake: Callable[[], None]) -> Switch:
        """Ask for another plan from the next place in the order on."""
        fresh = [self._channel(plan, r) for r in range(len(self._channels), plan.replicas)]
        switch = Switch(plan, fresh, len(self._channels), wake)
        switch.place = self.gate.switch(switch)
        return switch

    def _begin_epoch(self, switch: Switch) -> None:
        plan, old = switch.plan, self._channels
        kept, gone = old[: plan.replicas], old[plan.replicas :]
        new = kept + switch.fresh
        reassign(old, new, plan)
        if self._tracked:
            for channel in switch.fresh:
                channel.track()  # a switch follows a save, so what they hold is saved
        self._count(gone)
        self._router = Router(self.region, plan, self.loads)
        self._channels, self.plan = new, plan
        self._outlet.join(range(len(old), len(new)), like=0)
        self.replicas = [Replica(self, channel) for channel in new]
        number = self.gate.switched(range(len(new)))
        self._outlet.skip(number)
        self._outlet.leave(range(len(new), len(old)))
        for replica in self.replicas:
            replica.start(self._start)
        switch.finish()

    # Checkpoints

    @property
    def channels(self) -> Sequence[Channel]:
        """The replicas' kernels; nobody else must be using them."""
        return self._channels

    def input_schemas(self) -> list[pa.Schema]:
        """The columns of each port."""
        return [given.schema for given in self._contexts[self.region.steps[0]].inputs]

    def track(self) -> None:
        """Remember from now on what changes in state."""
        self._tracked = True
        for channel in self._channels:
            channel.track()

    def recall(self, counters: Mapping[str, Mapping[str, int]]) -> None:
        """Go on counting where an earlier run stopped."""
        for step in self._gone:
            self._gone[step] = Counters.of(counters.get(step, {}))

    # What others may see

    def counters(self) -> dict[str, Counters]:
        """What each step lost on purpose so far."""
        total = {step: replace(lost) for step, lost in self._gone.items()}
        for channel in self._channels:
            _add(total, channel)
        return total

    def keys(self) -> dict[str, int]:
        """How many keys each step holds, where it keeps state by key."""
        held: dict[str, int] = {}
        for channel in self._channels:
            with suppress(RuntimeError):  # a dict that its owner is just changing
                for step, keys in channel.keys().items():
                    held[step] = held.get(step, 0) + keys
        return held

    def idle(self) -> bool:
        """Whether nothing is under way."""
        return self.gate.idle() and all(replica.idle() for replica in self.replicas)

    def _count(self, gone: Sequence[Channel]) -> None:
        for channel in gone:
            _add(self._gone, channel)

    def _channel(self, plan: RegionPlan, replica: int) -> Channel:
        return Channel(self.flow, self._contexts, self.region, plan, replica)


def _add(total: dict[str, Counters], channel: Channel) -> None:
    for step, kernel in channel.kernels.items():
        total[step].add(kernel.context.counters)
