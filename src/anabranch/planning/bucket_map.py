"""Bucket maps: which replica owns which bucket, changed by moving as few buckets as possible."""

from __future__ import annotations

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
