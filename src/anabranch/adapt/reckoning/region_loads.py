"""How evenly the replicas and buckets of a region share its work, over a window.

Work is counted in busy seconds where they are known, else in tuples. What a replica was busy with
is partly the same for all of them, whatever comes (taking jumbo tuples in, dealing them out), and
partly for its tuples. A line through busy seconds over tuples tells the two apart; where no such
line explains the hottest replica, tuples of some buckets are dearer than others, and a bucket gets
as much of its replica's time as it has of its replica's tuples.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.adapt.seen import Seen
from anabranch.events import HotKey, RegionMetrics
from anabranch.planning.balancing import replica_loads
from anabranch.planning.bucket_map import BucketMap

EXPLAINED = 0.1
"""How far from what a line says the hottest replica may be."""


@dataclass(frozen=True)
class RegionLoads:
    """The work of one region.

    Attributes:
        region: Its name.
        replicas: Work of each replica, as it was measured.
        buckets: The part of it that goes with each bucket.
        fixed: The part of it that every replica has whatever buckets it owns.
        busiest_share: Part of the time that the busiest replica worked; None if nobody knows.
        hottest_key: The key that came most often; None if none stands out.
    """

    region: str
    replicas: tuple[float, ...]
    buckets: tuple[float, ...]
    fixed: float
    busiest_share: float | None
    hottest_key: HotKey | None

    @property
    def imbalance(self) -> float:
        """How many times the mean the replica with most to do has."""
        return imbalance(self.replicas)

    def under(self, bucket_map: BucketMap) -> tuple[float, ...]:
        """What each replica would have to do under another map."""
        loads = replica_loads(bucket_map, self.buckets, len(self.replicas))
        return tuple(self.fixed + load for load in loads)


def imbalance(loads: Sequence[float]) -> float:
    """How many times the mean the most is.

    Example:
        >>> imbalance((3.0, 1.0))
        1.5
    """
    total = sum(loads)
    return max(loads) * len(loads) / total if total > 0 else 1.0


def loads_of(seen: Seen, region: str) -> RegionLoads | None:
    """The work of a region whose tuples are dealt out by bucket; None where none were."""
    plan = seen.plan.region(region)
    told = [
        (metrics, each.times.total_s)
        for each in seen.window
        for metrics in each.regions
        if metrics.region == region and len(metrics.bucket_rows) == len(plan.bucket_map)
    ]
    if not told or not plan.bucket_map:
        return None
    rows = tuple(float(sum(each)) for each in zip(*(m.bucket_rows for m, _ in told), strict=True))
    by_replica = replica_loads(plan.bucket_map, rows, plan.replicas)
    hottest, busy_s = _hottest([metrics for metrics, _ in told]), _busy_s(told, plan.replicas)
    if busy_s is None:
        return RegionLoads(region, by_replica, rows, 0.0, None, hottest)
    fixed, costs = split(by_replica, busy_s)
    buckets = tuple(n * costs[owner] for n, owner in zip(rows, plan.bucket_map, strict=True))
    passed_s = sum(seconds for _, seconds in told)
    busiest = max(busy_s) / max(passed_s, 1e-9)
    return RegionLoads(region, busy_s, buckets, fixed, busiest, hottest)


def split(rows: Sequence[float], busy: Sequence[float]) -> tuple[float, tuple[float, ...]]:
    """What every replica spends whatever comes, and what a tuple of each costs.

    Example:
        >>> split([4.0, 2.0], [3.0, 2.0])
        (1.0, (0.5, 0.5))
        >>> split([2.0, 2.0], [3.0, 2.0])
        (0.0, (1.5, 1.0))
    """
    count = len(rows)
    mean_rows, mean_busy = sum(rows) / count, sum(busy) / count
    spread = sum((n - mean_rows) ** 2 for n in rows)
    if spread > 0:
        together = sum((n - mean_rows) * (s - mean_busy) for n, s in zip(rows, busy, strict=True))
        cost = together / spread
        fixed = mean_busy - cost * mean_rows
        hottest = max(range(count), key=lambda replica: busy[replica])
        missed = abs(fixed + cost * rows[hottest] - busy[hottest])
        if cost > 0 and fixed >= 0 and missed <= EXPLAINED * busy[hottest]:
            return fixed, (cost,) * count
    return 0.0, tuple(s / n if n else 0.0 for n, s in zip(rows, busy, strict=True))


def _busy_s(told: list[tuple[RegionMetrics, float]], replicas: int) -> tuple[float, ...] | None:
    """Busy seconds of each replica; None unless every period tells of all of them."""
    if any(len(metrics.replica_work) != replicas for metrics, _ in told):
        return None
    spent = tuple(
        sum(metrics.replica_work[replica] * seconds for metrics, seconds in told)
        for replica in range(replicas)
    )
    return spent if max(spent) > 0 else None


def _hottest(told: list[RegionMetrics]) -> HotKey | None:
    """The key with the greatest share, each over all periods; where it did not stand out, none."""
    shares: defaultdict[str, float] = defaultdict(float)
    rows = sum(sum(metrics.bucket_rows) for metrics in told)
    for metrics in told:
        if metrics.hottest_key is not None:
            part = sum(metrics.bucket_rows) / rows
            shares[metrics.hottest_key.key] += metrics.hottest_key.share * part
    if not shares:
        return None
    most = max(shares, key=lambda key: (shares[key], key))
    return HotKey(most, shares[most])
