"""Changing the plan of a run, region by region, as the local engine does it.

A region whose plan changes takes no more tuples in; its other threads finish what waits between
its pipelines. Then it stands still for a while, and goes on under the new plan with what waits in
front of it. Other regions go on meanwhile, as long as there is room.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

from anabranch.engines.simulator.costs import RegionSpec
from anabranch.engines.simulator.region import Gate, RegionRun
from anabranch.engines.simulator.scenario import SwitchCost
from anabranch.planning.bucket_map import moved


@dataclass
class _Change:
    spec: RegionSpec
    pause_s: float
    until_s: float = inf


class Changing:
    """Changes under way.

    Args:
        cost: What a change costs.
    """

    def __init__(self, cost: SwitchCost) -> None:
        self._cost = cost
        self._under_way: dict[int, _Change] = {}
        self.pause_s = 0.0  # how long the regions of the last change stood still at most
        self.moved_buckets = 0
        self.done_s = 0.0  # when the last region went on

    @property
    def busy(self) -> bool:
        """Whether a change is under way."""
        return bool(self._under_way)

    def begin(self, regions: Sequence[RegionRun], specs: Sequence[RegionSpec]) -> None:
        """Begin with the regions that a new plan concerns."""
        self.pause_s, self.moved_buckets = 0.0, 0
        for number, (region, spec) in enumerate(zip(regions, specs, strict=True)):
            if region.spec != spec:
                buckets = _moving(region.spec, spec)
                pause_s = self._cost.pause_s(buckets)
                self.moved_buckets += buckets
                self.pause_s = max(self.pause_s, pause_s)
                self._under_way[number] = _Change(spec, pause_s)
                region.gate = Gate.DRAINING

    def next_event(self) -> float:
        """When a pause ends."""
        return min((change.until_s for change in self._under_way.values()), default=inf)

    def due(self, regions: Sequence[RegionRun], now_s: float) -> Iterator[tuple[int, RegionSpec]]:
        """Regions that go on under their new plan now; those that are drained begin to pause."""
        for number, change in list(self._under_way.items()):
            region = regions[number]
            if region.gate is Gate.DRAINING and region.drained:
                region.gate = Gate.PAUSED
                change.until_s = now_s + change.pause_s
            if region.gate is Gate.PAUSED and change.until_s <= now_s:
                del self._under_way[number]
                self.done_s = now_s
                yield number, change.spec


def _moving(old: RegionSpec, new: RegionSpec) -> int:
    """Buckets that get another owner."""
    if len(old.bucket_map) != len(new.bucket_map):
        return 0
    return len(moved(old.bucket_map, new.bucket_map))
