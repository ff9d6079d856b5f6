"""Shares: which part of a region's tuples each replica gets.

Keys are not alike. A key belongs to a bucket for life and a bucket to a replica of the plan, so the
hottest bucket bounds what replicas can do, and where buckets sit decides who works most. Nobody
can tell the replicas of a stateless region apart: whoever is free takes the next jumbo tuple.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from anabranch.graph import StateKind
from anabranch.planning.answer import kind_of, most_replicas
from anabranch.planning.bucket_map import BucketMap, balanced
from anabranch.planning.profile import OperatorProfile

Floats: TypeAlias = NDArray[np.float64]

BUCKETS = 256
KEYS = 10_000


@dataclass(frozen=True)
class KeyLoads:
    """How the tuples of a region fall on its keys.

    Attributes:
        buckets: Part of the tuples that each bucket gets.
        hottest: Part of the tuples that the most frequent key has; None if keys are alike.
    """

    buckets: Floats
    hottest: float | None


@lru_cache(maxsize=256)
def zipf_weights(buckets: int, keys: int, exponent: float, seed: int) -> Floats:
    """Load of each bucket when the n-th most frequent key comes n^-exponent times as often.

    Example:
        >>> weights = zipf_weights(4, keys=1, exponent=1.0, seed=0)
        >>> sorted(float(w) for w in weights)
        [0.0, 0.0, 0.0, 1.0]
    """
    frequency = np.arange(1, keys + 1, dtype=np.float64) ** -exponent
    homes = np.random.default_rng(seed).integers(0, buckets, keys)
    weights = np.bincount(homes, weights=frequency, minlength=buckets)
    found: Floats = weights / weights.sum()
    found.setflags(write=False)  # whoever asks again gets the same
    return found


@lru_cache(maxsize=256)
def hot_key_weights(buckets: int, share: float, keys: int | None, seed: int) -> Floats:
    """Load of each bucket when one key has a share and the others are alike.

    Example:
        >>> weights = hot_key_weights(64, share=0.25, keys=4, seed=0)
        >>> sorted(float(w) for w in weights if w)
        [0.25, 0.25, 0.25, 0.25]
    """
    draw = np.random.default_rng(seed)
    others = (keys or KEYS) - 1
    homes = draw.integers(0, buckets, others + 1)
    each = np.full(others + 1, (1 - share) / others if others else 0.0)
    each[0] = share if others else 1.0
    found: Floats = np.bincount(homes, weights=each, minlength=buckets).astype(np.float64)
    found.setflags(write=False)
    return found


def fixed_shares(
    operators: Sequence[OperatorProfile],
    replicas: int,
    bucket_map: BucketMap,
    skew: Mapping[str, float],
    seed: int,
) -> Floats | None:
    """What each replica of a region gets; None where whoever is free takes the next.

    Without a bucket map and without anything known of the keys, replicas get the same, up to as
    many as there is work for; without a map but with skew, buckets are dealt out in turn.
    """
    kind = kind_of(operators)
    if kind is StateKind.STATELESS:
        return None
    weights = _weights(operators, len(bucket_map) or BUCKETS, skew, seed)
    most = useful(operators, replicas)
    if weights is None and (not bucket_map or most < replicas):
        return _even(replicas, most)
    owners = bucket_map or balanced(BUCKETS, replicas)
    loads = np.full(len(owners), 1 / len(owners)) if weights is None else weights
    return np.bincount(owners, weights=loads, minlength=replicas).astype(np.float64)


def key_loads(
    operators: Sequence[OperatorProfile], buckets: int, skew: Mapping[str, float], seed: int
) -> KeyLoads | None:
    """How the tuples of a region fall on its keys; None where tuples are not dealt out by key."""
    if kind_of(operators) is not StateKind.PARTITIONED or not buckets:
        return None
    weights = _weights(operators, buckets, skew, seed)
    even: Floats = np.full(buckets, 1 / buckets)
    return KeyLoads(even if weights is None else weights, _hottest(operators, skew))


def useful(operators: Sequence[OperatorProfile], replicas: int) -> int:
    """How many replicas have something to do (Pipelined Fission, eq. 7)."""
    bound = most_replicas(operators)
    return replicas if bound is None else min(replicas, bound)


def free_shares(speeds: Floats, most: int) -> Floats:
    """What each replica takes when whoever is free takes the next, of so many at most."""
    taking = np.where(np.arange(len(speeds)) < most, speeds, 0.0)
    found: Floats = taking / taking.sum()
    return found


def _even(replicas: int, most: int) -> Floats:
    return np.where(np.arange(replicas) < most, 1 / most, 0.0)


def _hottest(operators: Sequence[OperatorProfile], skew: Mapping[str, float]) -> float | None:
    """Part of the most frequent key, by the operator that `_weights` goes by."""
    for operator in operators:
        if operator.name in skew:
            ranks = np.arange(1, (operator.keys or KEYS) + 1, dtype=np.float64)
            return float(1 / (ranks ** -skew[operator.name]).sum())
        if operator.state is StateKind.PARTITIONED and operator.hottest_key_share is not None:
            return operator.hottest_key_share
    return None


def _weights(
    operators: Sequence[OperatorProfile], buckets: int, skew: Mapping[str, float], seed: int
) -> Floats | None:
    """Loads of buckets by the first operator of which something is known."""
    for operator in operators:
        if operator.name in skew:
            return zipf_weights(buckets, operator.keys or KEYS, skew[operator.name], seed)
        if operator.state is StateKind.PARTITIONED and operator.hottest_key_share is not None:
            return hot_key_weights(buckets, operator.hottest_key_share, operator.keys, seed)
    return None
