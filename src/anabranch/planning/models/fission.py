"""Throughput and utilization of pipelines and replicas.

Pipelined Fission (Gedik, Özsema, Öztürk), §3.2, equations 1 to 14.

The paper's recursions (3, 11) model back-pressure in a chain: everybody is as slow as the slowest,
relative to how many tuples reach them. So the program's rate is 1 over the greatest time that any
region needs per tuple of the source; this form holds for any graph of regions and is what stands
here. In a graph, the tuples that reach an operator are those of all its streams, and the output
half of a thread switch is paid for each stream that leaves a region.

Deviation: an operator may cost more where it has several replicas (`replicas_cost`).

Readings: the sums of eq. 14 run over all regions and pipelines; eq. 13 scales down only, when there
is more work than cores. A partitioned run is routed by what its keys have in common. Neighbours
with one replica may be two regions; the paper would merge them, and add the switches at the ends of
the merged one to its bottleneck, which costs where switches are dear (`docs/decisions/0022`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2

from anabranch.errors import PlanError, Subject
from anabranch.planning.answer import RegionChoice, most_speedup, replicable
from anabranch.planning.profile import Profile


@dataclass(frozen=True)
class RegionTimes:
    """What a region needs per tuple of the application.

    Attributes:
        region: The region.
        turn: Time between two tuples at its greatest rate: the inverse of eq. 9, by visits.
        work: CPU time, over all its threads: its term of eq. 14.
        slowest_pipeline: Number of the pipeline that decides its rate.
    """

    region: RegionChoice
    turn: float
    work: float
    slowest_pipeline: int


@dataclass(frozen=True)
class Estimate:
    """What the model says of a plan.

    Attributes:
        unbounded: Throughput if every thread had a core (eq. 12).
        throughput: Throughput on the cores that there are (eq. 13).
        utilization: Cores at work at that throughput.
        regions: Times of each region.
    """

    unbounded: float
    throughput: float
    utilization: float
    regions: tuple[RegionTimes, ...]

    @property
    def bottleneck(self) -> RegionTimes:
        """The region that decides the unbounded rate; of equals the last, as in §4.3."""
        return max(reversed(self.regions), key=lambda times: times.turn)


def estimate(profile: Profile, regions: Sequence[RegionChoice], cores: float) -> Estimate:
    """What a plan promises on so many cores.

    Example:
        >>> from anabranch.planning.profile import OperatorProfile, chain
        >>> profile = chain([OperatorProfile("parse", 2.0), OperatorProfile("count", 1.0)])
        >>> found = estimate(profile, [RegionChoice((("parse",), ("count",)))], cores=2)
        >>> found.throughput, found.utilization
        (0.5, 1.5)
    """
    return together([region_times(profile, region) for region in regions], cores)


def together(times: Sequence[RegionTimes], cores: float) -> Estimate:
    """Equations 12 to 14: the slowest region and the work of all bound the rate."""
    turn = max(each.turn for each in times)
    work = sum(each.work for each in times)
    throughput = min(1 / turn, cores / work)
    return Estimate(1 / turn, throughput, throughput * work, tuple(times))


def region_times(profile: Profile, region: RegionChoice) -> RegionTimes:
    """Equations 2 to 10 for one region."""
    overheads = profile.switching
    visits = profile.visits[region.operators[0]]
    ordering = overheads.replication * log2(region.replicas)
    switching = overheads.thread_switch * crossings(profile, region)
    needs = pipeline_times(profile, region.pipelines)
    slowest = max(reversed(range(len(needs))), key=lambda number: needs[number])
    further = replicas_cost(profile, region.operators) if region.replicas > 1 else 0.0
    turn = switching + ordering + (needs[slowest] + further) / speedup(profile, region)
    working = sum(needs) + further - waiting(profile, region.operators)
    return RegionTimes(region, visits * turn, visits * (switching + ordering + working), slowest)


def pipeline_times(profile: Profile, pipelines: Sequence[Sequence[str]]) -> list[float]:
    """Time of each pipeline of a region per tuple that comes into the region (eq. 2, 4, 5)."""
    delta = profile.switching.thread_switch
    times: list[float] = []
    arriving = 1.0
    for number, pipeline in enumerate(pipelines):
        time = delta * arriving if number > 0 else 0.0
        for name in pipeline:
            time += arriving * profile.by_name[name].held
            arriving *= selectivity(profile, name)
        if number < len(pipelines) - 1:
            time += delta * arriving
        times.append(time)
    return times


def waiting(profile: Profile, steps: Sequence[str]) -> float:
    """Time per tuple into a run that its threads are taken and no core is.

    Example:
        >>> from anabranch.planning.profile import OperatorProfile, chain
        >>> cut = OperatorProfile("cut", 1.0, selectivity=3.0)
        >>> waiting(chain([cut, OperatorProfile("ask", 1.0, wait=5.0)]), ["cut", "ask"])
        15.0
    """
    time, arriving = 0.0, 1.0
    for name in steps:
        time += arriving * profile.by_name[name].wait
        arriving *= selectivity(profile, name)
    return time


def replicas_cost(profile: Profile, steps: Sequence[str]) -> float:
    """Time per tuple into a run that it costs more with several replicas; they share it.

    Operators that have such a cost are regions of their own in flows, so the model need not say in
    which pipeline it is paid: it counts with the slowest.

    Example:
        >>> from anabranch.planning.profile import OperatorProfile, chain
        >>> replicas_cost(chain([OperatorProfile("clock", 4.0, replicas_cost=0.25)]), ["clock"])
        1.0
    """
    time, arriving = 0.0, 1.0
    for name in steps:
        operator = profile.by_name[name]
        time += arriving * (operator.cost_with(2) - operator.cost)
        arriving *= selectivity(profile, name)
    return time


def selectivity(profile: Profile, name: str) -> float:
    """Tuples that leave an operator per tuple that comes in, over all its streams."""
    streams = profile.out_of(name)
    if not streams:
        return profile.by_name[name].selectivity
    return sum(stream.selectivity for stream in streams)


def crossings(profile: Profile, region: RegionChoice) -> float:
    """Switches into and out of a region per tuple that comes in: eq. 10 without its δ."""
    first, last = region.operators[0], region.operators[-1]
    inside = 1.0
    for name in region.operators[:-1]:
        inside *= selectivity(profile, name)
    leaving = sum(stream.selectivity for stream in profile.out_of(last))
    return (1.0 if profile.into(first) else 0.0) + inside * leaving


def speedup(profile: Profile, region: RegionChoice) -> float:
    """How much faster replicas make a region, were they free (eq. 7)."""
    return min(
        float(region.replicas), most_speedup([profile.by_name[name] for name in region.operators])
    )


def check(profile: Profile, regions: Sequence[RegionChoice]) -> None:
    """Raise unless the regions are runs of the profile, cover it once, and may be replicated so."""
    placed = sorted(name for region in regions for name in region.operators)
    if placed != sorted(profile.by_name):
        raise PlanError(
            Subject("plan"), f"each of {sorted(profile.by_name)} once", str(placed), "place all"
        )
    for region in regions:
        names = region.operators
        if not any(names == c[i : i + len(names)] for c in profile.chains for i in range(len(c))):
            raise PlanError(
                Subject("plan"), "runs with one way on and in", str(list(names)), "cut them"
            )
        members = [profile.by_name[name] for name in names]
        if region.replicas < 1 or (region.replicas > 1 and not replicable(members)):
            raise PlanError(
                Subject("region", names[0]),
                "replicas that its state allows",
                str(region.replicas),
                "use 1",
            )
