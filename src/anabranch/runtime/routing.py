"""Routing: which replica of the next region gets which tuples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from anabranch.columns.hashing import bucket_of, hash_columns
from anabranch.planning.plan import RegionPlan
from anabranch.planning.regions import Region, RegionKind
from anabranch.runtime.bucket_loads import BucketLoads
from anabranch.runtime.ranges import Ranges
from anabranch.state.positions import Jumbo, Root


class Router:
    """Sends jumbo tuples into one region under one plan."""

    def __init__(self, region: Region, plan: RegionPlan, loads: BucketLoads | None = None) -> None:
        """Route by the region's kind; `loads` counts what is dealt out by bucket."""
        self._region, self.replicas, self._loads = region, plan.replicas, loads
        # NumPy sorts short integers by their digits, in a fraction of the time.
        short = plan.replicas <= np.iinfo(np.uint16).max
        self._owner = np.array(plan.bucket_map, dtype=np.uint16 if short else np.int64)
        self._ranges = Ranges.of(plan) if region.kind is RegionKind.SINK else None
        self._turn = 0

    def frontier(self, replica: int, frontier: Root) -> Root:
        """Return how far a stream that has reached a frontier has come for one replica."""
        return frontier if self._ranges is None else self._ranges.frontier(replica, frontier)

    def route(self, jumbo: Jumbo | None, turn: int | None = None) -> list[Jumbo | None]:
        """Return one entry per replica. `turn` picks the replica where any would do."""
        shares: list[Jumbo | None] = [None] * self.replicas
        if jumbo is None or not (len(jumbo) or jumbo.marks):
            return shares
        if self._region.kind is RegionKind.SHARED:
            return [jumbo] * self.replicas
        if self.replicas > 1 and self._ranges is not None:
            owners = self._ranges.owners(jumbo.positions.columns[0])
            counts = np.bincount(owners, minlength=self.replicas)
            return self._dealt(jumbo, owners, counts, marks_to=0)
        if self._region.kind is RegionKind.PARTITIONED and self.replicas > 1:
            return self._by_bucket(jumbo)
        if self._region.kind is RegionKind.CLOCK:
            turn = 0  # this replica has the memory: it gets what waits, and on Spark everything
        self._turn += 1
        shares[(self._turn if turn is None else turn) % self.replicas] = jumbo
        return shares

    def add_share(
        self, waiting: list[Jumbo | None], held: Sequence[Jumbo | None], replica: int
    ) -> None:
        """Add to what waits at a replica, by port, its share of what the gate of any one held."""
        for port, jumbo in enumerate(held):
            both = (waiting[port], self.route(jumbo, turn=0)[replica])
            parts = [each for each in both if each is not None]
            waiting[port] = Jumbo.concat(parts) if parts else None

    def _by_bucket(self, jumbo: Jumbo) -> list[Jumbo | None]:
        keys = [jumbo.batch.column(n) for n in self._region.key]
        hashes = hash_columns(keys)
        buckets = bucket_of(hashes, self._region.buckets)
        counts = np.bincount(buckets, minlength=self._region.buckets)
        if self._loads is not None:
            self._loads.note(counts, hashes, keys)
        sizes = np.bincount(self._owner, weights=counts, minlength=self.replicas)
        # Marks are with the owner of bucket 0, so that they move as its tuples do.
        return self._dealt(jumbo, self._owner[buckets], sizes, marks_to=int(self._owner[0]))

    def _dealt(
        self, jumbo: Jumbo, owners: npt.NDArray[Any], sizes: npt.NDArray[Any], marks_to: int
    ) -> list[Jumbo | None]:
        """Return the share of each owner: one sort and one take, then slices without a copy."""
        dealt = Jumbo(jumbo.batch, jumbo.positions)
        if np.count_nonzero(sizes) > 1:
            order = np.argsort(owners, kind="stable").astype(np.int64)
            dealt = dealt.take(order)
        stops = np.cumsum(sizes).astype(np.int64)
        shares: list[Jumbo | None] = []
        start = 0
        for stop in stops.tolist():
            shares.append(dealt.slice(start, stop) if stop > start else None)
            start = stop
        if jumbo.marks:
            share = shares[marks_to]
            bare = dealt.slice(0, 0) if share is None else share
            shares[marks_to] = Jumbo(bare.batch, bare.positions, jumbo.marks)
        return shares
