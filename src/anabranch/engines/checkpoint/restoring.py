"""Restoring a replica, its state and the tuples that wait at its gate, from files of any engine.

Both engines write the stores of a region as chains of state files. Their files differ in two ways:

- The Spark engine labels the chain of a region with its name. The local engine does so where the
  region is one pipeline; of several, each has a chain of its own, labelled with its steps as well.
- The local engine keeps what a gate holds in files with a label of their own, which every version
  replaces. So does the Spark engine at sinks, whose replicas share it anew under each plan. In
  other regions it keeps waiting tuples beside the stores, as sections of the same files.

Earlier versions of the Spark engine kept sections for sinks, too. Those are shared out like files
of gates, and no manifest names them any more once a batch has written the sink.

An engine that goes on from files of the other writes everything whole in its first version, and
names no earlier file in its manifest. So the two forms are never mixed within a version.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.columns.hashing import bucket_of, hash_columns
from anabranch.engines.checkpoint.state_files import GATE, Chain, needed, read_state
from anabranch.engines.checkpoint.storage import Storage
from anabranch.engines.jumbo_ipc import from_bytes, to_bytes
from anabranch.planning.plan import RegionPlan
from anabranch.planning.regions import Region, RegionKind
from anabranch.runtime.channel import Channel
from anabranch.runtime.routing import Router
from anabranch.state.positions import Jumbo

WAITING = "waiting tuples"
"""The section of what a gate could not release yet; its number is the port."""
PIPELINE = " | "
"""Stands in a label between a region and the steps of one of its pipelines."""

Waiting = list[Jumbo | None]
"""By port."""


def label_of(plan: RegionPlan, pipeline: int) -> str:
    """Return the label of the chain of files that a pipeline writes."""
    if len(plan.pipelines) == 1:
        return plan.region
    return plan.region + PIPELINE + " · ".join(plan.pipelines[pipeline])


def files_of(files: Chain, region: str) -> Chain:
    """Return the files that hold anything of a region."""
    labels = (region, region + GATE)
    return tuple(f for f in files if f.region in labels or f.region.startswith(region + PIPELINE))


def buckets_of(channel: Channel) -> tuple[int, ...]:
    """Return the buckets of a replica; a region that has none at all says 0."""
    several = channel.region.mapped or channel.region.kind is RegionKind.CLOCK
    return channel.buckets if several else (0,)


def restore(
    storage: Storage,
    files: Chain,
    channel: Channel,
    schemas: Sequence[pa.Schema],
    waiting: Waiting,
    *,
    plan: RegionPlan,
    missing: Collection[int],
) -> int:
    """Bring a replica's state back from files; returns how many bytes were read.

    Args:
        storage: The checkpoint.
        files: The files of the region, oldest first.
        channel: The replica, or one of its pipelines: it gets the stores of its own steps.
        schemas: By port of the region, the columns of what waits there.
        waiting: By port, what waits of the other buckets; what waits of these is added.
        plan: The plan that the replica is of.
        missing: The buckets to restore.
    """
    region, size = channel.region, 0
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
                merge(region, waiting, waited, buckets)
    router = Router(region, plan)
    if region.kind is RegionKind.SINK:
        sections_held, waiting[:] = list(waiting), [None] * len(waiting)
        router.add_share(waiting, sections_held, channel.replica)
    for file in (f for f in files if f.region == region.name + GATE):
        size += file.size
        held: Waiting = [None] * len(waiting)
        for (_, port), payload in read_state(storage, file).items():
            held[port] = from_bytes(payload, schemas[port])
        router.add_share(waiting, held, channel.replica)
    return size


def gate_sections(waiting: Sequence[Jumbo | None]) -> dict[tuple[str, int], bytes]:
    """Return the sections of a file that holds only what a gate could not release."""
    return {(WAITING, port): to_bytes(jumbo) for port, jumbo in enumerate(waiting)}


def merge(region: Region, waiting: Waiting, waited: Waiting, taken: Collection[int]) -> None:
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
            marks = jumbo.marks if 0 in taken else ()
            share = jumbo.where(_within(region, jumbo, taken))
            parts.append(Jumbo(share.batch, share.positions, marks))
        parts = [p for p in parts if len(p) or p.marks]
        waiting[port] = Jumbo.concat(parts) if parts else None


def _within(region: Region, jumbo: Jumbo, buckets: Collection[int]) -> npt.NDArray[np.bool_]:
    keys = [jumbo.batch.column(n) for n in region.key]
    return np.isin(bucket_of(hash_columns(keys), region.buckets), list(buckets))
