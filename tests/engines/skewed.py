"""A flow whose keys are not alike: all that is hot falls on one replica of two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

import anabranch as ab
from anabranch.adapt.policies.balance import Balance
from anabranch.adapt.policy import Cadence
from anabranch.columns.hashing import bucket_of, hash_columns
from anabranch.flow import Flow
from anabranch.io.collect_sink import CollectSink
from anabranch.planning.bucket_map import BucketMap, balanced
from anabranch.planning.plan import Plan

BUCKETS = 16
QUICK = Balance(pace=Cadence(settle=0, periods=1, most=1), least_busy=0.0)
"""The policy, as fast as it can be: every period decides or judges."""

SCHEMA = pa.schema([("k", pa.int64())])


@ab.partitioned(key="k", out="k: int64, n: int64")
def numbered(ctx):
    """Number the tuples of each key, and take some time for each."""
    for _ in ctx.tuples():
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        sum(range(1500))
        ctx.emit(k=ctx.key, n=ctx.state["n"])


def buckets(keys: Sequence[int]) -> list[int]:
    """Where keys belong."""
    return [int(b) for b in bucket_of(hash_columns([pa.array(keys, pa.int64())]), BUCKETS)]


def keys_of_replica_0(count: int) -> list[int]:
    """Keys in different buckets, all of which replica 0 of two owns to begin with."""
    found: dict[int, int] = {}
    for key, bucket in enumerate(buckets(range(1000))):
        if balanced(BUCKETS, 2)[bucket] == 0:
            found.setdefault(bucket, key)
    return list(found.values())[:count]


@dataclass
class Skewed:
    """Some keys have a part of the tuples, forty others the rest.

    Args:
        hot: Those keys.
        share: Their part, together.
        rows: How many tuples there are.
        rate_per_s: How many come in a second; None for as many as can be read.
    """

    hot: Sequence[int]
    share: float
    rows: int
    rate_per_s: float | None = None

    def make(self, rng: np.random.Generator, index: np.ndarray) -> dict[str, np.ndarray]:
        """The keys of some tuples."""
        others = rng.integers(10_000, 10_040, len(index))
        hot = rng.choice(np.array(self.hot), len(index))
        return {"k": np.where(rng.random(len(index)) < self.share, hot, others)}

    def flow(self) -> tuple[Flow, CollectSink]:
        """The flow, and where its results are."""
        flow, out = Flow("skewed", buckets=BUCKETS), ab.collect()
        source = ab.generate(self.make, SCHEMA, self.rows, self.rate_per_s)
        flow.source("keys", source).apply("numbered", numbered).sink("out", out)
        return flow, out

    def plan(self, flow: Flow, batch_rows: int) -> Plan:
        """Two replicas, with the buckets dealt out in turn."""
        plan = Plan.sequential(flow).with_replicas("numbered", 2)
        plan = plan.with_bucket_map("numbered", balanced(BUCKETS, 2))
        return plan.with_source("keys", batch_rows=batch_rows)

    def keys(self) -> list[int]:
        """The keys of all tuples."""
        chunk = ab.generate(self.make, SCHEMA, self.rows).read("generated", 0, self.rows)
        return [] if chunk is None else list(chunk.batch["k"].to_pylist())

    def expected(self) -> list[dict[str, int]]:
        """What one thread would write."""
        counts: dict[int, int] = {}
        found = []
        for key in self.keys():
            counts[key] = counts.get(key, 0) + 1
            found.append({"k": key, "n": counts[key]})
        return found

    def imbalance(self, bucket_map: BucketMap) -> float:
        """How many times the mean the replica with most tuples has."""
        owners = [bucket_map[bucket] for bucket in buckets(self.keys())]
        return max(owners.count(replica) for replica in (0, 1)) * 2 / len(owners)
