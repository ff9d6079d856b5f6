"""Balance: moves buckets from a replica that is hot to those that are not, as few as needed.

Replicas and pipelines stay as they are. A move is judged by what it is for: it is kept if the
imbalance fell. What no move can mend is named once in the journal: a key, or a bucket, that has
more than a replica's fair share by itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from anabranch.adapt.history import History
from anabranch.adapt.policy import Cadence, Outcome, Proposal, Trial, Verdict
from anabranch.events import HotKey, RegionMetrics
from anabranch.planning.bucket_map import BucketMap, moved, rebalance_by_load, replica_loads

MOST_NAMED = 100
PACE = Cadence(settle=1, periods=3, most=6)


@dataclass(frozen=True)
class Known:
    """What the policy remembers: what it has named, by region and in words."""

    named: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Balance:
    """Evens out the replicas of regions.

    Attributes:
        hot: A replica that has so many times the mean to do is hot.
        tolerance: How far above what must be a replica may be after a move.
        gain: Part of the hottest replica's work that a move must take away to be worth it.
        least_busy: A region whose busiest replica is idle for most of the time is left alone.
    """

    hot: float = 1.2
    tolerance: float = 0.1
    gain: float = 0.05
    least_busy: float = 0.1
    pace: Cadence = PACE

    name = "balance"

    def begin(self) -> Known:
        """Nothing named."""
        return Known()

    def decide(self, memory: Known, seen: History) -> tuple[Known, Proposal | None]:
        """Move buckets in the region that is least even; name what no move can mend."""
        uneven = sorted(self._uneven(seen), key=lambda loads: (-loads.imbalance, loads.region))
        for loads in uneven:
            proposal = self._moving(seen, loads)
            if proposal is not None:
                return memory, proposal
        for loads in uneven:
            cause = hopeless(seen, loads)
            if cause is not None and (loads.region, cause[0]) not in memory.named:
                known = replace(
                    memory, named=(*memory.named, (loads.region, cause[0]))[-MOST_NAMED:]
                )
                return known, Proposal(seen.plan, cause[1], trial=False)
        return memory, None

    def judge(self, memory: Known, seen: History, trial: Trial) -> tuple[Known, Verdict]:
        """Kept if the replicas are more even than before."""
        before, after = trial.before, seen
        region = next(
            r.region for r in before.plan.regions if r != trial.proposal.plan.region(r.region)
        )
        was, now = loads_of(before, region), loads_of(after, region)
        if was is None or now is None:
            return memory, Verdict(Outcome.OPEN, "nothing came")
        words = f"hottest replica {was.imbalance:.2f} → {now.imbalance:.2f} times the mean"
        fell = now.imbalance < was.imbalance
        return memory, Verdict(Outcome.KEPT if fell else Outcome.REVERTED, words)

    def _uneven(self, seen: History) -> list[RegionLoads]:
        found = []
        for region in seen.plan.regions:
            loads = loads_of(seen, region.region) if region.replicas > 1 else None
            if loads is None or loads.imbalance < self.hot:
                continue
            if loads.busiest_share is None or loads.busiest_share >= self.least_busy:
                found.append(loads)
        return found

    def _moving(self, seen: History, loads: RegionLoads) -> Proposal | None:
        plan = seen.plan.region(loads.region)
        wanted = rebalance_by_load(plan.bucket_map, loads.buckets, plan.replicas, self.tolerance)
        after = loads.under(wanted)
        if max(after) > (1 - self.gain) * max(loads.replicas):
            return None
        count = len(moved(plan.bucket_map, wanted))
        hottest = loads.replicas.index(max(loads.replicas))
        why = (
            f"region {loads.region}: replica {hottest} has {loads.imbalance:.2f} times the mean "
            f"to do, moving {count} of {len(wanted)} buckets promises {imbalance(after):.2f}"
        )
        return Proposal(seen.plan.with_bucket_map(loads.region, wanted), why)


def hopeless(seen: History, loads: RegionLoads) -> tuple[str, str] | None:
    """Who has more than a fair share by itself, and that in words; None if nobody has."""
    fair = 1 / seen.plan.region(loads.region).replicas
    rows = sum(loads.buckets)
    heaviest = max(range(len(loads.buckets)), key=lambda b: (loads.buckets[b], -b))
    share = loads.buckets[heaviest] / rows if rows else 0.0
    key = loads.hottest_key
    beyond = f"a replica's fair share is {fair:.2f}: no move of buckets helps"
    if key is not None and key.share > fair:
        return key.key, (
            f"region {loads.region}: {key.key} alone has {key.share:.2f} of the tuples, {beyond}"
        )
    if share <= fair:
        return None
    bucket = f"bucket {heaviest}"
    most = f", {key.key} most of it" if key is not None and key.share > share / 2 else ""
    return (
        bucket,
        f"region {loads.region}: {bucket} alone has {share:.2f} of the work{most}, {beyond}",
    )


# How evenly the replicas and buckets of a region share its work, over a window.
#
# Work is counted in busy seconds where they are known, else in tuples. What a replica was busy with
# is partly the same for all of them, whatever comes (taking jumbo tuples in, dealing them out), and
# partly for its tuples. A line through busy seconds over tuples tells the two apart; where no such
# line explains the hottest replica, tuples of some buckets are dearer than others, and a bucket
# gets as much of its replica's time as it has of its replica's tuples.

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


def loads_of(seen: History, region: str) -> RegionLoads | None:
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
