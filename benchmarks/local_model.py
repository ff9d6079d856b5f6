"""Throughput on the local engine: Pipelined Fission's model, with what is paid per jumbo tuple.

The paper's engine copies every tuple into a queue, so a thread switch costs each of them δ. Here
workers hand over jumbo tuples by reference or through shared memory: most of the price is one per
jumbo tuple, however many tuples it holds. A step that makes ten tuples of one makes a jumbo tuple
larger, and handing it on no dearer. So per tuple of the source every way from worker to worker
costs the same, and the number of tuples on it does not matter. Replication is told apart by kind:
stateless replicas take whole jumbo tuples in turn, partitioned ones get a part of each, dealt out
by key and merged again.

Everything else is the paper's: a region is as fast as its slowest pipeline, the program as its
slowest region, and all of them together have no more than the cores (eq. 2 to 14).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log2

from anabranch.engines.measuring.calibration import Calibrated
from anabranch.graph import StateKind
from anabranch.planning.answer import RegionChoice, kind_of
from anabranch.planning.models.fission import (
    Estimate,
    RegionTimes,
    pipeline_times,
    speedup,
    together,
    waiting,
)
from anabranch.planning.profile import NANOSECONDS, Overheads, Profile


@dataclass(frozen=True)
class LocalCosts:
    """What workers cost, in nanoseconds.

    Attributes:
        handover_ns: Per jumbo tuple, for the worker that gives it and again for the one that takes.
        replication_ns: Per tuple into stateless replicas, log2(replicas) times.
        keyed_replication_ns: The same of partitioned ones.
        batch_rows: Tuples of the source in a jumbo tuple.
    """

    handover_ns: float
    replication_ns: float
    keyed_replication_ns: float
    batch_rows: int


def local_costs(found: Calibrated, batch_rows: int) -> LocalCosts:
    """What the local engine's model takes."""
    copy, keyed_copy = (max(0.0, each[1]) for each in (found.stateless, found.partitioned))
    return LocalCosts(found.overheads.thread_switch * batch_rows, copy, keyed_copy, batch_rows)


def estimate(
    profile: Profile, regions: Sequence[RegionChoice], cores: float, costs: LocalCosts
) -> Estimate:
    """What a plan promises on so many cores.

    Example:
        >>> from anabranch.planning.profile import OperatorProfile, chain
        >>> split = OperatorProfile("split", 2.0, selectivity=10.0)
        >>> profile = chain([split, OperatorProfile("count", 0.1)], unit="us")
        >>> costs = LocalCosts(500_000.0, 0.0, 0.0, batch_rows=1000)
        >>> plan = [RegionChoice((("split",), ("count",)))]
        >>> round(1 / estimate(profile, plan, 2, costs).throughput, 3)
        2.5
    """
    bare = replace(profile, overheads=Overheads())
    return together([_region_times(bare, region, costs) for region in regions], cores)


def _region_times(profile: Profile, region: RegionChoice, costs: LocalCosts) -> RegionTimes:
    unit_ns = NANOSECONDS[profile.unit or "ns"]
    visits = profile.visits[region.operators[0]]
    kind = kind_of([profile.by_name[name] for name in region.operators])
    keyed = kind in (StateKind.PARTITIONED, StateKind.SHARED)
    handover = costs.handover_ns / costs.batch_rows / unit_ns
    copying = costs.keyed_replication_ns if keyed else costs.replication_ns
    ordering = visits * copying / unit_ns * log2(region.replicas)
    ways = _ways(profile, region)
    # Replicas with buckets each handle a part of every jumbo tuple; the others take turns.
    sharing = speedup(profile, region)
    own = [way * handover / (1.0 if keyed else sharing) for way in ways]
    needs = [visits * time for time in pipeline_times(profile, region.pipelines)]
    turns = [own[n] + need / sharing for n, need in enumerate(needs)]
    slowest = max(reversed(range(len(turns))), key=lambda number: turns[number])
    switching = sum(ways) * handover * (region.replicas if keyed else 1)
    working = sum(needs) - visits * waiting(profile, region.operators)
    return RegionTimes(region, turns[slowest] + ordering, working + switching + ordering, slowest)


def _ways(profile: Profile, region: RegionChoice) -> list[int]:
    """For each pipeline, the ways on which it takes and gives jumbo tuples."""
    last = len(region.pipelines) - 1
    into, out_of = profile.into(region.operators[0]), profile.out_of(region.operators[-1])
    return [
        (min(1, len(into)) if number == 0 else 1) + (len(out_of) if number == last else 1)
        for number in range(last + 1)
    ]
