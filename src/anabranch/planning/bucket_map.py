"""Bucket maps: which replica owns which bucket, changed by moving as few buckets as possible."""

from __future__ import annotations

from collections.abc import Sequence

BucketMap = tuple[int, ...]


def balanced(buckets: int, replicas: int) -> BucketMap:
    """Buckets dealt out evenly.

    Example:
        >>> balanced(5, 2)
        (0, 1, 0, 1, 0)
    """
    return tuple(b % replicas for b in range(buckets))


def rebalanced(current: BucketMap, replicas: int) -> BucketMap:
    """An even map that differs from the current one in as few buckets as an even map can.

    Replicas end with sizes that differ by at most one; a bucket moves only from a replica that goes
    away or holds more than its share.

    Example:
        >>> rebalanced((0, 1, 0, 1, 0, 1), 3)
        (0, 1, 0, 1, 2, 2)
        >>> moved((0, 1, 0, 1, 0, 1), (0, 1, 0, 1, 2, 2))
        (4, 5)
    """
    held = [sum(1 for owner in current if owner == r) for r in range(replicas)]
    share, extra = divmod(len(current), replicas)
    # The larger shares go to those that hold most already, so that they give up least.
    largest = sorted(range(replicas), key=lambda r: (-held[r], r))[:extra]
    wanted = [share + (r in largest) for r in range(replicas)]
    kept = [0] * replicas
    result: list[int | None] = []
    for owner in current:
        if owner < replicas and kept[owner] < wanted[owner]:
            kept[owner] += 1
            result.append(owner)
        else:
            result.append(None)
    open_places = (r for r in range(replicas) for _ in range(wanted[r] - kept[r]))
    return tuple(next(open_places) if owner is None else owner for owner in result)


def moved(old: BucketMap, new: BucketMap) -> tuple[int, ...]:
    """Buckets whose owner changes."""
    return tuple(b for b, (o, n) in enumerate(zip(old, new, strict=True)) if o != n)


def owned(bucket_map: BucketMap, replica: int) -> tuple[int, ...]:
    """Buckets of one replica."""
    return tuple(b for b, owner in enumerate(bucket_map) if owner == replica)


# Bucket maps by load: buckets move from replicas that have too much to those that have least.
#
# How far that can go is bounded: a bucket is moved whole, so no map is better than one in which the
# heaviest bucket has a replica for itself. The bound to get within is therefore a tolerance above
# the mean or above the heaviest bucket, whichever is more.

TOLERANCE = 0.1
ROUNDING = 1e-9
"""Sums of the same loads in another order may differ by a hair."""


def replica_loads(
    bucket_map: BucketMap, loads: Sequence[float], replicas: int
) -> tuple[float, ...]:
    """What each replica has to do.

    Example:
        >>> replica_loads((0, 1, 0), [5.0, 2.0, 1.0], 2)
        (6.0, 2.0)
    """
    found = [0.0] * replicas
    for owner, load in zip(bucket_map, loads, strict=True):
        found[owner] += load
    return tuple(found)


def least_bound(loads: Sequence[float], replicas: int) -> float:
    """What the replica with most to do has at least, under any map."""
    return max(sum(loads) / replicas, max(loads, default=0.0))


def rebalance_by_load(
    bucket_map: BucketMap, loads: Sequence[float], replicas: int, tolerance: float = TOLERANCE
) -> BucketMap:
    """A map in which no replica has much more to do than it must, with few buckets moved.

    - What the replica with most to do has never grows.
    - Where every replica gets within the bound, every move is needed: a bucket that went back would
      put the replica that it came from beyond the bound.
    - A map that comes out stays as it is when it is given in again with the same loads.

    Args:
        bucket_map: Owner of each bucket.
        loads: What each bucket takes, in any unit.
        replicas: How many there are.
        tolerance: How far above what must be a replica may be.

    Example:
        >>> rebalance_by_load((0, 0, 0, 1), [5.0, 3.0, 2.0, 2.0], 2)
        (0, 1, 0, 1)
    """
    bound = (1 + tolerance) * least_bound(loads, replicas)
    owners = list(bucket_map)
    while max(held := replica_loads(tuple(owners), loads, replicas)) > bound * (1 + ROUNDING):
        giver, taker = held.index(max(held)), held.index(min(held))
        bucket = _fitting(owners, loads, giver, held[giver] - bound, bound - held[taker])
        if bucket is None:
            return tuple(owners)
        owners[bucket] = taker
    return _without_unneeded(bucket_map, owners, loads, replicas, bound)


def _fitting(
    owners: Sequence[int], loads: Sequence[float], giver: int, excess: float, room: float
) -> int | None:
    """The bucket to give away; None if none would leave both sides better off.

    Best is the lightest one that is enough by itself and fits; else the heaviest one that fits, so
    that few have to move; else, where none fits, the one that leaves the two closest.
    """
    apart = excess + room
    most = apart * (1 - ROUNDING)  # a bucket as heavy as that would go back and forth
    useful = [b for b, o in enumerate(owners) if o == giver and 0 < loads[b] < most]
    fits = [b for b in useful if loads[b] <= room]
    enough = [b for b in fits if loads[b] >= excess]
    if enough:
        return min(enough, key=lambda b: (loads[b], b))
    if fits:
        return max(fits, key=lambda b: (loads[b], -b))
    return min(useful, key=lambda b: (abs(apart - 2 * loads[b]), b), default=None)


def _without_unneeded(
    before: BucketMap, owners: list[int], loads: Sequence[float], replicas: int, bound: float
) -> BucketMap:
    """Give back what the bound does not ask for, the lightest first."""
    moved = [b for b, owner in enumerate(owners) if owner != before[b]]
    held = list(replica_loads(tuple(owners), loads, replicas))
    again = True
    while again:  # what goes back elsewhere may make room
        again = False
        for bucket in sorted(moved, key=lambda b: (loads[b], b)):
            home = before[bucket]
            if owners[bucket] != home and held[home] + loads[bucket] <= bound:
                held[owners[bucket]] -= loads[bucket]
                held[home] += loads[bucket]
                owners[bucket], again = home, True
    return tuple(owners)
