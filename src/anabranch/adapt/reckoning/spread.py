"""How the work of a region is spread over its replicas: keys that are not alike, replicas neither.

Models deal tuples out evenly. What really came to each bucket and how long each replica took for
its share is measured, so a bucket map can be held to that, and another one computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low

from anabranch.adapt.seen import Seen
from anabranch.planning.balancing import rebalance_by_load, replica_loads
from anabranch.planning.bucket_map import BucketMap

TOLERANCE = 0.01
"""How much longer than it must the last replica may take."""
SLOW = 1.5
"""A replica that takes this many times longer for a tuple than the others is a slow one."""


@dataclass(frozen=True)
class Spread:
    """One region.

    Attributes:
        loads: Tuples that came to each bucket.
        slowness: Of each replica: how many times longer it takes for a tuple than it should.
        bucket_map: Under which that was seen.

    Example:
        >>> spread = Spread((4.0, 1.0, 1.0, 2.0), (1.0, 1.0), (0, 1, 0, 1))
        >>> spread.worst_share((0, 1, 0, 1)), spread.worst_share((0, 1, 1, 1))
        (0.625, 0.5)
        >>> spread.evened((0, 1, 0, 1), replicas=2)
        (0, 1, 1, 1)
    """

    loads: tuple[float, ...]
    slowness: tuple[float, ...]
    bucket_map: BucketMap

    @staticmethod
    def of(seen: Seen, region: str) -> Spread | None:
        """What was seen of a region; None where its tuples are not dealt out by bucket."""
        told = [r for each in seen.window for r in each.regions if r.region == region]
        counted = [r for r in told if r.bucket_rows]
        if not counted:
            return None
        loads = tuple(
            float(sum(rows)) for rows in zip(*(r.bucket_rows for r in counted), strict=True)
        )
        if not sum(loads):
            return None
        replicas = seen.plan.region(region).replicas
        busy = [sum(shares) for shares in zip(*(r.replica_work for r in counted), strict=False)]
        bucket_map = seen.plan.region(region).bucket_map
        slowness = _slowness(busy, replica_loads(bucket_map, loads, replicas))
        return Spread(loads, slowness, bucket_map)

    @property
    def dearer(self) -> float:
        """How many times what they should cost tuples did cost, since some replicas are slow."""
        return sum(self._times(self.bucket_map)) / sum(self.loads)

    def worst_share(self, bucket_map: BucketMap) -> float:
        """Part of the region's work that is done last; what a slow replica has counts for more."""
        return max(self._times(bucket_map)) / sum(self.loads)

    def evened(self, bucket_map: BucketMap, replicas: int) -> BucketMap:
        """A map under which replicas are done at about the same time; few buckets move."""
        if all(self._slow(replica) == 1.0 for replica in range(replicas)):
            return rebalance_by_load(bucket_map, self.loads, replicas, TOLERANCE)
        owners = list(bucket_map)
        speed = sum(1 / self._slow(replica) for replica in range(replicas))
        bound = (1 + TOLERANCE) * max(sum(self.loads) / speed, *self.loads)
        for _ in owners:  # each move takes a bucket off the slowest for good
            times = [self._slow(r) * load for r, load in enumerate(self._held(owners, replicas))]
            giver, taker = times.index(max(times)), times.index(min(times))
            room = (bound - times[taker]) / self._slow(taker)
            fits = [b for b, o in enumerate(owners) if o == giver and 0 < self.loads[b] <= room]
            if times[giver] <= bound or not fits:
                break
            owners[max(fits, key=lambda bucket: self.loads[bucket])] = taker
        return tuple(owners)

    def _held(self, owners: Sequence[int], replicas: int) -> tuple[float, ...]:
        return replica_loads(tuple(owners), self.loads, replicas)

    def _times(self, bucket_map: BucketMap) -> list[float]:
        held = self._held(bucket_map, max(bucket_map) + 1)
        return [self._slow(replica) * load for replica, load in enumerate(held)]

    def _slow(self, replica: int) -> float:
        """One that does not exist yet is as good as any."""
        return self.slowness[replica] if replica < len(self.slowness) else 1.0


def _slowness(busy: Sequence[float], held: Sequence[float]) -> tuple[float, ...]:
    """Time a tuple, by that of the one in the middle; small differences are noise."""
    costs = [b / rows if rows else None for b, rows in zip(busy, held, strict=False)]
    known = [cost for cost in costs if cost]
    if len(known) < 2:
        return tuple(1.0 for _ in held)
    usual = median_low(known)
    factors = [cost / usual if cost else 1.0 for cost in costs]
    return tuple(factor if factor > SLOW else 1.0 for factor in factors)
