"""What the plan in force could do, and what another one would: the model, held to measurements.

A model knows how plans compare; how fast this one is was measured. So a forecast is what the model
says, times what it was worth when it could last be compared: while a plan was at its limit. How
work is spread over replicas is measured, too, and taken into account.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median_low

from anabranch.adapt.estimates.measured import ALL_WAITS, measured_profile
from anabranch.adapt.guards import threads
from anabranch.adapt.history import History
from anabranch.graph import StateKind
from anabranch.planning.bucket_map import BucketMap, rebalance_by_load, replica_loads
from anabranch.planning.models.model import Bounds, Model
from anabranch.planning.plan import Plan
from anabranch.planning.profile import OperatorProfile, Profile

WAITING_PERIODS = 1.5
"""More than this many periods' work that waits means that the plan does not keep up."""
DRAIN_S = 60.0
"""How fast a backlog shall be worked off."""
LEAST_USED = 0.02
"""A plan that seems to be used less than this tells nothing of its capacity."""
FADING = 0.1
"""Part of the mistrust in the model that each look without a limit takes away."""
RECENT = 2
"""Periods that tell the load of now, should it have changed."""


@dataclass(frozen=True)
class Forecast:
    """One flow, as it was seen under one plan.

    Attributes:
        seen: What was seen.
        profile: What its steps cost.
        model: What plans promise.
        trust: Part of the model's promise that was had when that could last be seen; None if never.
    """

    seen: History
    profile: Profile
    model: Model
    trust: float | None = None

    @staticmethod
    def of(seen: History, trust: float | None = None) -> Forecast | None:
        """A forecast; None where there is no model, or too little came through."""
        profile = measured_profile(seen) if seen.model is not None else None
        if profile is None or seen.model is None:
            return None
        found = Forecast(seen, profile, seen.model, trust)
        if found.saturated and not latest(seen.rates):
            return None  # something stands still, and no rate tells what it could be
        if found.saturated and found.promised_now > 0:
            return replace(found, trust=latest(seen.rates) / found.promised_now)
        # What was learnt at the limit fades where there is none.
        return replace(found, trust=None if trust is None else trust + FADING * (1 - trust))

    @cached_property
    def saturated(self) -> bool:
        """Whether more waits than the plan handles, or as much comes as can be read."""
        return saturated(self.seen)

    @cached_property
    def promised_now(self) -> float:
        """What the model says of the plan in force."""
        return self.promise(self.seen.plan)

    @cached_property
    def capacity_per_s(self) -> float:
        """Tuples a second that the plan in force can do; the more careful of two guesses."""
        rate = latest(self.seen.rates)
        if self.saturated:
            return rate
        by_model = self.promised_now * (1.0 if self.trust is None else self.trust)
        if not rate:
            return by_model
        by_use = rate / max(used_share(self.seen), LEAST_USED)
        return max(rate, min(by_use, by_model))

    @property
    def used_share(self) -> float:
        """Part of its capacity that the plan in force uses."""
        return 1.0 if self.saturated else latest(self.seen.rates) / self.capacity_per_s

    @property
    def wanted_per_s(self) -> float | None:
        """What comes; None for as much as can be read.

        Where much waits and next to nothing comes, as with what is left of a file, it shall be read
        as fast as it can be.
        """
        if self.seen.backlog is None:
            return None
        offered = max(self.seen.offered[-RECENT:])
        ends = self.saturated and offered < ALL_WAITS * latest(self.seen.rates)
        return None if ends else offered

    @property
    def draining_per_s(self) -> float:
        """What to add to work a backlog off in time."""
        return (self.seen.backlog or 0) / DRAIN_S if self.saturated else 0.0

    def gain(self, plan: Plan) -> float:
        """How many times as fast as the plan in force another one would be."""
        return self.promise(plan) / self.promised_now

    def best(self, rate_per_s: float | None) -> Plan:
        """The plan to go to for a rate, or for as much as there is to be had."""
        asked = rate_per_s
        if rate_per_s is not None:
            # The model counts in its own rates: what it overstates now it overstates then.
            asked = rate_per_s * self.promised_now / self.capacity_per_s
        limits, now = self.seen.limits, self.seen.plan
        bounds = Bounds(limits.replicas, max(limits.threads, threads(now)))
        return self.evened(self.model.best(self._bounded, now, asked, bounds))

    def promise(self, plan: Plan) -> float:
        """What the model says of a plan, as work is spread over its replicas."""
        shares = {
            region: spread.worst_share(plan.region(region).bucket_map)
            for region, spread in self.spreads.items()
        }
        return self.model.rate_per_s(self._with_shares(shares), plan)

    def evened(self, plan: Plan) -> Plan:
        """The same plan with buckets dealt out by what comes to them."""
        for region, spread in self.spreads.items():
            planned = plan.region(region)
            plan = plan.with_bucket_map(region, spread.evened(planned.bucket_map, planned.replicas))
        return plan

    @cached_property
    def spreads(self) -> dict[str, Spread]:
        """Of the regions whose tuples are dealt out by bucket."""
        mapped = [region.name for region in self.seen.topology.regions if region.mapped]
        found = {name: Spread.of(self.seen, name) for name in mapped}
        return {name: spread for name, spread in found.items() if spread is not None}

    @property
    def _bounded(self) -> Profile:
        """The profile with what no map can better: the heaviest bucket stays in one piece."""
        return self._with_shares({r: max(s.loads) / sum(s.loads) for r, s in self.spreads.items()})

    def _with_shares(self, shares: dict[str, float]) -> Profile:
        by_step = {s: shares[r] for r in shares for s in self.seen.topology.region(r).steps}
        operators = tuple(
            replace(o, hottest_key_share=by_step[o.name])
            if o.name in by_step and o.state is StateKind.PARTITIONED
            else o
            for o in self._undisturbed
        )
        return replace(self.profile, operators=operators)

    @cached_property
    def _undisturbed(self) -> tuple[OperatorProfile, ...]:
        """Operators as they would be if no replica were slow."""
        steps = self.seen.topology.region
        dearer = {s: spread.dearer for r, spread in self.spreads.items() for s in steps(r).steps}
        return tuple(
            replace(
                o,
                cost=o.cost / dearer.get(o.name, 1.0),
                wait=o.wait / dearer.get(o.name, 1.0),
            )
            for o in self.profile.operators
        )


def saturated(seen: History) -> bool:
    """Whether the plan in force does not keep up with what comes."""
    backlog = seen.backlog
    if backlog is None:
        return True
    period_s = seen.seconds / len(seen.window)
    return backlog > WAITING_PERIODS * period_s * max(latest(seen.rates), 1.0)


def used_share(seen: History) -> float:
    """Part of its capacity that a plan uses: of the busiest thread, of all cores, of a batch.

    Batches follow each other as soon as a row is due, so how often there is one says nothing. A
    full one pays the fixed time once for all its rows.
    """
    if seen.now.in_batches:
        return min(1.0, latest(seen.rates) / max(full_batch_rate(seen), 1e-9))
    shares = [(r.replicas, share) for r in seen.plan.regions for share in seen.busy(r.region)]
    shares += [(s.replicas, seen.reading) for s in seen.plan.sources]
    busiest = max((share for _, share in shares), default=0.0)
    hottest = max((seen.hottest_replica(r.region) for r in seen.plan.regions), default=0.0)
    waiting = sum(r.replicas * share for r in seen.plan.regions for share in seen.waiting(r.region))
    working = sum(replicas * share for replicas, share in shares) - waiting
    spread = working / seen.limits.cores
    return min(1.0, max(busiest, hottest, spread))


def full_batch_rate(seen: History) -> float:
    """Tuples a second, if batches were as large as the plan allows."""
    rows = sum(each.rows_in for each in seen.window)
    fixed_s = sum(each.times.fixed_s + each.times.commit_s for each in seen.window)
    working_s = sum(each.times.total_s - each.times.fixed_s for each in seen.window)
    most = sum(source.batch_rows for source in seen.plan.sources)
    batch_s = fixed_s / len(seen.window) + most * working_s / max(rows, 1)
    return most / max(batch_s, 1e-9)


def latest(rates: Sequence[float]) -> float:
    """The rate of the newest periods."""
    newest = rates[-RECENT:]
    return sum(newest) / len(newest)


# How the work of a region is spread over its replicas: keys that are not alike, replicas neither.
#
# Models deal tuples out evenly. What really came to each bucket and how long each replica took for
# its share is measured, so a bucket map can be held to that, and another one computed.

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
    def of(seen: History, region: str) -> Spread | None:
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
