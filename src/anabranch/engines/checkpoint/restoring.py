"""Restoring a replica, its state and the tuples that wait at its gate, from files of any engine.

Both engines write the stores of a region as chains of state files. Their files differ in two ways:

- The Spark engine labels the chain of a region with its name. The local engine does so where the
  region is one pipeline; of several, each has a chain of its own, labelled with its steps as well.
- The Spark engine keeps waiting tuples beside the stores, as sections of the same files. The local
  engine keeps what a gate holds in files with a label of their own, which every version replaces.

An engine that goes on from files of the other writes everything whole in its first version, and
names no earlier file in its manifest. So the two forms are never mixed within a version.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.columns.hashing import bucket_of, hash_columns
from anabranch.engines.checkpoint.state_files import Chain, needed, read_state
from anabranch.engines.checkpoint.storage import Storage
from anabranch.engines.jumbo_ipc import from_bytes
from anabranch.planning.plan import RegionPlan
from anabranch.planning.regions import Region, RegionKind
from anabranch.runtime.channel import Channel
from anabranch.state.positions import Jumbo

WAITING = "waiting tuples"
"""The section of what a gate could not release yet; its number is the port."""
GATE = " (waiting)"
"""Stands in a label behind a region: the files hold what its gates could not release."""
PIPELINE = " | "
"""Stands in a label between a region and the steps of one of its pipelines."""

Waiting = list[Jumbo | None]
"""By port."""


def label_of(plan: RegionPlan, pipeline: int) -> str:
    """The label of the chain of files that a pipeline writes."""
    if len(plan.pipelines) == 1:
        return plan.region
    return plan.region + PIPELINE + " · ".join(plan.pipelines[pipeline])


def files_of(files: Chain, region: str) -> Chain:
    """The files that hold anything of a region."""
    labels = (region, region + GATE)
    return tuple(f for f in files if f.region in labels or f.region.startswith(region + PIPELINE))


def buckets_of(channel: Channel) -> tuple[int, ...]:
    """The buckets of a replica; a region that has none at all says 0."""
    return channel.buckets if channel.region.mapped else (0,)


def restore(
    storage: Storage,
    files: Chain,
    channel: Channel,
    schemas: Sequence[pa.Schema],
    waiting: Waiting,
    *,
    replica: int,
    missing: Collection[int],
) -> int:
    """Bring a replica's state back from files; returns how many bytes were read.

    Args:
        storage: The checkpoint.
        files: The files of the region, oldest first.
        channel: The replica, or one of its pipelines: it gets the stores of its own steps.
        schemas: By port of the region, the columns of what waits there.
        waiting: By port, what waits of the other buckets; what waits of these is added.
        replica: The number of the replica.
        missing: The buckets to restore.
    """
    region, mine = channel.region, set(buckets_of(channel))
    size = 0
    labels = dict.fromkeys(f.region for f in files if f.region != region.name + GATE)
    for label in labels:
        for file, buckets in needed(files, label, missing):
            sections = read_state(storage, file)
            size += file.size
            waited: Waiting = [None] * len(waiting)
            for (step, number), payload in sections.items():
                if step == WAITING:
                    waited[number] = from_bytes(payload, schemas[number])
                elif step in channel.kernels:
                    store = channel.kernels[step].stores[number]
                    (store.restore if file.whole else store.replay)(payload, buckets)
            if file.whole or any(step == WAITING for step, _ in sections):
                merge(region, waiting, waited, buckets, mine)
    for file in files:
        if file.region == region.name + GATE and missing:
            size += file.size
            for (_, port), payload in read_state(storage, file).items():
                jumbo = _share(region, from_bytes(payload, schemas[port]), missing, replica)
                held = waiting[port]
                if jumbo is not None:
                    waiting[port] = jumbo if held is None else Jumbo.concat([held, jumbo])
    return size


def merge(
    region: Region, waiting: Waiting, waited: Waiting, taken: Collection[int], mine: set[int]
) -> None:
    """Replace what waits for some buckets by what a replica of an earlier version left waiting."""
    for port, jumbo in enumerate(waited):
        if region.kind is not RegionKind.PARTITIONED:
            waiting[port] = jumbo  # of one replica, or the same for all replicas
            continue
        kept = [j for j in (waiting[port],) if j is not None]
        if 0 in taken:  # marks are with bucket 0
            kept = [Jumbo(j.batch, j.positions) for j in kept]
        parts = [j.where(~_within(region, j, taken)) for j in kept]
        if jumbo is not None:
            parts.append(_of_buckets(region, jumbo, taken, mine))
        parts = [p for p in parts if len(p) or p.marks]
        waiting[port] = Jumbo.concat(parts) if parts else None


def _share(
    region: Region, jumbo: Jumbo | None, buckets: Collection[int], replica: int
) -> Jumbo | None:
    """The tuples that wait for some buckets, of what one gate of the local engine held."""
    if jumbo is None or region.kind is RegionKind.SHARED:
        return jumbo  # one gate's file stands for all: they hold the same
    if region.kind is not RegionKind.PARTITIONED:
        return jumbo if replica == 0 else None
    share = _of_buckets(region, jumbo, buckets, set(buckets))
    return share if len(share) or share.marks else None


def _of_buckets(region: Region, jumbo: Jumbo, taken: Collection[int], mine: set[int]) -> Jumbo:
    marks = jumbo.marks if 0 in taken else ()
    share = jumbo.where(_within(region, jumbo, set(taken) & mine))
    return Jumbo(share.batch, share.positions, marks)


def _within(region: Region, jumbo: Jumbo, buckets: Collection[int]) -> npt.NDArray[np.bool_]:
    keys = [jumbo.batch.column(n) for n in region.key]
    return np.isin(bucket_of(hash_columns(keys), region.buckets), list(buckets))
