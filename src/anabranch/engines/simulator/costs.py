"""Costs: what a tuple takes in each thread of a region, in seconds.

Pipelined Fission's overheads as `planning/models/fission.py` has them: switching threads between
the pipelines of a region belongs to the pipelines; switching into and out of the region and
ordering the results of its replicas is *serial*: while it happens for one tuple of the region, its
replicas work on no other (eq. 8, 9). BriskStream's costs of distance are in `simulation.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import log2

from anabranch.planning.answer import RegionChoice
from anabranch.planning.bucket_map import BucketMap
from anabranch.planning.machine import Machine
from anabranch.planning.models.fission import selectivity
from anabranch.planning.profile import NANOSECONDS, Profile

SECONDS_PER_NS = 1e-9


@dataclass(frozen=True)
class RegionSpec:
    """A region as it shall be simulated.

    Attributes:
        name: Its name.
        choice: Pipelines, replicas, sockets.
        bucket_map: Owner of each bucket; empty where the plan does not say.
        queue_tuples: Tuples that the plan lets wait in front of a thread; None for no such limit.
    """

    name: str
    choice: RegionChoice
    bucket_map: BucketMap = ()
    queue_tuples: float | None = None


@dataclass(frozen=True)
class PipelineCosts:
    """One pipeline, per tuple that comes into it.

    Attributes:
        reach: Tuples that reach each of its operators.
        work_s: Time in its operators.
        switch_s: Time to take tuples from the pipeline before and to give them to the one behind.
        leaving: Tuples that come out of its last operator, over all streams.
        memory_bytes: Memory traffic.
    """

    reach: Mapping[str, float]
    work_s: float
    switch_s: float
    leaving: float
    memory_bytes: float


@dataclass(frozen=True)
class OutStream:
    """A stream that leaves a region: to which operator, tuples per tuple into the last pipeline."""

    consumer: str
    selectivity: float
    tuple_bytes: float


@dataclass(frozen=True)
class RegionCosts:
    """One region.

    Attributes:
        pipelines: Its pipelines.
        arriving: Tuples that come into each pipeline per tuple that comes into the region.
        take_in_s: Serial time to take a tuple in, and to order results, per tuple of the region.
        hand_out_s: Serial time to hand results on, per tuple of the region.
        streams: What leaves it.
    """

    pipelines: tuple[PipelineCosts, ...]
    arriving: tuple[float, ...]
    take_in_s: float
    hand_out_s: float
    streams: tuple[OutStream, ...]

    @property
    def serial_s(self) -> float:
        """Time per tuple of the region in which all replicas stand."""
        return self.take_in_s + self.hand_out_s


def seconds_per_unit(profile: Profile, machine: Machine) -> float:
    """What a cost of 1 in a profile takes on a machine; its unit is ns where nobody said."""
    clocks = profile.ghz / machine.ghz if profile.ghz and machine.ghz else 1.0
    return NANOSECONDS[profile.unit or "ns"] * SECONDS_PER_NS * clocks


def drifted(
    profile: Profile, costs: Mapping[str, float], selectivities: Mapping[str, float]
) -> Profile:
    """A profile whose operators cost and give so many times as much."""
    if not costs and not selectivities:
        return profile
    operators = tuple(
        replace(
            o,
            cost=o.cost * costs.get(o.name, 1.0),
            selectivity=o.selectivity * selectivities.get(o.name, 1.0),
        )
        for o in profile.operators
    )
    streams = tuple(
        replace(s, selectivity=s.selectivity * selectivities.get(s.producer, 1.0))
        for s in profile.streams
    )
    return replace(profile, operators=operators, streams=streams)


def region_costs(profile: Profile, region: RegionChoice, unit_s: float) -> RegionCosts:
    """What a region costs; one unit of the profile's costs takes `unit_s`.

    Example:
        >>> from anabranch.planning.profile import OperatorProfile, chain
        >>> profile = chain([OperatorProfile("parse", 2.0, 0.5), OperatorProfile("count", 6.0)])
        >>> found = region_costs(profile, RegionChoice((("parse",), ("count",))), unit_s=1.0)
        >>> [each.work_s for each in found.pipelines], found.arriving
        ([2.0, 6.0], (1.0, 0.5))
    """
    delta_s = profile.switching.thread_switch * unit_s
    last = len(region.pipelines) - 1
    pipelines, arriving, reaching = [], [], 1.0
    for number, names in enumerate(region.pipelines):
        found = _pipeline(profile, names, unit_s, region.replicas)
        taken = delta_s if number > 0 else 0.0
        given = delta_s * found.leaving if number < last else 0.0
        pipelines.append(replace(found, switch_s=taken + given))
        arriving.append(reaching)
        reaching *= found.leaving
    streams = _streams(profile, region.pipelines[-1])
    has_input = bool(profile.into(region.operators[0]))
    ordering_s = profile.switching.replication * log2(region.replicas) * unit_s
    leaving = sum(stream.selectivity for stream in streams)
    return RegionCosts(
        tuple(pipelines),
        tuple(arriving),
        ordering_s + (delta_s if has_input else 0.0),
        delta_s * arriving[-1] * leaving,
        streams,
    )


def _pipeline(
    profile: Profile, names: tuple[str, ...], unit_s: float, replicas: int
) -> PipelineCosts:
    reach: dict[str, float] = {}
    reaching = 1.0
    for name in names:
        reach[name] = reaching
        reaching *= selectivity(profile, name)
    work = sum(reach[name] * profile.by_name[name].cost_with(replicas) for name in names)
    memory = sum(reach[name] * profile.by_name[name].memory_bytes for name in names)
    return PipelineCosts(reach, work * unit_s, 0.0, reaching, memory)


def _streams(profile: Profile, last_pipeline: tuple[str, ...]) -> tuple[OutStream, ...]:
    reaching = 1.0
    for name in last_pipeline[:-1]:
        reaching *= selectivity(profile, name)
    return tuple(
        OutStream(s.consumer, reaching * s.selectivity, profile.by_name[s.consumer].tuple_bytes)
        for s in profile.out_of(last_pipeline[-1])
    )
