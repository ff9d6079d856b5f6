"""Routing: which replica of the next region gets which tuples."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from anabranch.plan.plan import RegionPlan
from anabranch.plan.regions import Region, RegionKind
from anabranch.state.hashing import bucket_of, hash_columns
from anabranch.state.positions import Jumbo


class Router:
    """Sends jumbo tuples into one region under one plan."""

    def __init__(self, region: Region, plan: RegionPlan) -> None:
        """Route by the region's kind."""
        self._region, self.replicas = region, plan.replicas
        self._owner = np.array(plan.bucket_map, dtype=np.int64)
        self._turn = 0

    def route(self, jumbo: Jumbo | None, turn: int | None = None) -> list[Jumbo | None]:
        """One entry per replica. `turn` picks the replica where any would do."""
        shares: list[Jumbo | None] = [None] * self.replicas
        if jumbo is None or not (len(jumbo) or jumbo.marks):
            return shares
        if self._region.kind is RegionKind.SHARED:
            return [jumbo] * self.replicas
        if self._region.kind is RegionKind.PARTITIONED and self.replicas > 1:
            return self._by_bucket(jumbo)
        self._turn += 1
        shares[(self._turn if turn is None else turn) % self.replicas] = jumbo
        return shares

    def _by_bucket(self, jumbo: Jumbo) -> list[Jumbo | None]:
        """One sort by owner and one take, then slices without a copy."""
        keys = [jumbo.batch.column(n) for n in self._region.key]
        owners = self._owner[bucket_of(hash_columns(keys), self._region.buckets)]
        order = np.argsort(owners, kind="stable").astype(np.int64)
        dealt = Jumbo(jumbo.batch.take(pa.array(order)), jumbo.positions.take(order))
        stops = np.searchsorted(owners[order], np.arange(self.replicas), side="right")
        shares: list[Jumbo | None] = []
        start = 0
        for stop in stops.tolist():
            shares.append(dealt.slice(start, stop) if stop > start else None)
            start = stop
        if jumbo.marks:
            # With the owner of bucket 0, so that marks that wait move as that bucket's tuples do.
            keeper = int(self._owner[0])
            share = shares[keeper]
            bare = dealt.slice(0, 0) if share is None else share
            shares[keeper] = Jumbo(bare.batch, bare.positions, jumbo.marks)
        return shares
