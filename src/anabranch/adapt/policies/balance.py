"""Balance: moves buckets from a replica that is hot to those that are not, as few as needed.

Replicas and pipelines stay as they are. A move is judged by what it is for: it is kept if the
imbalance fell. What no move can mend is named once in the journal: a key, or a bucket, that has
more than a replica's fair share by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from anabranch.adapt.policy import Outcome, Pace, Proposal, Trial, Verdict
from anabranch.adapt.reckoning.region_loads import RegionLoads, imbalance, loads_of
from anabranch.adapt.seen import Seen
from anabranch.planning.balancing import rebalance_by_load
from anabranch.planning.bucket_map import moved

MOST_NAMED = 100
PACE = Pace(settle=1, periods=3, most=6)


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
    pace: Pace = PACE

    name = "balance"

    def begin(self) -> Known:
        """Nothing named."""
        return Known()

    def decide(self, memory: Known, seen: Seen) -> tuple[Known, Proposal | None]:
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

    def judge(self, memory: Known, seen: Seen, trial: Trial) -> tuple[Known, Verdict]:
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

    def _uneven(self, seen: Seen) -> list[RegionLoads]:
        found = []
        for region in seen.plan.regions:
            loads = loads_of(seen, region.region) if region.replicas > 1 else None
            if loads is None or loads.imbalance < self.hot:
                continue
            if loads.busiest_share is None or loads.busiest_share >= self.least_busy:
                found.append(loads)
        return found

    def _moving(self, seen: Seen, loads: RegionLoads) -> Proposal | None:
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


def hopeless(seen: Seen, loads: RegionLoads) -> tuple[str, str] | None:
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
